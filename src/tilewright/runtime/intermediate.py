"""Intermediate values of a program, each copied right after its step, because later steps reuse its memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.base.errors import InputError
from tilewright.runtime.callbacks import view_of
from tilewright.runtime.profiling import DeviceWrapper, Metric, MetricCollector, measured_call
from tilewright.runtime.program import OBJECT
from tilewright.runtime.stepping import Subject, address_of, memory_of_part, step_calls

if TYPE_CHECKING:
    from tilewright.runtime.executable import Executable

Array = np.ndarray[Any, Any]


def values_of_steps(program: Executable, inputs: Sequence[Any], last: int | None = None) -> list[list[Array]]:
    """Return the outputs of each step, in order, up to the step `last` (default: all); Python objects are left out.

    In a program with equal parts, an output is assembled from the parts. Raises `InputError` for an unknown step.
    """
    count = len(program.manifest.steps)
    if last is not None and not 0 <= last < count:
        raise InputError(f"there is no step {last}; the program has {count}", code="TW0707")
    with program.stepwise(*inputs) as (subject, _):
        parts = [_run_part(subject, part, count if last is None else last + 1) for part in range(subject.parts)]
    return [
        [values[0] if len(values) == 1 else np.concatenate(values) for values in zip(*found, strict=True)]
        for found in zip(*parts, strict=True)]


def _run_part(subject: Subject, part: int, count: int) -> list[list[Array]]:
    memory = memory_of_part(subject, part)
    found = []
    for call, note in zip(step_calls(subject, part)[:count], subject.manifest.notes, strict=False):
        call()
        found.append([view_of(v)(address_of(v.place, memory)).copy() for v in note.outputs if v.place.kind != OBJECT])
    return found


def collected(
    program: Executable, inputs: Sequence[Any], device: Any, collectors: Sequence[MetricCollector]
) -> list[Mapping[str, Metric]]:
    """Return the metrics of collectors for each step; Python calls the steps one by one."""
    wrapped = DeviceWrapper(device)
    for collector in collectors:
        collector.init([wrapped])
    with program.stepwise(*inputs) as (subject, _):
        found: list[dict[str, Metric]] = [{} for _ in subject.manifest.steps]
        for k, call in enumerate(step_calls(subject)):
            found[k] = measured_call(call, wrapped, collectors)
    return [*found]

