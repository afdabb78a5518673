"""Addresses of buffers, and the places of their elements in memory.

    Bb = tir.decl_buffer((16, 64), "float32", name="B", strides=[te.var("s1"), 1])
    tir.call_extern("int32", "gemv_update", cc.access_ptr("w"), aa.access_ptr("r"), Bb.access_ptr("r"), 16, 64)
    Bb.offset_of([2, 3])                                                                   # [s1 * 2 + 3]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tilewright.base.errors import CompileError
from tilewright.base.types import INT64, DataType
from tilewright.scalar.arith.linear import LinearForm, expression, linear
from tilewright.scalar.arith.ranges import Ranges
from tilewright.scalar.arith.simplify import simplify
from tilewright.scalar.expr import (
    Buffer,
    Call,
    Load,
    PrimExpr,
    Ramp,
    Value,
    add,
    as_expr,
    cast,
    const,
    mul,
    number_of,
)
from tilewright.scalar.intrinsics import address_of
from tilewright.scalar.walk import text_of

_ACCESS: Final = {"r": 1, "w": 2, "rw": 3, "wr": 3}


class FlattenedBuffer(Buffer):
    """The memory of `source`, seen with fewer dimensions."""

    __slots__ = ("source",)

    def __init__(self, source: Buffer, shape: Sequence[Any], axis_separators: Sequence[int]) -> None:
        super().__init__(source.name, shape, source.dtype, source.scope, (), axis_separators, source.elem_offset)
        self.source = source

    @property
    def data(self) -> PrimExpr:
        return self.source.data


def address(buffer: Buffer, access: int = 3, offset: Value = 0) -> PrimExpr:
    """Return the address of a buffer from `offset` elements on, for a function that reads (1), writes (2) or updates
    (3) it."""
    first: list[PrimExpr] = [const(0, INT64) for _ in buffer.shape]
    if first:
        first[-1] = cast(INT64, as_expr(offset))
    return Call("handle", address_of, (Load(buffer, first), const(access, INT64), *(as_expr(d) for d in buffer.shape)))


def address_for(buffer: Buffer, access_mask: str | int, offset: Value) -> PrimExpr:
    """Return the address of a buffer from `offset` elements on, for a function that reads (`r`, 1) or writes (`w`, 2)
    it. Raises `CompileError` for another access."""
    access = _ACCESS.get(access_mask) if isinstance(access_mask, str) else access_mask
    if access not in (1, 2, 3):
        raise CompileError(
            f"access_ptr of '{buffer.name}' takes 'r', 'w' or 'rw', but was given {access_mask!r}", code="TW0609")
    return address(buffer, access, offset)


def load_at(buffer: Buffer, begin: Any, dtype: str | DataType | None) -> PrimExpr:
    """Return the element at `begin`, or for a vector type, a vector along the last dimension."""
    return Load(buffer, lanes_at(buffer, begin, dtype))


def lanes_at(buffer: Buffer, begin: Any, dtype: str | DataType | None) -> tuple[PrimExpr, ...]:
    """Return the indices of the element at `begin`, or of the elements of a vector. Raises `CompileError` for another
    number of indices."""
    at = [cast(INT64, as_expr(i)) for i in (begin if isinstance(begin, (tuple, list)) else (begin,))]
    _check_count(buffer, at)
    lanes = DataType(dtype).lanes if dtype is not None else 1
    return (*at[:-1], Ramp(at[-1], 1, lanes)) if lanes > 1 else tuple(at)


def offset_of(buffer: Buffer, indices: Sequence[Value]) -> list[PrimExpr]:
    """Return the place of an element: see `Buffer.offset_of`."""
    _check_count(buffer, indices)
    places: list[PrimExpr] = []
    for dims in _groups(buffer):
        total = as_expr(0, "int32")
        for d in dims:
            total = (
                add(total, mul(indices[d], buffer.strides[d])) if buffer.strides
                else add(mul(total, buffer.shape[d]), indices[d]))
        places.append(total)
    places[-1] = add(places[-1], buffer.elem_offset)
    return [_in_order(simplify(e, Ranges())) for e in places]


def _in_order(e: PrimExpr) -> PrimExpr:
    """Return a sum with its terms in an order that does not depend on how it was computed."""
    form = linear(e)
    terms = sorted(form.coefs.items(), key=lambda term: text_of(term[0]))
    return expression(LinearForm(dict(terms), form.const), e.dtype)


def flattened(buffer: Buffer) -> Buffer:
    """Return the memory with fewer dimensions: see `Buffer.get_flattened_buffer`."""
    groups = _groups(buffer)
    if len(groups) == len(buffer.shape) and not buffer.strides:
        return buffer
    sizes: list[Any] = []
    for dims in groups:
        size = as_expr(1, "int32")
        for d in dims[:1] if buffer.strides else dims:
            size = mul(mul(size, buffer.strides[d]) if buffer.strides else size, buffer.shape[d])
        sizes.append(size if (known := number_of(size)) is None else known)
    return FlattenedBuffer(buffer, sizes, range(1, len(sizes)))


def _groups(buffer: Buffer) -> list[range]:
    """Return the dimensions that are one dimension of the memory, for each of these."""
    ends = [*buffer.axis_separators, len(buffer.shape)]
    return [range(first, end) for first, end in zip([0, *ends], ends, strict=False)]


def _check_count(buffer: Buffer, indices: Sequence[Any]) -> None:
    if len(indices) != len(buffer.shape):
        raise CompileError(
            f"'{buffer.name}' has {len(buffer.shape)} dimensions, but was given {len(indices)} indices", code="TW0609")
