"""Tuning records, one JSON line each, in AutoTVM's form (version 0.2; 0.1 is also read) or Ansor's (v0.6; v0.1 to v0.5
are also read):

    {"input": [target, task, args, kwargs], "config": {…}, "result": [[costs], error_no, all_cost, timestamp],
     "version": 0.2, "tvm_version": "0.1.0", "error": "…", "spread": 0.02, "noisy": false, "machine": "…",
     "ir_hash": "…"}
    {"i": [["[\\"matmul\\", 512, 512, 512]", "llvm", [2, 64, 64, 0, 0, 0, 0, 0], "", 0, []],
           [[], [["CHW", 2, "local"], …]]],
     "r": [[costs], error_no, all_cost, timestamp], "v": "v0.6"}

The keys after `tvm_version` are extensions, which TVM's readers skip. Lines are appended whole (`search/lines.py`).
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from tilewright import __version__
from tilewright.base.errors import ModelError
from tilewright.base.json_reading import read_json
from tilewright.runtime.files import write_atomically
from tilewright.search.lines import LineFile
from tilewright.search.measure import Candidate, Measured, MeasureErrorNo

T = TypeVar("T")
VERSION: Final = 0.2
ANSOR_VERSION: Final = "v0.6"
_ANSOR_VERSIONS: Final = ("v0.1", "v0.2", "v0.3", "v0.4", "v0.5", ANSOR_VERSION)
_HARDWARE: Final = [1, 16, 64]
"""Hardware parameters of records without any (v0.1): one core, bytes of its vectors, and of a cache line."""
FAILED_COST: Final = 1e9
_ANSOR_FAILED_COST: Final = 1e10
"""Seconds in records of failed candidates."""
_TRANSIENT: Final = (MeasureErrorNo.UNKNOWN_ERROR,)
"""Errors not caused by the candidate: it is measured again, and the result is not stored."""
MARGIN: Final = 0.1
"""Fraction by which a trial must be faster than the compiler's own choice. A short tuning measures each only once."""
_MALFORMED: Final = (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError)
_LOG: Final = logging.getLogger(__name__)


def rank_of(seconds: float, own: bool) -> float:
    """Return the seconds by which a trial is compared. The compiler's own choice counts as faster than measured: other
    trials must be faster by more than noise."""
    return seconds * (1 - MARGIN) if own else seconds


@dataclass(frozen=True, slots=True)
class Record:
    """A result and its candidate. `key` (the workload) and `config` are JSON, as in `Candidate`."""

    target: str
    key: str
    config: str
    measured: Measured
    version: str = __version__
    """Version of the compiler that made the code."""
    ansor: str = ""
    """For a record in Ansor's form: JSON of hardware parameters, layout rewriting and names of inputs."""
    selected: bool = False
    """Whether this configuration was selected for its workload; it takes precedence over faster trials."""
    own: bool = False
    """Whether this is the compiler's own choice, which the kernel also has without a record."""

    @property
    def identity(self) -> tuple[str, str, str]:
        return _canonical(self.key), _canonical(self.config), self.target

    @property
    def rank(self) -> float:
        """`rank_of` the result, infinite for a failure; -1 for a selected configuration."""
        return -1.0 if self.selected else rank_of(self.measured.cost, self.own)

    @property
    def task(self) -> str:
        """The task's name."""
        return str(json.loads(self.key)[0])

    @staticmethod
    def of(candidate: Candidate, measured: Measured, selected: bool = False) -> Record:
        """Return the record of a candidate's result, in the candidate's form."""
        key, config, target = candidate.identity
        return Record(
            target, key, config, measured, ansor=candidate.ansor, selected=selected, own=candidate.is_own)


class Records:
    """The record store: the records of a file and those appended to it. Several processes may write one file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Read the file if it exists. Raises `ModelError` for a malformed line, `OptionError` for a missing folder."""
        self._file = LineFile(path)
        self._known: dict[tuple[str, str, str], Record] = {}
        self._count = 0
        self.refresh()

    @property
    def path(self) -> str:
        return str(self._file.path)

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[Record]:
        """Iterate over the last record of each candidate."""
        return iter([*self._known.values()])

    def refresh(self) -> None:
        """Read the lines appended since, also by other processes."""
        for line in self._file.new():
            self._count += 1
            if line.strip():
                record = decode(line, f"{self.path}:{self._count}")
                self._known[record.identity] = record

    def find(self, candidate: Candidate) -> Measured | None:
        """Return the result of a candidate; None if it is unknown or an error not caused by the candidate."""
        found = self._known.get((_canonical(candidate.key), _canonical(candidate.config), candidate.target))
        return None if found is None or found.measured.error_no in _TRANSIENT else found.measured

    def add(self, candidate: Candidate, measured: Measured, selected: bool = False) -> None:
        """Append a result, unless it is an error not caused by the candidate (`UNKNOWN_ERROR`)."""
        if measured.error_no not in _TRANSIENT:
            record = Record.of(candidate, measured, selected)
            self._file.append(encode(record))
            self._known[record.identity] = record


def read(file: Any) -> Iterator[Record]:
    """Read the records of a path or an open file, in order. Raises `ModelError` with a malformed line."""
    return (decode(row, place) for row, place in lines(file))


def lines(file: Any) -> Iterator[tuple[str, str]]:
    """Read the lines of a file of records that are neither empty nor comments, with their places.

    A truncated last line is skipped with a warning; a last line of valid JSON without a newline is accepted. Raises
    `ModelError` for a file that cannot be read.
    """
    name = str(getattr(file, "name", file))
    try:
        text = file.read() if hasattr(file, "read") else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{name}: the records cannot be read ({error})", code="TW1101") from error
    rows = text.split("\n")
    for k, row in enumerate(rows, 1):
        if not row.strip() or row.startswith("#"):
            continue
        if k == len(rows) and not _is_json(row):
            _LOG.warning("%s:%d: the last record is truncated and is ignored", name, k)
            return
        yield row, f"{name}:{k}"


