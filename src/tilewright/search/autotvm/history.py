"""What records say of workloads: read from files of ours, from logs that TVM wrote, or from results at hand.

Every record that is left out counts under a reason, so a file that does nothing says why.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from tilewright.backends.target import Target
from tilewright.base.errors import OptionError, TargetError
from tilewright.search.autotvm import tvm_logs
from tilewright.search.autotvm.task.dispatcher import Workload
from tilewright.search.autotvm.task.space import ConfigEntity
from tilewright.search.autotvm.task.task import TEMPLATES, serialize_args
from tilewright.search.records import Record

log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Known:
    """A configuration of a workload for a target, and its seconds."""

    target: str
    workload: Workload
    config: ConfigEntity
    seconds: float


@dataclass(frozen=True, slots=True)
class Foreign:
    """Decisions that a log of TVM has for an anchor, and what they took there."""

    anchor: Workload
    decisions: dict[str, int]
    seconds: float


def read(records: Any, report: dict[str, int]) -> Iterator[Known | Foreign]:
    """What `records` say: a path, an open file, several of these, or pairs of `MeasureInput` and `MeasureResult`. `report` counts them."""
    if isinstance(records, (str, os.PathLike)) or hasattr(records, "read"):
        yield from _of_file(records, report)
        return
    try:
        items = list(records)
    except TypeError:
        raise OptionError(f"records are a file, several files, or pairs of inputs and results, and not a {type(records).__name__}", code="TW1101") from None
    for item in items:
        if isinstance(item, (str, os.PathLike)) or hasattr(item, "read"):
            yield from _of_file(item, report)
            continue
        inp, result = item
        if result.error_no == 0:
            _count(report, "taken")
            yield Known(str(inp.target), inp.task.workload, inp.config, result.cost)
        else:
            _count(report, "failed when measured")


def _of_file(file: Any, report: dict[str, int]) -> Iterator[Known | Foreign]:
    from tilewright.search.autotvm.record import lines
    from tilewright.search.records import decode

    found = False
    for row, place in lines(file):
        found = True
        taken = _of_record(decode(row, place))
        if isinstance(taken, str):
            _count(report, taken)
        else:
            _count(report, "taken" if isinstance(taken, Known) else "of TVM taken over")
            yield taken
    if not found:
        raise OptionError(f"{getattr(file, 'name', file)} has no records; tune first, or leave it out", code="TW1102")


def _of_record(record: Record) -> Known | Foreign | str:
    """What a record says, or why it says nothing here."""
    from tilewright.search.autotvm.task.kernels import is_kernel

    if not record.measured.ok:
        return "failed when measured"
    name, args, _ = json.loads(record.key)
    if not is_kernel(name) and name not in TEMPLATES:
        return tvm_logs.translated(record)
    try:
        target = Target(record.target)
    except TargetError:
        return f"for a target that is not known: {record.target}"
    if target.is_native and record.measured.machine and _processor(record.measured.machine) != _processor(_here()):
        return f"measured on another processor: {_processor(record.measured.machine)}"
    return Known(str(target), (name, *serialize_args(args)), ConfigEntity.from_json_dict(json.loads(record.config)), record.measured.cost)


def _here() -> str:
    from tilewright.runtime.trial import machine_name

    return machine_name()


def _processor(machine: str) -> str:
    """The processor in the name of a machine, `host, processor, cores`."""
    return ", ".join(machine.split(", ")[1:-1])


def _count(report: dict[str, int], what: str) -> None:
    report[what] = report.get(what, 0) + 1
