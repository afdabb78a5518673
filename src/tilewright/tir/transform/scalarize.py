"""Turn vector statements into loops over their lanes, for back ends whose compiler vectorizes loops itself.

    B[T.ramp(i * 8, 1, 8)] = A[T.ramp(i * 8, 1, 8)] + T.broadcast(x, 8)
        ->  for lane in T.serial(8): B[i * 8 + lane] = A[i * 8 + lane] + x

A mask becomes an `if` around the store. If the value reads the stored buffer at another position, or lanes are
combined, the lanes are stored in a temporary buffer. Unrolled loops become serial ones. Needs flat buffers; leaves no
vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tilewright.scalar.expr import (
    NE,
    Broadcast,
    Buffer,
    Call,
    Intrinsic,
    Load,
    PrimExpr,
    Ramp,
    Var,
    add,
    as_expr,
    const,
    if_then_else,
    maximum,
    minimum,
    mul,
)
from tilewright.scalar.intrinsics import horizontal_max, horizontal_min, horizontal_prod, horizontal_sum
from tilewright.scalar.walk import rewrite, walk
from tilewright.tir.stmt import (
    SERIAL,
    Allocate,
    For,
    IfThenElse,
    Let,
    PrimFunc,
    Stmt,
    Store,
    expressions,
    map_bodies,
    map_expressions,
    seq,
)


def scalarize(func: PrimFunc) -> PrimFunc:
    """Convert `func` to scalars, except vectors whose bits are read as one number."""
    return func.with_body(_Scalars().stmt(func.body))


class _Scalars:
    def __init__(self) -> None:
        self.vectors: dict[Var, Buffer] = {}
        """Temporary buffers with the lanes of vector variables."""

    def stmt(self, s: Stmt) -> Stmt:
        if isinstance(s, For):
            s = s if s.kind != "unrolled" else replace(s, kind=SERIAL)
        if isinstance(s, Let) and s.var.dtype.lanes > 1:
            return self.let(s)
        combined = [e for top in expressions(s) for e in walk(top) if _is_across(e)]
        if combined:
            return self.combined(s, combined[-1])
        if isinstance(s, Store) and s.indices[0].dtype.lanes > 1:
            return self.store(s)
        return map_bodies(s, self.stmt) or s

    def store(self, s: Store) -> Stmt:
        lanes = s.indices[0].dtype.lanes
        reads = [
            e for top in (s.value, *(() if s.mask is None else (s.mask,)), *s.indices) for e in walk(top)
            if isinstance(e, Load) and e.buffer is s.buffer]
        if all(e.indices[0] is s.indices[0] for e in reads) and not isinstance(s.indices[0], Broadcast):
            return self.over_lanes(
                lanes,
                lambda k: self.guarded(s.mask, k, Store(s.buffer, self.lane(s.value, k), (self.lane(s.indices[0], k),)))
            )
        held = Buffer(f"{s.buffer.name}_lanes", (lanes,), s.buffer.dtype, "local")
        if s.mask is None:
            fill = self.over_lanes(lanes, lambda k: Store(held, self.lane(s.value, k), (k,)))
            spill = self.over_lanes(lanes, lambda k: Store(s.buffer, Load(held, (k,)), (self.lane(s.indices[0], k),)))
            return Allocate(held, seq(fill, spill))
        chosen = Buffer(f"{s.buffer.name}_mask", (lanes,), "bool", "local")
        mask = s.mask
        choose = self.over_lanes(lanes, lambda k: Store(chosen, self.lane(mask, k), (k,)))
        nothing = const(0, s.buffer.dtype)  # needed because compilers do not see that it is never read
        fill = self.over_lanes(
            lanes,
            lambda k: IfThenElse(
                self.lane(mask, k), Store(held, self.lane(s.value, k), (k,)), Store(held, nothing, (k,))))
        where = self.held(s.indices[0], lanes)
        spill = self.over_lanes(
            lanes, lambda k: IfThenElse(Load(chosen, (k,)), Store(s.buffer, Load(held, (k,)), (where[1](k),))))
        return Allocate(held, Allocate(chosen, where[0](seq(choose, fill, spill))))

    def held(self, index: PrimExpr, lanes: int) -> tuple[Callable[[Stmt], Stmt], Callable[[Var], PrimExpr]]:
        """Return a wrapper for a statement that stores at `index`, and the index of a lane; an index read from memory
        is stored in a temporary buffer."""
        if not any(isinstance(e, Load) for e in walk(index)):
            return lambda body: body, lambda k: self.lane(index, k)
        kept = Buffer("places", (lanes,), index.dtype.element, "local")
        fill = self.over_lanes(lanes, lambda k: Store(kept, self.lane(index, k), (k,)))
        return lambda body: Allocate(kept, seq(fill, body)), lambda k: Load(kept, (k,))

    def let(self, s: Let) -> Stmt:
        kept = Buffer(s.var.name, (s.var.dtype.lanes,), s.var.dtype.element, "local")
        fill = self.over_lanes(s.var.dtype.lanes, lambda k: Store(kept, self.lane(s.value, k), (k,)))
        self.vectors[s.var] = kept
        return Allocate(kept, seq(fill, self.stmt(s.body)))

    def combined(self, s: Stmt, call: PrimExpr) -> Stmt:
        """Return `s`, preceded by the computation of a value that combines all lanes of a vector."""
        assert isinstance(call, Call)
        (vector,) = call.args
        total = Buffer("all_lanes", (1,), call.dtype, "local")
        first = Store(total, self.lane(vector, as_expr(0)), (as_expr(0),))
        lane, zero = Var("lane"), as_expr(0)
        step = Store(total, _COMBINE[call.op](Load(total, (zero,)), self.lane(vector, lane)), (zero,))
        rest = For(lane, as_expr(1), as_expr(vector.dtype.lanes - 1), SERIAL, step)
        value = Load(total, (zero,))

        def again(e: PrimExpr) -> PrimExpr:
            return rewrite(e, lambda x: value if x is call else None)

        changed = map_expressions(s, again) if not isinstance(s, (For, IfThenElse, Let)) else _shallow(s, again)
        return Allocate(total, seq(first, rest, self.stmt(changed)))

    def guarded(self, mask: PrimExpr | None, lane: PrimExpr, s: Stmt) -> Stmt:
        return s if mask is None else IfThenElse(self.lane(mask, lane), s)

    def over_lanes(self, lanes: int, make: Callable[[Var], Stmt]) -> Stmt:
        lane = Var("lane")
        return For(lane, as_expr(0), as_expr(lanes), SERIAL, make(lane))

    def lane(self, e: PrimExpr, k: PrimExpr) -> PrimExpr:
        """Return lane `k` of `e`; a scalar unchanged."""
        return self._lane(e, k, {})

    def _lane(self, e: PrimExpr, k: PrimExpr, memo: dict[PrimExpr, PrimExpr]) -> PrimExpr:
        if e.dtype.lanes == 1:
            return e
        known = memo.get(e)
        if known is not None:
            return known
        match e:
            case Ramp():
                found = add(e.base, mul(e.stride, k))
            case Broadcast():
                found = e.value
            case Var():
                found = Load(self.vectors[e], (k,))
            case _:
                found = e.with_operands([self._lane(x, k, memo) for x in e.operands()])
        memo[e] = found
        return found


def _shallow(s: Stmt, f: Callable[[PrimExpr], PrimExpr]) -> Stmt:
    """Apply `f` to the expressions of `s` itself, but not to those of the statements inside."""
    match s:
        case For():
            return replace(s, min=f(s.min), extent=f(s.extent))
        case IfThenElse():
            return replace(s, condition=f(s.condition))
        case Let():
            return replace(s, value=f(s.value))
        case _:
            return s


def _extremum(choose: Callable[[PrimExpr, PrimExpr], PrimExpr]) -> Callable[[PrimExpr, PrimExpr], PrimExpr]:
    """Return a maximum or minimum function that propagates NaN."""

    def combine(old: PrimExpr, new: PrimExpr) -> PrimExpr:
        either = choose(old, new)
        return if_then_else(NE(new, new), new, either) if new.dtype.is_float else either

    return combine


def _is_across(e: PrimExpr) -> bool:
    return isinstance(e, Call) and e.op in _COMBINE


_COMBINE: Final[dict[Intrinsic, Callable[[PrimExpr, PrimExpr], PrimExpr]]] = {
    horizontal_sum: add, horizontal_prod: mul, horizontal_max: _extremum(maximum), horizontal_min: _extremum(minimum),
}
