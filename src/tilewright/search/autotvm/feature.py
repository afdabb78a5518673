"""What a cost model sees of a program: numbers of fixed length, from its loops.

`itervar` describes the loops around the statement with the most work: lengths, kinds, what is touched inside of each. `curve` describes
how the memory that is touched grows with the trips, sampled at powers of two, so programs of other loops compare. Both are of loops
before they are vectorized and unrolled. The third kind, `knob`, needs no program (`KnobFeatures`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from tilewright.scalar.expr import Binary, Buffer, Call, IntImm, Load, PrimExpr, Var
from tilewright.scalar.walk import walk
from tilewright.search.autotvm.task.space import ConfigSpace
from tilewright.tir.stmt import Allocate, For, PrimFunc, Stmt, Store, bodies, expressions

Array = np.ndarray[Any, Any]
KINDS: Final = ("itervar", "knob", "curve")
_LOOPS: Final = 12
_BUFFERS: Final = 3
_LOOP_KINDS: Final = ("serial", "parallel", "vectorized", "unrolled")
_SAMPLES: Final = 24
_TYPICAL: Final = 32
"""Trips of a loop whose length is open."""

Nest = tuple[tuple[For, ...], Store]


def arithmetic(func: PrimFunc) -> float:
    """The operations on numbers that one run makes, a fused multiplication and addition as two."""
    return sum(_trips(loops) * _operations(store) for loops, store in _nests(func))


def of_program(func: PrimFunc, kind: str) -> Array:
    """The features `itervar` or `curve` of a program, float32."""
    nests = list(_nests(func))
    weights = [_trips(loops) * max(1.0, _operations(store)) for loops, store in nests]
    main = nests[int(np.argmax(weights))] if nests else ((), None)
    rest = [math.log2(1 + sum(weights)), math.log2(1 + max(weights, default=0.0)), math.log2(1 + sum(map(_bytes, _allocated(func.body)))), float(len(nests))]
    if main[1] is None:
        return np.zeros(len(rest) + (_LOOPS * _per_loop() if kind == "itervar" else _SAMPLES * (_BUFFERS + 1)), np.float32)
    rows = _loop_rows(main[0], main[1]) if kind == "itervar" else _curves(main[0], main[1])
    return np.asarray([*rest, *rows], np.float32)


def _nests(func: PrimFunc) -> Iterator[Nest]:
    """Every store, with the loops around it, outermost first."""
    stack: list[tuple[Stmt, tuple[For, ...]]] = [(func.body, ())]
    while stack:
        s, loops = stack.pop()
        if isinstance(s, Store):
            yield loops, s
        inside = (*loops, s) if isinstance(s, For) else loops
        stack.extend((b, inside) for b in reversed(bodies(s)))


def _extent(loop: For) -> int:
    return loop.extent.value if isinstance(loop.extent, IntImm) else _TYPICAL


def _trips(loops: Sequence[For]) -> float:
    return float(math.prod(map(_extent, loops)))


def _operations(store: Store) -> float:
    count = 0.0
    for e in walk(store.value):
        if isinstance(e, (Binary, Call)) and e.dtype.is_float:
            count += 2.0 if isinstance(e, Call) and e.op.name == "fma" else 1.0
    return count or (2.0 if any(isinstance(e, Call) for e in walk(store.value)) else 0.0)


def _allocated(s: Stmt) -> Iterator[Buffer]:
    if isinstance(s, Allocate):
        yield s.buffer
    for b in bodies(s):
        yield from _allocated(b)


def _bytes(buffer: Buffer) -> float:
    return float(math.prod(d.value if isinstance(d, IntImm) else d if isinstance(d, int) else _TYPICAL for d in buffer.shape)) * buffer.dtype.itemsize


def _accesses(store: Store) -> list[tuple[Buffer, frozenset[Var]]]:
    """The buffers of a statement, the one that is written first, with the loops that its indices follow."""
    found: dict[Buffer, set[Var]] = {store.buffer: _variables(store.indices)}
    for top in expressions(store):
        for e in walk(top):
            if isinstance(e, Load):
                found.setdefault(e.buffer, set()).update(_variables(e.indices))
    return [(b, frozenset(v)) for b, v in found.items()][:_BUFFERS]


def _variables(indices: Sequence[PrimExpr]) -> set[Var]:
    return {e for i in indices for e in walk(i) if isinstance(e, Var)}


def _per_loop() -> int:
    return 3 + len(_LOOP_KINDS) + 2 * _BUFFERS


def _loop_rows(loops: Sequence[For], store: Store) -> list[float]:
    """For each loop, innermost first: length, trips outside and inside, kind, and what is touched and used again inside."""
    accesses, rows = _accesses(store), []
    for depth in range(len(loops) - 1, max(-1, len(loops) - 1 - _LOOPS), -1):
        loop, inside = loops[depth], loops[depth:]
        kinds = [float(loop.kind == k) for k in _LOOP_KINDS]
        row = [math.log2(_extent(loop)), math.log2(_trips(loops[:depth])), math.log2(_trips(inside)), *kinds]
        for _, used in accesses:
            touched = math.prod(_extent(v) for v in inside if v.var in used)
            row += [math.log2(touched), math.log2(_trips(inside) / touched)]
        rows.append(row + [0.0] * (_per_loop() - len(row)))
    return [x for row in rows + [[0.0] * _per_loop()] * (_LOOPS - len(rows)) for x in row]


def _curves(loops: Sequence[For], store: Store) -> list[float]:
    """For each buffer, and for all together: log2 of the elements touched within 2^k trips of the innermost loops."""
    accesses = _accesses(store)
    trips, touched = [0.0], [[0.0] * len(accesses)]
    for depth in range(len(loops) - 1, -1, -1):
        inside = loops[depth:]
        trips.append(math.log2(_trips(inside)))
        touched.append([math.log2(math.prod(_extent(v) for v in inside if v.var in used)) for _, used in accesses])
    at = np.arange(_SAMPLES, dtype=np.float64)
    columns = [np.interp(at, trips, [row[k] for row in touched]) for k in range(len(accesses))]
    total = np.interp(at, trips, [math.log2(sum(2.0**t for t in row)) for row in touched])
    filled = [*columns, *[np.zeros(_SAMPLES)] * (_BUFFERS - len(columns)), total]
    return [float(x) for c in filled for x in c]


class KnobFeatures:
    """The answers of configurations as numbers, a row each: read off tables, so 100,000 candidates take tens of milliseconds.

    A column for each number of each name; -1 where a configuration has no such name. Answers that are no numbers have a column each.
    """

    def __init__(self, space: ConfigSpace) -> None:
        self._branches = space.branches
        self._sizes = np.cumsum([0, *(math.prod(len(a.answers) for a in b) for b in self._branches)])
        columns: dict[tuple[str, Any], int] = {}
        cells: list[list[list[list[tuple[int, float]]]]] = []
        for branch in self._branches:
            cells.append([
                [[(columns.setdefault((n, key), len(columns)), x) for n, e in zip(a.names, answer, strict=True) for key, x in _numbers(e)] for answer in a.answers]
                for a in branch
            ])
        self.width = max(1, len(columns))
        self._tables = [[_table(axis, self.width) for axis in branch] for branch in cells]

    def __call__(self, indices: Sequence[int] | Array) -> Array:
        """The features of the configurations of these indices, float32 [n, width]."""
        given = np.asarray(indices, np.int64)
        found = np.full((len(given), self.width), -1.0, np.float32)
        which = np.searchsorted(self._sizes, given, side="right") - 1
        for b, tables in enumerate(self._tables):
            rows = np.nonzero(which == b)[0]
            if not len(rows):
                continue
            left = given[rows] - self._sizes[b]
            for table, used in tables:
                left, k = left // len(table), left % len(table)
                found[rows[:, None], used] = table[k]
        return found


def _numbers(entity: Any) -> list[tuple[Any, float]]:
    return list(enumerate(entity.features)) or [(entity.value if isinstance(entity.value, str) else str(entity.value), 1.0)]


def _table(answers: Sequence[Sequence[tuple[int, float]]], width: int) -> tuple[Array, Array]:
    """The columns that an axis fills, and their values for each of its answers."""
    full = np.full((len(answers), width), -1.0, np.float32)
    for row, cells in zip(full, answers, strict=True):
        for column, x in cells:
            row[column] = x
    used = np.asarray(sorted({c for cells in answers for c, _ in cells}), np.int64)
    return full[:, used], used
