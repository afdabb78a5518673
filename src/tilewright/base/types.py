"""`DataType` and the types of graph values: tensors, tuples, functions, references, algebraic data.

A `DataType` is a string (`"float32"`, `"int8x16"`), so it is equal to, and accepted as, a dtype name of numpy and TVM.
It has a code, bits and lanes. A dimension of a `TensorType` is an `int`, or an integer `PrimExpr` if it is symbolic
(`Any()` if nothing is known about it). Types are values: two types with the same text are equal, and the text is valid
Relay.

    type ::= TensorType(shape, dtype) | TupleType(types) | FuncType(types, type, type_params) | RefType(type)
           | TypeVar(name, kind) | TypeCall(GlobalTypeVar, types) | TypeRelation(function, types, num_inputs, attrs)
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import ml_dtypes
import numpy as np

from tilewright.base.errors import CompileError
from tilewright.base.node import node
from tilewright.base.scriptable import Scriptable

MINIFLOATS: Final = {
    "float8_e4m3fn": 8, "float8_e4m3fnuz": 8, "float8_e5m2": 8, "float8_e5m2fnuz": 8, "float8_e8m0fnu": 8,
    "float6_e2m3fn": 6, "float6_e3m2fn": 6,
    "float4_e2m1fn": 4,
}
"""Floating-point types of at most 8 bits, and their bits; a name gives the exponent, the mantissa and special values.
"""
_OTHER_NAMES: Final = {"e4m3_float8": "float8_e4m3fn", "e5m2_float8": "float8_e5m2"}
"""TVM's names of small floats."""
_OBJECTS: Final = ("string", "object")
_NAMED: Final = {"bool": 1, "handle": 64, "void": 0, **MINIFLOATS, **dict.fromkeys(_OBJECTS, 64)}
_NAME: Final = re.compile(
    rf"({'|'.join(_OBJECTS)}|{'|'.join(sorted(MINIFLOATS, reverse=True))}|bool|handle|void|bfloat|float|complex|int|uint)(\d*)(?:x(\d+))?"  # noqa: E501
)
_BITS: Final = {
    "int": (2, 4, 8, 16, 32, 64), "uint": (1, 2, 4, 8, 16, 32, 64), "float": (16, 32, 64), "bfloat": (16,),
    "complex": (64, 128)
}
_DEFAULT_BITS: Final = {"int": 32, "uint": 32, "float": 32}
"""Bits of the types without a width, as in TVM."""
_KNOWN: dict[str, DataType] = {}
_NUMPY: dict[DataType, np.dtype[Any]] = {}
_OF_NUMPY: dict[np.dtype[Any], DataType] = {}


class DataTypeCode(enum.IntEnum):
    """Type codes of TVM and DLPack. Codes from 129 on are custom types, which are not supported."""

    INT = 0
    UINT = 1
    FLOAT = 2
    HANDLE = 3
    BFLOAT = 4
    COMPLEX = 5
    FLOAT8_E4M3FN = 10
    FLOAT8_E4M3FNUZ = 11
    FLOAT8_E5M2 = 12
    FLOAT8_E5M2FNUZ = 13
    FLOAT8_E8M0FNU = 14
    FLOAT6_E2M3FN = 15
    FLOAT6_E3M2FN = 16
    FLOAT4_E2M1FN = 17


def integer_range(dtype: DataType) -> tuple[int, int]:
    """Return the least and the greatest value of an integer or bool type."""
    if dtype.code == "bool":
        return 0, 1
    bits = dtype.bits or 64
    return (0, (1 << bits) - 1) if dtype.code == "uint" else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


_CODE_NUMBERS: Final = {
    "int": DataTypeCode.INT, "uint": DataTypeCode.UINT, "bool": DataTypeCode.UINT, "float": DataTypeCode.FLOAT,
    "handle": DataTypeCode.HANDLE,
    "void": DataTypeCode.HANDLE, "bfloat": DataTypeCode.BFLOAT, "complex": DataTypeCode.COMPLEX,
    **{name: DataTypeCode[name.upper()] for name in MINIFLOATS}, **dict.fromkeys(_OBJECTS, DataTypeCode.HANDLE),
}
FIRST_CUSTOM_CODE: Final = 129


