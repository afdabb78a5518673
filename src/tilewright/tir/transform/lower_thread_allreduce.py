"""Reductions over the threads of a block, written as exchanges between threads.

    T.tvm_thread_allreduce(T.uint32(1), x, True, r[0], tx)      32 threads tx, in attribute `reduce_scope` with the sum
      ->
    r[0] = x                                                    a warp of a GPU: shuffles
    mask[0] = T.tvm_warp_activemask()
    t[0] = T.tvm_warp_shuffle_down(mask[0], r[0], 16, 32, 32)
    r[0] = r[0] + t[0]                                          again for 8, 4, 2 and 1
    r[0] = T.tvm_warp_shuffle(mask[0], r[0], 0, 32, 32)

Shuffles need a target with warps, and a power of two of threads along the first dimensions, at most a warp. Otherwise
the values are reduced in shared memory, in steps with a barrier after each. Each thread gets the result. Threads for
which the third argument is false contribute the neutral value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tilewright.base.errors import CompileError
from tilewright.base.types import DataType
from tilewright.scalar.expr import (
    LT,
    Buffer,
    Call,
    IntImm,
    Load,
    PrimExpr,
    Var,
    add,
    compare,
    const,
    if_then_else,
    mul,
    sub,
)
from tilewright.scalar.intrinsics import Opaque, call_opaque
from tilewright.tir.stmt import (
    THREAD,
    Allocate,
    AttrStmt,
    Evaluate,
    For,
    IfThenElse,
    Let,
    PrimFunc,
    Reducer,
    Stmt,
    Store,
    map_bodies,
    seq,
)

_ORDER: Final = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
"""The dimensions of the threads of a block, the fastest one first."""
_UINT32: Final = DataType("uint32")


def lower_thread_allreduce(func: PrimFunc) -> PrimFunc:
    """Replace reductions over threads. The attribute `target` of the function tells the number of threads of a warp.

    Raises `CompileError` for a reduction outside of its attribute `reduce_scope`, over other variables than threads,
    or over an unknown number of threads.
    """
    warp = max(int(getattr(func.attrs.get("target"), "thread_warp_size", 1)), 1)
    return func.with_body(_Lowering(warp, func).stmt(func.body, (), None))


@dataclass(frozen=True, slots=True)
class _Lowering:
    """Replaces the reductions of a function for a number of threads of a warp."""

    warp: int
    func: PrimFunc

    def stmt(self, s: Stmt, threads: tuple[For, ...], reducer: Reducer | None) -> Stmt:
        if isinstance(s, Evaluate) and _is_allreduce(s.value):
            return self.lowered(s.value, threads, reducer)  # type: ignore[arg-type]
        if isinstance(s, For) and str(s.annotations.get(THREAD, "")) in _ORDER:
            threads = (*threads, s)
        if isinstance(s, AttrStmt) and s.attr_key == "reduce_scope" and isinstance(s.node, Reducer):
            reducer = s.node
        return map_bodies(s, lambda b: self.stmt(b, threads, reducer)) or s

    def lowered(self, call: Call, threads: Sequence[For], reducer: Reducer | None) -> Stmt:
        if reducer is None:
            raise self.fault("is not in an attribute 'reduce_scope' with a reduction")
        count = len(reducer.neutral)
        values, condition = call.args[1 : count + 1], call.args[count + 1]
        results = [e for e in call.args[count + 2 : 2 * count + 2] if isinstance(e, Load)]
        variables = call.args[2 * count + 2 :]
        if len(results) != count:
            raise self.fault(f"needs {count} results")
        given = tuple(if_then_else(condition, v, n) for v, n in zip(values, reducer.neutral, strict=True))
        inner, outer = self.grouped(variables, threads)
        size = 1
        for f in inner:
            size *= f.extent.value  # type: ignore[attr-defined]
        reduction = _Reduction(reducer, given, tuple(results), size)
        first = sorted(threads, key=_dimension)[: len(inner)]
        if size <= self.warp and size & (size - 1) == 0 and {*map(id, first)} == {*map(id, inner)} and size > 1:
            return reduction.by_shuffles(self.warp)
        return reduction.in_shared_memory(_number(inner), _number(outer), _count(outer))

    def grouped(self, variables: Sequence[PrimExpr], threads: Sequence[For]) -> tuple[list[For], list[For]]:
        """Return the loops over the threads that are reduced, and over the others, the fastest dimension first."""
        order = sorted(threads, key=_dimension)
        inner = [f for f in order if f.var in variables]
        used = {v for v in variables if isinstance(v, Var)}
        if used - {f.var for f in inner}:
            raise self.fault("is over a variable that is not a thread of a block, such as threadIdx.x")
        if not all(isinstance(f.extent, IntImm) for f in inner):
            raise self.fault("is over an unknown number of threads")
        return inner, [f for f in order if f not in inner]

    def fault(self, what: str) -> CompileError:
        return CompileError(
            f"a reduction over threads in '{self.func.name}' {what}", self.func.origin, code="TW0611")


def _is_allreduce(e: PrimExpr) -> bool:
    return isinstance(e, Call) and isinstance(e.op, Opaque) and e.op.spelling == "tvm_thread_allreduce"


def _dimension(loop: For) -> int:
    return _ORDER.index(str(loop.annotations[THREAD]))


def _number(loops: Sequence[For]) -> PrimExpr:
    """Return the number of a thread among those of loops, the fastest one first."""
    place: PrimExpr = const(0, "int64")
    for f in reversed(loops):
        place = add(mul(place, f.extent), sub(f.var, f.min))
    return place


def _count(loops: Sequence[For]) -> PrimExpr:
    total: PrimExpr = const(1, "int64")
    for f in loops:
        total = mul(total, f.extent)
    return total


@dataclass(frozen=True, slots=True)
class _Reduction:
    """Values of `size` threads, which are combined into the same `results` in each of them."""

    reducer: Reducer
    values: tuple[PrimExpr, ...]
    results: tuple[Load, ...]
    size: int

    def by_shuffles(self, warp: int) -> Stmt:
        """Return exchanges between the threads of a warp."""
        mask = _register("mask", _UINT32)
        others = [_register(f"t{k}", v.dtype) for k, v in enumerate(self.values)]
        active = Load(mask, (const(0, "int64"),))

        def shuffled(name: str, value: PrimExpr, lane: int) -> PrimExpr:
            return call_opaque(name, active, value, *(_int(n) for n in (lane, self.size, warp)), dtype=value.dtype)

        steps = [
            *map(_stored, self.results, self.values),
            _stored(active, call_opaque("tvm_warp_activemask", dtype=_UINT32))]
        places = [Load(b, (const(0, "int64"),)) for b in others]
        distance = self.size // 2
        while distance:
            steps += [_stored(t, shuffled("tvm_warp_shuffle_down", r, distance))
                      for t, r in zip(places, self.results, strict=True)]
            steps.append(self.combined(self.results, places))
            distance //= 2
        steps += [_stored(r, shuffled("tvm_warp_shuffle", r, 0)) for r in self.results]
        return _allocated([mask, *others], seq(*steps))

    def in_shared_memory(self, own: PrimExpr, group: PrimExpr, groups: PrimExpr) -> Stmt:
        """Return a reduction in shared memory: thread `own` of `size` in each of `groups` groups."""
        shared = [
            Buffer(f"red_buf{k}", (mul(groups, self.size),), v.dtype, "shared") for k, v in enumerate(self.values)]
        start = mul(group, self.size)
        mine = [Load(b, (add(start, own),)) for b in shared]
        barrier = Evaluate(call_opaque("tvm_storage_sync", "shared"))
        steps: list[Stmt] = [*map(_stored, mine, self.values), barrier]
        left = self.size
        while left > 1:
            distance = (left + 1) // 2
            other = [Load(b, (add(add(start, own), distance),)) for b in shared]
            steps += [IfThenElse(compare(LT, own, left - distance), self.combined(mine, other)), barrier]
            left = distance
        steps += [_stored(r, Load(b, (start,))) for r, b in zip(self.results, shared, strict=True)]
        return _allocated(shared, seq(*steps, barrier))

    def combined(self, old: Sequence[Load], new: Sequence[Load]) -> Stmt:
        """Return the stores of the combined values in the place of the old ones; all are computed before the stores."""
        values = self.reducer.combine(old, new)
        if len(values) == 1:
            return _stored(old[0], values[0])
        names = [Var(f"combined{k}", v.dtype) for k, v in enumerate(values)]
        s = seq(*map(_stored, old, names))
        for name, value in zip(reversed(names), reversed(values), strict=True):
            s = Let(name, value, s)
        return s


def _int(n: int) -> PrimExpr:
    return const(n, "int64")


def _register(name: str, dtype: DataType) -> Buffer:
    return Buffer(name, (1,), dtype, "local")


def _stored(place: Load, value: PrimExpr) -> Stmt:
    return Store(place.buffer, value, place.indices)


def _allocated(buffers: Sequence[Buffer], s: Stmt) -> Stmt:
    for b in reversed(buffers):
        s = Allocate(b, s)
    return s


__all__ = ["lower_thread_allreduce"]
