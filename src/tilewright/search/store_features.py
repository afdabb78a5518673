"""Features of each store of a program, under TVM's names: 164 numbers that its cost models learn from.

    names()            ["float_mad", "float_addsub", …, "B0.bytes", …, "auto_unroll_max_step"]
    of_stores(func)    an array [stores, 164]

Each store of a computed value is a row: the arithmetic of all its trips, the loops of each kind around it, its five
largest buffers with the memory that they touch and the distance to the next use of it, the arithmetic intensity as
the loops go on, and the allocation of its buffer. Loops of one trip and stores of constants do not count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final, TypeAlias

import numpy as np

from tilewright.scalar import expr as E
from tilewright.scalar import intrinsics as I
from tilewright.scalar.arith import Ranges, bounds, simplify
from tilewright.scalar.expr import Buffer, Call, Load, PrimExpr, Var, number_of
from tilewright.scalar.walk import rewrite, substitute, walk
from tilewright.tir.stmt import (
    PARALLEL,
    THREAD,
    UNROLLED,
    VECTORIZED,
    Allocate,
    Block,
    For,
    Let,
    PrimFunc,
    Stmt,
    Store,
    bodies,
    walk_stmt,
)
from tilewright.tir.transform.lower_blocks import lower_blocks

Array: TypeAlias = np.ndarray[Any, Any]
Indices: TypeAlias = tuple[PrimExpr, ...]
MAX_BUFFERS: Final = 5
CACHE_LINE: Final = 64
_CURVE: Final = 10
"""Samples of the arithmetic intensity."""
_OPERATIONS: Final = ("mad", "addsub", "mul", "divmod", "cmp", "mathfunc", "otherfunc")
_MULTIPLY_ADD, _MATH, _OTHER, _LOGICAL, _SELECT = 0, 5, 6, 14, 15
_PLACES: Final = (
    "None", "InnerSpatial", "MiddleSpatial", "OuterSpatial", "InnerReduce", "MiddleReduce", "OuterReduce", "Mixed")
_THREADS: Final = ("blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z", "vthread")
_BY_TYPE: Final[dict[type, int]] = {
    E.Add: 1, E.Sub: 1, E.Mul: 2, E.Div: 3, E.FloorDiv: 3, E.FloorMod: 3, E.TruncDiv: 3, E.TruncMod: 3, E.Min: 4,
    E.Max: 4, E.EQ: 4, E.NE: 4, E.LT: 4, E.LE: 4, E.GT: 4, E.GE: 4}
_NO_REUSE: Final = "kNoReuse"
_LOOP_REUSE: Final = "kLoopMultipleRead"
_SERIAL_REUSE: Final = "kSerialMultipleReadWrite"
_REUSES: Final = (_LOOP_REUSE, _SERIAL_REUSE, _NO_REUSE)
_OF_BUFFER: Final = (
    "acc_type.kRead", "acc_type.kWrite", "acc_type.kReadWrite", "bytes", "unique_bytes", "lines", "unique_lines",
    *(f"reuse_type.{kind}" for kind in _REUSES), "reuse_dis_iter", "reuse_dis_bytes", "reuse_ct", "bytes_d_reuse_ct",
    "unique_bytes_d_reuse_ct", "lines_d_reuse_ct", "unique_lines_d_reuse_ct", "stride")


def names(max_buffers: int = MAX_BUFFERS) -> list[str]:
    """Return the names of the features, in order."""
    return [
        *(f"{kind}_{name}" for kind in ("float", "int") for name in _OPERATIONS), "bool_op", "select_op",
        *(f"{kind}_{name}" for kind in ("vec", "unroll", "parallel")
          for name in ("num", "prod", "len", *(f"type.kPos{place}" for place in _PLACES))),
        "is_gpu", *(f"{tag.replace('.', '_')}_len" for tag in _THREADS),
        *(f"B{k}.{name}" for k in range(max_buffers) for name in _OF_BUFFER),
        *(f"arith_intensity_curve_{k}" for k in range(_CURVE)),
        "alloc_size", "alloc_prod", "alloc_outer_prod", "alloc_inner_prod", "outer_prod", "num_loops",
        "auto_unroll_max_step"]


def of_stores(
    func: PrimFunc, *, is_gpu: bool = False, max_buffers: int = MAX_BUFFERS, cache_line: int = CACHE_LINE,
    log_scale: bool = True,
) -> Array:
    """Return the features of each store of a scheduled or lowered program, float64 [stores, features].

    Numbers are on the scale `log2(1 + x)`, unless `log_scale` is false.
    """
    blocks = any(isinstance(s, Block) for s in walk_stmt(func.body))
    body = lower_blocks(func).body if blocks else func.body
    touched: dict[For, dict[Buffer, list[_Touch]]] = {}
    rows = [_Row(nest, touched, cache_line).features(is_gpu, max_buffers) for nest in _nests(body, _Around())]
    found = np.asarray(rows, np.float64).reshape(len(rows), len(names(max_buffers)))
    return np.sign(found) * np.log2(1 + np.abs(found)) if log_scale else found


@dataclass(frozen=True, slots=True)
class _Around:
    """The surroundings of a statement: loops, values of variables, places of allocations, and steps to unroll."""

    loops: tuple[For, ...] = ()
    values: Mapping[PrimExpr, PrimExpr] = field(default_factory=dict)
    allocated: Mapping[Buffer, int] = field(default_factory=dict)
    """The number of loops around each allocation."""
    unroll_steps: int = 0

    def inside(self, s: Stmt) -> _Around:
        """Return the surroundings of the statements inside `s`."""
        if isinstance(s, Allocate):
            return _Around(self.loops, self.values, {**self.allocated, s.buffer: len(self.loops)}, self.unroll_steps)
        if isinstance(s, Let):
            return self._with(s.var, s.value)
        if not isinstance(s, For):
            return self
        steps = int(s.annotations.get("pragma_auto_unroll_max_step", self.unroll_steps))
        tag = s.annotations.get(THREAD)
        same = next((f for f in self.loops if tag is not None and f.annotations.get(THREAD) == tag), None)
        here = _Around(self.loops, self.values, self.allocated, steps)
        if same is not None:
            return here._with(s.var, same.var)
        if number_of(s.extent) == 1:
            return here._with(s.var, s.min)
        return _Around((*self.loops, s), self.values, self.allocated, steps)

    def _with(self, var: Var, value: PrimExpr) -> _Around:
        values = {**self.values, var: substitute(value, self.values)}
        return _Around(self.loops, values, self.allocated, self.unroll_steps)


@dataclass(frozen=True, slots=True)
class _Nest:
    """A store of a computed value, in terms of the loops around it."""

    store: Store
    around: _Around

    @property
    def loops(self) -> tuple[For, ...]:
        return self.around.loops

    def trips(self, first: int = 0, last: int | None = None) -> int:
        """Return the trips of a range of loops."""
        return prod(_trips(f) for f in self.loops[first:last])


def _nests(s: Stmt, around: _Around) -> Iterator[_Nest]:
    """Iterate over the stores of computed values, in order."""
    if isinstance(s, Store):
        if not isinstance(s.value, (E.IntImm, E.FloatImm)):
            yield _Nest(_in_loops(s, around), around)
        return
    inside = around.inside(s)
    for b in bodies(s):
        yield from _nests(b, inside)


def _in_loops(s: Store, around: _Around) -> Store:
    """Return a store with its indices in terms of the loops around it, simplified."""
    ranges = _ranges(around.loops, 0)
    memo: dict[PrimExpr, PrimExpr] = {}

    def known(e: PrimExpr) -> PrimExpr | None:
        if isinstance(e, Load):
            return Load(e.buffer, tuple(simplify(rewrite(i, known, memo), ranges) for i in e.indices))
        return around.values.get(e)

    indices = tuple(simplify(rewrite(i, known, memo), ranges) for i in s.indices)
    return Store(s.buffer, rewrite(s.value, known, memo), indices)


def _trips(loop: For) -> int:
    """Return the trips of a loop; an unknown number counts as 1."""
    found = number_of(loop.extent)
    return 1 if found is None else max(0, int(found))


def _ranges(loops: Sequence[For], first: int) -> Ranges:
    """Return the values of loop variables while the loops from `first` on run; the others stay at their first value."""
    ranges = Ranges()
    for k, loop in enumerate(loops):
        begin = int(number_of(loop.min) or 0)
        ranges = ranges.bind(loop.var, begin, begin + (max(1, _trips(loop)) - 1 if k >= first else 0))
    return ranges


@dataclass(frozen=True, slots=True)
class _Touch:
    """The elements that one store touches in a buffer during a loop."""

    elements: int
    itemsize: int

    @property
    def nbytes(self) -> int:
        return self.elements * self.itemsize


@dataclass(slots=True)
class _Access:
    """The accesses of one store to a buffer."""

    buffer: Buffer
    places: list[Indices] = field(default_factory=list)
    reads: bool = False
    writes: bool = False

    @property
    def shape(self) -> list[int]:
        return [int(number_of(E.as_expr(d)) or 1) for d in self.buffer.shape]

    def extents(self, loops: Sequence[For], first: int) -> list[int]:
        """Return the elements along each dimension that are accessed while the loops from `first` on run."""
        if any(_trips(f) == 0 for f in loops[first:]):
            return [0] * len(self.shape)
        ranges, found = _ranges(loops, first), list[int]()
        for k, size in enumerate(self.shape):
            spans = [bounds(place[k], ranges) for place in self.places]
            lows, highs = [lo for lo, _ in spans if lo is not None], [hi for _, hi in spans if hi is not None]
            is_known = len(lows) == len(highs) == len(spans)
            found.append(max(highs) - min(lows) + 1 if is_known else size)
        return found

    def elements(self, loops: Sequence[For], first: int) -> int:
        """Return the elements of the box that is accessed while the loops from `first` on run."""
        return prod(self.extents(loops, first))

    def moves_with(self, var: Var) -> bool:
        """Return whether an access depends on a loop."""
        return any(x is var for place in self.places for i in place for x in walk(i))

    def stride(self, var: Var) -> int:
        """Return the smallest distance, in elements, of the accesses of two trips of a loop; 0 for the same elements.
        """
        found = [s for s in (self._stride(place, var) for place in self.places) if s]
        return min(found, default=0)

    def _stride(self, place: Indices, var: Var) -> int:
        step = 1
        for index, size in zip(reversed(place), reversed(self.shape), strict=True):
            coefficient = _coefficient(index, var)
            if coefficient:
                return abs(coefficient) * step
            step *= size
        return 0


def _coefficient(e: PrimExpr, var: Var) -> int:
    """Return the factor of a variable in an index; quotients and remainders count as their dividends."""
    if e is var:
        return 1
    if isinstance(e, (E.FloorDiv, E.FloorMod, E.TruncDiv, E.TruncMod)):
        return _coefficient(e.a, var)
    if isinstance(e, E.Mul):
        a, b = number_of(e.a), number_of(e.b)
        factor, other = (a, e.b) if a is not None else (b, e.a)
        return _coefficient(other, var) * int(factor if factor is not None else 1)
    if isinstance(e, E.Sub):
        return _coefficient(e.a, var) - _coefficient(e.b, var)
    return sum(_coefficient(o, var) for o in e.operands())


@dataclass(frozen=True, slots=True)
class _Reuse:
    """The next use of the same memory: its kind, the trips and the bytes until then, and how often there is one."""

    kind: str = _NO_REUSE
    trips: float = 0.0
    nbytes: float = 0.0
    count: int = 0


class _Row:
    """The features of one store. `touched` has the memory that earlier stores touch in each loop; it is extended."""

    def __init__(self, nest: _Nest, touched: dict[For, dict[Buffer, list[_Touch]]], cache_line: int) -> None:
        self.nest, self.touched, self.cache_line = nest, touched, cache_line
        self.accesses = _accesses(nest.store)
        for k, loop in enumerate(nest.loops):
            found = touched.setdefault(loop, {})
            for a in self.accesses:
                found.setdefault(a.buffer, []).append(_Touch(a.elements(nest.loops, k), a.buffer.dtype.itemsize))

    def features(self, is_gpu: bool, max_buffers: int) -> list[float]:
        """Return the features, without scale."""
        counts = _counts(self.nest.store.value, {}) * self.nest.trips()
        of_buffers = sorted(
            (self._of_buffer(a) for a in self.accesses),
            key=lambda row: (-row["lines"], -row["bytes"], row["name"]))[:max_buffers]
        padding = [0.0] * (len(_OF_BUFFER) * (max_buffers - len(of_buffers)))
        return [
            *counts, *self._kinds(), float(is_gpu), *self._threads(),
            *(float(row[name]) for row in of_buffers for name in _OF_BUFFER), *padding,
            *self._intensities(float(sum(counts[: len(_OPERATIONS)]))), *self._allocation(),
            float(self.nest.trips()), float(len(self.nest.loops)), float(self.nest.around.unroll_steps)]

    def _kinds(self) -> list[float]:
        """Return the number, the trips and the innermost trips of vectorized, unrolled and parallel loops."""
        found: list[float] = []
        for kind in (VECTORIZED, UNROLLED, PARALLEL):
            trips = [_trips(f) for f in self.nest.loops if f.kind == kind and THREAD not in f.annotations]
            sizes = (len(trips), prod(trips), trips[-1] or 1) if trips else (0, 0, 0)
            at = _PLACES[-1] if trips else _PLACES[0]
            found += [*map(float, sizes), *(float(place == at) for place in _PLACES)]
        return found

    def _threads(self) -> list[float]:
        tags = [(str(f.annotations.get(THREAD, "")), _trips(f)) for f in self.nest.loops]
        return [float(prod(n for tag, n in tags if tag.startswith(kind))) for kind in _THREADS]

    def _of_buffer(self, a: _Access) -> dict[str, Any]:
        nest, size = self.nest, a.buffer.dtype.itemsize
        extents = a.extents(nest.loops, 0)
        strides = [a.stride(f.var) for f in reversed(nest.loops)]
        still = next((k for k, stride in enumerate(strides) if stride), len(strides))
        nearest = strides[still] if still < len(strides) else 0
        around = prod(_trips(f) for f in nest.loops[len(nest.loops) - still :])
        whole = next((n for n, m in zip(reversed(a.shape), reversed(extents), strict=True) if n == m), None)
        row = 1 if whole is None else whole * size
        sizes = {
            "bytes": nest.trips() * size, "unique_bytes": prod(extents) * size,
            "lines": max(1.0, nest.trips() / max(1, around) * min(1.0, nearest * size / self.cache_line)),
            "unique_lines": max(1.0, prod(extents) * size / min(self.cache_line, row))}
        reuse = self._reuse(a)
        return {
            "name": a.buffer.name, **sizes,
            "acc_type.kRead": a.reads and not a.writes, "acc_type.kWrite": a.writes and not a.reads,
            "acc_type.kReadWrite": a.reads and a.writes, **{f"reuse_type.{k}": k == reuse.kind for k in _REUSES},
            "reuse_dis_iter": reuse.trips, "reuse_dis_bytes": reuse.nbytes, "reuse_ct": reuse.count,
            **{f"{name}_d_reuse_ct": x / reuse.count if reuse.count else 2 * x for name, x in sizes.items()},
            "stride": 1 if prod(a.shape) == 1 else strides[0] if strides else 0}

    def _reuse(self, a: _Access) -> _Reuse:
        """Return the next use of the memory of a buffer, in the innermost loop that has one."""
        loops = self.nest.loops
        for k in reversed(range(len(loops))):
            loop, inside = loops[k], loops[k + 1 :]
            if not a.moves_with(loop.var):
                nbytes = self._nbytes(inside[0]) if inside else sum(b.buffer.dtype.itemsize for b in self.accesses)
                return _Reuse(_LOOP_REUSE, self.nest.trips(k + 1), nbytes, _trips(loop))
            uses, trips = self.touched[loop][a.buffer], max(1, _trips(loop))
            if len(uses) > 1:
                nearest = min(use.elements for use in uses)
                return _Reuse(_SERIAL_REUSE, nearest / trips, self._nbytes(loop) / trips, len(uses) - 1)
        return _Reuse()

    def _nbytes(self, loop: For) -> int:
        """Return the bytes that the stores so far touch in a loop."""
        return sum(use.nbytes for uses in self.touched[loop].values() for use in uses)

    def _intensities(self, operations: float) -> list[float]:
        """Return the operations per byte once each tenth of the operations is done, between those of the loops."""
        loops = self.nest.loops
        if operations <= 0 or not loops:
            return [0.0] * _CURVE
        done = [operations / self.nest.trips() * self.nest.trips(k) for k in reversed(range(len(loops)))]
        each = [n / max(1, self._nbytes(f)) for n, f in zip(done, reversed(loops), strict=True)]
        return [float(x) for x in np.interp(operations * np.arange(1, _CURVE + 1) / _CURVE, done, each)]

    def _allocation(self) -> list[float]:
        """Return the bytes of the buffer that is stored to, the elements of all its allocations, and the trips outside
        and inside of the allocation."""
        buffer = self.nest.store.buffer
        elements = prod(int(number_of(E.as_expr(d)) or 1) for d in buffer.shape)
        outside = self.nest.trips(0, self.nest.around.allocated.get(buffer, 0))
        return [
            float(elements * buffer.dtype.itemsize), float(elements * outside), float(outside),
            self.nest.trips() / max(1, outside)]


def _accesses(store: Store) -> list[_Access]:
    """Return the accesses of a store by buffer."""
    found = {store.buffer: _Access(store.buffer, [store.indices], writes=True)}
    for top in (store.value, *store.indices):
        for e in walk(top):
            if isinstance(e, Load):
                a = found.setdefault(e.buffer, _Access(e.buffer))
                a.reads = True
                a.places.append(e.indices)
    return list(found.values())


def _counts(e: PrimExpr, memo: dict[PrimExpr, Array]) -> Array:
    """Return the operations of an expression by kind; those of an operand count for each of its uses."""
    known = memo.get(e)
    if known is None:
        known = np.zeros(2 * len(_OPERATIONS) + 2)
        for o in e.operands():
            known = known + _counts(o, memo)
        kind = _kind(e)
        if kind is not None:
            known[kind] += 1
        memo[e] = known
    return known


def _kind(e: PrimExpr) -> int | None:
    """Return the position of an operation among the counts; None for other expressions."""
    if isinstance(e, (E.And, E.Or, E.Not)):
        return _LOGICAL
    if isinstance(e, E.Select):
        return _SELECT
    found = _BY_TYPE.get(type(e))
    if isinstance(e, Call):
        found = _MULTIPLY_ADD if e.op is I.fma else _OTHER if e.op.effect else _MATH
    return None if found is None else found if e.dtype.is_float else found + len(_OPERATIONS)
