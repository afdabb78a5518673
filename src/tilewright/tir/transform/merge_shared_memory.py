"""Put the values in dynamic shared memory of a kernel into one allocation, which is the only one that a GPU has.

    a = T.allocate([128], "float16", "shared.dyn")          m = T.allocate([512], "uint8", "shared.dyn")
    b = T.allocate([128], "float32", "shared.dyn")    ->    c at byte 0, a at byte 256, b in place of c and a,
    c = T.allocate([128], "float16", "shared.dyn")          if both are read for the last time before b is stored

Values that are not live at the same time share memory. The order of statements tells when a value is live, so barriers
must follow: threads are not at the same statement (`thread_sync.py`). The allocation has the type of the values if they
have one; else it has bytes, from which elements are composed. Values whose sizes are known only at run time come last,
and share nothing. Each value begins at a multiple of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tilewright.base.types import DataType
from tilewright.scalar.arith import Ranges, simplify
from tilewright.scalar.expr import (
    Buffer,
    Call,
    Load,
    PrimExpr,
    Var,
    add,
    as_expr,
    broadcast,
    const,
    floordiv,
    mul,
    number_of,
)
from tilewright.scalar.intrinsics import address_of
from tilewright.scalar.walk import free_vars, rewrite
from tilewright.tir.reinterpreted import Reinterpreted
from tilewright.tir.stmt import (
    THREAD,
    Allocate,
    AllocateConst,
    For,
    Let,
    PrimFunc,
    Stmt,
    Store,
    map_bodies,
    map_expressions,
    walk_stmt,
)
from tilewright.tir.transform.live_ranges import Uses, Value, span_of_uses
from tilewright.tir.views import View

SCOPE: Final = "shared.dyn"
ALIGNMENT: Final = 16
"""Bytes."""
_BYTES: Final = DataType("uint8")


def merge_shared_memory(func: PrimFunc) -> PrimFunc:
    """Merge the allocations in `shared.dyn` of each kernel, the body of an outermost loop over threads. A function
    without such loops is a kernel. Needs flat buffers; others stay as they are."""
    if not any(isinstance(s, For) and THREAD in s.annotations for s in walk_stmt(func.body)):
        return func.with_body(_merged(func.body, func))
    return func.with_body(_kernels(func.body))


def _kernels(s: Stmt) -> Stmt:
    if isinstance(s, For) and THREAD in s.annotations:
        body = _merged(s.body, s)
        return s if body is s.body else replace(s, body=body)
    return map_bodies(s, _kernels) or s


def _merged(body: Stmt, kernel: PrimFunc | For) -> Stmt:
    uses = Uses()
    uses.visit(body, (), kernel)
    bound = {s.var for s in walk_stmt(body) if isinstance(s, (For, Let))}
    values = [v for v in uses.values.values() if _is_mergeable(v.buffer, bound)]
    if len(values) < 2:
        return body
    kinds = {v.buffer.dtype for v in values}
    held = kinds.pop() if len(kinds) == 1 else _BYTES
    offsets, size = _places(values, [_live(v, uses) for v in values])
    width = _width(held)
    whole = Buffer("buf_dyn_shmem", (simplify(floordiv(add(size, width - 1), width), Ranges()),), held, SCOPE)
    parts = {b: _Part(b, whole, at) for b, at in offsets.items()}
    return Allocate(whole, _moved(_without(body, parts), parts))


def _is_mergeable(buffer: Buffer, bound: set[Var]) -> bool:
    kind = buffer.dtype
    return (
        buffer.scope == SCOPE and len(buffer.shape) == 1 and kind.lanes == 1 and kind.bits % 8 == 0
        and (kind.is_integer or kind.is_float) and bound.isdisjoint(free_vars(as_expr(buffer.shape[0]))))


def _live(v: Value, uses: Uses) -> tuple[int, int]:
    """Return the first and the last position at which a value is live. The trips of a loop over threads run at once."""
    serial = [replace(u, loops=tuple(f for f in u.loops if THREAD not in f.annotations)) for u in v.uses]
    return span_of_uses(serial, uses.spans)


def _places(
    values: Sequence[Value], live: Sequence[tuple[int, int]]
) -> tuple[dict[Buffer, PrimExpr], PrimExpr]:
    """Return the offset of each value, and the size of all, in bytes. Values of known sizes come first, each at the
    lowest place that is free while it is live; of values that begin together, the inner one."""
    offsets: dict[Buffer, PrimExpr] = {}
    taken: list[tuple[int, int, tuple[int, int]]] = []
    fixed = [k for k, v in enumerate(values) if number_of(as_expr(v.buffer.shape[0])) is not None]
    for k in sorted(fixed, key=lambda k: (live[k][0], -k)):
        buffer, (birth, death) = values[k].buffer, live[k]
        nbytes, start = buffer.shape[0] * _width(buffer.dtype), 0
        for begin, end, (first, last) in sorted(taken):
            if first <= death and birth <= last and begin < start + nbytes:
                start = max(start, -(-end // ALIGNMENT) * ALIGNMENT)
        taken.append((start, start + nbytes, live[k]))
        offsets[buffer] = const(start, "int64")
    total: PrimExpr = const(max((end for _, end, _ in taken), default=0), "int64")
    for k, v in enumerate(values):
        if k not in fixed:
            offsets[v.buffer] = start_of = _rounded_up(total)
            total = add(start_of, mul(as_expr(v.buffer.shape[0]), _width(v.buffer.dtype)))
    return offsets, total


def _rounded_up(nbytes: PrimExpr) -> PrimExpr:
    return simplify(mul(floordiv(add(nbytes, ALIGNMENT - 1), ALIGNMENT), ALIGNMENT), Ranges())


def _width(dtype: DataType) -> int:
    return dtype.bits // 8


@dataclass(frozen=True, slots=True)
class _Part:
    """The value `buffer` as the part of an allocation from byte `offset` on."""

    buffer: Buffer
    whole: Buffer
    offset: PrimExpr

    @property
    def elements(self) -> int:
        """Elements of the allocation in one of the value."""
        return _width(self.buffer.dtype) // _width(self.whole.dtype)

    def place(self, index: PrimExpr) -> PrimExpr:
        """Return the number of an element in an array of its type that begins where the allocation does."""
        skipped = floordiv(self.offset, _width(self.buffer.dtype))
        return add(index, broadcast(skipped, index.dtype.lanes))

    def composed(self) -> Reinterpreted:
        width = self.elements
        return Reinterpreted(self.buffer.name, self.buffer.dtype, View(
            self.buffer.name, self.whole, (*self.buffer.shape, width), lambda at: (add(mul(at[0], width), at[1]),)))

    def load(self, index: PrimExpr) -> PrimExpr:
        at = (self.place(index),)
        return Load(self.whole, at) if self.buffer.dtype is self.whole.dtype else self.composed().load(at)

    def store(self, s: Store) -> Stmt:
        at = (self.place(s.indices[0]),)
        if self.buffer.dtype is self.whole.dtype:
            return Store(self.whole, s.value, at, s.mask)
        return self.composed().store(at, s.value, s.mask)

    def address(self, e: Call, load: Load) -> PrimExpr:
        """Return the address of an element; the sizes of the accessed part count elements of the allocation."""
        first = Load(self.whole, (mul(self.place(load.indices[0]), self.elements),))
        return Call(e.dtype, e.op, (first, e.args[1], *(mul(n, self.elements) for n in e.args[2:])))


def _without(s: Stmt, parts: Mapping[Buffer, _Part]) -> Stmt:
    """Return a statement without the allocations of values."""
    inner = map_bodies(s, lambda b: _without(b, parts)) or s
    own = isinstance(inner, Allocate) and not isinstance(inner, AllocateConst) and inner.buffer in parts
    return inner.body if own else inner  # type: ignore[attr-defined]


def _moved(s: Stmt, parts: Mapping[Buffer, _Part]) -> Stmt:
    """Replace the accesses to values by accesses to their parts of the allocation."""
    memo: dict[PrimExpr, PrimExpr] = {}

    def addresses(e: PrimExpr) -> PrimExpr | None:
        load = e.args[0] if isinstance(e, Call) and e.op is address_of else None
        part = parts.get(load.buffer) if isinstance(load, Load) else None
        return None if part is None else part.address(e, load)  # type: ignore[arg-type]

    def loads(e: PrimExpr) -> PrimExpr | None:
        return parts[e.buffer].load(e.indices[0]) if isinstance(e, Load) and e.buffer in parts else None

    def stores(x: Stmt) -> Stmt:
        if isinstance(x, Store):
            return parts[x.buffer].store(x) if x.buffer in parts else x
        return map_bodies(x, stores) or x

    return stores(map_expressions(s, lambda e: rewrite(rewrite(e, addresses), loads, memo)))


__all__ = ["merge_shared_memory"]
