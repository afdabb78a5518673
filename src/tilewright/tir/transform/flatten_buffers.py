"""Convert every buffer to one dimension, row-major.

    A: T.Buffer((4, 8, 3))                     A: T.Buffer((96,))
    A[f // 8, f % 8, c]                ->      A[f * 3 + c]

Parameters become flat buffers with the same names, or keep their shapes. The result is simplified.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import Any

from tilewright.base.errors import ScheduleError
from tilewright.scalar.expr import Buffer, Call, IntImm, Load, PrimExpr, add, as_expr, integer, mul, sub
from tilewright.scalar.intrinsics import expect, stride_of
from tilewright.scalar.walk import rewrite, walk
from tilewright.tir.stmt import (
    CALLBACKS,
    INNER,
    Allocate,
    Block,
    Evaluate,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    map_bodies,
    map_expressions,
    walk_stmt,
)
from tilewright.tir.transform.simplify import simplify


def flatten_buffers(func: PrimFunc, *, separated: bool = False, parameters: bool = True) -> PrimFunc:
    """Convert the buffers of `func` to flat buffers; if `separated`, those with axis separators keep a dimension for
    each part. Without `parameters`, those keep their shapes."""
    body = map_expressions(func.body, lambda e: rewrite(e, _stride)) if func.attrs.get(CALLBACKS) else func.body
    func = func.with_body(_laid_out(body))
    owned = [s.buffer for s in walk_stmt(func.body) if isinstance(s, Allocate)]
    inner: tuple[Buffer, ...] = func.attrs.get(INNER) or ()
    changed = (*(func.buffers if parameters else ()), *inner, *owned)
    flat: dict[Any, Buffer] = {b: _flat(b, separated) for b in changed}
    memo: dict[PrimExpr, PrimExpr] = {}

    def rule(e: PrimExpr) -> PrimExpr | None:
        moved = isinstance(e, Load) and e.buffer in flat
        return Load(flat[e.buffer], _places(e.buffer, e.indices, separated)) if moved and isinstance(e, Load) else None

    def move(s: Stmt) -> Stmt:
        if isinstance(s, Store):
            return s if s.buffer not in flat else Store(
                flat[s.buffer], s.value, _places(s.buffer, s.indices, separated), s.mask)
        if isinstance(s, Block) and s.init is not None:
            s = replace(s, init=move(s.init))
        inner = map_bodies(s, move) or s
        if type(inner) is Allocate:
            return Allocate(flat[inner.buffer], inner.body, inner.annotations)
        return replace(inner, buffer=flat[inner.buffer]) if isinstance(inner, Allocate) else inner

    body = move(map_expressions(func.body, lambda e: rewrite(e, rule, memo)))
    attrs = {**func.attrs, INNER: tuple(flat[b] for b in inner)} if inner else func.attrs
    return simplify(PrimFunc(func.name, tuple(flat.get(p, p) for p in func.params), body, attrs, func.origin))


def _laid_out(s: Stmt) -> Stmt:
    """Return `s` with strides as numbers, and with the checks of strides evaluated and removed."""

    def visit(x: Stmt) -> Stmt | None:
        if not isinstance(x, Evaluate):
            return map_bodies(x, visit)
        value = rewrite(x.value, _stride)
        if isinstance(value, Call) and value.op is expect:
            _keep_promise(x.value, *value.args)
            return None
        return x if value is x.value else Evaluate(value)

    return visit(s) or Seq(())


def _stride(e: PrimExpr) -> PrimExpr | None:
    """Return the number for a call of `stride_of`."""
    if not isinstance(e, Call) or e.op is not stride_of or not isinstance(load := e.args[0], Load):
        return None
    axis = integer(e.args[1])
    if load.buffer.strides:
        return as_expr(load.buffer.strides[axis])
    return prod(map(as_expr, load.buffer.shape[axis + 1 :]), start=IntImm("int64", 1))


def _keep_promise(e: PrimExpr, found: PrimExpr, wanted: PrimExpr) -> None:
    if found is not wanted:
        names = [x.buffer.name for x in walk(e) if isinstance(x, Load)]
        raise ScheduleError(
            f"an instruction needs '{names[0]}' with a row stride of {wanted} elements, but in memory it is {found}; "
            "declare the instruction's buffer with strides=[te.var('stride'), …, 1] and pass its strides on")


def _parts(buffer: Buffer, separated: bool) -> list[slice]:
    """Return the dimensions that become one each."""
    ends = (0, *(buffer.axis_separators if separated and not buffer.strides else ()), len(buffer.shape))
    return [slice(a, b) for a, b in pairwise(ends)]


def _flat(buffer: Buffer, separated: bool) -> Buffer:
    if buffer.strides:
        last = [sub(as_expr(d), 1) for d in buffer.shape]
        return Buffer(buffer.name, (add(_place(buffer, tuple(last)), 1),), buffer.dtype, buffer.scope)
    if len(buffer.shape) == 1:
        return buffer
    parts = _parts(buffer, separated)
    sizes = [prod(map(as_expr, buffer.shape[part]), start=IntImm("int64", 1)) for part in parts]
    return Buffer(buffer.name, sizes, buffer.dtype, buffer.scope, (), range(1, len(parts)))


def _places(buffer: Buffer, indices: tuple[PrimExpr, ...], separated: bool) -> tuple[PrimExpr, ...]:
    """Return the indices in the flat buffer."""
    parts = _parts(buffer, separated)
    if len(parts) == 1:
        return (_place(buffer, indices),)
    return tuple(_row_major(buffer.shape[part], indices[part]) for part in parts)


def _place(buffer: Buffer, indices: tuple[PrimExpr, ...]) -> PrimExpr:
    """Return the linear index of an element: row-major, or by the strides of the buffer; indices may be vectors."""
    if not buffer.strides:
        return _row_major(buffer.shape, indices)
    place: PrimExpr = IntImm("int64", 0)
    for i, s in zip(indices, buffer.strides, strict=True):
        place = add(place, mul(i, s))
    return place


def _row_major(shape: tuple[Any, ...], indices: tuple[PrimExpr, ...]) -> PrimExpr:
    place: PrimExpr = IntImm("int64", 0)
    for i, d in zip(indices, shape, strict=True):
        place = add(mul(place, d), i)
    return place