class DataType(str):
    """A scalar or vector element type: a code (`int uint float bfloat complex bool handle void`, or the name of a small
    float), bits, and lanes.

    Compiled code computes with the real and imaginary parts of complex numbers (`relay/op/complex_numbers.py`).
    `string` and `object` are Python objects: their tensors are numpy arrays of dtype object, whose elements compiled
    code never reads.
    """

    code: str
    bits: int
    lanes: int

    __slots__ = ("bits", "code", "lanes")

    def __new__(cls, name: str | np.dtype[Any] | type) -> DataType:
        """Parse `name`; raises `CompileError` for an invalid type."""
        if isinstance(name, DataType):
            return name
        if isinstance(name, np.dtype):
            found = _OF_NUMPY.get(name)
            if found is None:
                found = _OF_NUMPY[name] = cls(_numpy_name(name))
            return found
        text = name if isinstance(name, str) else _numpy_name(np.dtype(name))
        known = _KNOWN.get(text)
        return known if known is not None else cls._parse(text)

    @classmethod
    def _parse(cls, text: str) -> DataType:
        name, _, width = text.partition("x")
        if name in _OTHER_NAMES:
            return _KNOWN.setdefault(text, cls(f"{_OTHER_NAMES[name]}{width and f'x{width}'}"))
        match = _NAME.fullmatch(text)
        if match is None and text.startswith("custom["):
            raise CompileError(
                f"'{text}' is a custom data type, which is not supported; use float32, int8 or another built-in "
                "type", code="TW0302")
        if match is None:
            raise CompileError(
                f"'{text}' is not a data type; write for example float32, int8, bfloat16 or float32x4", code="TW0302")
        code, bits, lanes = match[1], int(match[2] or _DEFAULT_BITS.get(text, 0)), int(match[3] or 1)
        code = "bool" if bits == 1 and code in ("int", "uint") else code
        if code in _NAMED:
            allowed = (0, 1, 8) if code == "bool" else (0, 64) if code == "handle" else (0,)
            if bits not in allowed:
                raise CompileError(f"'{text}' is not a data type: {code} takes no width", code="TW0302")
            bits = _NAMED[code]
        elif bits not in _BITS[code]:
            widths = ", ".join(map(str, _BITS[code]))
            raise CompileError(f"'{text}' is not a data type: {code} is {widths} bits wide", code="TW0302")
        if lanes < 1:
            raise CompileError(f"'{text}' is not a data type: it needs at least one lane", code="TW0302")
        base = code if code in _NAMED else f"{code}{bits}"
        full = base if lanes == 1 else f"{base}x{lanes}"
        found = _KNOWN.get(full)
        if found is None:
            found = str.__new__(cls, full)
            found.code, found.bits, found.lanes = code, bits, lanes
            # another thread may have added it: types are compared by identity
            found = _KNOWN.setdefault(full, found)
        return _KNOWN.setdefault(text, found)

    def __getnewargs__(self) -> tuple[str]:
        return (str(self),)

    @classmethod
    def of_code(cls, type_code: int, bits: int, lanes: int = 1) -> DataType:
        """Return the type of a code of DLPack and TVM. Raises `CompileError` for custom types, from 129 on, and unknown
        codes."""
        if type_code not in list(DataTypeCode):
            wrong = (
                f"type code {type_code} is a custom data type, which is not supported"
                if type_code >= FIRST_CUSTOM_CODE else f"there is no type code {type_code}"
            )
            raise CompileError(
                f"{wrong}; the codes are {', '.join(f'{c.value} ({c.name.lower()})' for c in DataTypeCode)}",
                code="TW0302")
        code = DataTypeCode(type_code)
        name = code.name.lower()
        base = "bool" if (code, bits) == (DataTypeCode.UINT, 1) else name if name in _NAMED else f"{name}{bits}"
        return cls(base if lanes == 1 else f"{base}x{lanes}")

    @property
    def type_code(self) -> DataTypeCode:
        """The type code of TVM and DLPack; bool is an unsigned integer of one bit."""
        return _CODE_NUMBERS[self.code]

    @property
    def is_float(self) -> bool:
        return self.code in ("float", "bfloat") or self.code in MINIFLOATS

    @property
    def is_object(self) -> bool:
        """Whether values are Python objects, which only Python computes with."""
        return self.code in _OBJECTS

    @property
    def is_integer(self) -> bool:
        """Whether this is a signed or unsigned integer type; bool is not."""
        return self.code in ("int", "uint")

    @property
    def element(self) -> DataType:
        """The same type with one lane."""
        return self if self.lanes == 1 else DataType(str(self).rsplit("x", 1)[0])

    def with_lanes(self, lanes: int) -> DataType:
        if lanes == self.lanes:
            return self
        base = str(self.element)
        return DataType(base if lanes == 1 else f"{base}x{lanes}")

    @property
    def itemsize(self) -> int:
        """Bytes of one value in memory, including its lanes; types narrower than a byte take one."""
        return max(1, self.bits // 8) * self.lanes

    def numpy(self) -> np.dtype[Any]:
        """The numpy type of one element; `bfloat16`, small floats, and integers of 2 and 4 bits come from ml_dtypes."""
        found = _NUMPY.get(self)
        if found is None:
            found = _NUMPY[self] = self._numpy()
        return found

    def _numpy(self) -> np.dtype[Any]:
        base = str(self.element)
        if self.code == "bfloat" or self.code in MINIFLOATS or (self.is_integer and 1 < self.bits < 8):
            kind: np.dtype[Any] = np.dtype(getattr(ml_dtypes, base))
            return kind
        if self.is_object:
            return np.dtype(object)
        if base in ("void", "handle"):
            raise CompileError(f"{base} has no numpy type", code="TW0302")
        return np.dtype(base)


def _numpy_name(kind: np.dtype[Any]) -> str:
    """Return the dtype name for a numpy type; all text types and Python objects are `string`."""
    return "string" if kind.kind in "OUST" else str(kind)


BOOL: Final = DataType("bool")
INT32: Final = DataType("int32")
INT64: Final = DataType("int64")
FLOAT32: Final = DataType("float32")

Dim = "int | PrimExpr"


class Size(int):
    """A static dimension: an `int` whose `value` is that of TVM's `IntImm`."""

    __slots__ = ()

    @property
    def value(self) -> int:
        return int(self)


class OpenSize(Size):
    """A dimension known only at run time: `expr` is its symbolic value, and the `int` a sample of it
    (`arith/open_sizes.py`)."""

    expr: Any


class TypeKind(enum.IntEnum):
    """Kind of a type: what a type variable stands for. The numbers are those of TVM."""

    Type = 0
    ShapeVar = 1
    BaseType = 2
    Shape = 3
    Constraint = 4
    AdtHandle = 5
    TypeData = 6


class Type:
    """Base of the types of graph values; compared by value."""

    __slots__ = ()

    @property
    def type_key(self) -> str:
        """TVM's reflection name of the kind of type: `relay.TensorType`."""
        return f"relay.{type(self).__name__}"

    @property
    def span(self) -> None:
        """The place in a source text, under TVM's name. Types have none: the expressions that they describe do."""
        return None


class PrimType(Type, Scriptable):
    """The type of a scalar of a loop program."""

    __slots__ = ("dtype",)
    dtype: DataType

    def __init__(self, dtype: str | DataType) -> None:
        self.dtype = DataType(dtype)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PrimType) and self.dtype == other.dtype

    def __hash__(self) -> int:
        return hash((PrimType, self.dtype))

    def __repr__(self) -> str:
        return str(self.dtype)


