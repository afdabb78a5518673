"""What a cost model sees of a scheduled program: for each statement its arithmetic, its loops, and the memory that it touches.

Everything is read from the program with its blocks, before any loop pass: some milliseconds a program. The same facts give a
first guess at the time (`auto_scheduler/prior.py`), which orders candidates before anything has been measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np

from tilewright.scalar import expr as E
from tilewright.scalar import intrinsics as I
from tilewright.scalar.expr import Buffer, Call, IntImm, Load, PrimExpr, Select, Var, number_of
from tilewright.scalar.walk import walk
from tilewright.tir.stmt import PARALLEL, SERIAL, UNROLLED, VECTORIZED, Block, For, PrimFunc, Stmt, Store, bodies, walk_stmt
from tilewright.topi.machine import Machine

Array = np.ndarray[Any, Any]
LINE: Final = 64
"""Bytes of a cache line."""
_FUNCTION: Final = 12.0
"""A function such as exp counts as so many operations."""
_PLAIN: Final = (I.fma,)
WIDTH_OF_STATEMENT: Final = 22
WIDTH: Final = 2 * WIDTH_OF_STATEMENT + 12
"""The length of the features of a program."""


@dataclass(frozen=True, slots=True)
class Loop:
    var: Var
    extent: int
    kind: str


@dataclass(frozen=True, slots=True)
class Access:
    """A buffer that a statement reads or writes: how it moves along the vector loop (`contiguous`, `same`, `apart`), and for each
    depth of the loops the elements and the cache lines that the loops inside of it touch."""

    buffer: Buffer
    writes: bool
    lanes: str
    elements: tuple[float, ...]
    lines: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Statement:
    """One block. `region` is the depth from which on all loops are unrolled or vectorized; `sums` tells of a reduction,
    `in_registers` of one whose results stay there; `guarded` where a condition stands before it."""

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
        """How often the loops outside of `depth` run what is in it; all loops by default."""
        return float(prod(f.extent for f in self.loops[:depth]))

    @property
    def parallel(self) -> int:
        """The trips of the parallel loops around."""
        return prod(f.extent for f in self.loops if f.kind == PARALLEL)

    @property
    def unrolled(self) -> float:
        """Vectors, or points where there are no lanes, of one region."""
        return prod(f.extent for f in self.loops[self.region :] if f.kind != VECTORIZED)


def statements(func: PrimFunc) -> list[Statement]:
    """The statements of a scheduled program, in order: its blocks, and stores outside of blocks, as kernels have them that were lowered."""
    return [_statement(s, loops) if isinstance(s, Block) else _stored(s, loops) for s, loops in _parts(func.body, ())]


def vector_of(found: Sequence[Statement], machine: Machine, cycles: Sequence[float]) -> Array:
    """The features of a program: those of its two longest statements, and sums over all. [WIDTH] of float32.

    `cycles` are a guess for each statement (`prior.cycles`).
    """
    order = sorted(range(len(found)), key=lambda k: -cycles[k])
    parts: list[float] = []
    for k in order[:2]:
        parts += _of_statement(found[k], machine, cycles[k])
    parts += [0.0] * (2 * WIDTH_OF_STATEMENT - len(parts))
    total = max(1.0, sum(cycles))
    parts += [
        _log(total), float(len(found)), _log(sum(s.operations * s.trips() for s in found)), _log(sum(s.unrolled * (s.operations + 1) for s in found)),
        _log(max((s.unrolled for s in found), default=0)), float(sum(s.guarded for s in found)), float(sum(s.parallel > 1 for s in found)),
        *(_log(sum(traffic(s, size) for s in found)) for size in (machine.l1_bytes, machine.l2_bytes, 32 * machine.l2_bytes)),
        sum(c for k, c in enumerate(cycles) if found[k].parallel < 2) / total, sum(c for k, c in enumerate(cycles) if found[k].vector < 2) / total,
    ]
    return np.asarray(parts, np.float32)


def traffic(s: Statement, size: float) -> float:
    """The cache lines that come into a cache of `size` bytes: each time anew what the outermost loops that fit touch."""
    shared = [a for a in s.accesses if a.buffer.scope != "local"]
    for depth in range(len(s.loops) + 1):
        lines = sum(a.lines[depth] for a in shared)
        if lines * LINE <= size or depth == len(s.loops):
            return sum(_fetched(s, a, depth) for a in shared)
    return 0.0


def _fetched(s: Statement, a: Access, depth: int) -> float:
    """The lines of one access, where trips that touch the same again find it there."""
    around = depth
    while around and a.lines[around - 1] == a.lines[depth] and s.loops[around - 1].kind != PARALLEL:
        around -= 1
    return a.lines[depth] * s.trips(around)


def _of_statement(s: Statement, machine: Machine, cycles: float) -> list[float]:
    reads, writes = [a for a in s.accesses if not a.writes], [a for a in s.accesses if a.writes]
    inner = s.loops[s.region - 1].extent if s.region else 1
    region = s.region
    return [
        _log(cycles), _log(s.trips()), _log(s.operations), float(s.vector), _log(s.unrolled), _log(inner), _log(s.trips(region)), _log(s.parallel),
        float(s.sums), float(s.in_registers), float(s.guarded), float(len(s.loops)),
        *(_log(traffic(s, size)) for size in (machine.l1_bytes // 2, machine.l2_bytes // 2, 16 * machine.l2_bytes)),
        float(sum(a.lanes == "contiguous" for a in reads)), float(sum(a.lanes == "same" for a in reads)), float(sum(a.lanes == "apart" for a in reads)),
        float(any(a.lanes == "apart" for a in writes)), _log(sum(a.elements[region] for a in reads)), _log(sum(a.elements[region] for a in writes)),
        _log(sum(a.lines[max(0, region - 1)] for a in s.accesses)),
    ]


def _parts(s: Stmt, loops: tuple[Loop, ...]) -> Iterator[tuple[Block | Store, tuple[Loop, ...]]]:
    if isinstance(s, (Block, Store)):
        yield s, loops
        return
    if isinstance(s, For):
        loops = (*loops, Loop(s.var, s.extent.value if isinstance(s.extent, IntImm) else 1, s.kind))
    for b in bodies(s):
        yield from _parts(b, loops)


def _stored(store: Store, loops: tuple[Loop, ...]) -> Statement:
    """A store outside of blocks; it sums where it reads what it writes, along the loops that its place does not depend on."""
    moving = {v for i in store.indices for v in walk(i) if isinstance(v, Var)}
    sums = any(isinstance(e, Load) and e.buffer is store.buffer for e in walk(store.value))
    return _made(store.buffer.name, loops, [store], {}, sums, {f.var for f in loops} - moving, guarded=False)


def _statement(block: Block, loops: tuple[Loop, ...]) -> Statement:
    points: dict[PrimExpr, PrimExpr] = {i.var: b for i, b in zip(block.iters, block.bindings, strict=True)}
    stores = [s for s in walk_stmt(block.body) if isinstance(s, Store)]
    reduce = {v for i, b in zip(block.iters, block.bindings, strict=True) if i.kind == "reduce" for v in walk(b) if isinstance(v, Var)}
    return _made(block.name, loops, stores, points, block.init is not None, reduce, number_of(block.predicate) != 1)


def _made(
    name: str, loops: tuple[Loop, ...], stores: Sequence[Store], points: Mapping[PrimExpr, PrimExpr], sums: bool, reduce: set[Var], guarded: bool,
) -> Statement:
    region = len(loops)
    while region and (loops[region - 1].kind in (UNROLLED, VECTORIZED) or loops[region - 1].extent == 1):
        region -= 1
    lanes = [f for f in loops if f.kind == VECTORIZED]
    loads = dict.fromkeys(e for s in stores for top in (s.value,) for e in walk(top) if isinstance(e, Load))
    spans = _Spans(points, loops)
    written = {s.buffer for s in stores}
    accesses = [_access(s.buffer, s.indices, True, loops, lanes, spans) for s in stores]
    accesses += [_access(e.buffer, e.indices, False, loops, lanes, spans) for e in loads if not (sums and e.buffer in written)]
    return Statement(
        name, loops, region, prod(f.extent for f in lanes) if lanes else 1, sum(_operations(s.value) for s in stores), tuple(accesses),
        sums, sums and _in_registers(stores, points, loops, reduce), guarded,
    )


def _in_registers(stores: Sequence[Store], points: Mapping[PrimExpr, PrimExpr], loops: Sequence[Loop], reduce: set[Var]) -> bool:
    """Whether the results of a sum are a tile that is written out: no loop between the sum's own that moves them is left."""
    first = next((k for k, f in enumerate(loops) if f.var in reduce and f.extent > 1), len(loops))
    moving = {v for s in stores for i in s.indices for x in walk(i) for v in walk(points.get(x, x)) if isinstance(v, Var)}
    inside = [f for f in loops[first:] if f.var in moving]
    return all(s.buffer.scope == "local" for s in stores) and all(f.kind in (UNROLLED, VECTORIZED) or f.extent == 1 for f in inside)


