"""Put memory that the threads of a warp share into their registers; a read of the part of another thread is a shuffle.

    for tx in T.thread_binding(32, "threadIdx.x"):
        W = T.allocate([64], "float32", "warp")           L = T.allocate([2], "float32", "local")
        for i in range(2): W[i * 32 + tx] = A[i, tx]  ->  for i in range(2): L[i] = A[i, tx]
        B[tx] = W[tx ^ 1]                                 B[tx] = T.tvm_warp_shuffle(T.tvm_warp_activemask(), L[0],
                                                                                     tx ^ 1, 32, 32)

Each thread stores `m` consecutive elements, again after `m` for each thread: element `e` is in thread `e // m % width`.
The stores tell `m`, the distance between the elements of two threads. `width` is the number of threads along the first
dimension, which must divide a warp.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from tilewright.base.errors import CompileError
from tilewright.scalar.arith import Ranges, linear, simplify
from tilewright.scalar.expr import (
    Buffer,
    Load,
    PrimExpr,
    Var,
    add,
    as_expr,
    const,
    floordiv,
    floormod,
    mul,
    number_of,
)
from tilewright.scalar.intrinsics import call_opaque
from tilewright.scalar.walk import free_vars, rewrite
from tilewright.tir.stmt import (
    THREAD,
    Allocate,
    For,
    PrimFunc,
    Stmt,
    Store,
    bodies,
    expressions,
    handed_out,
    map_bodies,
    map_expressions,
    replaced,
    walk_stmt,
)

SCOPE: Final = "warp"


def lower_warp_memory(func: PrimFunc) -> PrimFunc:
    """Replace the allocations in the scope `warp`. Needs flat buffers, and the number of threads of a warp from the
    attribute `target` of the function.

    Raises `CompileError` for threads that do not divide a warp, for a store of an element of another thread, and if no
    store tells which elements a thread has.
    """
    while True:
        found = next(((s, loops) for s, loops in _allocations(func.body, ()) if s.buffer.scope == SCOPE), None)
        if found is None:
            return func
        place, loops = found
        func = replaced(func, place, _Lanes.of(func, place, loops).lowered(place))


def _allocations(s: Stmt, loops: tuple[For, ...]) -> Iterator[tuple[Allocate, tuple[For, ...]]]:
    if isinstance(s, Allocate):
        yield s, loops
    inside = (*loops, s) if isinstance(s, For) else loops
    for b in bodies(s):
        yield from _allocations(b, inside)


@dataclass(frozen=True, slots=True)
class _Lanes:
    """How the elements of `buffer` are in the registers `own` of threads: `group` consecutive ones, for each of `width`
    threads `thread` of a warp, again and again."""

    func: PrimFunc
    buffer: Buffer
    own: Buffer
    thread: Var
    group: int
    width: int
    warp: int
    ranges: Ranges

    @staticmethod
    def of(func: PrimFunc, place: Allocate, loops: tuple[For, ...]) -> _Lanes:
        buffer = place.buffer
        warp = int(getattr(func.attrs.get("target"), "thread_warp_size", 0))
        threads = [s for s in (*loops, *walk_stmt(place)) if isinstance(s, For)
                   and s.annotations.get(THREAD) == "threadIdx.x"]
        width = number_of(threads[0].extent) if threads else None
        if not isinstance(width, int) or warp < 1 or warp % width:
            raise _fault(func, buffer, f"needs a known number of threads along threadIdx.x that divides a warp of "
                                       f"{warp}, which the target states; here it is {width}")
        if len(buffer.shape) != 1 or any(
                buffer in handed_out(e) for s in walk_stmt(place) for e in expressions(s)):
            raise _fault(func, buffer, "has several dimensions, or a function takes its address")
        group = _distance(func, place, threads[0].var)
        ranges = Ranges()
        for f in loops:
            ranges = ranges.bind_loop(f.var, f.min, f.extent)
        size = as_expr(buffer.shape[0])
        rounds = floordiv(add(size, group * width - 1), group * width)
        own = Buffer(buffer.name, (simplify(mul(rounds, group), ranges),), buffer.dtype, "local")
        return _Lanes(func, buffer, own, threads[0].var, group, width, warp, ranges)

    def lowered(self, place: Allocate) -> Stmt:
        return Allocate(self.own, self.stmt(place.body, self.ranges), place.annotations)

    def stmt(self, s: Stmt, ranges: Ranges) -> Stmt:
        inner = ranges.bind_loop(s.var, s.min, s.extent) if isinstance(s, For) else ranges
        s = map_bodies(s, lambda b: self.stmt(b, inner)) or s
        here = s
        s = map_expressions(s, lambda e: rewrite(e, lambda x: self.load(x, ranges)), lambda x: x is here)
        if not isinstance(s, Store) or s.buffer is not self.buffer:
            return s
        lane, slot = self.place(s.indices[0], ranges)
        if lane is not self.thread:
            raise _fault(self.func, self.buffer, f"is stored at {s.indices[0]}, an element of thread {lane}; a thread "
                                                 "can only store elements of its own")
        return replace(s, buffer=self.own, indices=(slot,))

    def load(self, e: PrimExpr, ranges: Ranges) -> PrimExpr | None:
        if not isinstance(e, Load) or e.buffer is not self.buffer:
            return None
        lane, slot = self.place(e.indices[0], ranges)
        held = Load(self.own, (slot,))
        if lane is self.thread:
            return held
        if self.thread in free_vars(slot):
            raise _fault(self.func, self.buffer, f"is read at {e.indices[0]}, in another register in each thread")
        return call_opaque(
            "tvm_warp_shuffle", call_opaque("tvm_warp_activemask"), held, lane, const(self.width, "int64"),
            const(self.warp, "int64"))

    def place(self, index: PrimExpr, ranges: Ranges) -> tuple[PrimExpr, PrimExpr]:
        """Return the thread of an element, and its place in the registers."""
        lane = floormod(floordiv(index, self.group), self.width)
        slot = add(mul(floordiv(index, self.group * self.width), self.group), floormod(index, self.group))
        return simplify(lane, ranges), simplify(slot, ranges)


def _distance(func: PrimFunc, place: Allocate, thread: Var) -> int:
    """Return the distance between the elements that two neighbouring threads store."""
    found = set[int]()
    for s in walk_stmt(place.body):
        if isinstance(s, Store) and s.buffer is place.buffer:
            coefficient, rest = linear(simplify(s.indices[0], Ranges())).without(thread)
            if any(thread in free_vars(a) for a in rest.coefs) or s.indices[0].dtype.lanes > 1:
                raise _fault(func, place.buffer, f"is stored at {s.indices[0]}, which is not a multiple of the thread "
                                                 "plus a number")
            found.add(coefficient)
    if len(found) != 1 or not all(n > 0 for n in found):
        raise _fault(func, place.buffer, "is stored at no distance between threads, or at several, so it is unknown "
                                         "which thread has an element")
    return found.pop()


def _fault(func: PrimFunc, buffer: Buffer, what: str) -> CompileError:
    return CompileError(
        f"'{buffer.name}' in the memory of a warp, in function '{func.name}', {what}", func.origin, code="TW0611")


__all__ = ["lower_warp_memory"]
