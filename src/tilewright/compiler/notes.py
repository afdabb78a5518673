"""Notes for profilers and debuggers: operations and bytes of each step, and the values in the workspace.

The notes give a machine-independent estimate of the time of each step, which determines the places where entry
functions check for pending signals. The estimate assumes a slow core, so that long programs do check; a superfluous
check costs 30 ns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tilewright.base.types import DataType
from tilewright.relay.analysis.operation_counts import only_moves, operations, operator_names, product_type
from tilewright.relay.expr import Function
from tilewright.relay.op.external import ExternalCall
from tilewright.relay.transform.plan_memory import Location, MemoryPlan, MemorySpace, PlanStep
from tilewright.runtime.manifest import Held
from tilewright.runtime.notes import Note
from tilewright.runtime.program import HostValue, NativeStep, Step


def notes_of(plan: MemoryPlan, value: Callable[[Location], HostValue]) -> tuple[Note, ...]:
    """Return a note for each step of a plan; `value` gives the place of a plan's array in the program. Dynamic sizes
    count as their samples."""
    return tuple(_note(s, value) for s in plan.steps)


def arena_of(plan: MemoryPlan) -> tuple[Held, ...]:
    """Return the values in the workspace; none for dynamic sizes."""
    return tuple(Held(p.offset, p.nbytes, p.birth, p.death) for p in plan.pieces if p.offset >= 0)


def _note(s: PlanStep, value: Callable[[Location], HostValue]) -> Note:
    made = [loc for loc in s.outputs if not loc.type.dtype.is_object]
    given = [loc for loc in s.inputs if not loc.type.dtype.is_object]
    function = s.call.op if s.call is not None else None
    written = sum(int(loc.type.nbytes) for loc in made)
    most = written if not isinstance(function, Function) or only_moves(function) else None
    """Largest number of bytes read from one argument if elements are only moved."""

    def total(where: Callable[[Location], bool]) -> int:
        sizes = (int(loc.type.nbytes) for loc in given if where(loc))
        return sum(n if most is None else min(most, n) for n in sizes)

    return Note(
        operators=operator_names(function) if isinstance(function, Function) else ("copy",),
        operations=int(operations(function)) if isinstance(function, Function) else 0,
        dtype=product_type(function) if isinstance(function, Function) else made[0].type.dtype if made
        else DataType("float32"),
        reads=total(lambda loc: loc.place is not MemorySpace.CONSTANT),
        constants=total(lambda loc: loc.place is MemorySpace.CONSTANT),
        outputs=tuple(map(value, made)))


SPAN: Final = 2_000_000
"""Estimated nanoseconds between two checks."""
LONG: Final = 10_000_000
"""Estimated nanoseconds of the shortest interruptible run."""
_RATE: Final = 8
"""Operations, and bytes, per nanosecond."""


def step_times(notes: Sequence[Note]) -> list[int]:
    """Return the estimated nanoseconds of each step; `SPAN` for a loop program, whose cost is not known."""
    return [SPAN if ExternalCall.name in n.operators else int(n.operations + n.nbytes) // _RATE for n in notes]


def looks_of(steps: Sequence[Step], times: Sequence[int], parts: int) -> frozenset[int] | None:
    """Return the numbers of the steps after which a run checks for signals; None for a program of short runs, which
    does not.

    Steps in Python check themselves.
    """
    return None if parts * sum(times) < LONG else spaced_looks(steps, times)


def spaced_looks(steps: Sequence[Step], times: Sequence[int]) -> frozenset[int]:
    """Return the numbers of the steps that end intervals of at least `SPAN` nanoseconds; the last step ends none."""
    found, total = [], 0
    for k, (step, time) in enumerate(zip(steps, times, strict=True)):
        total = total + time if isinstance(step, NativeStep) else 0
        if total >= SPAN and k + 1 < len(steps):
            found.append(k)
            total = 0
    return frozenset(found)
