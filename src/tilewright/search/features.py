"""Features of programs for cost models: the arithmetic, the loops and the memory accesses of each statement.

`vector_of` describes a program by its two longest statements; `of_loops` describes its main statement loop by loop
(`itervar`) or by how its memory accesses grow with the trips (`curve`). All are read from the program before any loop
pass, in some milliseconds. The model of cycles (`search/cycles.py`) starts from the same statements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np

from tilewright.backends.machine import Machine
from tilewright.base.graphs import reachable
from tilewright.scalar import expr as E
from tilewright.scalar import intrinsics as I
from tilewright.scalar.expr import Buffer, Call, IntImm, Load, PrimExpr, Select, Var, number_of
from tilewright.scalar.walk import walk
from tilewright.tir.stmt import (
    PARALLEL,
    UNROLLED,
    VECTORIZED,
    Allocate,
    Block,
    For,
    PrimFunc,
    Stmt,
    Store,
    bodies,
    walk_stmt,
)

Array = np.ndarray[Any, Any]
LINE: Final = 64
"""Bytes of a cache line."""
_FUNCTION: Final = 12.0
"""Operations that a function such as exp counts as."""
WIDTH_OF_STATEMENT: Final = 22
WIDTH: Final = 2 * WIDTH_OF_STATEMENT + 12
"""Length of the features of a program."""
_LOOPS: Final = 12
_BUFFERS: Final = 3
_SAMPLES: Final = 24
"""Loops, buffers and sampled trips of the features of a main statement."""
_LOOP_KINDS: Final = ("serial", "parallel", "vectorized", "unrolled")
_PER_LOOP: Final = 3 + len(_LOOP_KINDS) + 2 * _BUFFERS
_UNKNOWN: Final = 32
"""Assumed trips of a loop of unknown length, for `of_loops`."""


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop around a statement; an unknown extent counts as 1."""

    var: Var
    extent: int
    kind: str


@dataclass(frozen=True, slots=True)
class Access:
    """A buffer that a statement reads or writes.

    `lanes` is the movement of the access along the vector loop: `contiguous`, `same` or `apart`. `elements` and `lines`
    are, for each loop depth, the elements and the cache lines that the inner loops touch.
    """

    buffer: Buffer
    writes: bool
    lanes: str
    elements: tuple[float, ...]
    lines: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Statement:
    """A block. All loops from depth `region` on are unrolled or vectorized. `sums`: it is a reduction; `in_registers`:
    its results stay in registers; `guarded`: it is under a condition."""

    name: str
    loops: tuple[Loop, ...]
    region: int
    vector: int
    operations: float
    accesses: tuple[Access, ...]
    sums: bool
    in_registers: bool
    guarded: bool

    def trips(self, depth: int | None = None) -> float:
        """Return the number of iterations of the loops outside `depth`, by default of all loops."""
        return float(prod(f.extent for f in self.loops[:depth]))

    @property
    def parallel(self) -> int:
        """The trips of the parallel loops."""
        return prod(f.extent for f in self.loops if f.kind == PARALLEL)

    @property
    def unrolled(self) -> float:
        """Number of vectors (or of points without lanes) in one region."""
        return prod(f.extent for f in self.loops[self.region :] if f.kind != VECTORIZED)


def statements(func: PrimFunc) -> list[Statement]:
    """Return the statements of a program in order: blocks, and the stores outside blocks of lowered kernels."""
    found = _parts(func.body, ())
    return [
        _statement(s, loops) if isinstance(s, Block) else _stored(s, loops) for s,
        loops in found if isinstance(s, (Block, Store))]


def vector_of(found: Sequence[Statement], machine: Machine, cycles: Sequence[float]) -> Array:
    """Return the features of a program, [WIDTH] float32: those of its two longest statements, and sums over all.

    `cycles` are the estimate for each statement (`cycles.cycles`).
    """
    order = sorted(range(len(found)), key=lambda k: -cycles[k])
    parts: list[float] = []
    for k in order[:2]:
        parts += _of_statement(found[k], machine, cycles[k])
    parts += [0.0] * (2 * WIDTH_OF_STATEMENT - len(parts))
    total = max(1.0, sum(cycles))
    caches = (machine.l1_bytes, machine.l2_bytes, 32 * machine.l2_bytes)
    parts += [
        _log(total), float(len(found)), _log(sum(s.operations * s.trips() for s in found)),
        _log(sum(s.unrolled * (s.operations + 1) for s in found)), _log(max((s.unrolled for s in found), default=0)),
        float(sum(s.guarded for s in found)), float(sum(s.parallel > 1 for s in found)),
        *(_log(sum(traffic(s, size) for s in found)) for size in caches),
        sum(c for s, c in zip(found, cycles, strict=True) if s.parallel < 2) / total,
        sum(c for s, c in zip(found, cycles, strict=True) if s.vector < 2) / total,
    ]
    return np.asarray(parts, np.float32)


