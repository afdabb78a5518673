"""Finds the first stage between a kernel and its machine code that changes the results.

    compute -> prepack -> schedule -> lower_blocks -> each loop pass -> codegen

Every stage but the last produces a loop program, which the loop interpreter runs on the inputs of the case. It is slow,
so cases are shrunk first. `compute` are the tensor expressions of the operators, `prepack` the constants packed at
compile time. If the last loop pass is right and the machine code is wrong, the fault is in `codegen`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tilewright.backends.targets.target import Target
from tilewright.compiler.kernel import Parts, parts_of
from tilewright.driver.diagnosis.case import Array, Case
from tilewright.driver.diagnosis.ways import (
    Settings,
    Trail,
    Verdict,
    as_kernel,
    compared,
    raised,
    reference,
    tolerance_for,
)
from tilewright.relay.expr import Call, Constant, Function
from tilewright.tir import interpreter
from tilewright.tir.stmt import For, PrimFunc, Stmt, bodies
from tilewright.tir.transform.lower_blocks import lower_blocks
from tilewright.tir.transform.pipeline import LoopPass

COMPUTE, PREPACK, SCHEDULE, LOWER, CODEGEN = "compute", "prepack", "schedule", "lower_blocks", "codegen"
LOWERING: Final = "lowering"
"""The stage reported if the loops are too many to be interpreted: between `compute` and `codegen`."""
MOST_TRIPS: Final = 40_000
"""Largest number of iterations that are interpreted: a few seconds."""


@dataclass(frozen=True, slots=True)
class LoopStage:
    """The first wrong stage, and its fault."""

    name: str
    verdict: Verdict | None
    loops: str = ""
    """The loops after that stage; empty for `codegen`."""


def first_wrong_stage(case: Case, settings: Settings, trail: Trail) -> LoopStage:
    """Return the first wrong stage of a case's kernel: `codegen` if all interpreted stages are right, `lowering` if the
    loops are too many to be interpreted."""
    try:
        return _first_wrong_stage(case, settings, trail)
    except TooLarge as error:
        return LoopStage(LOWERING, None, str(error))


def _first_wrong_stage(case: Case, settings: Settings, trail: Trail) -> LoopStage:
    wanted, tolerance = reference(case), tolerance_for(case, settings)
    call = as_kernel(case).body
    assert isinstance(call, Call) and isinstance(call.op, Function)
    target = Target(settings.target)
    constant = [isinstance(a, Constant) for a in call.args]
    given = dict(zip(case.main.params, case.values, strict=True))
    values = [a.value if isinstance(a, Constant) else given[a] for a in call.args]  # type: ignore[index]
    with settings.context():
        for name, known in ((COMPUTE, [False] * len(constant)), (PREPACK, constant)):
            trail.at("loops", stage=name)
            parts: Parts | None = None
            try:
                parts = parts_of(call.op, known, target)
                verdict = _wrong(parts.func, parts, values, wanted, tolerance)
            except TooLarge:
                raise
            except Exception as error:  # an exception of a stage is its fault
                verdict = raised(error)
            if verdict is not None:
                return LoopStage(name, verdict, "" if parts is None else repr(parts.func))
        assert parts is not None
        return _stage_of(
            parts, target.backend.loop_passes, lambda f: _wrong(f, parts, values, wanted, tolerance), trail)


def _stage_of(
    parts: Parts, passes: Sequence[LoopPass], wrong: Callable[[PrimFunc], Verdict | None], trail: Trail
) -> LoopStage:
    """Make all stages and find the first wrong one by bisection, because later stages keep an error."""
    names = [SCHEDULE, LOWER, *(p.__name__ for p in passes)]
    made: list[PrimFunc] = []
    try:
        for name, run in zip(names, (lambda f: parts.scheduled(), lower_blocks, *passes), strict=True):
            trail.at("loops", stage=name)
            made.append(run(made[-1] if made else parts.func))
    except Exception as error:  # the same
        failed: LoopStage | None = LoopStage(names[len(made)], raised(error))
    else:
        failed = None
    low, high, found = 0, len(made), None
    while low < high:
        k = (low + high) // 2
        verdict = wrong(made[k])
        low, high, found = (low, k, verdict) if verdict is not None else (k + 1, high, found)
    if low < len(made):
        return LoopStage(names[low], found, repr(made[low]))
    return failed or LoopStage(CODEGEN, None)


def _wrong(
    func: PrimFunc, parts: Parts, values: Sequence[Array], wanted: Sequence[Array], tolerance: float
) -> Verdict | None:
    trips = trips_of(func.body)
    if trips > MOST_TRIPS:
        raise TooLarge(f"about {trips:.0e} iterations of loops; the interpreter's limit is {MOST_TRIPS:.0e}")
    arrays = [
        np.array(values[a.sources[0]] if a.pack is None else a.pack(*(values[k] for k in a.sources)), order="C")
        for a in parts.arguments]
    out = [
        np.full(w.shape, 77 if w.dtype.kind in "iu" else 0 if w.dtype.kind == "b" else np.nan, w.dtype) for w in wanted]
    with np.errstate(all="ignore"):
        try:
            interpreter.run(func, [*arrays, *out])
        except Exception as error:  # an index out of bounds, or an invalid program
            return raised(error)
    return compared(wanted, out, tolerance)


class TooLarge(Exception):
    """A case has too many loops to be interpreted."""


def trips_of(body: Stmt) -> float:
    """Estimate the number of iterations of the innermost statements."""
    most = 0.0
    stack: list[tuple[Stmt, float]] = [(body, 1.0)]
    while stack:
        s, times = stack.pop()
        inner = bodies(s)
        if isinstance(s, For):
            extent = getattr(s.extent, "value", None)
            times *= extent if isinstance(extent, int) else 1
        most += times if not inner else 0
        stack += [(x, times) for x in inner]
    return most
