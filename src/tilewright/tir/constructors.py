"""Fields of the nodes of `stmt_nodes.py` for the arguments of TVM's constructors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Final

import numpy as np

from tilewright.base.errors import CompileError
from tilewright.base.types import BOOL, DataType
from tilewright.scalar.expr import Buffer, Call, Load, PrimExpr, Var, as_expr, const, number_of
from tilewright.scalar.intrinsics import address_of
from tilewright.scalar.range import Range

_KINDS: Final = {0: "spatial", 2: "reduce", 3: "scan", 4: "opaque"}
"""Kinds of axes by TVM's numbers; those of loops and threads are no kinds of axes here."""


def function_fields(
    params: Sequence[Any], body: Any, ret_type: None = None, buffer_map: Mapping[Var, Buffer] | None = None,
    attrs: Mapping[str, Any] | None = None
) -> tuple[Any, ...]:
    """Return the fields of a function for TVM's arguments."""
    bound = buffer_map or {}
    found = [bound.get(p, p) if isinstance(p, Var) else getattr(p, "buffer", p) for p in params]
    wrong = next((p for p in found if not isinstance(p, (Var, Buffer))), ret_type)
    if wrong is not None:
        raise CompileError(
            f"a function takes variables and buffers, and returns nothing; {wrong!r} ({type(wrong).__name__}) is "
            "neither", code="TW0611")
    given = dict(attrs or {})
    name = str(given.get("global_symbol", "main"))
    return name, tuple(found), body, given


def axis_fields(
    dom: Any, var: Var | str, iter_type: int, thread_tag: str = "", span: Any = None
) -> tuple[Any, ...]:
    """Return the fields of an axis for the arguments of `IterVar`. Raises `CompileError` for an axis without a range
    from 0 on, and for one of threads."""
    kind = None if thread_tag else _KINDS.get(iter_type)
    if kind is None or dom is None:
        raise CompileError(
            f"an axis of kind {iter_type}{' of ' + thread_tag if thread_tag else ''} cannot be an axis of a block; use "
            "te.thread_axis for threads", code="TW0611")
    low, extent = (dom.min, dom.extent) if isinstance(dom, Range) else (as_expr(dom[0]), as_expr(dom[1]) - dom[0])
    if number_of(low) != 0:
        raise CompileError(f"the axis of a block begins at 0, but this one begins at {low}; shift its bindings",
                           code="TW0611")
    made = Var(var, "int32") if isinstance(var, str) else var
    return made, extent if number_of(extent) is None else const(number_of(extent), made.dtype), kind


def block_fields(*args: Any, **fields: Any) -> tuple[Any, ...]:
    """Return the fields of a block for the arguments of `Block` or `BlockRealize`. Raises `CompileError` for a block
    with buffers of its own."""
    if "block" in fields or (len(args) > 2 and hasattr(args[2], "iter_vars")):
        return _realized(*args, **fields)
    return _block(*args, **fields)


def _realized(iter_values: Sequence[Any], predicate: Any, block: Any, span: Any = None) -> tuple[Any, ...]:
    if len(iter_values) != len(block.iters):
        raise CompileError(
            f"block '{block.name}' has {len(block.iters)} axes, but was given {len(iter_values)} values", code="TW0611")
    values = tuple(v if isinstance(v, PrimExpr) else as_expr(v, a.var.dtype)
                   for a, v in zip(block.iters, iter_values, strict=True))
    holds = const(predicate, BOOL) if isinstance(predicate, (bool, int)) else as_expr(predicate)
    return block.name, block.iters, values, holds, block.init, block.body, block.annotations, block.origin


def _block(
    iter_vars: Sequence[Any], reads: Any, writes: Any, name_hint: str, body: Any, init: Any = None,
    alloc_buffers: Sequence[Buffer] | None = None, match_buffers: Any = None,
    annotations: Mapping[str, Any] | None = None, span: Any = None
) -> tuple[Any, ...]:
    """Return the fields of a block; what it reads and writes follows from its body."""
    if alloc_buffers or match_buffers:
        raise CompileError(
            f"block '{name_hint}' has buffers of its own: intermediate buffers belong to the function, as its "
            "attribute 'intermediates'", code="TW0611")
    return name_hint, tuple(iter_vars), (), const(1, BOOL), init, body, dict(annotations or {})


def allocation_fields(
    buffer_var: Any, dtype: str | DataType, extents: Sequence[Any], condition: Any, body: Any,
    annotations: Mapping[str, Any] | None = None, span: Any = None
) -> tuple[Any, ...]:
    """Return the fields of an allocation for the arguments of `Allocate`; `buffer_var` is a buffer, or its `data`.
    Raises `CompileError` if they do not fit the buffer."""
    if isinstance(buffer_var, Call) and buffer_var.op is address_of and isinstance(load := buffer_var.args[0], Load):
        buffer_var = load.buffer
    fits = isinstance(buffer_var, Buffer) and buffer_var.dtype is DataType(dtype) and number_of(as_expr(condition)) == 1
    if not fits or _numbers(extents) != _numbers(buffer_var.shape):
        raise CompileError(
            f"an allocation takes a buffer with its own type and sizes, and a true condition; '{buffer_var}' does not "
            f"fit {dtype}, {list(extents)} and the condition {condition}", code="TW0609")
    return buffer_var, body, annotations


def constant_fields(
    buffer_var: Any, dtype: str | DataType, extents: Sequence[Any], data_or_idx: Any, body: Any,
    annotations: Mapping[str, Any] | None = None, span: Any = None
) -> tuple[Any, ...]:
    """Return the fields of constant memory for the arguments of `AllocateConst`. Raises `CompileError` if they do not
    fit the buffer."""
    return (*allocation_fields(buffer_var, dtype, extents, True, body, annotations), data_or_idx)


def known_shape(buffer: Buffer) -> list[int] | None:
    """Return the sizes of a buffer, or None if one is known only at run time."""
    sizes = [number_of(as_expr(d)) for d in buffer.shape]
    return None if None in sizes else [int(n) for n in sizes if n is not None]


def constant_shape(buffer: Buffer) -> list[int]:
    """Return the sizes of constant memory. Raises `CompileError` if one is not a number."""
    sizes = known_shape(buffer)
    if sizes is None:
        raise CompileError(
            f"'{buffer.name}' of shape {list(buffer.shape)} cannot be constant; give its sizes as numbers",
            code="TW0609")
    return sizes


def constant_elements(data: Any, buffer: Buffer) -> np.ndarray[Any, Any]:
    """Return the elements that constant memory begins with, as an array of one dimension. Raises `CompileError` if the
    buffer has fewer."""
    array = np.asarray(getattr(data, "numpy", lambda: data)(), dtype=buffer.dtype.numpy()).reshape(-1)
    if array.size > prod(constant_shape(buffer)):
        raise CompileError(
            f"'{buffer.name}' of shape {list(buffer.shape)} cannot hold {array.size} constants; give it a larger shape",
            code="TW0609")
    return array


def _numbers(sizes: Sequence[Any]) -> list[Any]:
    """Return sizes with constants as numbers."""
    found = map(as_expr, sizes)
    return [e if (n := number_of(e)) is None else n for e in found]
