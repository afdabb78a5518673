"""Rewrites of narrow floats, for machines without these types: computation in a wide type, and memory of their bits.

    C = T.allocate((8,), narrow)                   C = T.allocate((8,), wide)
    C[i] = A[i] + B[i]                    ->       C[i] = widened(A[i]) + widened(B[i])        ComputeLegalizer
    D[i] = C[i]                                    D[i] = narrowed(C[i])

    D: T.Buffer((8,), narrow)             ->       D: T.Buffer((8,), "uint16")                 StorageLegalizer
    D[i] = T.reinterpret(narrow, bits)             D[i] = bits

The formats are in `legalize_floats.py`. Allocated memory and variables become wide, so a value is rounded only when it
is stored in a parameter. Memory whose address a function takes keeps its type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilewright.base.errors import CompileError
from tilewright.base.types import DataType
from tilewright.scalar import intrinsics as I
from tilewright.scalar.expr import (
    Broadcast,
    Buffer,
    Call,
    Cast,
    FloatImm,
    Load,
    PlacedBuffer,
    PrimExpr,
    Select,
    Var,
    cast,
    const,
)
from tilewright.tir.free_names import free_names
from tilewright.tir.functions import reinterpret
from tilewright.tir.stmt import (
    INNER,
    Allocate,
    AllocateConst,
    Block,
    Let,
    PrimFunc,
    Stmt,
    Store,
    expressions,
    handed_out,
    map_bodies,
    map_expressions,
    walk_stmt,
)


@dataclass(frozen=True)
class Format:
    """Narrow floats: `is_narrow` tells their types; `widened` converts a value to the type of a computation, and
    `narrowed` rounds one to a narrow type."""

    title: str
    is_narrow: Callable[[DataType], bool]
    widened: Callable[[PrimExpr], PrimExpr]
    narrowed: Callable[[PrimExpr, DataType], PrimExpr]
    wide: DataType
    converts: bool = False
    """Whether conversions may stay casts, which code generation has for these types."""

    def wide_like(self, dtype: DataType) -> DataType:
        return self.wide.with_lanes(dtype.lanes)


def bits_of(dtype: DataType) -> DataType:
    """Return the unsigned integer of the same width and lanes."""
    return DataType(f"uint{dtype.bits}").with_lanes(dtype.lanes)


class _Legalizer:
    """Rewrites one function: `memory` and `variables` have their replacements."""

    def __init__(self, func: PrimFunc, form: Format) -> None:
        self.func, self.form = func, form
        self.memory: dict[Any, Buffer] = {}
        self.variables: dict[Any, Var] = {}
        self.values: dict[PrimExpr, PrimExpr] = {}
        self.replaced: dict[PrimExpr, PrimExpr] = {}

    def is_narrow(self, e: PrimExpr) -> bool:
        return self.form.is_narrow(e.dtype.element)

    def function(self) -> PrimFunc:
        body = self.stmt(self.func.body)
        params = tuple(
            self.memory.get(p, p) if isinstance(p, Buffer) else self.variables.get(p, p) for p in self.func.params)
        attrs = dict(self.func.attrs)
        if attrs.get(INNER):
            attrs[INNER] = tuple(self.memory.get(b, b) for b in attrs[INNER])
        return replace(self.func, params=params, body=body, attrs=attrs)

    def stmt(self, s: Stmt) -> Stmt:
        match s:
            case Store():
                indices = tuple(map(self.value, s.indices))
                mask = None if s.mask is None else self.value(s.mask)
                return Store(self.memory.get(s.buffer, s.buffer), self.stored(s), indices, mask)
            case Allocate():
                return self.allocation(s)
            case Let() if self.form.is_narrow(s.var.dtype.element):
                value = self.replacement(s.value)
                own = self.variables[s.var] = Var(s.var.name, value.dtype)
                return Let(own, value, self.stmt(s.body))
            case Block() if s.init is not None:
                s = replace(s, init=self.stmt(s.init))
            case _:
                pass
        inner = map_expressions(s, self.any, lambda x: x is s)
        return map_bodies(inner, self.stmt) or inner

    def allocation(self, s: Allocate) -> Stmt:
        return replace(s, buffer=self.memory.get(s.buffer, s.buffer), body=self.stmt(s.body))

    def stored(self, s: Store) -> PrimExpr:
        """Return the value that a statement stores."""
        raise NotImplementedError

    def any(self, e: PrimExpr) -> PrimExpr:
        return self.replacement(e) if self.is_narrow(e) else self.value(e)

    def replacement(self, e: PrimExpr) -> PrimExpr:
        """Return the value that replaces a narrow one."""
        known = self.replaced.get(e)
        if known is None:
            known = self.replaced[e] = self.replacement_of(e)
        return known

    def replacement_of(self, e: PrimExpr) -> PrimExpr:
        raise NotImplementedError

    def passed(self, e: PrimExpr) -> PrimExpr:
        """Return an argument of a function that takes values as they are."""
        raise NotImplementedError

    def value(self, e: PrimExpr) -> PrimExpr:
        """Rewrite a value of another type."""
        if not e.operands():
            return e
        known = self.values.get(e)
        if known is None:
            known = self.values[e] = self.value_of(e)
        return known

    def value_of(self, e: PrimExpr) -> PrimExpr:
        if isinstance(e, Load):
            return Load(self.memory.get(e.buffer, e.buffer), tuple(map(self.value, e.indices)))
        if isinstance(e, Call) and (e.op is I.reinterpret or e.op.effect):
            args = [self.passed(a) if self.is_narrow(a) else self.value(a) for a in e.args]
            return reinterpret(e.dtype, args[0]) if e.op is I.reinterpret else Call(e.dtype, e.op, args)
        return e.with_operands([self.any(x) for x in e.operands()])


class ComputeLegalizer(_Legalizer):
    """Computes in the wide type."""

    def __init__(self, func: PrimFunc, form: Format) -> None:
        super().__init__(func, form)
        addressed = {b for s in walk_stmt(func.body) for top in expressions(s) for b in handed_out(top)}
        inner = [*(s.buffer for s in walk_stmt(func.body) if isinstance(s, Allocate) and not isinstance(
            s, AllocateConst)), *(func.attrs.get(INNER) or ())]
        self.memory = {
            b: Buffer(b.name, b.shape, form.wide_like(b.dtype), b.scope, b.strides)
            for b in inner if form.is_narrow(b.dtype.element) and b not in addressed}

    def stored(self, s: Store) -> PrimExpr:
        if not self.is_narrow(s.value):
            return self.value(s.value)
        return self.replacement(s.value) if s.buffer in self.memory else self.passed(s.value)

    def passed(self, e: PrimExpr) -> PrimExpr:
        """Return a narrow value as it is stored: unchanged if it is only moved, else rounded."""
        match e:
            case Load() if e.buffer not in self.memory:
                return Load(e.buffer, tuple(map(self.value, e.indices)))
            case Var() if e not in self.variables:
                return e
            case FloatImm():
                return e
            case Select():
                return e.with_operands((self.value(e.condition), self.passed(e.true_value), self.passed(e.false_value)))
            case Broadcast():
                return e.with_operands((self.passed(e.value),))
            case Call() if e.op is I.reinterpret or e.op.effect:
                return Call(e.dtype, e.op, [self.passed(a) if self.is_narrow(a) else self.value(a) for a in e.args])
            case _:
                return self.form.narrowed(self.replacement(e), e.dtype)

    def replacement_of(self, e: PrimExpr) -> PrimExpr:
        wide = self.form.wide_like(e.dtype)
        match e:
            case Load() if e.buffer in self.memory:
                return Load(self.memory[e.buffer], tuple(map(self.value, e.indices)))
            case Var() if e in self.variables:
                return self.variables[e]
            case FloatImm():
                return const(e.value, wide)
            case Cast():
                return cast(wide, self.any(e.value))
            case Load() | Var():
                return self.form.widened(self.passed(e))
            case Call() if e.op is I.reinterpret or e.op.effect:
                return self.form.widened(self.passed(e))
            case Call():
                return Call(wide, e.op, [self.any(a) for a in e.args])
            case _:
                return e.with_operands([self.any(x) for x in e.operands()])


class StorageLegalizer(_Legalizer):
    """Stores the bits of narrow values. Needs a program that only moves them."""

    def __init__(self, func: PrimFunc, form: Format) -> None:
        super().__init__(func, form)
        inner = [s.buffer for s in walk_stmt(func.body) if isinstance(s, Allocate)]
        buffers = [*func.buffers, *(func.attrs.get(INNER) or ()), *inner, *free_names(func)[1]]
        self.memory = {b: _of_bits(b) for b in buffers if form.is_narrow(b.dtype.element)}
        self.variables = {v: Var(v.name, bits_of(v.dtype)) for v in func.scalars if form.is_narrow(v.dtype.element)}

    def allocation(self, s: Allocate) -> Stmt:
        if isinstance(s, AllocateConst) and s.buffer in self.memory:
            own = self.memory[s.buffer]
            return AllocateConst(own, self.stmt(s.body), s.annotations, s.values.view(own.dtype.numpy()))
        return super().allocation(s)

    def stored(self, s: Store) -> PrimExpr:
        return self.any(s.value)

    def passed(self, e: PrimExpr) -> PrimExpr:
        return self.replacement(e)

    def value_of(self, e: PrimExpr) -> PrimExpr:
        moves = isinstance(e, (Load, Call)) and (not isinstance(e, Call) or e.op is I.reinterpret or e.op.effect)
        if not moves and any(map(self.is_narrow, e.operands())):
            narrow = self.converted(e).value
            return cast(e.dtype, reinterpret(narrow.dtype, self.replacement(narrow)))
        return super().value_of(e)

    def replacement_of(self, e: PrimExpr) -> PrimExpr:
        match e:
            case Load():
                return Load(self.memory[e.buffer], tuple(map(self.value, e.indices)))
            case Var() if e in self.variables:
                return self.variables[e]
            case FloatImm():
                return const(_constant_bits(e), bits_of(e.dtype))
            case Select() | Broadcast():
                return e.with_operands([self.any(x) for x in e.operands()])
            case Call() if e.op is I.reinterpret:
                return reinterpret(bits_of(e.dtype), self.any(e.args[0]))
            case Call() if e.op.effect:
                return Call(bits_of(e.dtype), e.op, [self.any(a) for a in e.args])
            case _:
                return reinterpret(bits_of(e.dtype), cast(e.dtype, self.value(self.converted(e).value)))

    def converted(self, e: PrimExpr) -> Cast:
        """Return a conversion. Raises `CompileError` for any other computation."""
        if isinstance(e, Cast) and self.form.converts:
            return e
        raise CompileError(
            f"'{self.func.name}' computes with {self.form.title} in '{e}'; run {self.form.title}ComputeLegalize first",
            self.func.origin, code="TW0611")


def _constant_bits(e: FloatImm) -> int:
    """Return the bits of a constant."""
    return int(np.asarray(e.value, e.dtype.numpy()).view(bits_of(e.dtype).numpy()))


def _of_bits(b: Buffer) -> Buffer:
    """Return the memory of the bits of narrow values."""
    dtype = bits_of(b.dtype)
    if isinstance(b, PlacedBuffer):
        return PlacedBuffer(b.name, b.shape, dtype, b.pointer, b.scope, b.strides)
    return Buffer(b.name, b.shape, dtype, b.scope, b.strides)


def compute_legalized(func: PrimFunc, form: Format) -> PrimFunc:
    """Return a function that computes narrow floats in the wide type."""
    return ComputeLegalizer(func, form).function()


def storage_legalized(func: PrimFunc, form: Format) -> PrimFunc:
    """Return a function that stores the bits of narrow floats. Raises `CompileError` if it computes with them."""
    return StorageLegalizer(func, form).function()


__all__ = ["ComputeLegalizer", "Format", "StorageLegalizer", "bits_of", "compute_legalized", "storage_legalized"]
