"""Records of measurements, version 0.6 of the field: one JSON line each.

    {"i": [["[\\"matmul\\", 512, 512, 512]", "llvm", [2, 64, 64, 0, 0, 0, 0, 0], "", 0, []], [[], [["CHW", 2, "local"], …]]],
     "r": [[seconds, …], error number, seconds in all, time], "v": "v0.6"}

Lines are appended whole (`tuning/lines.py`). A file that ends in the middle of a line, since its writer was killed, is read up to there.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tilewright.base.errors import CompileError, OptionError
from tilewright.base.json_reading import read_json
from tilewright.search.auto_scheduler.measure import MeasureInput, MeasureResult
from tilewright.search.auto_scheduler.search_task import HardwareParams, SearchTask
from tilewright.search.auto_scheduler.transform_step import TransformStep, steps_as_json, steps_from_json
from tilewright.search.lines import LineFile

if TYPE_CHECKING:
    from tilewright.backends.target import Target

log: Final = logging.getLogger(__name__)
VERSION: Final = "v0.6"
_FAILED: Final = 1e10
"""Seconds that records of the field give for a candidate that failed."""


class RecordedState:
    """The steps of a record, without the loops: `recover_measure_input` makes a `State` of them."""

    def __init__(self, transform_steps: Sequence[TransformStep]) -> None:
        self.transform_steps = tuple(transform_steps)


class RecordToFile:
    """A callback of tuning that appends each result to a file, whose folder is made."""

    def __init__(self, filename: str | os.PathLike[str]) -> None:
        self.filename = Path(filename)
        self.filename.parent.mkdir(parents=True, exist_ok=True)

    def __call__(self, policy: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        save_records(self.filename, inputs, results)


class RecordReader:
    """The records of a file, in order."""

    def __init__(self, filename: str | os.PathLike[str]) -> None:
        self.filename = Path(filename)

    def read_lines(self, max_lines: int | None = None, skip_lines: int = 0) -> tuple[list[MeasureInput], list[MeasureResult]]:
        """Up to `max_lines` records behind the first `skip_lines`, as inputs and results."""
        found = list(self)[skip_lines : None if max_lines is None else skip_lines + max_lines]
        return [i for i, _ in found], [r for _, r in found]

    def check_workload_key(self, inputs: Sequence[MeasureInput]) -> None:
        """Raise `OptionError` for a record whose workload is not registered."""
        from tilewright.search.auto_scheduler.workload_registry import workload_key_to_tensors

        for key in dict.fromkeys(i.task.workload_key for i in inputs):
            workload_key_to_tensors(key)

    def __iter__(self) -> Iterator[tuple[MeasureInput, MeasureResult]]:
        return load_records(self.filename)


def load_records(filename: str | os.PathLike[str]) -> Iterator[tuple[MeasureInput, MeasureResult]]:
    """The records of a file, in order. Raises `OptionError`, with the line, for a damaged one; a last line without an end is left out, with a warning."""
    try:
        text = Path(filename).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"the records '{filename}' cannot be read: {getattr(error, 'strerror', error)}", code="TW1101") from None
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            yield load_record_from_string(line)
        except CompileError as error:
            if number == len(lines):
                log.warning("%s, line %d: the last record was cut short and is left out", filename, number)
                return
            raise OptionError(f"{filename}, line {number}: {error.message}", code="TW1101") from None


def save_records(filename: str | os.PathLike[str], inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
    """Append records to a file, in a folder that is there."""
    file = LineFile(filename)
    for inp, result in zip(inputs, results, strict=True):
        file.append(dump_record_to_string(inp, result))


def dump_record_to_string(inp: MeasureInput, result: MeasureResult) -> str:
    """A record as one line, without its end."""
    task = inp.task
    about = [task.workload_key, task.target_text, task.hardware_params.as_json(), "", task.layout_rewrite_option, task.task_input_names]
    costs = list(result.costs) if result.error_no == 0 else [_FAILED]
    data = {
        "i": [about, [[], steps_as_json(inp.state.transform_steps)]],
        "r": [costs, int(result.error_no), result.all_cost, int(result.timestamp)], "v": VERSION,
    }
    return json.dumps(data)


def load_record_from_string(record: str) -> tuple[MeasureInput, MeasureResult]:
    """The record in a line. Raises `OptionError` for what is none, `ScheduleError` for steps that are unknown."""
    try:
        data = read_json(record)
    except ValueError as error:
        raise OptionError(f"this is no JSON: {error}", code="TW1101") from None
    if not isinstance(data, dict) or not isinstance(data.get("v"), str) or "i" not in data or "r" not in data:
        raise OptionError(f"this is no record: one has the keys i, r and v, and this has {', '.join(data) if isinstance(data, dict) else type(data).__name__}", code="TW1101")
    if data["v"] not in ("v0.2", "v0.3", "v0.4", "v0.5", VERSION):
        raise OptionError(f"the record has version {data['v']}, and {VERSION} and those before it are read", code="TW1101")
    try:
        (key, target, hardware, *rest), (_, steps) = data["i"]
        costs, error_no, all_cost, timestamp = data["r"]
        inputs = rest[2] if len(rest) > 2 else []
        task = SearchTask(
            workload_key=key, target=str(target), hardware_params=HardwareParams.from_json((hardware + [0] * 8)[:8]),
            layout_rewrite_option=int(rest[1]) if len(rest) > 1 else 0, task_inputs=inputs,
        )
        result = MeasureResult(tuple(map(float, costs)), int(error_no), "", float(all_cost), float(timestamp))
        if not isinstance(key, str) or not str(target).strip() or (result.error_no == 0 and not (costs and all(0 <= c < math.inf for c in result.costs))):
            raise ValueError
    except (TypeError, ValueError, KeyError, IndexError, OverflowError, AttributeError, RecursionError):
        raise OptionError("the fields of the record do not fit those of version v0.6", code="TW1101") from None
    return MeasureInput(task, RecordedState(steps_from_json(steps))), result


def load_best_record(
    filename: str | os.PathLike[str], workload_key: str | None = None, target: Target | None = None, include_compatible: bool = False,
) -> tuple[MeasureInput | None, MeasureResult | None]:
    """The fastest successful record of a workload and of the kind of a target, or (None, None).

    `include_compatible` also takes records of a computation with other sizes: those whose name and number of arguments are the same.
    """
    from tilewright.search.auto_scheduler.workload_registry import decode

    best: tuple[MeasureInput | None, MeasureResult | None] = (None, None)
    for inp, result in load_records(filename):
        if result.error_no != 0 or (target is not None and not same_kind(inp.task.target_text, str(target))):
            continue
        if workload_key is not None and inp.task.workload_key != workload_key:
            (name, args), (wanted, others) = decode(inp.task.workload_key), decode(workload_key)
            if not include_compatible or name != wanted or len(args) != len(others):
                continue
        if best[1] is None or result.cost < best[1].cost:
            best = (inp, result)
    return best


def same_kind(a: str, b: str) -> bool:
    """Whether the texts of two targets name the same kind, such as `llvm`."""
    return a.split()[:1] == b.split()[:1]


def distill_record_file(in_file: str, out_file: str) -> None:
    """The best record of each workload and target, in the order in which they first came, into another file."""
    best: dict[tuple[str, str], tuple[MeasureInput, MeasureResult]] = {}
    for inp, result in load_records(in_file):
        place = (inp.task.workload_key, inp.task.target_text)
        if result.error_no == 0 and (place not in best or result.cost < best[place][1].cost):
            best[place] = (inp, result)
    Path(out_file).unlink(missing_ok=True)
    save_records(out_file, [i for i, _ in best.values()], [r for _, r in best.values()])
