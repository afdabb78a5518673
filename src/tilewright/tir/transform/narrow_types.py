"""Give loop variables, and what is computed from them, a narrower integer type where every value fits.

    for i in range(T.int64(16)):                        for i in range(T.int32(16)):
        for j in range(T.int64(8)):             ->          for j in range(T.int32(8)):
            B[i * T.int64(8) + j] = 0.0                         B[i * T.int32(8) + j] = 0.0

A variable of a loop or of a block, or a conversion to an integer type, becomes narrow if it fits itself, and everything
computed from it does: the operations around it up to an index, a comparison, a stored value or the argument of a call.
Parameters and other variables keep their types, and values that are stored or passed on are converted back.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tilewright.base.types import DataType
from tilewright.scalar.arith import Interval, Ranges, simplify
from tilewright.scalar.arith.bounds import bounds
from tilewright.scalar.expr import (
    Binary,
    Broadcast,
    Call,
    Cast,
    IntImm,
    PrimExpr,
    Ramp,
    Select,
    Var,
    add,
    cast,
    const,
)
from tilewright.scalar.walk import walk
from tilewright.tir.stmt import (
    AssertStmt,
    AttrStmt,
    Block,
    Evaluate,
    For,
    IfThenElse,
    Let,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    While,
    bodies,
    expressions,
    map_bodies,
    walk_stmt,
)
from tilewright.tir.transform.loop_facts import inside

_ARITHMETIC: Final = (Binary, Select, Ramp, Broadcast)


def narrow_types(func: PrimFunc, target_bits: int) -> PrimFunc:
    """Use signed integers of `target_bits` bits for the loops and indices of `func` where all values fit."""
    needs = _Needs(target_bits)
    needs.stmt(func.body, Ranges(facts=_converted(func.body)))
    return func.with_body(_Narrower(func, needs).stmt(func.body))


def _converted(s: Stmt) -> dict[PrimExpr, Interval]:
    """Return the ranges of values that are converted from narrower integers."""
    found: dict[PrimExpr, Interval] = {}
    for x in walk_stmt(s):
        for top in expressions(x):
            for e in walk(top):
                if isinstance(e, Cast) and e.dtype.code == "int" and e.value.dtype.code == "int":
                    limit = 1 << (min(e.value.dtype.bits, e.dtype.bits) - 1)
                    found[e] = -limit, limit - 1
    return found


class _Needs:
    """The number of bits that each variable of a loop or a block, and each conversion, needs."""

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self.of: dict[PrimExpr, int] = {}
        self.own: set[Var] = set()
        self.seen: set[tuple[PrimExpr, int]] = set()

    def narrow(self, e: PrimExpr) -> bool:
        """Return whether a variable or a conversion becomes narrow."""
        return _is_wide(e.dtype, self.bits) and self.of.get(e, 0) <= self.bits

    def stmt(self, s: Stmt, ranges: Ranges) -> None:
        for e in expressions(s):
            self.expr(e, 0, ranges)
        if isinstance(s, For):
            self.bind(s.var, s.extent, ranges)
            self.expr(add(s.min, s.extent), 0, ranges, wide_for=s.var)
            ranges = inside(s, ranges)
        elif isinstance(s, Block):
            for i in s.iters:
                self.bind(i.var, i.extent, ranges)
                ranges = ranges.bind_loop(i.var, const(0, i.var.dtype), i.extent)
        self.seen = set()  # other ranges hold inside
        for b in bodies(s):
            self.stmt(b, ranges)
            self.seen = set()

    def bind(self, var: Var, extent: PrimExpr, ranges: Ranges) -> None:
        self.own.add(var)
        self.of[var] = max(self.of.get(var, 0), self.width(extent, ranges))

    def width(self, e: PrimExpr, ranges: Ranges) -> int:
        """Return the bits that an integer expression needs: those of the narrow type, or its own."""
        low, high = bounds(simplify(e, ranges), ranges)
        limit = 1 << (self.bits - 1)
        fits = low is not None and high is not None and -limit <= low and high < limit
        return min(self.bits, e.dtype.bits) if fits else e.dtype.bits

    def expr(self, e: PrimExpr, need: int, ranges: Ranges, wide_for: Var | None = None) -> None:
        """Enter the needs of variables and conversions in `e`, which is an operand of a value of `need` bits."""
        if (e, need) in self.seen and wide_for is None:
            return
        self.seen.add((e, need))
        if e.dtype.code == "int":
            need = max(need, self.width(e, ranges))
            if wide_for is not None:
                self.of[wide_for] = max(self.of[wide_for], need)
            if isinstance(e, (Var, Cast)):
                self.of[e] = max(self.of.get(e, 0), need)
        inner = need if e.dtype.code == "int" and isinstance(e, _ARITHMETIC) else 0
        for x in e.operands():
            self.expr(x, inner if x.dtype.code == "int" else 0, ranges)


def _is_wide(dtype: DataType, bits: int) -> bool:
    return dtype.code == "int" and dtype.bits > bits


class _Narrower:
    def __init__(self, func: PrimFunc, needs: _Needs) -> None:
        self.needs = needs
        self.new = {v: Var(v.name, self.type_of(v)) for v in needs.own if needs.narrow(v)}
        self.memo: dict[PrimExpr, PrimExpr] = {}

    def type_of(self, e: PrimExpr) -> DataType:
        return DataType(f"int{self.needs.bits}").with_lanes(e.dtype.lanes)

    # Statements.
    def stmt(self, s: Stmt) -> Stmt:
        s = map_bodies(s, self.stmt) or Seq(())
        match s:
            case For():
                var = self.new.get(s.var, s.var)
                return replace(s, var=var, min=self.as_type(s.min, var.dtype), extent=self.as_type(s.extent, var.dtype))
            case Store():
                mask = None if s.mask is None else self.expr(s.mask)
                return Store(s.buffer, self.kept(s.value), tuple(map(self.expr, s.indices)), mask)
            case IfThenElse() | While() | AssertStmt():
                return replace(s, condition=self.expr(s.condition))
            case Let() | Evaluate():
                return replace(s, value=self.kept(s.value))
            case AttrStmt():
                return replace(s, value=self.kept(s.value)) if isinstance(s.value, PrimExpr) else s
            case Block():
                return self.block(s)
            case _:
                return s

    def block(self, s: Block) -> Block:
        iters = [replace(i, var=(v := self.new.get(i.var, i.var)), extent=self.as_type(i.extent, v.dtype))
                 for i in s.iters]
        bindings = tuple(self.as_type(b, i.var.dtype) for b, i in zip(s.bindings, iters, strict=True))
        init = None if s.init is None else self.stmt(s.init)
        return replace(s, iters=tuple(iters), bindings=bindings, predicate=self.expr(s.predicate), init=init)

    # Expressions.
    def as_type(self, e: PrimExpr, dtype: DataType) -> PrimExpr:
        return cast(dtype, self.expr(e))

    def kept(self, e: PrimExpr) -> PrimExpr:
        """Return a rewritten expression of the same type as before."""
        return self.as_type(e, e.dtype)

    def expr(self, e: PrimExpr) -> PrimExpr:
        """Return a rewritten expression, which may have the narrow type."""
        for x in walk(e):  # operands first
            if x not in self.memo:
                self.memo[x] = self.rewritten(x)
        return self.memo[e]

    def rewritten(self, e: PrimExpr) -> PrimExpr:
        old = e.operands()
        new = [self.memo[x] for x in old]
        match e:
            case Var():
                return self.new.get(e, e)
            case Cast():
                narrow = self.needs.narrow(e)
                return cast(self.type_of(e) if narrow else e.dtype, new[0])
            case Call():
                new = [cast(x.dtype, y) for x, y in zip(old, new, strict=True)]
            case Select():
                new = [new[0], *_meet(new[1], new[2])]
            case Binary() | Ramp() if len(new) == 2:
                new = [*_meet(*new)]
            case _:
                pass
        return e if all(a is b for a, b in zip(old, new, strict=True)) else e.with_operands(new)


def _meet(a: PrimExpr, b: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """Give two operands the same type: a constant that fits gets the type of the other one, else the wider type."""
    x, y = a.dtype.element, b.dtype.element
    if x is y or x.code != "int" or y.code != "int":
        return a, b
    for one, other, kind in ((a, b, y), (b, a, x)):
        value = one.value if isinstance(one, Broadcast) else one
        limit = 1 << (kind.bits - 1)
        if isinstance(value, IntImm) and -limit <= value.value < limit:
            small = cast(kind.with_lanes(one.dtype.lanes), one)
            return (small, other) if one is a else (other, small)
    wide = x if x.bits > y.bits else y
    return cast(wide.with_lanes(a.dtype.lanes), a), cast(wide.with_lanes(b.dtype.lanes), b)
