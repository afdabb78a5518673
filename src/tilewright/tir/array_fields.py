"""Fields of the arrays and arguments that packed functions take, with the numbers of TVM's `tvm_struct_get`."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from tilewright.base.types import DataType
from tilewright.scalar.expr import Call, PrimExpr, const
from tilewright.scalar.intrinsics import opaque, reinterpret

HANDLE: Final = DataType("handle")


class Field(IntEnum):
    """A field of an array (DLPack's `DLTensor`), or the value of an argument."""

    ADDRESS = 0
    DATA = 1
    SHAPE = 2
    STRIDES = 3
    RANK = 4
    TYPE_CODE = 5
    TYPE_BITS = 6
    TYPE_LANES = 7
    BYTE_OFFSET = 8
    DEVICE_ID = 9
    DEVICE_TYPE = 10
    VALUE = 12


class Kind(IntEnum):
    """The kind of an argument of a packed function."""

    INT = 0
    FLOAT = 2
    HANDLE = 3
    NULL = 4
    ARRAY = 7
    TEXT = 11
    OWNED_ARRAY = 13


def get_field(struct: PrimExpr, index: int, field: Field, dtype: str | DataType) -> PrimExpr:
    """Return the value of a field of the element `index` of an array of structures."""
    return Call(dtype, opaque("tvm_struct_get"), (struct, const(index, "int32"), const(field, "int32")))


def set_field(struct: PrimExpr, index: int, field: Field, value: PrimExpr | str) -> PrimExpr:
    """Return the call that sets a field of the element `index` of an array of structures."""
    place = (struct, const(index, "int32"), const(field, "int32"))
    if isinstance(value, str):
        return Call("int32", opaque("tvm_struct_set", (len(place), value)), place)
    return Call("int32", opaque("tvm_struct_set"), (*place, value))


def null() -> PrimExpr:
    """Return the address 0."""
    return Call(HANDLE, reinterpret, (const(0, "uint64"),))


def is_null(address: PrimExpr) -> PrimExpr:
    """Return the condition that an address is 0."""
    return Call("bool", opaque("isnullptr"), (address,))


def passed_type(dtype: DataType) -> DataType:
    """Return the type as which a number or an address is passed: `int64`, `float64`, or `handle`."""
    if dtype.code in ("handle", "void"):
        return HANDLE
    return DataType("float64") if dtype.is_float else DataType("int64")


def kind_of(dtype: DataType) -> Kind:
    """Return the kind of an argument that is a number or an address."""
    if dtype.code in ("handle", "void"):
        return Kind.HANDLE
    return Kind.FLOAT if dtype.is_float else Kind.INT