def best_of(items: Iterable[T], key: Callable[[T], Hashable], rank: Callable[[T], float]) -> list[T]:
    """Return the last item of the lowest finite rank for each key, in the order in which the keys first occur."""
    found: dict[Hashable, T] = {}
    for item in items:
        place = key(item)
        if rank(item) < math.inf and (place not in found or rank(item) <= rank(found[place])):
            found[place] = item
    return [*found.values()]


def write_lines(path: str | os.PathLike[str], rows: Sequence[str]) -> None:
    """Write a file of records atomically."""
    write_atomically(Path(path), lambda file: file.writelines(f"{r}\n".encode() for r in rows))


def encode(record: Record) -> str:
    """Return a record as a line, without its end."""
    m, config = record.measured, json.loads(record.config)
    if record.ansor:
        costs = list(m.costs) if m.ok else [_ANSOR_FAILED_COST]
        hardware, layout, inputs = json.loads(record.ansor)
        about = [record.key, record.target, hardware, "", layout, inputs]
        result = [costs, int(m.error_no), m.all_cost, int(m.timestamp)]
        return json.dumps({"i": [about, [[], config]], "r": result, "v": ANSOR_VERSION})
    task, args, kwargs = json.loads(record.key)
    return json.dumps({
        "input": [record.target, task, args, kwargs], "config": config,
        "result": [list(m.costs) if m.ok else [FAILED_COST], int(m.error_no), m.all_cost, m.timestamp],
        "version": VERSION, "tvm_version": record.version,
        **({"error": m.error} if m.error else {}), **({"selected": True} if record.selected else {}),
        **({"own": True} if record.own else {}),
        "spread": m.spread, "noisy": m.noisy, "machine": m.machine, "ir_hash": m.ir_hash,
    })


def decode(line: str, where: str) -> Record:
    """Return the record in a line of either form; `where` is for messages. Raises `ModelError` if it is not a
    record."""
    try:
        row: dict[str, Any] = read_json(line)
        return _ansor(row) if is_ansor(row) else _autotvm(row)
    except _MALFORMED as error:
        raise ModelError(
            f"{where}: not a tuning record of AutoTVM or auto_scheduler, because {_reason(error)}: {line[:80]}",
            code="TW1101") from error


def _reason(error: Exception) -> str:
    """Return the reason why a line is not a record."""
    if isinstance(error, json.JSONDecodeError):
        return f"it is not JSON ({error.msg} at column {error.colno})"
    if isinstance(error, KeyError):
        return f"it has no {error}"
    return str(error) if isinstance(error, _UnsuitableError) else "a value has a wrong type or length"


class _UnsuitableError(ValueError):
    """A record has an unsuitable value; the message describes it."""


def is_ansor(row: Any) -> bool:
    """Return whether the JSON of a line is a record in Ansor's form."""
    return isinstance(row, dict) and isinstance(row.get("v"), str)


def _autotvm(row: dict[str, Any]) -> Record:
    given = row["input"] if "input" in row else row["i"]
    target, task, args, kwargs = given[:4]  # version 0.1 has the workload and the configuration after them
    if not isinstance(task, str) or not isinstance(args, list) or not isinstance(kwargs, dict):
        raise _UnsuitableError("its input is not [target, task, args, kwargs]")
    config: Any = row["config"] if "config" in row else given[5]
    measured = _measured(row["result"] if "result" in row else row["r"], row)
    key = json.dumps([task, args, kwargs])
    version, selected = str(row.get("tvm_version", "")), bool(row.get("selected", False))
    own = bool(row.get("own", False))
    return Record(str(target), key, json.dumps(config), measured, version, selected=selected, own=own)


def _ansor(row: dict[str, Any]) -> Record:
    if row["v"] not in _ANSOR_VERSIONS:
        raise _UnsuitableError(f"its version is {row['v']}; supported are {', '.join(_ANSOR_VERSIONS)}")
    (key, target, *others), (_, steps) = row["i"]
    hardware, *rest = others or [_HARDWARE]
    if not isinstance(key, str) or not str(target).strip():
        raise _UnsuitableError("its input is not [[workload key, target, …], [[], steps]]")
    layout, inputs = int(rest[1]) if len(rest) > 1 else 0, rest[2] if len(rest) > 2 else []
    about = json.dumps([(hardware + [0] * 8)[:8], layout, inputs])
    return Record(str(target), key, json.dumps(steps), _measured(row["r"], row), "", about, own=not steps)


def _measured(result: Any, row: dict[str, Any]) -> Measured:
    costs, error_no, all_cost, timestamp = result
    kind = MeasureErrorNo(int(error_no))
    given = tuple(map(float, costs if isinstance(costs, list) else [costs])) if kind == MeasureErrorNo.NO_ERROR else ()
    if kind == MeasureErrorNo.NO_ERROR and not (given and all(0 <= c < math.inf for c in given)):
        raise _UnsuitableError("its result has neither an error nor times")
    return Measured(
        given, kind, float(all_cost), float(timestamp), str(row.get("error", "")), bool(row.get("noisy", False)),
        float(row.get("spread", 0.0)), str(row.get("machine", "")), str(row.get("ir_hash", "")))


def _is_json(row: str) -> bool:
    try:
        read_json(row)
    except ValueError:
        return False
    return True


def _canonical(text: str) -> str:
    return json.dumps(json.loads(text), sort_keys=True)
