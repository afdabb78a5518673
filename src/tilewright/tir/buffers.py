"""Buffers declared by scripts: `tir.decl_buffer`, with access methods for the bodies of extern computations and
hardware instructions.

    Bb = tir.decl_buffer((16, 64), "float32", name="B", strides=[te.var("s1"), 1])
    tir.call_extern("int32", "gemv_update", cc.access_ptr("w"), aa.access_ptr("r"), Bb.access_ptr("r"), 16, 64)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tilewright.base.errors import CompileError
from tilewright.base.types import INT64, DataType
from tilewright.scalar.expr import (
    Broadcast,
    Buffer,
    Call,
    FloatImm,
    IntImm,
    Load,
    PrimExpr,
    Ramp,
    Value,
    Var,
    as_expr,
    cast,
    const,
    number_of,
)
from tilewright.scalar.intrinsics import address_of
from tilewright.tir.stmt import Store

_ACCESS: Final = {"r": 1, "w": 2, "rw": 3, "wr": 3}


def address(buffer: Buffer, access: int = 3, offset: Value = 0) -> PrimExpr:
    """Return the address of a buffer from `offset` elements on, for a function that reads (1), writes (2) or updates
    (3) it."""
    first: list[PrimExpr] = [const(0, INT64) for _ in buffer.shape]
    if first:
        first[-1] = cast(INT64, as_expr(offset))
    return Call("handle", address_of, (Load(buffer, first), const(access, INT64), *(as_expr(d) for d in buffer.shape)))


def address_for(buffer: Buffer, access_mask: str | int, offset: Value) -> PrimExpr:
    """Return the address of a buffer from `offset` elements on, for a function that reads (`r`, 1) or writes (`w`, 2)
    it."""
    access = _ACCESS.get(access_mask) if isinstance(access_mask, str) else access_mask
    if access not in (1, 2, 3):
        raise CompileError(
            f"access_ptr of '{buffer.name}' takes 'r', 'w' or 'rw', but was given {access_mask!r}", code="TW0609")
    return address(buffer, access, offset)


class DeclaredBuffer(Buffer):
    """A buffer with the methods that TVM's scripts use."""

    __slots__ = ()

    def access_ptr(
        self, access_mask: str | int = "rw", ptr_type: str = "handle", content_lanes: int = 1, offset: Value = 0,
        extent: Value | None = None,
    ) -> PrimExpr:
        """Return the address of the buffer from `offset` elements on, for a function that reads (`r`) or writes (`w`)
        it, `extent` elements of it if that is given."""
        return address_for(self, access_mask, offset)

    @property
    def data(self) -> PrimExpr:
        """The address of the buffer, for a function that reads or writes it."""
        return self.access_ptr()

    @property
    def elem_offset(self) -> PrimExpr:
        """The distance of the first element from the address, in elements; always 0."""
        return const(0, "int32")

    def vload(self, begin: Any, dtype: str | DataType | None = None) -> PrimExpr:
        """Return the element at `begin`; for a vector type, a vector along the last dimension."""
        return Load(self, self._lanes(begin, dtype))

    def vstore(self, begin: Any, value: Value) -> Store:
        """Return a statement that stores `value`, a scalar or a vector along the last dimension, at `begin`."""
        stored = as_expr(value, None if isinstance(value, PrimExpr) else self.dtype)
        return Store(self, stored, self._lanes(begin, stored.dtype))

    def _lanes(self, begin: Any, dtype: str | DataType | None) -> tuple[PrimExpr, ...]:
        at = [cast(INT64, as_expr(i)) for i in (begin if isinstance(begin, (tuple, list)) else (begin,))]
        if len(at) != len(self.shape):
            raise CompileError(
                f"'{self.name}' has {len(self.shape)} dimensions, but was given {len(at)} indices", code="TW0609")
        lanes = DataType(dtype).lanes if dtype is not None else 1
        return (*at[:-1], Ramp(at[-1], 1, lanes)) if lanes > 1 else tuple(at)


def decl_buffer(
    shape: Any, dtype: str | DataType = "float32", name: str = "buffer", data: Any = None,
    strides: Sequence[Any] | None = None,
    elem_offset: Any = None, scope: str = "", data_alignment: int = -1, offset_factor: int = 0, buffer_type: str = "",
    axis_separators: Sequence[int] | None = None,
) -> DeclaredBuffer:
    """Declare a buffer of `shape`, dense or with `strides`. Its address is determined when it is bound, so
    `elem_offset` and `offset_factor` have no effect; `axis_separators` are a note, since memory has one dimension.
    `data` and `buffer_type` are rejected, since dimensions of a buffer cannot share memory."""
    if data is not None or buffer_type:
        raise CompileError(
            f"decl_buffer '{name}': the caller provides the memory, and each element is stored once; omit data= and "
            "buffer_type=",
            code="TW0609")
    dims = shape if isinstance(shape, (list, tuple)) else (shape,)
    if strides is not None and len(strides) not in (0, len(dims)):
        raise CompileError(
            f"decl_buffer '{name}' has {len(dims)} dimensions, but was given {len(strides)} strides", code="TW0609")
    sizes = [int(d) if isinstance(d, IntImm) else d for d in dims]
    return DeclaredBuffer(name, sizes, dtype, scope or "global", strides or (), axis_separators or ())


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
