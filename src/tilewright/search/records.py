"""What was measured, one JSON line each, in the layout of AutoTVM 0.2:

    {"input": [target, task, args, kwargs], "config": {…}, "result": [[costs], error_no, all_cost, timestamp], "version": 0.2,
     "tvm_version": "0.1.0", "error": "…", "spread": 0.02, "noisy": false, "machine": "…", "ir_hash": "…"}

The keys behind `tvm_version` are ours; readers of the field's logs skip them. Costs of what failed are `[1e9]`. Files that TVM wrote are read.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from tilewright import __version__
from tilewright.base.errors import ModelError
from tilewright.base.json_reading import read_json
from tilewright.search.lines import LineFile
from tilewright.search.measure import Candidate, Measured, MeasureErrorNo

VERSION: Final = 0.2
FAILED_COST: Final = 1e9
_TRANSIENT: Final = (MeasureErrorNo.UNKNOWN_ERROR,)
"""What says nothing of a candidate: it is measured again, and not remembered."""


@dataclass(frozen=True, slots=True)
class Record:
    """A result and what it is of; `key` and `config` are JSON as `Candidate` has them."""

    target: str
    key: str
    config: str
    measured: Measured
    version: str = __version__
    """Of the compiler that made the code."""

    @property
    def identity(self) -> tuple[str, str, str]:
        return _canonical(self.key), _canonical(self.config), self.target

    @property
    def task(self) -> str:
        """The task's name."""
        return str(json.loads(self.key)[0])


class Records:
    """The records of a file and what is appended to them: the memory of `measure`. Several processes may write one file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Read what the file has, if it is there. Raises `ModelError` for a line that is no record, `OptionError` for a place without folder."""
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
        """One for each candidate, the last that was written."""
        return iter([*self._known.values()])

    def refresh(self) -> None:
        """Read what was appended since, also by other processes."""
        for line in self._file.new():
            self._count += 1
            if line.strip():
                record = decode(line, f"{self.path}:{self._count}")
                self._known[record.identity] = record

    def find(self, candidate: Candidate) -> Measured | None:
        """The result of this candidate, if there is one that says something of it."""
        found = self._known.get((_canonical(candidate.key), _canonical(candidate.config), candidate.target))
        return None if found is None or found.measured.error_no in _TRANSIENT else found.measured

    def add(self, candidate: Candidate, measured: Measured) -> None:
        """Append a result; one that says nothing of the candidate (`UNKNOWN_ERROR`) is not kept."""
        if measured.error_no not in _TRANSIENT:
            record = Record(candidate.target, candidate.key, candidate.config, measured)
            self._file.append(encode(record))
            self._known[record.identity] = record


def encode(record: Record) -> str:
    """A record as a line, without its end."""
    m = record.measured
    task, args, kwargs = json.loads(record.key)
    return json.dumps({
        "input": [record.target, task, args, kwargs], "config": json.loads(record.config),
        "result": [list(m.costs) if m.ok else [FAILED_COST], int(m.error_no), m.all_cost, m.timestamp], "version": VERSION, "tvm_version": record.version,
        **({"error": m.error} if m.error else {}), "spread": m.spread, "noisy": m.noisy, "machine": m.machine, "ir_hash": m.ir_hash,
    })


def decode(line: str, where: str) -> Record:
    """The record in a line of any AutoTVM log of version 0.2 or 0.1; `where` is for messages. Raises `ModelError`."""
    try:
        row: dict[str, Any] = read_json(line)
        target, task, args, kwargs = _input(row["input"] if "input" in row else row["i"])
        config: Any = row["config"] if "config" in row else row["i"][5]
        costs, error_no, all_cost, timestamp = row["result"] if "result" in row else row["r"]
        kind = MeasureErrorNo(int(error_no))
        measured = Measured(
            tuple(map(float, costs if isinstance(costs, list) else [costs])) if kind == MeasureErrorNo.NO_ERROR else (), kind, float(all_cost), float(timestamp),
            str(row.get("error", "")), bool(row.get("noisy", False)), float(row.get("spread", 0.0)), str(row.get("machine", "")), str(row.get("ir_hash", "")),
        )
        if kind == MeasureErrorNo.NO_ERROR and not (measured.costs and all(0 <= c < math.inf for c in measured.costs)):
            raise ValueError("a result without an error has no times")
        return Record(str(target), json.dumps([task, args, kwargs]), json.dumps(config), measured, str(row.get("tvm_version", "")))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        raise ModelError(f"{where}: not a tuning record of AutoTVM's layout ({type(error).__name__}: {error}): {line[:80]}", code="TW1101") from error


def _input(row: Any) -> tuple[Any, Any, Any, Any]:
    """[target, task, args, kwargs, …]: version 0.1 has the workload and the configuration behind them."""
    target, task, args, kwargs = row[:4]
    if not isinstance(task, str) or not isinstance(args, list) or not isinstance(kwargs, dict):
        raise ValueError("the input is not [target, task, args, kwargs]")
    return target, task, args, kwargs


def _canonical(text: str) -> str:
    return json.dumps(json.loads(text), sort_keys=True)
