"""Features of configurations: numbers of fixed length for cost models.

Those of kind `knob` come from the configuration alone (`KnobFeatures`); `itervar` and `curve` describe the loops of its
program (`search/features.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Final

import numpy as np

from tilewright.search.autotvm.task.entities import Entity
from tilewright.search.autotvm.task.space import Axis, ConfigSpace

Array = np.ndarray[Any, Any]
KINDS: Final = ("itervar", "knob", "curve")
Cells = Callable[[str, Entity], Iterable[tuple[Hashable, float]]]
"""The columns and values of an answer to a name."""


class AnswerTable:
    """Numbers of configurations, one row each, looked up per axis: 100,000 rows take tens of milliseconds."""

    def __init__(self, space: ConfigSpace, cells: Cells, absent: float, columns: Iterable[Hashable] = ()) -> None:
        """`columns` come first, then those that `cells` names. Missing cells are `absent`."""
        self._space, self._absent = space, absent
        self._columns = {name: k for k, name in enumerate(columns)}
        self._tables = [[self._table(axis, cells) for axis in branch] for branch in space.branches]
        self.width = max(1, len(self._columns))

    def _table(self, axis: Axis, cells: Cells) -> tuple[Array, Array]:
        """Return the numbers of each answer along an axis, and their columns."""
        rows = [
            dict(cell for n, e in zip(axis.names, answer, strict=True) for cell in cells(n, e))
            for answer in axis.answers]
        used = list(dict.fromkeys(name for row in rows for name in row))
        for name in used:
            self._columns.setdefault(name, len(self._columns))
        values = [[row.get(name, self._absent) for name in used] for row in rows]
        return np.asarray(values, np.float64), np.asarray([self._columns[name] for name in used], np.int64)

    def __call__(self, indices: Sequence[int] | Array) -> Array:
        """Return the numbers of the configurations of these indices, float64 [n, width]."""
        found = np.full((len(indices), self.width), self._absent)
        for branch, rows, answers in self._space.decoded(indices):
            for (table, used), k in zip(self._tables[branch], answers, strict=True):
                if len(used):
                    found[rows[:, None], used] = table[k]
        return found


class KnobFeatures(AnswerTable):
    """The answers of configurations as numbers; -1 for a name that a configuration lacks.

    Each number of each name has a column, and so has each answer that is not a number.
    """

    def __init__(self, space: ConfigSpace) -> None:
        super().__init__(space, lambda name, e: [((name, key), x) for key, x in _numbers(e)], -1.0)

    def __call__(self, indices: Sequence[int] | Array) -> Array:
        """Return the features of the configurations of these indices, float32 [n, width]."""
        return super().__call__(indices).astype(np.float32)


def _numbers(entity: Entity) -> list[tuple[Hashable, float]]:
    return [*enumerate(entity.features)] or [(str(entity.value), 1.0)]
