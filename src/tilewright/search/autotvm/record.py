"""AutoTVM's records as inputs and results: written, read, split, and reduced to the best.

    python -m tilewright.autotvm.record --act pick-best --i records.json --o best.json        TVM's `autotvm_log_editor`
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Final

from tilewright.backends.targets.target import Target
from tilewright.base.errors import ModelError, OptionError, with_code
from tilewright.search import records
from tilewright.search.autotvm.measure import MeasureInput, MeasureResult, TaskCandidate
from tilewright.search.autotvm.task.dispatcher import ApplyHistoryBest
from tilewright.search.autotvm.task.space import ConfigEntity
from tilewright.search.autotvm.task.task import Task
from tilewright.search.measure import MeasureErrorNo
from tilewright.search.records import Record, lines, write_lines

__all__ = [
    "AUTOTVM_LOG_VERSION", "ApplyHistoryBest", "MeasureInput", "MeasureResult", "decode", "encode", "load_from_buffer",
    "load_from_file", "main", "measure_str_key", "of_record", "pick_best", "split_workload",
]

AUTOTVM_LOG_VERSION: Final = records.VERSION
_ACTS: Final = ("pick-best", "read")


def encode(inp: MeasureInput, result: MeasureResult, protocol: str = "json") -> str:
    """Return the line of a result. Raises `OptionError` for another protocol than JSON."""
    _only_json(protocol)
    return records.encode(Record.of(TaskCandidate.of(inp.task, inp.config), result))


def decode(row: str, protocol: str = "json") -> tuple[MeasureInput, MeasureResult] | None:
    """Return the result in a line; None for an empty line or a comment. Raises `ModelError`, `TargetError`."""
    _only_json(protocol)
    return None if not row.strip() or row.startswith("#") else of_record(records.decode(row, "a record"))


def of_record(record: Record) -> tuple[MeasureInput, MeasureResult]:
    """Return the input and the result of a record. Raises `ModelError` for one of auto_scheduler."""
    if record.ansor:
        raise ModelError(
            "a record of auto_scheduler was read as one of autotvm; load it with auto_scheduler.load_records",
            code="TW1101")
    from tilewright.search.autotvm.task.kernels import KernelTask, is_kernel

    name, args, kwargs = json.loads(record.key)
    target = Target(record.target)
    task = KernelTask(name, args, target) if is_kernel(name) else Task(name, args, target, kwargs)
    return MeasureInput(target, task, ConfigEntity.from_json_dict(json.loads(record.config))), record.measured


def load_from_file(filename: str | os.PathLike[str]) -> Iterator[tuple[MeasureInput, MeasureResult]]:
    """Read the results of a file, in order. Raises `ModelError` for a malformed line."""
    return map(of_record, records.read(filename))


load_from_buffer = load_from_file


def pick_best(in_file: str | os.PathLike[str], out_file: str | os.PathLike[str]) -> int:
    """Write the best record of each workload and target; return their number."""
    rows = [(row, records.decode(row, place)) for row, place in lines(in_file)]
    best = records.best_of(rows, lambda r: (r[1].target, r[1].key), lambda r: r[1].rank)
    write_lines(out_file, [row for row, _ in best])
    return len(best)


def split_workload(in_file: str | os.PathLike[str], clean: bool = True) -> None:
    """Write each task's records to a file, `IN.000.task.json` and so on; with `clean`, only successful ones."""
    groups: dict[str, list[str]] = {}
    for row, place in lines(in_file):
        record = records.decode(row, place)
        if record.measured.ok or not clean:
            groups.setdefault(record.key, []).append(row)
    for k, (key, rows) in enumerate(groups.items()):
        name = re.sub(r"[^\w.\-]", "_", json.loads(key)[0])[:100]
        write_lines(f"{os.fspath(in_file)}.{k:03d}.{name}.json", rows)


def measure_str_key(inp: MeasureInput, include_config: bool = True) -> str:
    """Return a text that inputs of the same task (and configuration) share."""
    task, config = inp.task, inp.config if include_config else ""
    return f"{inp.target}{task.name}{task.args}{task.kwargs}{config}"


def _only_json(protocol: str) -> None:
    if protocol != "json":
        raise OptionError(
            f"records are written and read as JSON, not as '{protocol}': loading a pickle can run code", code="TW1115")


def main(arguments: Iterable[str] | None = None) -> int:
    """Run `autotvm_log_editor`: `--act pick-best --i IN --o OUT`, or `--act read --i IN`. Return the exit status."""
    parser = argparse.ArgumentParser(
        prog="autotvm_log_editor", description="Pick the best records of a log, or show them.")
    parser.add_argument("--act", choices=_ACTS, required=True)
    parser.add_argument("--i", dest="source", required=True, help="the log")
    parser.add_argument("--o", dest="output", help="output file of pick-best; default: IN.best.json")
    given = parser.parse_args(None if arguments is None else list(arguments))
    try:
        if given.act == "read":
            for r in records.read(given.source):
                m = r.measured
                print(f"{r.task}: {f'{1e3 * m.cost:.4f} ms' if m.ok else MeasureErrorNo(m.error_no).name}")
            return 0
        output = given.output or f"{given.source}.best.json"
        print(f"wrote the best of {pick_best(given.source, output)} workloads to {output}")
    except ModelError as error:
        print(f"Error: {with_code(error)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
