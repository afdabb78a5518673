"""Functions that the worker process of a diagnosis runs: each takes a message and the bytes of a case, and returns a
message and bytes.

    {"settings": …, "trail": path, "way": …} + case  ->  {"verdict": … or None} + further results

The file `trail` names the current step for the parent process, in case this process crashes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.backends.targets.target import Target
from tilewright.base.garbage_collection import no_garbage_collection
from tilewright.base.plugins import run_plugin
from tilewright.driver.diagnosis.case import Array, Case, case_of, flattened, kernel_case, operators, save_arrays
from tilewright.driver.diagnosis.loop_stages import first_wrong_stage
from tilewright.driver.diagnosis.ways import (
    KERNEL,
    ON_PURPOSE,
    WHOLE,
    NoReference,
    PipelineStep,
    Settings,
    Trail,
    Verdict,
    Way,
    check,
    compared,
    executable,
    optimized,
    raised,
    reference,
    run_twice,
    steps_of,
    tolerance_for,
)
from tilewright.relay.check_rewrites import difference
from tilewright.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem
from tilewright.relay.first_difference import FirstDifference, first_difference, straight
from tilewright.relay.op.external import ExternalCall
from tilewright.relay.visitor import post_order
from tilewright.runtime.wire import Message

_RUN: set[str] = set()
"""The plugins that have run in this process."""
Answer = tuple[Message, list[bytes]]


def check_case(message: Message, pieces: Sequence[bytes]) -> Answer:
    """Check a case on `way`: `{"verdict": …}`, or `{"none": why}` without a reference."""
    settings, trail = begin(message)
    try:
        verdict = check(Case.from_bytes(pieces), Way(**message["way"]), settings, trail)
    except NoReference as error:
        return {"none": str(error)}, []
    return {"verdict": _plain(verdict)}, []


def expected(message: Message, pieces: Sequence[bytes]) -> Answer:
    """Run the interpreter and return the results as arrays."""
    begin(message)[1].at("reference")
    return {}, [_saved(reference(Case.from_bytes(pieces)))]


def answers(message: Message, pieces: Sequence[bytes]) -> Answer:
    """Compile and run the whole program, and return the results as arrays."""
    settings, trail = begin(message)
    case = Case.from_bytes(pieces)
    trail.at(WHOLE)
    with settings.context():
        return {}, [_saved(run_twice(executable(case, Way(WHOLE), settings), case.values)[0])]


def first_wrong_pass(message: Message, pieces: Sequence[bytes]) -> Answer:
    """Return the number of the first pass that changes the results, the verdict, the first wrong place, and the case
    before that pass.

    `message["stop"]`, if given, is the number of a pass that is known to be wrong; the search ends before it.
    """
    settings, trail = begin(message)
    case = _straightened(Case.from_bytes(pieces))
    last = reference(case)
    with settings.context(), no_garbage_collection():
        for k, step in enumerate(steps_of(Target(settings.target))):
            if k == message.get("stop"):
                return _wrong_pass(k, step, None, case)
            trail.at("pass", step=k, name=step.name)
            try:
                after = Case(step(case.module), case.values)
                with np.errstate(all="ignore"):
                    given = last if after.module is case.module else after.reference()
            except Exception as error:  # raised by the wrong pass, or by running its result
                return _wrong_pass(k, step, raised(error), case)
            tolerance = max(tolerance_for(case, settings), tolerance_for(after, settings)) if step.exact else ON_PURPOSE
            verdict = None if given is last else compared(last, given, tolerance)
            if verdict is not None:
                return _wrong_pass(k, step, verdict, case, _place(case, after, tolerance))
            case, last = after, given
    return {"step": -1}, []


def _wrong_pass(
    k: int, step: PipelineStep, verdict: Verdict | None, before: Case, place: FirstDifference | None = None
) -> Answer:
    case = before.of_one_part()
    order = post_order(case.main.body, inside=False)
    at = order.index(place.before) if place is not None and place.before in order else -1
    told = {
        "step": k, "name": step.name, "verdict": _plain(verdict), "at": at, "value": "" if place is None else str(place)
    }
    return told, case.to_bytes()


def _place(before: Case, after: Case, tolerance: float) -> FirstDifference | None:
    old, new = before.of_one_part(), after.of_one_part()
    with np.errstate(all="ignore"):
        return first_difference(
            (old.main, dict(old.module.items())), (new.main, dict(new.module.items())), new.values,
            lambda a, b: difference(a, b, tolerance))


def first_wrong_value(message: Message, pieces: Sequence[bytes]) -> Answer:
    """Return the first value of a case without lets that the pass of `message["way"]` changes: `{"at": its place, or
    -1, "value": …}`."""
    settings, _ = begin(message)
    case = Case.from_bytes(pieces)
    with settings.context():
        step = steps_of(Target(settings.target))[message["way"]["step"]]
        try:
            place = _place(
                case, Case(step(case.module), case.values), tolerance_for(case, settings) if step.exact else ON_PURPOSE)
        except Exception:  # the pass raises, or its result cannot be run: there are no values to compare
            place = None
    order = post_order(case.main.body, inside=False)
    at = order.index(place.before) if place is not None and place.before in order else -1
    return {"at": at, "value": "" if place is None else str(place)}, case.to_bytes()


def first_wrong_kernel(message: Message, pieces: Sequence[bytes]) -> Answer:
    """Return the first kernel that is wrong on the interpreter's values, as a case: `{"kernel": number, "of": count,
    "verdict": …}`.

    If there is none, return `{"kernel": -1, "rounding": …}`: whether the kernels, run separately in their own memory,
    give the results of the program.
    """
    settings, trail = begin(message)
    case = Case.from_bytes(pieces)
    with settings.context(), no_garbage_collection():
        fused = optimized(case, settings).of_one_part()
        known = fused.known()
        order = [
            e for e in post_order(fused.main.body, inside=False) if isinstance(e, Call) and isinstance(e.op, Function)]
        made: dict[Call, Any] = {}
        for k, call in enumerate(order):
            if isinstance(call.op.body, Call) and isinstance(call.op.body.op, ExternalCall):
                continue
            kernel = kernel_case(call, [_value(a, fused, known) for a in call.args])
            trail.at("kernel", step=k, of=len(order), name=" ".join(operators(kernel.main.body)))
            _kept(message, kernel)
            try:
                verdict = check(kernel, Way(KERNEL), settings)
            except NoReference:
                continue
            if verdict is not None:
                return {"kernel": k, "of": len(order), "verdict": _plain(verdict)}, kernel.to_bytes()
            made[call] = kernel
        return {"kernel": -1, "of": len(order), "rounding": _only_rounds(fused, made, settings, case)}, []


def _only_rounds(fused: Case, kernels: dict[Call, Case], settings: Settings, case: Case) -> bool:
    """Whether the kernels of a program, run separately in their own memory, give the results of the program."""
    values: dict[Expr, Any] = dict(zip(fused.main.params, fused.values, strict=True))
    for e in post_order(fused.main.body, inside=False):
        if isinstance(e, Constant):
            values[e] = e.value
        elif e in kernels:
            args = [values[a] for a in e.args if not isinstance(a, Constant)]
            again = kernel_case(e, [values[a] for a in e.args])
            results = run_twice(executable(again, Way(KERNEL), settings), again.values if args else ())[0]
            values[e] = results[0] if len(results) == 1 else tuple(results)
        elif e not in values:
            values[e] = _of_operands(e, values)
    chained = flattened(values[fused.main.body])
    whole = run_twice(executable(case, Way(WHOLE), settings), case.values)[0]
    parts = [
        np.split(w, w.shape[0] // c.shape[0])[0] if w.shape != c.shape else w
        for w, c in zip(whole, chained, strict=True)]
    return compared(chained, parts, tolerance_for(case, settings) / 10) is None


def _of_operands(e: Expr, values: dict[Expr, Any]) -> Any:
    """Return the value of a tuple, a field, or a call without a kernel, from the values of its operands."""
    if isinstance(e, Tuple):
        return tuple(values[f] for f in e.fields)
    if isinstance(e, TupleGetItem):
        return values[e.tuple_value][e.index]
    assert isinstance(e, Call)
    assert isinstance(e.op, Function)
    found = reference(case_of(e.op, [values[a] for a in e.args]))
    return found[0] if len(found) == 1 else tuple(found)


def first_wrong_loops(message: Message, pieces: Sequence[bytes]) -> Answer:
    """Return the faulty stage of a case's kernel: `{"stage": …, "verdict": …, "loops": …}`."""
    settings, trail = begin(message)
    found = first_wrong_stage(Case.from_bytes(pieces), settings, trail)
    return {"stage": found.name, "verdict": _plain(found.verdict), "loops": found.loops}, []


def begin(message: Message) -> tuple[Settings, Trail]:
    """Read the settings and the trail of a message, and run the plugins of the settings."""
    settings = Settings.from_json(message["settings"])
    for plugin in settings.plugins:
        if plugin not in _RUN:
            run_plugin(plugin)
            _RUN.add(plugin)
    return settings, Trail(message.get("trail", ""))


def _kept(message: Message, case: Case) -> None:
    """Save the case in case this process ends with it."""
    if folder := message.get("keep"):
        keep(folder, case)


def keep(folder: str, case: Case) -> None:
    """Write a case into a folder."""
    for name, piece in zip(("module.json", "inputs.params"), case.to_bytes(), strict=True):
        Path(folder, name).write_bytes(piece)


def _straightened(case: Case) -> Case:
    """Return the case without lets and function calls, if possible."""
    main = straight(case.main, dict(case.module.items()))
    return case if main is None or main is case.main else case_of(main, case.values)


def _value(e: Expr, case: Case, known: dict[Expr, Array]) -> Array:
    if isinstance(e, Constant):
        return e.value
    params = case.main.params
    return case.values[params.index(e)] if e in params else known[e]


def _saved(arrays: Sequence[Array]) -> bytes:
    return save_arrays({f"output_{k}": a for k, a in enumerate(arrays)})


def _plain(verdict: Verdict | None) -> Message | None:
    return None if verdict is None else dataclasses.asdict(verdict)
