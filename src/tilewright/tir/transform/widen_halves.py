"""Compute floats of 16 bits or fewer in float32: widen after loads, round before stores.

    B[i] = max(A[i] * S[i] + T[i], 0)
        ->  B[i] = cast("bfloat16", max(cast("float32", A[i]) * cast("float32", S[i]) + cast("float32", T[i]), 0))

Rounding occurs once per kernel, not once per operation: a value inside the kernel (in an expression, a variable or an
allocated buffer) keeps float32 precision. So intermediate rounding (`cast("float32", cast("bfloat16", x))`) is removed.
Values that are only moved stay in 16 bits, and so do buffers of such values that are read only as pairs. Floats of a
byte or less are rounded by every operation, and their buffers keep their type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from tilewright.base.types import FLOAT32, MINIFLOATS, DataType
from tilewright.scalar.expr import (
    Broadcast,
    Buffer,
    Call,
    Cast,
    FloatImm,
    Load,
    PrimExpr,
    Select,
    Var,
    cast,
    if_then_else,
)
from tilewright.scalar.intrinsics import pair, reinterpret
from tilewright.scalar.walk import walk
from tilewright.tir.stmt import (
    Allocate,
    Evaluate,
    For,
    IfThenElse,
    Let,
    PrimFunc,
    Stmt,
    Store,
    expressions,
    map_bodies,
    walk_stmt,
)


def widen_halves(func: PrimFunc) -> PrimFunc:
    """Restrict float16 and bfloat16 to the parameters of `func`, and floats of a byte to memory."""
    used = [*func.buffers, *(s.buffer for s in walk_stmt(func.body) if isinstance(s, Allocate))]
    return (
        func.with_body(_Widening(_of_pairs(func.body)).stmt(func.body)) if any(is_short(b.dtype) for b in used)
        else func
    )


def is_short(dtype: DataType) -> bool:
    return dtype.is_float and dtype.bits <= 16


def _of_pairs(body: Stmt) -> set[Buffer]:
    """Return the allocated buffers of 16-bit floats that are read only as pairs, and to which values from parameters
    are only moved."""
    found = {s.buffer for s in walk_stmt(body) if isinstance(s, Allocate) and is_short(s.buffer.dtype)}
    if not found:
        return found
    widening = _Widening(set())
    widening.buffers = {b: b for b in found}
    for s in walk_stmt(body):
        if isinstance(s, Store) and s.buffer in found and not widening.only_moved(s.value):
            found.discard(s.buffer)
        for whole in expressions(s):
            for e in walk(whole):
                if not (isinstance(e, Call) and e.op is pair):
                    found.difference_update(x.buffer for x in e.operands() if isinstance(x, Load))
            if isinstance(whole, Load):
                found.discard(whole.buffer)
    return found


class _Widening:
    """Rewrites expressions: `value` those of other types; `wide` and `exact` 16-bit ones as float32 and as stored. The
    buffers of `kept` keep their type."""

    def __init__(self, kept: set[Buffer]) -> None:
        self.kept = kept
        self.buffers: dict[Buffer, Buffer] = {}
        self.variables: dict[Var, Var] = {}
        self.values: dict[PrimExpr, PrimExpr] = {}
        self.widened: dict[PrimExpr, PrimExpr] = {}
        self.unchanged: dict[PrimExpr, PrimExpr] = {}
        self.moves: dict[PrimExpr, bool] = {}

    def stmt(self, s: Stmt) -> Stmt:
        match s:
            case Store():
                return self.store(s)
            case Allocate() if is_short(
                s.buffer.dtype
            ) and s.buffer.dtype.code not in MINIFLOATS and s.buffer not in self.kept:
                b = s.buffer
                self.buffers[b] = Buffer(b.name, b.shape, FLOAT32.with_lanes(b.dtype.lanes), b.scope)
                return replace(s, buffer=self.buffers[b], body=self.stmt(s.body))
            case Let() if is_short(s.var.dtype):
                value = self.wide(s.value)
                self.variables[s.var] = Var(s.var.name, value.dtype)
                return Let(self.variables[s.var], value, self.stmt(s.body))
            case Let():
                return replace(s, value=self.value(s.value), body=self.stmt(s.body))
            case For():
                return replace(s, min=self.value(s.min), extent=self.value(s.extent), body=self.stmt(s.body))
            case IfThenElse():
                other = None if s.else_case is None else self.stmt(s.else_case)
                return IfThenElse(self.value(s.condition), self.stmt(s.then_case), other)
            case Evaluate():
                return Evaluate(self.value(s.value))
            case _:
                return map_bodies(s, self.stmt) or s

    def store(self, s: Store) -> Stmt:
        buffer = self.buffers.get(s.buffer, s.buffer)
        value = (
            self.value(s.value) if not is_short(s.value.dtype) else self.exact(s.value) if buffer is s.buffer
            else self.wide(s.value)
        )
        return Store(buffer, value, tuple(map(self.value, s.indices)), None if s.mask is None else self.value(s.mask))

    def value(self, e: PrimExpr) -> PrimExpr:
        """Rewrite an expression that does not have 16 bits."""
        if not e.operands():
            return e
        known = self.values.get(e)
        if known is None:
            part = self.exact if isinstance(e, Call) and (e.op.effect or e.op in (pair, reinterpret)) else self.wide
            operands = [part(x) if is_short(x.dtype) else self.value(x) for x in e.operands()]
            known = self.values[e] = Call(e.dtype, e.op, operands) if isinstance(e, Call) else e.with_operands(operands)
        return known

    def exact(self, e: PrimExpr) -> PrimExpr:
        """Return a 16-bit value as stored: unchanged if it is only moved, else rounded."""
        return self.moved(e) if self.only_moved(e) else cast(e.dtype, self.wide(e))

    def only_moved(self, e: PrimExpr) -> bool:
        known = self.moves.get(e)
        if known is None:
            known = self.moves[e] = self._is_moved(e)
        return known

    def _is_moved(self, e: PrimExpr) -> bool:
        match e:
            case Load():
                return e.buffer not in self.buffers
            case Var():
                return e not in self.variables
            case Select():
                return self.only_moved(e.true_value) and self.only_moved(e.false_value)
            case Broadcast():
                return self.only_moved(e.value)
            case _:
                return isinstance(e, FloatImm) or (isinstance(e, Call) and e.op is reinterpret)

    def moved(self, e: PrimExpr) -> PrimExpr:
        known = self.unchanged.get(e)
        if known is None:
            operands = [self.moved(x) if is_short(x.dtype) else self.value(x) for x in e.operands()]
            known = self.unchanged[e] = e.with_operands(operands) if operands else e
        return known

    def wide(self, e: PrimExpr) -> PrimExpr:
        known = self.widened.get(e)
        if known is None:
            known = _RULES.get(type(e), _operation)(self, e)
            if e.dtype.code in MINIFLOATS and not isinstance(e, (Load, Var, Select)):
                known = cast(_real(e), cast(e.dtype, known))
            self.widened[e] = known
        return known


def _real(e: PrimExpr) -> DataType:
    return FLOAT32.with_lanes(e.dtype.lanes)


def _load(w: _Widening, e: Load) -> PrimExpr:
    own = w.buffers.get(e.buffer)
    indices = tuple(map(w.value, e.indices))
    return cast(_real(e), Load(e.buffer, indices)) if own is None else Load(own, indices)


def _variable(w: _Widening, e: Var) -> PrimExpr:
    own = w.variables.get(e)
    return cast(_real(e), e) if own is None else own


def _converted(w: _Widening, e: Cast) -> PrimExpr:
    return cast(_real(e), w.wide(e.value) if is_short(e.value.dtype) else w.value(e.value))


def _chosen(w: _Widening, e: Select) -> PrimExpr:
    return if_then_else(w.value(e.condition), w.wide(e.true_value), w.wide(e.false_value))


def _called(w: _Widening, e: Call) -> PrimExpr:
    if e.op is reinterpret:
        return cast(_real(e), w.moved(e))
    return Call(_real(e), e.op, _operands(w, e))


def _operation(w: _Widening, e: PrimExpr) -> PrimExpr:
    return e.with_operands(_operands(w, e))


def _operands(w: _Widening, e: PrimExpr) -> Sequence[PrimExpr]:
    return [w.wide(x) if is_short(x.dtype) else w.value(x) for x in e.operands()]


_RULES: Final[dict[type, Callable[[_Widening, Any], PrimExpr]]] = {
    Load: _load, Var: _variable, Cast: _converted, Select: _chosen, Call: _called,
    FloatImm: lambda w, e: cast(_real(e), e),
}
