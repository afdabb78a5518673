"""Functions with other variables and buffers: those of known sizes, and copies that share no variable.

    matmul.specialize({n: 128})        T.match_buffer(a, (m, n))  ->  A: T.Buffer((m, 128))
    stmt_functor.renew_defs(matmul)    the same function, with variables and buffers of its own
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tilewright.base.errors import CompileError
from tilewright.base.types import INT64
from tilewright.scalar.arith import Ranges, prove
from tilewright.scalar.expr import (
    EQ,
    Buffer,
    Call,
    ExprLike,
    IntImm,
    Load,
    PlacedBuffer,
    PrimExpr,
    Value,
    Var,
    as_expr,
    cast,
    compare,
)
from tilewright.scalar.intrinsics import address_of
from tilewright.scalar.walk import free_vars, substitute, walk
from tilewright.tir.free_names import undefined_names
from tilewright.tir.stmt import (
    Allocate,
    AttrStmt,
    Block,
    For,
    IterVar,
    Let,
    PrimFunc,
    Reducer,
    Stmt,
    Store,
    map_bodies,
    map_expressions,
)


def renew_defs(func: PrimFunc) -> PrimFunc:
    """Return the function with a new variable for each one that it binds, and a new buffer for each of its buffers."""
    made = _Rebuilding({}, is_fresh=True)
    for b in func.buffers:
        for size in (*b.shape, *b.strides, b.elem_offset):
            for v in free_vars(size) if isinstance(size, PrimExpr) else ():
                if v not in made.values:
                    made.bind(v)
    for v in func.scalars:
        if v not in made.values:
            made.bind(v)
    return made.function(func)


def specialize(func: PrimFunc, param_map: Mapping[Any, Any]) -> PrimFunc:
    """Return the function for given parameters: a number or an expression for a variable, which is no parameter of the
    result, and for a buffer one with other sizes, strides and offset, which determine the variables in those of the
    parameter; its data type has no effect. Raises `CompileError` for a parameter of another function, and sizes that do
    not fit.
    """
    values: dict[Var, PrimExpr] = {}
    for param, given in param_map.items():
        if not any(param is p for p in func.params):
            raise CompileError(f"{param} is not a parameter of '{func.name}', so it has no value there", code="TW0611")
        if isinstance(param, Buffer):
            _match(param, given, values)
        else:
            _determine(param, given, values, param.name)
    if not values:
        return func
    made = _Rebuilding(values, is_fresh=False).function(func)
    return replace(made, params=tuple(p for p in made.params if not isinstance(p, Var) or p not in values))


def substitute_in(s: Stmt, values: Mapping[Var, PrimExpr]) -> Stmt:
    """Return a statement with values for variables, also in the sizes of the buffers that it allocates."""
    made = _Rebuilding(values, is_fresh=False)
    made.buffers = {b: b for b in undefined_names(s)[1]}
    return made.stmt(s)


def _match(param: Buffer, given: Any, values: dict[Var, PrimExpr]) -> None:
    """Determine the variables of a parameter from a buffer with its number of dimensions."""
    if not isinstance(given, Buffer) or len(given.shape) != len(param.shape):
        raise CompileError(
            f"{given} cannot be the parameter {param}; give a buffer with its number of dimensions", code="TW0611")
    for old, new in zip(param.shape, given.shape, strict=True):
        _determine(old, new, values, param.name)
    for old, new in zip(param.strides, given.strides, strict=False):
        _determine(old, new, values, param.name)
    _determine(param.elem_offset, given.elem_offset, values, param.name)


def _determine(old: Value, new: Value, values: dict[Var, PrimExpr], name: str) -> None:
    """Determine a variable, or check that a size is the given one."""
    if isinstance(old, Var) and old not in values:
        if old is not new:
            values[old] = as_expr(new, None if isinstance(new, ExprLike) else old.dtype)
        return
    known = substitute(as_expr(old), values)
    found = as_expr(new, None if isinstance(new, ExprLike) else known.dtype)
    if prove(compare(EQ, known, found), Ranges()) is not True:
        raise CompileError(f"'{name}' is given {found}, but the other parameters need {known}", code="TW0611")


def _index(e: PrimExpr) -> PrimExpr:
    """Return a constant as an index, which is int64; other expressions as they are."""
    return cast(INT64, e) if isinstance(e, IntImm) else e


class _Rebuilding:
    """Replaces variables by `values`, and buffers with such variables in their sizes by others; with `is_fresh`, also
    each variable that a statement binds, and every buffer.

    A loop or an axis whose extent becomes a number has an int64 variable, as one with a number in a text has. Values
    that are stored, bound, or passed to functions keep their types.
    """

    def __init__(self, values: Mapping[Any, PrimExpr], *, is_fresh: bool) -> None:
        self.values: dict[PrimExpr, PrimExpr] = dict(values)
        self.is_fresh = is_fresh
        self.buffers: dict[Buffer, Buffer] = {}
        self.memo: dict[PrimExpr, PrimExpr] = {}

    def function(self, func: PrimFunc) -> PrimFunc:
        params = tuple(self.named(p) for p in func.params)
        attrs = {k: self.attribute(v) for k, v in func.attrs.items()}
        return replace(func, params=params, attrs=attrs, body=self.stmt(func.body))

    def named(self, p: Buffer | Var) -> Any:
        """Return what a parameter, or an entry of an attribute, became; a variable with a value stays a name."""
        if isinstance(p, Buffer):
            return self.buffer(p)
        new = self.values.get(p, p)
        return new if isinstance(new, Var) and self.is_fresh else p

    def attribute(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(self.attribute(v) for v in value)
        return self.named(value) if isinstance(value, (Buffer, Var)) else value

    def bind(self, v: Var, old: PrimExpr | None = None, extent: PrimExpr | None = None) -> Var:
        """Return the variable that takes the place of one that is bound here, for a loop or an axis with its extents
        before and now."""
        grows = isinstance(extent, IntImm) and not isinstance(old, IntImm) and v.dtype == "int32"
        if not self.is_fresh and not grows:
            return v
        made = self.values[v] = Var(v.name, INT64 if grows else v.dtype if v._pointer is None else v._pointer)
        self.memo.clear()
        return made

    def buffer(self, b: Buffer) -> Buffer:
        known = self.buffers.get(b)
        if known is None:
            known = self.buffers[b] = self.rebuilt(b)
        return known

    def rebuilt(self, b: Buffer) -> Buffer:
        shape, strides = self.sizes(b.shape), self.sizes(b.strides)
        offset = self.expr(b.elem_offset)
        pointer = self.values.get(b.pointer, b.pointer) if isinstance(b, PlacedBuffer) else None
        before = (*b.shape, *b.strides, b.elem_offset)
        same = all(x is y for x, y in zip((*shape, *strides, offset), before, strict=True))
        if isinstance(b, PlacedBuffer) and isinstance(pointer, Var):
            if same and not self.is_fresh and pointer is b.pointer:
                return b
            return PlacedBuffer(b.name, shape, b.dtype, pointer, b.scope, strides)
        if same and not self.is_fresh:
            return b
        return Buffer(b.name, shape, b.dtype, b.scope, strides, b.axis_separators, offset)

    def sizes(self, given: Sequence[Any]) -> list[Any]:
        return [self.expr(d) if isinstance(d, PrimExpr) else d for d in given]

    def expr(self, e: PrimExpr) -> PrimExpr:
        for x in walk(e):  # operands first
            if x not in self.memo:
                self.memo[x] = self.rewritten(x)
        return self.memo[e]

    def kept(self, e: PrimExpr) -> PrimExpr:
        """Return a rewritten expression of the same type as before."""
        return cast(e.dtype, self.expr(e))

    def rewritten(self, e: PrimExpr) -> PrimExpr:
        if isinstance(e, Var):
            return self.values.get(e, e)
        new = [self.memo[x] for x in e.operands()]
        if isinstance(e, Call) and e.op is address_of:
            sizes = [n if isinstance(old, IntImm) else _index(n) for old, n in zip(e.args[2:], new[2:], strict=True)]
            new = [*new[:2], *sizes]
        elif isinstance(e, Call):
            new = [cast(old.dtype, x) for old, x in zip(e.operands(), new, strict=True)]
        if isinstance(e, Load) and (buffer := self.buffer(e.buffer)) is not e.buffer:
            return Load(buffer, new)
        return e if all(a is b for a, b in zip(e.operands(), new, strict=True)) else e.with_operands(new)

    def stmt(self, s: Stmt) -> Stmt:
        """Return a statement, whose binders come before their uses."""
        match s:
            case Store():
                mask = None if s.mask is None else self.expr(s.mask)
                return Store(self.buffer(s.buffer), self.kept(s.value), tuple(map(self.expr, s.indices)), mask)
            case For():
                low, extent = self.expr(s.min), self.expr(s.extent)
                var = self.bind(s.var, s.extent, extent)
                return replace(
                    s, var=var, min=cast(var.dtype, low), extent=cast(var.dtype, extent), body=self.stmt(s.body))
            case Let():
                value = self.kept(s.value)
                return Let(self.bind(s.var), value, self.stmt(s.body))
            case Allocate():
                return replace(s, buffer=self.buffer(s.buffer), body=self.stmt(s.body))
            case AttrStmt():
                about = self.named(s.node) if isinstance(s.node, (Buffer, Var)) else s.node
                noted = self.kept(s.value) if isinstance(s.value, PrimExpr) else s.value
                return AttrStmt(about, s.attr_key, noted, self.stmt(s.body))
            case Block():
                return self.block(s)
            case _:
                own = map_expressions(s, self.expr, lambda x: x is s)
                return map_bodies(own, self.stmt) or own

    def block(self, s: Block) -> Block:
        values, extents = [self.expr(b) for b in s.bindings], [self.expr(i.extent) for i in s.iters]
        pairs = [(self.bind(i.var, i.extent, n), n, i.kind) for i, n in zip(s.iters, extents, strict=True)]
        iters = tuple(IterVar(v, cast(v.dtype, n), kind) for v, n, kind in pairs)
        bindings = tuple(cast(i.var.dtype, b) for i, b in zip(iters, values, strict=False))
        notes = {k: self.reducer(v) if isinstance(v, Reducer) else v for k, v in s.annotations.items()}
        return replace(
            s, iters=iters, bindings=bindings, predicate=self.expr(s.predicate),
            init=None if s.init is None else self.stmt(s.init), body=self.stmt(s.body), annotations=notes)

    def reducer(self, r: Reducer) -> Reducer:
        params = tuple(map(self.bind, r.params))
        return Reducer(r.name, params, tuple(map(self.expr, r.body)), r.neutral)