class PointerType(Type, Scriptable):
    """The type of the address of memory with elements of a scalar type, in a memory scope such as `global`."""

    __slots__ = ("element_type", "storage_scope")
    element_type: PrimType
    storage_scope: str

    def __init__(self, element_type: PrimType, storage_scope: str = "") -> None:
        self.element_type, self.storage_scope = element_type, storage_scope

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PointerType) and (self.element_type, self.storage_scope) == (
            other.element_type, other.storage_scope)

    def __hash__(self) -> int:
        return hash((PointerType, self.element_type, self.storage_scope))

    def __repr__(self) -> str:
        return f'T.handle("{self.element_type}"' + (f', "{self.storage_scope}")' if self.storage_scope else ")")


class TensorType(Type):
    """A dense tensor: `shape` is a tuple of ints (`Size`) or integer `PrimExpr`s, `dtype` a `DataType`. A shape of
    None is that of a number."""

    __slots__ = ("dtype", "shape")
    shape: tuple[Any, ...]
    dtype: DataType

    def __init__(self, shape: Sequence[Any] | None, dtype: str | DataType = "float32") -> None:
        self.shape = tuple(_dim(d) for d in shape or ())
        self.dtype = DataType(dtype)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        return all(isinstance(d, int) for d in self.shape)

    @property
    def is_open(self) -> bool:
        """Whether a dimension is known only at run time and represented by a sample."""
        return any(isinstance(d, OpenSize) for d in self.shape)

    @property
    def size(self) -> int:
        """Number of elements; raises `CompileError` when a dimension is symbolic."""
        total = 1
        for d in self.shape:
            if not isinstance(d, int):
                raise CompileError(f"the size of {self} is not known: dimension {d} is symbolic", code="TW0303")
            total *= d
        return total

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def concrete_shape(self) -> tuple[int, ...]:
        """The shape as Python ints; raises `CompileError` when a dimension is symbolic."""
        if not self.is_static:
            raise CompileError(f"the shape of {self} is not known: it has symbolic dimensions", code="TW0303")
        return self.shape

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorType) and self.dtype is other.dtype and same_shape(self.shape, other.shape)

    def __hash__(self) -> int:
        return hash((self.dtype, tuple(d if isinstance(d, int) else -1 for d in self.shape)))

    def __repr__(self) -> str:
        if not self.shape:
            return str(self.dtype)
        inner = ", ".join(map(str, self.shape))
        return f"Tensor[({inner}), {self.dtype}]"


