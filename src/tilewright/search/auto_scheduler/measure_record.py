"""Ansor's records (`search/records.py`) as inputs and results of the auto-scheduler."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import ModelError
from tilewright.search import records
from tilewright.search.auto_scheduler.measure import MeasureInput
from tilewright.search.auto_scheduler.search_task import HardwareParams, SearchTask
from tilewright.search.auto_scheduler.transform_step import TransformStep, steps_as_json, steps_from_json
from tilewright.search.auto_scheduler.workload_registry import decode, workload_key_to_tensors
from tilewright.search.lines import LineFile
from tilewright.search.measure import Measured
from tilewright.search.records import Record

if TYPE_CHECKING:
    from tilewright.backends.targets.target import Target

Pair = tuple[MeasureInput, Measured]


class RecordedState:
    """The steps of a record without the loops; `recover_measure_input` makes a `State` of them."""

    def __init__(self, transform_steps: Sequence[TransformStep]) -> None:
        self.transform_steps = tuple(transform_steps)


class RecordToFile:
    """A callback of tuning that appends each result to a file, whose folder it creates."""

    def __init__(self, filename: str | os.PathLike[str] = "auto_scheduler_tuning.json") -> None:
        self.filename = Path(filename)
        self.filename.parent.mkdir(parents=True, exist_ok=True)

    def __call__(self, policy: Any, inputs: Sequence[MeasureInput], results: Sequence[Measured]) -> None:
        save_records(self.filename, inputs, results)


class RecordReader:
    """The records of a file, in order."""

    def __init__(self, filename: str | os.PathLike[str]) -> None:
        self.filename = Path(filename)

    def read_lines(
        self, max_lines: int | None = None, skip_lines: int = 0
    ) -> tuple[list[MeasureInput], list[Measured]]:
        """Return up to `max_lines` records after the first `skip_lines`, as inputs and results."""
        found = list(itertools.islice(self, skip_lines, None if max_lines is None else skip_lines + max_lines))
        return [i for i, _ in found], [r for _, r in found]

    def check_workload_key(self, inputs: Sequence[MeasureInput]) -> None:
        """Raise `OptionError` for a record whose workload is not registered."""
        for key in dict.fromkeys(i.task.workload_key for i in inputs):
            workload_key_to_tensors(key)

    def __iter__(self) -> Iterator[Pair]:
        return load_records(self.filename)


def load_records(filename: str | os.PathLike[str]) -> Iterator[Pair]:
    """Read the records of a file. Raises `ModelError` for a malformed line, `ScheduleError` for unknown steps."""
    return map(of_record, records.read(filename))


def save_records(filename: str | os.PathLike[str], inputs: Sequence[MeasureInput], results: Sequence[Measured]) -> None:
    """Append records to a file, in an existing folder."""
    file = LineFile(filename)
    for inp, result in zip(inputs, results, strict=True):
        file.append(dump_record_to_string(inp, result))


def dump_record_to_string(inp: MeasureInput, result: Measured) -> str:
    """Return a record as one line, without its end."""
    config = json.dumps(steps_as_json(inp.state.transform_steps))
    task = inp.task
    record = Record(
        task.target_text, task.workload_key, config, result, ansor=task.record_fields,
        own=not inp.state.transform_steps)
    return records.encode(record)


def load_record_from_string(record: str) -> Pair:
    """Return the record in a line. Raises `ModelError` for a malformed line, `ScheduleError` for unknown steps."""
    return of_record(records.decode(record, "a record"))


def of_record(record: Record) -> Pair:
    """Return the input and the result of a record. Raises `ModelError` for one of autotvm, `ScheduleError`."""
    if not record.ansor:
        raise ModelError(
            "a record of AutoTVM was read as one of auto_scheduler; load it with autotvm.record", code="TW1101")
    hardware, layout, inputs = json.loads(record.ansor)
    task = SearchTask(
        workload_key=record.key, target=record.target, hardware_params=HardwareParams.from_json(hardware),
        layout_rewrite_option=layout, task_inputs=inputs)
    return MeasureInput(task, RecordedState(steps_from_json(json.loads(record.config)))), record.measured


def load_best_record(
    filename: str | os.PathLike[str], workload_key: str | None = None, target: Target | None = None,
    include_compatible: bool = False,
) -> tuple[MeasureInput | None, Measured | None]:
    """Return the fastest successful record of a workload and of the kind of a target, or (None, None).

    `include_compatible` also takes records of a computation with other sizes: those with the same name and number of
    arguments.
    """
    def fits(inp: MeasureInput) -> bool:
        if target is not None and not same_kind(inp.task.target_text, str(target)):
            return False
        if workload_key in (None, inp.task.workload_key):
            return True
        (name, args), (wanted, others) = decode(inp.task.workload_key), decode(str(workload_key))
        return include_compatible and name == wanted and len(args) == len(others)

    found = records.best_of((p for p in load_records(filename) if fits(p[0])), lambda p: None, lambda p: p[1].cost)
    return found[0] if found else (None, None)


def same_kind(a: str, b: str) -> bool:
    """Return whether the texts of two targets name the same kind, such as `llvm`."""
    return a.split()[:1] == b.split()[:1]


def distill_record_file(in_file: str, out_file: str) -> None:
    """Write the best record of each workload and target, in the order of their first records, to another file."""
    best = records.best_of(records.read(in_file), lambda r: (r.key, r.target), lambda r: r.rank)
    records.write_lines(out_file, [records.encode(r) for r in best])
