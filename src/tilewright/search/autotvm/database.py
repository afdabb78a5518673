"""TVM's `tvm.autotvm.database`: results by input, in memory.

    database = DummyDatabase()
    tuner.tune(…, callbacks=[autotvm.callback.log_to_database(database)])
    database.load(measure_input)                                # its latest result, None without one
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from tilewright.search.autotvm.measure import MeasureInput, MeasureResult
from tilewright.search.autotvm.record import measure_str_key

__all__ = ["Database", "DummyDatabase", "filter_inputs"]

Pair = tuple[MeasureInput, MeasureResult]


class Database(ABC):
    """A store of results."""

    @abstractmethod
    def load(self, inp: MeasureInput, get_all: bool = False) -> Any:
        """Return the latest result of an input, None without one; with `get_all`, all results in order."""

    @abstractmethod
    def save(self, inp: MeasureInput, res: MeasureResult, extend: bool = False) -> None:
        """Store a result; with `extend`, keep the earlier results of the input."""


def filter_inputs(
    db: Database, measure_inputs: Iterable[MeasureInput], retry: bool = False
) -> tuple[list[Pair], list[MeasureInput]]:
    """Return the inputs that have results, with the latest, and the inputs to measure: those without a result, and
    with `retry` those that failed."""
    known, unknown = list[Pair](), list[MeasureInput]()
    for inp in measure_inputs:
        found = db.load(inp)
        if found is None or (retry and not found.ok):
            unknown.append(inp)
        else:
            known.append((inp, found))
    return known, unknown


class DummyDatabase(Database):
    """A store in the memory of this process."""

    def __init__(self) -> None:
        self.flush()

    def flush(self) -> None:
        """Forget all results."""
        self._results: dict[str, tuple[MeasureInput, list[MeasureResult]]] = {}

    def load(self, inp: MeasureInput, get_all: bool = False) -> Any:
        _, found = self._results.get(measure_str_key(inp), (inp, []))
        return list(found) if get_all else found[-1] if found else None

    def save(self, inp: MeasureInput, res: MeasureResult, extend: bool = False) -> None:
        _, known = self._results.get(measure_str_key(inp), (inp, []))
        self._results[measure_str_key(inp)] = (inp, [*known, res] if extend else [res])

    def filter(self, func: Callable[[MeasureInput, list[MeasureResult]], bool]) -> list[Pair]:
        """Return each input for whose results `func(input, results)` is true, with its latest result."""
        return [(inp, found[-1]) for inp, found in self._results.values() if func(inp, found)]
