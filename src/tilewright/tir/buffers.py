"""Buffers declared by scripts, `tir.decl_buffer`, and how values fit into buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.base.errors import CompileError
from tilewright.base.types import INT64, DataType
from tilewright.scalar.addresses import lanes_at
from tilewright.scalar.buffer_access import store_at
from tilewright.scalar.expr import (
    Broadcast,
    Buffer,
    FloatImm,
    IntImm,
    Load,
    PlacedBuffer,
    PrimExpr,
    Ramp,
    Value,
    Var,
    as_expr,
    cast,
    const,
    number_of,
)
from tilewright.tir.stmt import Store


@store_at.provide
def _store_at(buffer: Buffer, begin: Any, value: Value) -> Store:
    stored = as_expr(value, None if isinstance(value, PrimExpr) else buffer.dtype)
    return Store(buffer, stored, lanes_at(buffer, begin, stored.dtype))


def decl_buffer(
    shape: Any, dtype: str | DataType = "float32", name: str = "buffer", data: Any = None,
    strides: Sequence[Any] | None = None,
    elem_offset: Any = None, scope: str = "", data_alignment: int = -1, offset_factor: int = 0, buffer_type: str = "",
    axis_separators: Sequence[int] | None = None,
) -> Buffer:
    """Declare a buffer of `shape`, dense or with `strides`; with `data`, a variable of type `handle`, the memory at
    this address. Otherwise the address is determined when the buffer is bound.

    `offset_factor` and `data_alignment` have no effect. `elem_offset` and `axis_separators` are notes: an address
    includes the offset, and memory has one dimension. `buffer_type` is rejected, since dimensions of a buffer cannot
    share memory.
    """
    if buffer_type or not (data is None or (isinstance(data, Var) and data.dtype == "handle")):
        raise CompileError(
            f"decl_buffer '{name}': each element is stored once, so omit buffer_type=; data= is a variable of type "
            "'handle'", code="TW0609")
    dims = shape if isinstance(shape, (list, tuple)) else (shape,)
    if strides is not None and len(strides) not in (0, len(dims)):
        raise CompileError(
            f"decl_buffer '{name}' has {len(dims)} dimensions, but was given {len(strides)} strides", code="TW0609")
    sizes = [int(d) if isinstance(d, IntImm) else d for d in dims]
    if data is not None:
        return PlacedBuffer(name, sizes, dtype, data, scope or "global", strides or ())
    first = 0 if elem_offset is None else elem_offset
    return Buffer(name, sizes, dtype, scope or "global", strides or (), axis_separators or (), first)


def fitted(value: PrimExpr, dtype: DataType) -> PrimExpr | None:
    """Convert `value` to `dtype` for a store; None if it does not fit.

    A floating-point constant fits if the type has its value, and integers are converted to floating-point types. Loop
    variables are int64 here and int32 in TVM's scripts. So integers computed from variables are converted to the
    buffer's integer type, and wrap around.
    """
    have, want = value.dtype.element, dtype.element
    if have is want:
        return value
    if isinstance(value, FloatImm) and want.is_float:
        same = const(value.value, want)
        return same if number_of(same) == value.value else None
    if have.is_integer and have.code != "bool" and want.is_float:
        return cast(dtype.with_lanes(value.dtype.lanes), value)
    if have is not INT64 or not want.is_integer or want.code == "bool":
        return None
    stack = [value]
    while stack:
        e = stack.pop()
        if isinstance(e, (Var, Ramp, Broadcast)):
            return cast(dtype.with_lanes(value.dtype.lanes), value)
        stack += () if isinstance(e, Load) else e.operands()
    return None