def traffic(s: Statement, size: float) -> float:
    """Return the cache lines loaded into a cache of `size` bytes, by the outermost loops whose data fits."""
    shared = [a for a in s.accesses if a.buffer.scope != "local"]
    for depth in range(len(s.loops) + 1):
        lines = sum(a.lines[depth] for a in shared)
        if lines * LINE <= size or depth == len(s.loops):
            return sum(_fetched(s, a, depth) for a in shared)
    return 0.0


def _fetched(s: Statement, a: Access, depth: int) -> float:
    """Return the lines that one access loads; repeated accesses to the same lines hit the cache."""
    around = depth
    while around and a.lines[around - 1] == a.lines[depth] and s.loops[around - 1].kind != PARALLEL:
        around -= 1
    return a.lines[depth] * s.trips(around)


def _of_statement(s: Statement, machine: Machine, cycles: float) -> list[float]:
    reads, writes = [a for a in s.accesses if not a.writes], [a for a in s.accesses if a.writes]
    inner = s.loops[s.region - 1].extent if s.region else 1
    region = s.region
    caches = (machine.l1_bytes // 2, machine.l2_bytes // 2, 16 * machine.l2_bytes)
    return [
        _log(cycles), _log(s.trips()), _log(s.operations), float(s.vector), _log(s.unrolled), _log(inner),
        _log(s.trips(region)), _log(s.parallel), float(s.sums), float(s.in_registers), float(s.guarded),
        float(len(s.loops)), *(_log(traffic(s, size)) for size in caches),
        *(float(sum(a.lanes == kind for a in reads)) for kind in ("contiguous", "same", "apart")),
        float(any(a.lanes == "apart" for a in writes)),
        *(_log(sum(a.elements[region] for a in part)) for part in (reads, writes)),
        _log(sum(a.lines[max(0, region - 1)] for a in s.accesses)),
    ]


def of_loops(func: PrimFunc, kind: str) -> Array:
    """Return features of the whole program, then `itervar` or `curve` of its main statement, float32."""
    found = statements(func)
    weights = [s.trips() * max(1.0, s.operations) for s in found]
    memory = sum(_nbytes(s.buffer) for s in walk_stmt(func.body) if isinstance(s, Allocate))
    rest = [_log(sum(weights)), _log(max(weights, default=0.0)), _log(memory), float(len(found))]
    length = _LOOPS * _PER_LOOP if kind == "itervar" else _SAMPLES * (_BUFFERS + 1)
    rows = (_loop_rows if kind == "itervar" else _curves)(found[int(np.argmax(weights))]) if found else []
    return np.asarray([*rest, *rows, *[0.0] * (length - len(rows))], np.float32)


def _loop_rows(s: Statement) -> list[float]:
    """Describe each loop, innermost first: its length, trips and kind, and the elements touched and reused inside."""
    rows: list[float] = []
    for depth in range(len(s.loops) - 1, max(-1, len(s.loops) - 1 - _LOOPS), -1):
        loop, inside = s.loops[depth], s.trips() / s.trips(depth)
        row = [
            math.log2(loop.extent), math.log2(s.trips(depth)), math.log2(inside),
            *(float(loop.kind == k) for k in _LOOP_KINDS)
        ]
        for a in s.accesses[:_BUFFERS]:
            row += [math.log2(max(1.0, a.elements[depth])), math.log2(max(1.0, inside / max(1.0, a.elements[depth])))]
        rows += row + [0.0] * (_PER_LOOP - len(row))
    return rows


def _curves(s: Statement) -> list[float]:
    """Sample, for each buffer and for all, log2 of the elements touched within 2^k trips of the innermost loops."""
    depths = range(len(s.loops), -1, -1)
    trips = [math.log2(s.trips() / s.trips(depth)) for depth in depths]
    touched = [[max(1.0, a.elements[depth]) for depth in depths] for a in s.accesses[:_BUFFERS]]
    at = np.arange(_SAMPLES, dtype=np.float64)
    rows = [np.interp(at, trips, np.log2(t)) for t in touched] + [np.zeros(_SAMPLES)] * (_BUFFERS - len(touched))
    return [float(x) for row in (*rows, np.interp(at, trips, np.log2(np.sum(touched, axis=0)))) for x in row]


def arithmetic(func: PrimFunc) -> float:
    """Return the arithmetic operations of one run; a fused multiplication and addition counts as two."""
    stores = _parts(func.body, (), Store)
    return sum(prod(f.extent for f in loops) * _arithmetic(s) for s, loops in stores if isinstance(s, Store))


def _stores(s: Block | Store) -> list[Store]:
    return [s] if isinstance(s, Store) else [x for x in walk_stmt(s.body) if isinstance(x, Store)]


def _arithmetic(store: Store) -> float:
    values = [e for e in walk(store.value) if isinstance(e, (E.Binary, Call))]
    count = sum(2.0 if isinstance(e, Call) and e.op is I.fma else 1.0 for e in values if e.dtype.is_float)
    return count or (2.0 if any(isinstance(e, Call) for e in values) else 0.0)


def _nbytes(buffer: Buffer) -> float:
    return float(prod(int(number_of(d) or _UNKNOWN) for d in buffer.shape)) * buffer.dtype.itemsize


def _parts(
    s: Stmt, loops: tuple[Loop, ...], kinds: type[Any] | tuple[type[Any], ...] = (Block, Store),
) -> Iterator[tuple[Stmt, tuple[Loop, ...]]]:
    """Iterate over the outermost statements of some kinds and the loops around them, in order."""
    if isinstance(s, kinds):
        yield s, loops
        return
    if isinstance(s, For):
        loops = (*loops, Loop(s.var, s.extent.value if isinstance(s.extent, IntImm) else 1, s.kind))
    for b in bodies(s):
        yield from _parts(b, loops, kinds)


def _stored(store: Store, loops: tuple[Loop, ...]) -> Statement:
    """Describe a store outside blocks. It sums if it reads what it writes, along loops without its indices."""
    moving = {v for i in store.indices for v in walk(i) if isinstance(v, Var)}
    sums = any(isinstance(e, Load) and e.buffer is store.buffer for e in walk(store.value))
    return _made(store.buffer.name, loops, [store], {}, sums, {f.var for f in loops} - moving, guarded=False)


def _statement(block: Block, loops: tuple[Loop, ...]) -> Statement:
    points: dict[PrimExpr, PrimExpr] = {i.var: b for i, b in zip(block.iters, block.bindings, strict=True)}
    reducing = (b for i, b in zip(block.iters, block.bindings, strict=True) if i.kind == "reduce")
    reduce = {v for b in reducing for v in walk(b) if isinstance(v, Var)}
    guarded = number_of(block.predicate) != 1
    return _made(block.name, loops, _stores(block), points, block.init is not None, reduce, guarded)


def _made(
    name: str, loops: tuple[Loop, ...], stores: Sequence[Store], points: Mapping[PrimExpr, PrimExpr], sums: bool,
    reduce: set[Var], guarded: bool,
) -> Statement:
    region = len(loops)
    while region and (loops[region - 1].kind in (UNROLLED, VECTORIZED) or loops[region - 1].extent == 1):
        region -= 1
    lanes = [f for f in loops if f.kind == VECTORIZED]
    loads = dict.fromkeys(e for s in stores for e in walk(s.value) if isinstance(e, Load))
    spans = _Spans(points, loops)
    written = {s.buffer for s in stores}
    accesses = [_access(s.buffer, s.indices, True, loops, lanes, spans) for s in stores]
    accesses += [
        _access(e.buffer, e.indices, False, loops, lanes, spans) for e in loads if not (sums and e.buffer in written)]
    return Statement(
        name, loops, region, prod(f.extent for f in lanes), sum(_operations(s.value) for s in stores), tuple(accesses),
        sums, sums and _in_registers(stores, points, loops, reduce), guarded)


def _in_registers(
    stores: Sequence[Store], points: Mapping[PrimExpr, PrimExpr], loops: Sequence[Loop], reduce: set[Var],
) -> bool:
    """Return whether the results of a sum are an unrolled tile, so that they stay in registers."""
    first = next((k for k, f in enumerate(loops) if f.var in reduce and f.extent > 1), len(loops))
    moving = {
        v for s in stores for i in s.indices for x in walk(i) for v in walk(points.get(x, x)) if isinstance(v, Var)}
    inside = [f for f in loops[first:] if f.var in moving]
    return all(s.buffer.scope == "local" for s in stores) and all(
        f.kind in (UNROLLED, VECTORIZED) or f.extent == 1 for f in inside)


def _access(
    buffer: Buffer, indices: Sequence[PrimExpr], writes: bool, loops: Sequence[Loop], lanes: Sequence[Loop],
    spans: _Spans,
) -> Access:
    elements, lines = [], []
    size = buffer.dtype.itemsize
    shape = [d.value if isinstance(d, IntImm) else 1 << 30 for d in buffer.shape]
    for depth in range(len(loops) + 1):
        widths = [min(w, n) for w, n in zip(spans.widths(indices, depth), shape, strict=True)]
        while len(widths) > 1 and widths[-1] == shape[len(widths) - 1]:  # whole rows are contiguous
            widths[-2:] = [widths[-2] * widths[-1]]
            if widths[-1] != prod(shape[len(widths) - 1 :]):
                break
        elements.append(float(prod(widths)))
        lines.append(prod(widths[:-1]) * (1 + (widths[-1] - 1) * size // LINE) if widths else 1.0)
    moved = spans.moved(indices, lanes[-1]) if lanes else []
    kind = "same"
    if any(w != 1 for w in moved):
        kind = "contiguous" if all(w == 1 for w in moved[:-1]) and moved[-1] == lanes[-1].extent else "apart"
    return Access(buffer, writes, kind, tuple(elements), tuple(lines))


class _Spans:
    """The number of values that an index takes while some loops run."""

    def __init__(self, points: Mapping[PrimExpr, PrimExpr], loops: Sequence[Loop]) -> None:
        self.points, self.loops = points, loops
        self._memo: dict[tuple[PrimExpr, int], int] = {}
        self._depth = {f.var: k for k, f in enumerate(loops)}

    def widths(self, indices: Sequence[PrimExpr], depth: int) -> list[int]:
        """Return the values of each index while the loops from `depth` on run."""
        return [self._width(i, depth) for i in indices]

    def moved(self, indices: Sequence[PrimExpr], loop: Loop) -> list[int]:
        """Return the values of each index while one loop runs."""
        return [_width_of(i, self.points, lambda v: loop.extent if v is loop.var else 1) for i in indices]

    def _width(self, e: PrimExpr, depth: int) -> int:
        def extent(v: Var) -> int:
            k = self._depth.get(v, -1)
            return self.loops[k].extent if k >= depth else 1

        found = self._memo.get((e, depth))
        if found is None:
            found = self._memo[e, depth] = _width_of(e, self.points, extent)
        return found


def _width_of(e: PrimExpr, points: Mapping[PrimExpr, PrimExpr], extent: Callable[[Var], int]) -> int:
    """Return the maximum minus the minimum, plus one; a bound if the index is not linear."""
    if isinstance(e, Var):
        point = points.get(e)
        return extent(e) if point is None else _width_of(point, points, extent)
    if isinstance(e, IntImm):
        return 1
    if isinstance(e, (E.Add, E.Sub)):
        return _width_of(e.a, points, extent) + _width_of(e.b, points, extent) - 1
    if isinstance(e, E.Mul):
        a, b = number_of(e.a), number_of(e.b)
        factor, other = (a, e.b) if a is not None else (b, e.a)
        return (_width_of(other, points, extent) - 1) * abs(int(factor if factor is not None else 1)) + 1
    if isinstance(e, E.FloorDiv):
        return (_width_of(e.a, points, extent) - 1) // max(1, int(number_of(e.b) or 1)) + 1
    if isinstance(e, E.FloorMod):
        return min(_width_of(e.a, points, extent), max(1, int(number_of(e.b) or 1)))
    return max((_width_of(o, points, extent) for o in e.operands()), default=1)


def _operations(value: PrimExpr) -> float:
    """Return the cost of computing a value, in operations of one cycle; indices cost nothing."""
    total = 0.0
    for x in reachable([value], lambda x: () if isinstance(x, Load) else x.operands()):
        if isinstance(x, Call):
            total += 1.0 if x.op is I.fma else _FUNCTION
        elif isinstance(x, E.Div):
            total += 4.0
        elif isinstance(x, (E.Add, E.Sub, E.Mul, E.Min, E.Max, Select)):
            total += 1.0
    return total


def _log(x: float) -> float:
    return math.log2(1.0 + max(0.0, x))