class TupleType(Type, Scriptable):
    """A fixed tuple of types."""

    __slots__ = ("fields",)
    fields: tuple[Type, ...]

    def __init__(self, fields: Sequence[Type]) -> None:
        self.fields = tuple(fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TupleType) and self.fields == other.fields

    def __hash__(self) -> int:
        return hash(self.fields)

    def __repr__(self) -> str:
        inner = ", ".join(map(repr, self.fields))
        return f"({inner}{',' if len(self.fields) == 1 else ''})"


def tensors_of(kind: Type | None) -> list[TensorType]:
    """Return the tensors of a value, in order, with nested tuples flattened; an empty list for an unknown type."""
    found: list[TensorType] = []
    stack = [kind]
    while stack:
        t = stack.pop()
        if isinstance(t, TupleType):
            stack += reversed(t.fields)
        elif isinstance(t, TensorType):
            found.append(t)
    return found


class FuncType(Type):
    """The type of a function: argument types, result type, the type variables of both, and relations between types.

    The relations, `type_constraints`, are kept for `check_kind` and visitors of types; a function with relations cannot
    be called (TW0215).
    """

    __slots__ = ("arg_types", "ret_type", "type_constraints", "type_params")
    arg_types: tuple[Type, ...]
    ret_type: Type
    type_params: tuple[TypeVar, ...]
    type_constraints: tuple[TypeRelation, ...]

    def __init__(
        self, arg_types: Sequence[Type], ret_type: Type, type_params: Sequence[TypeVar] | None = None,
        type_constraints: Sequence[TypeRelation] | None = None
    ) -> None:
        self.arg_types = tuple(arg_types)
        self.ret_type = ret_type
        self.type_params = tuple(type_params or ())
        self.type_constraints = tuple(type_constraints or ())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FuncType) or [p.kind for p in self.type_params] != [
                p.kind for p in other.type_params]:
            return False
        if self.type_params != other.type_params:
            other = other.instantiate(self.type_params)
        return (self.arg_types, self.ret_type, self.type_constraints) == (
            other.arg_types, other.ret_type, other.type_constraints)

    def __hash__(self) -> int:
        return hash((len(self.arg_types), len(self.type_params)))

    def __repr__(self) -> str:
        params = f"[{', '.join(map(repr, self.type_params))}]" if self.type_params else ""
        return f"fn {params}({', '.join(map(repr, self.arg_types))}) -> {self.ret_type!r}"

    def without_constraints(self) -> FuncType:
        """Return the type, for a call of the function. Raises `CompileError` for relations between its types."""
        if self.type_constraints:
            raise CompileError(
                f"a function with type constraints cannot be called, and this one has {list(self.type_constraints)}; "
                "omit type_constraints", code="TW0215")
        return self

    def instantiate(self, types: Sequence[Type]) -> FuncType:
        """Return the function type with these types substituted for its type variables, in order."""
        bound: dict[Type, Type] = dict(zip(self.type_params, types, strict=True))
        return FuncType(
            [substitute_type(a, bound) for a in self.arg_types], substitute_type(self.ret_type, bound), (),
            [c.with_args([substitute_type(a, bound) for a in c.args]) for c in self.type_constraints])


@node
class RefType(Type):
    """A reference: a mutable cell that holds one value of type `value`."""

    value: Type

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RefType) and self.value == other.value

    def __hash__(self) -> int:
        return hash((RefType, self.value))

    def __repr__(self) -> str:
        return f"ref({self.value!r})"


class IncompleteType(Type):
    """A type that is to be inferred: `relay.var("w", relay.IncompleteType())` is a variable without annotation."""

    __slots__ = ("kind",)

    def __init__(self, kind: TypeKind = TypeKind.Type) -> None:
        self.kind = TypeKind(kind)

    def __repr__(self) -> str:
        return "?"