def _access(buffer: Buffer, indices: Sequence[PrimExpr], writes: bool, loops: Sequence[Loop], lanes: Sequence[Loop], spans: _Spans) -> Access:
    elements, lines = [], []
    size = buffer.dtype.itemsize
    shape = [d.value if isinstance(d, IntImm) else 1 << 30 for d in buffer.shape]
    for depth in range(len(loops) + 1):
        widths = [min(w, n) for w, n in zip(spans.widths(indices, depth), shape, strict=True)]
        while len(widths) > 1 and widths[-1] == shape[len(widths) - 1]:  # whole rows lie side by side
            widths[-2:] = [widths[-2] * widths[-1]]
            shape_here = shape[: len(widths) - 1]
            if widths[-1] != prod(shape[len(widths) - 1 :]):
                shape_here = []
            if not shape_here:
                break
        elements.append(float(prod(widths)))
        lines.append(prod(widths[:-1]) * (1 + (widths[-1] - 1) * size // LINE) if widths else 1.0)
    kind = "same"
    if lanes:
        moved = spans.moved(indices, lanes[-1].var)
        kind = "same" if all(w == 1 for w in moved) else "contiguous" if all(w == 1 for w in moved[:-1]) and moved[-1] == lanes[-1].extent else "apart"
    return Access(buffer, writes, kind, tuple(elements), tuple(lines))


class _Spans:
    """How many values an index takes while some loops run."""

    def __init__(self, points: Mapping[PrimExpr, PrimExpr], loops: Sequence[Loop]) -> None:
        self.points, self.loops = points, loops
        self._memo: dict[tuple[PrimExpr, int], int] = {}
        self._place = {f.var: k for k, f in enumerate(loops)}

    def widths(self, indices: Sequence[PrimExpr], depth: int) -> list[int]:
        """While the loops from `depth` on run."""
        return [self._width(i, depth) for i in indices]

    def moved(self, indices: Sequence[PrimExpr], var: Var) -> list[int]:
        """While one loop runs."""
        extent = self.loops[self._place[var]].extent
        return [_width_of(i, self.points, lambda v: extent if v is var else 1) for i in indices]

    def _width(self, e: PrimExpr, depth: int) -> int:
        found = self._memo.get((e, depth))
        if found is None:
            place = self._place

            def extent(v: Var) -> int:
                k = place.get(v, -1)
                return self.loops[k].extent if k >= depth else 1

            found = self._memo[e, depth] = _width_of(e, self.points, extent)
        return found


def _width_of(e: PrimExpr, points: Mapping[PrimExpr, PrimExpr], extent: Any) -> int:
    """The greatest minus the least value, and one; a bound where it is not linear."""
    if isinstance(e, Var):
        point = points.get(e)
        return int(extent(e)) if point is None else _width_of(point, points, extent)
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
    """What computing a value costs, in operations of one cycle; indices cost nothing."""
    total, stack, seen = 0.0, [value], set[PrimExpr]()
    while stack:
        x = stack.pop()
        if x in seen or isinstance(x, Load):
            continue
        seen.add(x)
        if isinstance(x, Call):
            total += 1.0 if x.op in _PLAIN else _FUNCTION
        elif isinstance(x, E.Div):
            total += 4.0
        elif isinstance(x, (E.Add, E.Sub, E.Mul, E.Min, E.Max, Select)):
            total += 1.0
        stack += x.operands()
    return total


def _log(x: float) -> float:
    return math.log2(1.0 + max(0.0, x))


__all__ = ["SERIAL", "WIDTH", "Access", "Loop", "Statement", "statements", "traffic", "vector_of"]
