"""Records of measurements in AutoTVM's layout, a JSON object a line: written, read, and thinned out to the best.

    python -m tilewright.autotvm.record --act pick-best --i records.json --o best.json        the field's `autotvm_log_editor`
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from tilewright.backends.target import Target
from tilewright.base.errors import ModelError, OptionError, with_code
from tilewright.base.json_reading import read_json
from tilewright.runtime.files import write_atomically
from tilewright.search import records
from tilewright.search.autotvm.measure import MeasureInput, MeasureResult, TaskCandidate, measured_of, result_of
from tilewright.search.autotvm.task.space import ConfigEntity
from tilewright.search.autotvm.task.task import Task
from tilewright.search.records import Record

AUTOTVM_LOG_VERSION: Final = records.VERSION
_ACTS: Final = ("pick-best", "read")


def encode(inp: MeasureInput, result: MeasureResult, protocol: str = "json") -> str:
    """The line of a result. Raises `OptionError` for another protocol than JSON."""
    _only_json(protocol)
    candidate = TaskCandidate.of(inp.task, inp.config)
    return records.encode(Record(candidate.target, candidate.key, candidate.config, measured_of(result)))


def decode(row: str, protocol: str = "json") -> tuple[MeasureInput, MeasureResult] | None:
    """The result in a line; None for an empty line or a comment. Raises `ModelError`, `OptionError`, and `TargetError` for a target that is not known."""
    _only_json(protocol)
    if not row.strip() or row.startswith("#"):
        return None
    return of_record(records.decode(row, "a record"))


def of_record(record: Record) -> tuple[MeasureInput, MeasureResult]:
    """The same for a record of the engine."""
    from tilewright.search.autotvm.task.kernels import KernelTask, is_kernel

    name, args, kwargs = json.loads(record.key)
    target = Target(record.target)
    task = KernelTask(name, args, target) if is_kernel(name) else Task(name, args, target, kwargs)
    return MeasureInput(target, task, ConfigEntity.from_json_dict(json.loads(record.config))), result_of(record.measured)


def load_from_file(filename: str | os.PathLike[str]) -> Iterator[tuple[MeasureInput, MeasureResult]]:
    """The results of a file, in order. Raises `ModelError` for a line that is no record."""
    for row, place in lines(filename):
        yield of_record(records.decode(row, place))


load_from_buffer = load_from_file


def lines(filename: Any) -> Iterator[tuple[str, str]]:
    """The lines of a file (a path, or something that is open) that are not empty, and where they stand. A last line that was cut off is left out."""
    name = str(getattr(filename, "name", filename))
    try:
        text = filename.read() if hasattr(filename, "read") else Path(filename).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{name}: the records cannot be read ({error})", code="TW1101") from error
    whole = text if text.endswith("\n") or not text else text[: text.rfind("\n") + 1] + _if_whole(text[text.rfind("\n") + 1 :])
    for k, row in enumerate(whole.splitlines(), 1):
        if row.strip() and not row.startswith("#"):
            yield row, f"{name}:{k}"


def _if_whole(row: str) -> str:
    """A line without an end: one that is JSON was written by hand, any other was cut off."""
    try:
        read_json(row)
    except ValueError:
        return ""
    return row


def pick_best(in_file: str | os.PathLike[str], out_file: str | os.PathLike[str]) -> int:
    """Write the best record of each workload and target; returns how many these are."""
    best: dict[tuple[str, str], tuple[float, str]] = {}
    for row, place in lines(in_file):
        record = records.decode(row, place)
        key = (record.target, json.dumps(json.loads(record.key)))
        if record.measured.ok and (key not in best or record.measured.cost < best[key][0]):
            best[key] = (record.measured.cost, row)
    write_lines(out_file, [row for _, row in best.values()])
    return len(best)


def write_lines(path: str | os.PathLike[str], rows: Sequence[str]) -> None:
    """Write a file of records whole, or not at all."""
    write_atomically(Path(path), lambda file: file.writelines(f"{r}\n".encode() for r in rows))


def split_workload(in_file: str | os.PathLike[str], clean: bool = True) -> None:
    """Write the records of each task into a file of its own, `IN.000.task.json` and so on; with `clean`, without those that failed."""
    groups: dict[str, list[str]] = {}
    for row, place in lines(in_file):
        record = records.decode(row, place)
        if record.measured.ok or not clean:
            groups.setdefault(record.key, []).append(row)
    for k, (key, rows) in enumerate(groups.items()):
        name = re.sub(r"[^\w.\-]", "_", json.loads(key)[0])[:100]
        write_lines(f"{os.fspath(in_file)}.{k:03d}.{name}.json", rows)


def measure_str_key(inp: MeasureInput, include_config: bool = True) -> str:
    """What two inputs of the same task (and configuration) share."""
    return "".join(map(str, [str(inp.target), inp.task.name, inp.task.args, inp.task.kwargs, inp.config if include_config else ""]))


def _only_json(protocol: str) -> None:
    if protocol != "json":
        raise OptionError(f"records are written and read as JSON, not as '{protocol}': a pickle runs what is in it", code="TW1115")


def main(arguments: Iterable[str] | None = None) -> int:
    """The field's `autotvm_log_editor`: `--act pick-best --i IN --o OUT`, or `--act read --i IN`."""
    parser = argparse.ArgumentParser(prog="autotvm_log_editor", description="Pick the best records of a log, or show them.")
    parser.add_argument("--act", choices=_ACTS, required=True)
    parser.add_argument("--i", dest="source", required=True, help="the log")
    parser.add_argument("--o", dest="output", help="where to write (pick-best); default: IN.best.json")
    given = parser.parse_args(None if arguments is None else list(arguments))
    try:
        if given.act == "read":
            for row, place in lines(given.source):
                r = records.decode(row, place)
                print(f"{r.task}: {1e3 * r.measured.cost:.4f} ms" if r.measured.ok else f"{r.task}: {r.measured.error_no.name}")
            return 0
        output = given.output or f"{given.source}.best.json"
        print(f"wrote the best of {pick_best(given.source, output)} workloads to {output}")
    except ModelError as error:
        print(f"Error: {with_code(error)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