@node
class TypeVar(Type):
    """A type parameter of a function or of a data type. Compared by identity."""

    name_hint: str
    kind: TypeKind = TypeKind.Type

    def __repr__(self) -> str:
        return self.name_hint


@node
class GlobalTypeVar(Type):
    """The name of an algebraic data type of the module. Compared by name."""

    name_hint: str
    kind: TypeKind = TypeKind.AdtHandle

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GlobalTypeVar) and self.name_hint == other.name_hint

    def __hash__(self) -> int:
        return hash((GlobalTypeVar, self.name_hint))

    def __call__(self, *args: Type) -> TypeCall:
        """Return the data type applied to type arguments: `List(TensorType((), "int32"))`."""
        return TypeCall(self, args)

    def __repr__(self) -> str:
        return self.name_hint


class TypeCall(Type):
    """A data type applied to types: `List[Tensor[(3), float32]]`."""

    __slots__ = ("args", "func")
    func: GlobalTypeVar
    args: tuple[Type, ...]

    def __init__(self, func: GlobalTypeVar, args: Sequence[Type]) -> None:
        self.func = func
        self.args = tuple(args)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypeCall) and (self.func, self.args) == (other.func, other.args)

    def __hash__(self) -> int:
        return hash((self.func, self.args))

    def __repr__(self) -> str:
        return f"{self.func!r}[{', '.join(map(repr, self.args))}]" if self.args else f"{self.func!r}[]"


class TypeRelation(Type):
    """A relation between types: `func` decides about `args`, of which the first `num_inputs` are inputs."""

    __slots__ = ("args", "attrs", "func", "num_inputs")

    def __init__(self, func: Any, args: Sequence[Type], num_inputs: int, attrs: Any = None) -> None:
        self.func = func
        self.args = tuple(args)
        self.num_inputs = num_inputs
        self.attrs = attrs

    def with_args(self, args: Sequence[Type]) -> TypeRelation:
        """Return the same relation between other types."""
        return TypeRelation(self.func, args, self.num_inputs, self.attrs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypeRelation) and (self.func, self.args, self.num_inputs, self.attrs) == (
            other.func, other.args, other.num_inputs, other.attrs)

    def __hash__(self) -> int:
        return hash((TypeRelation, self.args, self.num_inputs))

    def __repr__(self) -> str:
        name = getattr(self.func, "name", self.func)
        return f"TypeRelation({name}, [{', '.join(map(repr, self.args))}], {self.num_inputs})"


def type_children(t: Type) -> tuple[Type, ...]:
    """Return the types directly inside `t`."""
    match t:
        case TupleType():
            return t.fields
        case FuncType():
            return (*t.arg_types, t.ret_type)
        case RefType():
            return (t.value,)
        case TypeCall() | TypeRelation():
            return t.args
        case _:
            return ()


def with_type_children(t: Type, new: Sequence[Type]) -> Type:
    """Return a type of the same kind with other types inside."""
    match t:
        case TupleType():
            return TupleType(tuple(new))
        case FuncType():
            return FuncType(new[:-1], new[-1], t.type_params, t.type_constraints)
        case RefType():
            return RefType(new[0])
        case TypeCall():
            return TypeCall(t.func, new)
        case TypeRelation():
            return t.with_args(new)
        case _:
            return t


def substitute_type(t: Type, bound: Mapping[Type, Type]) -> Type:
    """Return `t` with its type variables replaced."""
    if not bound:
        return t
    if isinstance(t, TypeVar):
        return bound.get(t, t)
    old = type_children(t)
    new = [substitute_type(c, bound) for c in old]
    return t if all(a is b for a, b in zip(old, new, strict=True)) else with_type_children(t, new)


def scalar_type(dtype: str | DataType = "float32") -> TensorType:
    """Return the type of a tensor without dimensions."""
    return TensorType((), dtype)


def same_shape(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether two shapes are identical; all unknown dimensions are equal."""
    return len(a) == len(b) and all(
        x is y or (isinstance(x, int) and isinstance(y, int) and x == y)
        or (getattr(x, "unknown", False) and getattr(y, "unknown", False))
        for x, y in zip(a, b, strict=True))


def _dim(value: Any) -> Any:
    """Return a dimension in normal form: an int if the value is known."""
    if isinstance(value, Size):
        return value
    known = value if isinstance(value, (int, np.integer)) else getattr(value, "value", None)
    return Size(known) if isinstance(known, (int, np.integer)) else value
