"""`DataType` and the types of graph values: tensors, tuples, functions.

A `DataType` is a string (`"float32"`, `"int8x16"`), so it compares with and passes for the names that numpy and the
field's scripts use, and carries its code, bits and lanes. A dimension of a `TensorType` is an `int`, or an integer
`PrimExpr` when the size is symbolic.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import ml_dtypes
import numpy as np

from tilewright.errors import CompileError
from tilewright.node import node

if TYPE_CHECKING:
    pass

_NAME: Final = re.compile(r"(bool|handle|void|bfloat|float|int|uint)(\d*)(?:x(\d+))?")
_BITS: Final = {"int": (4, 8, 16, 32, 64), "uint": (1, 4, 8, 16, 32, 64), "float": (16, 32, 64), "bfloat": (16,)}
_KNOWN: dict[str, DataType] = {}


class DataType(str):
    """A scalar or vector element type: a code (`int uint float bfloat bool handle void`), bits, and lanes."""

    code: str
    bits: int
    lanes: int

    __slots__ = ("bits", "code", "lanes")

    def __new__(cls, name: str | np.dtype[Any] | type) -> DataType:
        """Parse `name`; raises `CompileError` for anything that is not a type."""
        if isinstance(name, DataType):
            return name
        text = name if isinstance(name, str) else str(np.dtype(name))
        known = _KNOWN.get(text)
        return known if known is not None else cls._parse(text)

    @classmethod
    def _parse(cls, text: str) -> DataType:
        match = _NAME.fullmatch(text)
        if match is None:
            raise CompileError(f"'{text}' is not a data type; write for example float32, int8, bfloat16 or float32x4")
        code, bits, lanes = match[1], int(match[2] or 0), int(match[3] or 1)
        if code in ("bool", "void", "handle"):
            allowed = (0, 1, 8) if code == "bool" else (0, 64) if code == "handle" else (0,)
            if bits not in allowed:
                raise CompileError(f"'{text}' is not a data type: {code} takes no width")
            bits = {"bool": 1, "handle": 64, "void": 0}[code]
        elif bits not in _BITS[code]:
            widths = ", ".join(map(str, _BITS[code]))
            raise CompileError(f"'{text}' is not a data type: {code} is {widths} bits wide")
        if lanes < 1:
            raise CompileError(f"'{text}' is not a data type: it needs at least one lane")
        base = code if code in ("bool", "void", "handle") else f"{code}{bits}"
        full = base if lanes == 1 else f"{base}x{lanes}"
        found = _KNOWN.get(full)
        if found is None:
            found = str.__new__(cls, full)
            found.code, found.bits, found.lanes = code, bits, lanes
            _KNOWN[full] = found
        _KNOWN[text] = found
        return found

    def __getnewargs__(self) -> tuple[str]:
        return (str(self),)

    @property
    def is_float(self) -> bool:
        return self.code in ("float", "bfloat")

    @property
    def is_integer(self) -> bool:
        """True for signed and unsigned integers, not for bool."""
        return self.code in ("int", "uint")

    @property
    def element(self) -> DataType:
        """The same type with one lane."""
        return self if self.lanes == 1 else DataType(str(self).rsplit("x", 1)[0])

    def with_lanes(self, lanes: int) -> DataType:
        base = str(self.element)
        return DataType(base if lanes == 1 else f"{base}x{lanes}")

    @property
    def itemsize(self) -> int:
        """Bytes of one value in memory, lanes included; types narrower than a byte take one."""
        return max(1, self.bits // 8) * self.lanes

    def numpy(self) -> np.dtype[Any]:
        """The numpy type of one element; `bfloat16`, `int4` and `uint4` come from ml_dtypes."""
        base = str(self.element)
        if base in ("bfloat16", "int4", "uint4"):
            kind: np.dtype[Any] = np.dtype(getattr(ml_dtypes, base))
            return kind
        if base in ("void", "handle"):
            raise CompileError(f"{base} has no numpy type")
        return np.dtype(base if base != "uint1" else "bool")


BOOL: Final = DataType("bool")
INT32: Final = DataType("int32")
INT64: Final = DataType("int64")
FLOAT32: Final = DataType("float32")

Dim = "int | PrimExpr"


class Type:
    """Base of the types of graph values; compared by value."""

    __slots__ = ()


class TensorType(Type):
    """A dense tensor: `shape` is a tuple of ints or integer `PrimExpr`s, `dtype` a `DataType`."""

    __slots__ = ("dtype", "shape")
    shape: tuple[Any, ...]
    dtype: DataType

    def __init__(self, shape: Sequence[Any], dtype: str | DataType = "float32") -> None:
        self.shape = tuple(_dim(d) for d in shape)
        self.dtype = DataType(dtype)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        return all(isinstance(d, int) for d in self.shape)

    @property
    def size(self) -> int:
        """Number of elements; raises `CompileError` when a dimension is symbolic."""
        total = 1
        for d in self.shape:
            if not isinstance(d, int):
                raise CompileError(f"the size of {self} is not known: dimension {d} is symbolic")
            total *= d
        return total

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TensorType)
            and self.dtype is other.dtype
            and len(self.shape) == len(other.shape)
            and all(a is b or (isinstance(a, int) and isinstance(b, int) and a == b)
                    for a, b in zip(self.shape, other.shape, strict=True))
        )

    def __hash__(self) -> int:
        return hash((self.dtype, tuple(d if isinstance(d, int) else id(d) for d in self.shape)))

    def __repr__(self) -> str:
        if not self.shape:
            return str(self.dtype)
        inner = ", ".join(map(str, self.shape))
        return f"Tensor[({inner}{',' if len(self.shape) == 1 else ''}), {self.dtype}]"


@node
class TupleType(Type):
    """A fixed tuple of types."""

    fields: tuple[Type, ...]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TupleType) and self.fields == other.fields

    def __hash__(self) -> int:
        return hash(self.fields)

    def __repr__(self) -> str:
        inner = ", ".join(map(repr, self.fields))
        return f"({inner}{',' if len(self.fields) == 1 else ''})"


@node
class FuncType(Type):
    """The type of a function: argument types and the type of its result."""

    arg_types: tuple[Type, ...]
    ret_type: Type

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FuncType) and (self.arg_types, self.ret_type) == (other.arg_types, other.ret_type)

    def __hash__(self) -> int:
        return hash((self.arg_types, self.ret_type))

    def __repr__(self) -> str:
        return f"fn ({', '.join(map(repr, self.arg_types))}) -> {self.ret_type!r}"


def _dim(value: Any) -> Any:
    """A dimension in normal form: a python int where the value is known."""
    if isinstance(value, int):
        return value
    known = getattr(value, "value", None)
    if isinstance(known, int):
        return known
    return int(value) if isinstance(value, np.integer) else value
