"""Loop programs and tensor expressions under random schedules: the scheduled program, interpreted and native, against
the unscheduled one.

All values are whole numbers and small, so results have to be equal.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

import random_schedules
import tilewright
from fuzz import te_programs
from fuzz.outcomes import AGREES, REFUSED, WRONG, Array, Draw, Outcome, message_kind, raised
from tilewright import te, tir
from tilewright.base.errors import ScheduleError
from tilewright.ir.module import IRModule
from tilewright.te.resolve import schedule_func
from tilewright.tir.interpreter import run
from tilewright.tir.stmt import PrimFunc
from tilewright.tir.transform.lower_blocks import lower_blocks
from tilewright.tir.transform.pipeline import lower_loops

Step = tuple[str, int]
TIR_STEPS: Final = {**random_schedules.STEPS, **random_schedules.MARKS}
_TEST: Final = '''"""{about}"""

from __future__ import annotations

from fuzz.outcomes import AGREES, REFUSED, silent
from fuzz.schedules_kind import Case, SchedulesKind

PROGRAM = """
PROGRAM_TEXT
"""
"""The program before its steps; for the reader."""
CASE = CASE_TEXT


def test_found() -> None:
    outcome = SchedulesKind().run(CASE, silent)
    assert outcome.category in (AGREES, REFUSED), outcome.detail
'''


@dataclass(frozen=True)
class Case:
    """The seed of a program of a language ("tir" or "te"), and the steps of its schedule with the seeds of their
    choices."""

    language: str
    program: int
    steps: tuple[Step, ...]


class SchedulesKind:
    """Random schedules of random programs."""

    name = "schedules"

    def prepare(self) -> None:
        """Nothing has to be read."""

    def draw(self, draw: Draw) -> Case:
        def some(names: Sequence[str], most: int) -> tuple[Step, ...]:
            return tuple((draw.pick(names), draw.random.randrange(1 << 30)) for _ in range(draw.between(0, most)))

        program = draw.random.randrange(1 << 30)
        if draw.chance(0.6):
            return Case(
                "tir", program,
                some([*random_schedules.STEPS], 14) + some([n for n in random_schedules.MARKS if n != "bind"], 4)
            )
        late = [n for n in te_programs.STEPS if n not in te_programs.EARLY]
        return Case("te", program, some(te_programs.EARLY, 2) + some(late, 6))

    def run(self, case: Case, phase: Callable[[str], None]) -> Outcome:
        phase("reference")
        given, want, plain = original(case)
        phase("ours")
        try:
            scheduled = scheduled_func(case)
            lowered = lower_blocks(scheduled)
            flat = lower_loops(lowered)
        except Exception as error:  # each kind of exception has its place in the report
            outcome = raised(error)
            return replace(outcome, label=message_kind(error)) if outcome.category == REFUSED else outcome
        said = self._differences(case, plain, lowered, flat, given, want)
        if isinstance(said, Outcome):
            return said
        if said:
            kind = next(iter(said))
            label = f"{case.language} {kind}: {' '.join(sorted({n for n, _ in case.steps}))}"
            return Outcome(WRONG, label[:120], f"{said}\n{scheduled}", ours=(str(said),))
        return Outcome(AGREES)

    def _differences(
        self, case: Case, plain: PrimFunc, lowered: PrimFunc, flat: PrimFunc, given: list[Array], want: list[Array]
    ) -> dict[str, str] | Outcome:
        """Which ways to run the scheduled program, and the unscheduled one natively, give other results."""
        said: dict[str, str] = {}
        for way, program in (("interpreted", lowered), ("interpreted flat", flat)):
            got = [a.copy() if program is lowered else a.reshape(-1).copy() for a in given]
            try:
                run(program, got)
            except Exception as error:  # as above
                return raised(error)
            said.update(apart(way, got, want))
        try:
            module = tilewright.build(IRModule({"plain": lower_blocks(plain), "scheduled": lowered}), target="llvm")
            for name in ("plain", "scheduled"):
                got = [a.copy() for a in given]
                module[name](*got)
                said.update(apart(f"native {name}", got, want))
        except Exception as error:  # as above
            return raised(error)
        return said

    def smaller(self, case: Case) -> Iterator[Case]:
        n = len(case.steps)
        for size in (n // 2, n // 4, 1):
            for at in range(0, n, max(1, size)) if size else ():
                yield replace(case, steps=case.steps[:at] + case.steps[at + size:])

    def test(self, case: Case, outcome: Outcome) -> str:
        program = original(case)[2]
        return _TEST.replace("CASE_TEXT", repr(case)).replace("PROGRAM_TEXT", str(program).replace("\\", "\\\\"))


def original(case: Case) -> tuple[list[Array], list[Array], PrimFunc]:
    """The arrays of a program, what they hold afterwards by the interpreter, and the program without a schedule."""
    if case.language == "tir":
        func = random_schedules.Program(case.program).func()
        given = random_schedules.arrays(func, case.program)
    else:
        made = te_programs.Expressions(case.program)
        func = schedule_func(te.create_schedule(made.result.op), [*made.parameters, made.result])
        given = random_schedules.arrays(func, case.program)
    want = [a.copy() for a in given]
    run(lower_blocks(func) if case.language == "te" else func, want)
    return given, want, func


def scheduled_func(case: Case) -> PrimFunc:
    """The program after those of its steps that are accepted."""
    if case.language == "tir":
        sch = tir.Schedule(random_schedules.Program(case.program).func())
        for name, seed in case.steps:
            random_schedules.attempt(sch, name, random.Random(seed), TIR_STEPS)
        return sch.mod["main"]  # type: ignore[no-any-return]
    made = te_programs.Expressions(case.program)
    s = te.create_schedule(made.result.op)
    for name, seed in case.steps:
        try:
            te_programs.STEPS[name](s, random.Random(seed))
        except ScheduleError:
            continue
    return schedule_func(s, [*made.parameters, made.result])


def apart(way: str, got: Sequence[Array], want: Sequence[Array]) -> dict[str, str]:
    """What differs, by the way to run a program."""
    for k, (a, b) in enumerate(zip(got, want, strict=True)):
        wrong = a.reshape(b.shape) != b
        if wrong.any():
            at = np.unravel_index(int(np.argmax(wrong)), b.shape)
            place = [int(i) for i in at]
            return {
                way: f"array {k}: {int(wrong.sum())} of {b.size} differ, at {place}: {a.reshape(b.shape)[at]}, "
                f"expected {b[at]}"
            }
    return {}
