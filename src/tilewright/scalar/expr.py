"""Scalar expressions: the leaves of every level, from symbolic dimensions to the vectors of a kernel.

Expressions are interned: building the same expression twice gives the same object, so `is` means equal and common
subexpressions are shared for free, in every thread. The table is shared by all threads: an expression is complete before
it enters, entering takes a lock, and finding one takes none. `interning.release` drops the entries that
nothing else holds (a build does so at its end). `Var` and `Buffer` are names,
compared by identity and never merged. Indices are `int64` throughout. The builders (`add`, `floordiv`, …, also reached
by the Python operators) fold constants and drop neutral elements; anything cleverer is `arith`'s.

    expr ::= Var | IntImm | FloatImm | Binary | Not | Cast | Select | Call | Load | Ramp | Broadcast
    Binary ::= Add | Sub | Mul | Div | FloorDiv | FloorMod | TruncDiv | TruncMod | Min | Max
             | EQ | NE | LT | LE | GT | GE | And | Or
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, Self, TypeAlias

import numpy as np

from tilewright.base.errors import CompileError
from tilewright.base.interning import interned, publish
from tilewright.base.types import BOOL, FLOAT32, INT64, MINIFLOATS, DataType, OpenSize


class Operand:
    """What the operators of Python work on: expressions, and what stands for one (`expr`), as an axis does for its variable."""

    __slots__ = ()

    @property
    def expr(self) -> PrimExpr:
        raise NotImplementedError

    __hash__ = object.__hash__

    def __add__(self, other: Value) -> PrimExpr: return add(self, other)
    def __radd__(self, other: Value) -> PrimExpr: return add(other, self)
    def __sub__(self, other: Value) -> PrimExpr: return sub(self, other)
    def __rsub__(self, other: Value) -> PrimExpr: return sub(other, self)
    def __mul__(self, other: Value) -> PrimExpr: return mul(self, other)
    def __rmul__(self, other: Value) -> PrimExpr: return mul(other, self)
    def __truediv__(self, other: Value) -> PrimExpr: return div(self, other)
    def __rtruediv__(self, other: Value) -> PrimExpr: return div(other, self)
    def __floordiv__(self, other: Value) -> PrimExpr: return floordiv(self, other)
    def __rfloordiv__(self, other: Value) -> PrimExpr: return floordiv(other, self)
    def __mod__(self, other: Value) -> PrimExpr: return floormod(self, other)
    def __rmod__(self, other: Value) -> PrimExpr: return floormod(other, self)
    def __neg__(self) -> PrimExpr: return sub(const(0, self.expr.dtype), self)
    def __lt__(self, other: Value) -> PrimExpr: return compare(LT, self, other)
    def __le__(self, other: Value) -> PrimExpr: return compare(LE, self, other)
    def __gt__(self, other: Value) -> PrimExpr: return compare(GT, self, other)
    def __ge__(self, other: Value) -> PrimExpr: return compare(GE, self, other)
    def __eq__(self, other: object) -> Any: return compare(EQ, self, other) if is_value(other) else False
    def __ne__(self, other: object) -> Any: return compare(NE, self, other) if is_value(other) else True

    def astype(self, dtype: str | DataType) -> PrimExpr:
        return cast(dtype, self)

    def equal(self, other: Value) -> PrimExpr:
        return compare(EQ, self, other)


class PrimExpr(Operand):
    """Base of scalar (and, inside kernels, vector) expressions; `dtype` is the type of the value."""

    __slots__ = ("__weakref__", "dtype")
    dtype: DataType

    def operands(self) -> tuple[PrimExpr, ...]:
        """The expressions directly below this one."""
        return ()

    def with_operands(self, operands: Sequence[PrimExpr]) -> PrimExpr:
        """The same kind of expression over other operands, folded where that is possible."""
        return self

    @property
    def expr(self) -> PrimExpr:
        return self

    def __bool__(self) -> bool:
        raise CompileError(f"the value of '{self}' is not known while compiling; use if_then_else, all_of or any_of", code="TW0602")

    def __repr__(self) -> str:
        from tilewright.scalar.walk import text_of

        return text_of(self)


Value: TypeAlias = "Operand | int | float | bool | np.generic"


class Var(PrimExpr):
    """A named scalar: a loop variable, a symbolic dimension, a scalar parameter. Compared by identity."""

    __slots__ = ("name",)

    def __init__(self, name: str, dtype: str | DataType = INT64) -> None:
        self.name = name
        self.dtype = DataType(dtype)


class UnknownDim(Var):
    """A dimension of which nothing is known: `?` in texts. Each one is unlike every other, though types are compared as they are written."""

    __slots__ = ()
    unknown: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__("?")


class IntImm(PrimExpr):
    """An integer or boolean constant. Raises `CompileError` for a value that its type has not."""

    __slots__ = ("value",)
    value: int

    def __new__(cls, dtype: str | DataType, value: int) -> Self:
        kind, number = DataType(dtype), int(value)
        key = (cls, kind, number)
        if (known := interned(key)) is not None:
            return known  # type: ignore[no-any-return]
        low, high = integer_range(kind)
        if not low <= number <= high:
            raise CompileError(f"{number} is not a value of {kind}, which holds {low} to {high}; give it a wider type, or the value that it wraps around to", code="TW0602")
        self = object.__new__(cls)
        self.dtype, self.value = kind, number
        return publish(key, self)

    def __bool__(self) -> bool:
        return self.value != 0

    def __int__(self) -> int:
        return self.value

    __index__ = __int__


class FloatImm(PrimExpr):
    """A floating-point constant; 0.0 and -0.0 differ, and every NaN is the same."""

    __slots__ = ("value",)
    value: float

    def __new__(cls, dtype: str | DataType, value: float) -> Self:
        kind, number = DataType(dtype), float(value)
        key = (cls, kind, number.hex())
        if (known := interned(key)) is not None:
            return known  # type: ignore[no-any-return]
        self = object.__new__(cls)
        self.dtype, self.value = kind, number
        return publish(key, self)

    def __float__(self) -> float:
        return self.value


class Binary(PrimExpr):
    """Base of the two-operand expressions; `symbol` is how it prints, `fold` what it means on numbers."""

    __slots__ = ("a", "b")
    a: PrimExpr
    b: PrimExpr
    symbol: ClassVar[str] = "?"
    fold: ClassVar[Callable[[Any, Any], Any]]

    def __new__(cls, a: PrimExpr, b: PrimExpr) -> Self:
        known: Self | None = interned((cls, a, b))
        if known is not None:
            return known
        self = object.__new__(cls)
        self.a, self.b, self.dtype = a, b, cls._dtype(a)
        return publish((cls, a, b), self)

    @classmethod
    def _dtype(cls, a: PrimExpr) -> DataType:
        return a.dtype

    def operands(self) -> tuple[PrimExpr, ...]:
        return (self.a, self.b)

    def with_operands(self, operands: Sequence[PrimExpr]) -> PrimExpr:
        a, b = operands
        return self if a is self.a and b is self.b else _BUILDERS[type(self)](a, b)


class Comparison(Binary):
    __slots__ = ()

    @classmethod
    def _dtype(cls, a: PrimExpr) -> DataType:
        return BOOL.with_lanes(a.dtype.lanes)


def _trunc_div(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _trunc_mod(a: int, b: int) -> int:
    return a - b * _trunc_div(a, b)


class Add(Binary): __slots__ = (); symbol = "+"; fold = operator.add
class Sub(Binary): __slots__ = (); symbol = "-"; fold = operator.sub
class Mul(Binary): __slots__ = (); symbol = "*"; fold = operator.mul
class Div(Binary): __slots__ = (); symbol = "/"; fold = operator.truediv
class FloorDiv(Binary): __slots__ = (); symbol = "//"; fold = operator.floordiv
class FloorMod(Binary): __slots__ = (); symbol = "%"; fold = operator.mod
class TruncDiv(Binary): __slots__ = (); symbol = "truncdiv"; fold = _trunc_div
class TruncMod(Binary): __slots__ = (); symbol = "truncmod"; fold = _trunc_mod
class Min(Binary): __slots__ = (); symbol = "min"; fold = min
class Max(Binary): __slots__ = (); symbol = "max"; fold = max
class EQ(Comparison):
    __slots__ = (); symbol = "=="; fold = operator.eq
    def __bool__(self) -> bool: return self.a is self.b
class NE(Comparison):
    __slots__ = (); symbol = "!="; fold = operator.ne
    def __bool__(self) -> bool: return self.a is not self.b
class LT(Comparison): __slots__ = (); symbol = "<"; fold = operator.lt
class LE(Comparison): __slots__ = (); symbol = "<="; fold = operator.le
class GT(Comparison): __slots__ = (); symbol = ">"; fold = operator.gt
class GE(Comparison): __slots__ = (); symbol = ">="; fold = operator.ge
class And(Comparison): __slots__ = (); symbol = "and"; fold = operator.and_
class Or(Comparison): __slots__ = (); symbol = "or"; fold = operator.or_


class Not(PrimExpr):
    """Logical negation."""

    __slots__ = ("a",)
    a: PrimExpr

    def __new__(cls, a: PrimExpr) -> Self:
        key = (cls, a.dtype, a)
        if (known := interned(key)) is not None:
            return known  # type: ignore[no-any-return]
        self = object.__new__(cls)
        self.dtype, self.a = a.dtype, a
        return publish(key, self)

    def operands(self) -> tuple[PrimExpr, ...]:
        return (self.a,)

    def with_operands(self, operands: Sequence[PrimExpr]) -> PrimExpr:
        return logical_not(operands[0])


class Cast(PrimExpr):
    """A conversion by value: float to int truncates toward zero."""

    __slots__ = ("value",)
    value: PrimExpr

    def __new__(cls, dtype: str | DataType, value: PrimExpr) -> Self:
        kind = DataType(dtype)
        key = (cls, kind, value)
        if (known := interned(key)) is not None:
            return known  # type: ignore[no-any-return]
        self = object.__new__(cls)
        self.dtype, self.value = kind, value
        return publish(key, self)

    def operands(self) -> tuple[PrimExpr, ...]:
        return (self.value,)

    def with_operands(self, operands: Sequence[PrimExpr]) -> PrimExpr:
        (value,) = operands
        return cast(self.dtype.with_lanes(value.dtype.lanes), value)


class Select(PrimExpr):
    """`true_value if condition else false_value`, lane by lane; only the chosen side's loads may be performed."""

    __slots__ = ("condition", "false_value", "true_value")
    condition: PrimExpr
    true_value: PrimExpr
    false_value: PrimExpr

    def __new__(cls, condition: PrimExpr, true_value: PrimExpr, false_value: PrimExpr) -> Self:
        key = (cls, true_value.dtype, condition, true_value, false_value)
        if (known := interned(key)) is not None:
            return known  # type: ignore[no-any-return]
        self = object.__new__(cls)
        self.dtype, self.condition, self.true_value, self.false_value = true_value.dtype, condition, true_value, false_value
        return publish(key, self)

    def operands(self) -> tuple[PrimExpr, ...]:
        return (self.condition, self.true_value, self.false_value)

    def with_operands(self, operands: Sequence[PrimExpr]) -> PrimExpr:
        return if_then_else(*operands)


class Intrinsic:
    """A named function of scalars. `reference` is its numpy meaning; one with `effect` is never merged or moved."""

    __slots__ = ("effect", "name", "reference")

    def __init__(self, name: str, reference: Callable[..., Any] | None = None, *, effect: bool = False) -> None:
        self.name, self.reference, self.effect = name, reference, effect

    def __call__(self, *args: Value, dtype: str | DataType | None = None) -> PrimExpr:
        values = [as_expr(a) for a in args]
        lanes = max((v.dtype.lanes for v in values), default=1)
        values = [broadcast(v, lanes) for v in values]
        return Call(DataType(dtype) if dtype else values[0].dtype, self, values)

    def __repr__(self) -> str:
        return self.name


FLOOR: Final = Intrinsic("floor", np.floor)
"""`intrinsics.floor`: the quotient of floating-point numbers rounded down is written with it."""
FMOD: Final = Intrinsic("fmod", np.fmod)
"""`intrinsics.fmod`: the remainder of floating-point numbers with the sign of the first, exact for all magnitudes."""


class Call(PrimExpr):
    """An intrinsic applied to arguments."""

    __slots__ = ("args", "op")
    op: Intrinsic
    args: tuple[PrimExpr, ...]

    def __new__(cls, dtype: str | DataType, op: Intrinsic, args: Sequence[PrimExpr]) -> Self:
        kind, arguments = DataType(dtype), tuple(args)
        key = (cls, kind, op, arguments)
        if (known := interned(key)) is not None:
            return known  # type: ignore[no-any-return]
        self = object.__new__(cls)
        self.dtype, self.op, self.args = kind, op, arguments
        return publish(key, self)

    def operands(self) -> tuple[PrimExpr, ...]:
        return self.args

    def with_operands(self, operands: Sequence[PrimExpr]) -> PrimExpr:
        if self.dtype.lanes < max((v.dtype.lanes for v in self.args), default=1):  # all lanes become one value
            return Call(self.dtype, self.op, operands)
        lanes = max((v.dtype.lanes for v in operands), default=self.dtype.lanes)
        return Call(self.dtype.with_lanes(lanes), self.op, [broadcast(v, lanes) for v in operands])


class Buffer:
    """A named piece of memory with a shape. `scope` is `global` (memory) or `local` (registers, else the stack).

    `shape` is a tuple of ints or integer expressions; storage is dense, row-major and aligned to 64 bytes, unless a
    parameter says by how many elements its dimensions are apart (`strides`). Parameters of a kernel never overlap, except an output that the memory plan places on an input read at the same element only.
    """

    __slots__ = ("__weakref__", "dtype", "name", "scope", "shape", "strides")

    def __init__(
        self, name: str, shape: Sequence[Any], dtype: str | DataType = FLOAT32, scope: str = "global", strides: Sequence[Any] = ()
    ) -> None:
        self.name, self.scope, self.dtype = name, scope, DataType(dtype)
        self.shape: tuple[Any, ...] = tuple(_known(d) for d in shape)
        self.strides: tuple[Any, ...] = tuple(_known(d) for d in strides)

    def __getitem__(self, indices: Any) -> Load:
        return Load(self, indices if isinstance(indices, tuple) else (indices,))

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]" + ("" if self.scope == "global" else f" {self.scope}")


def _known(d: Any) -> Any:
    """A size of a buffer: an int where it is known, else an expression."""
    return int(d) if isinstance(d, IntImm) else d.expr if isinstance(d, OpenSize) else d


class Load(PrimExpr):
    """An element of a buffer, or a vector of elements when the last index is a vector."""

    __slots__ = ("buffer", "indices")
    buffer: Buffer
    indices: tuple[PrimExpr, ...]

    def __new__(cls, buffer: Buffer, indices: Sequence[Value]) -> Self:
        at = tuple(as_expr(i) for i in indices)
        lanes = max((i.dtype.lanes for i in at), default=1)
        kind = buffer.dtype.with_lanes(lanes)
        key = (cls, kind, buffer, at)
        if (known := interned(key)) is not None:
            return known  # type: ignore[no-any-return]
        self = object.__new__(cls)
        self.dtype, self.buffer, self.indices = kind, buffer, at
        return publish(key, self)

    def operands(self) -> tuple[PrimExpr, ...]:
        return self.indices

    def with_operands(self, operands: Sequence[PrimExpr]) -> PrimExpr:
        return Load(self.buffer, operands)


class Ramp(PrimExpr):
    """The vector `base, base + stride, …` of `lanes` integers."""

    __slots__ = ("base", "stride")
    base: PrimExpr
    stride: PrimExpr

    def __new__(cls, base: PrimExpr, stride: Value, lanes: int) -> Self:
        step = as_expr(stride, base.dtype)
        kind = base.dtype.with_lanes(lanes)
        key = (cls, kind, base, step)
        if (known := interned(key)) is not None:
            return known  # type: ignore[no-any-return]
        self = object.__new__(cls)
        self.dtype, self.base, self.stride = kind, base, step
        return publish(key, self)

    def operands(self) -> tuple[PrimExpr, ...]:
        return (self.base, self.stride)

    def with_operands(self, operands: Sequence[PrimExpr]) -> PrimExpr:
        return Ramp(operands[0], operands[1], self.dtype.lanes)


class Broadcast(PrimExpr):
    """One value in every lane."""

    __slots__ = ("value",)
    value: PrimExpr

    def __new__(cls, value: PrimExpr, lanes: int) -> Self:
        kind = value.dtype.with_lanes(lanes)
        key = (cls, kind, value)
        if (known := interned(key)) is not None:
            return known  # type: ignore[no-any-return]
        self = object.__new__(cls)
        self.dtype, self.value = kind, value
        return publish(key, self)

    def operands(self) -> tuple[PrimExpr, ...]:
        return (self.value,)

    def with_operands(self, operands: Sequence[PrimExpr]) -> PrimExpr:
        return Broadcast(operands[0], self.dtype.lanes)




def integer_range(dtype: DataType) -> tuple[int, int]:
    """The least and the greatest value of a type of integers or truth values."""
    if dtype.code == "bool":
        return 0, 1
    bits = dtype.bits or 64
    return (0, (1 << bits) - 1) if dtype.code == "uint" else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


# Builders.
def literal(value: Any, dtype: str | DataType | None = None) -> PrimExpr:
    """`te.const` and `tir.const`: a number as an expression of `dtype`, or of the type that TVM gives it (int32, float32, bool).

    Raises `CompileError` for a value that the type has not; expressions that are folded wrap around instead.
    """
    if isinstance(value, (Operand, OpenSize)):
        return as_expr(value) if dtype is None else cast(dtype, value)
    kind = _usual(value) if dtype is None else DataType(dtype)
    if not isinstance(value, (int, float, np.generic, np.ndarray)) or kind.code not in (*_NUMERIC, *MINIFLOATS):
        raise CompileError(f"{value!r} ({type(value).__name__}) is no constant of {kind}; a constant is a number of int, uint, float or bool", code="TW0602")
    number = value.item() if isinstance(value, (np.generic, np.ndarray)) else value
    if kind.is_float:
        made = const(float(number), kind)
        if math.isfinite(number) and not math.isfinite(float(number_of(made) or 0.0)):
            raise CompileError(f"{number} is not a value of {kind.element}, whose greatest number is less; give it a wider type", code="TW0602")
        return made
    if isinstance(number, float) and not math.isfinite(number):
        raise CompileError(f"{number} is not a value of {kind}, which holds integers", code="TW0602")
    made = IntImm(kind.element, int(bool(number)) if kind.code == "bool" else int(number))
    return broadcast(made, kind.lanes)


_NUMERIC: Final = ("int", "uint", "bool", "float", "bfloat")


def _usual(value: Any) -> DataType:
    """The type of a number that says none."""
    if isinstance(value, (np.generic, np.ndarray)):
        return DataType(value.dtype)
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, float):
        return FLOAT32 if not math.isfinite(value) or abs(value) <= float(np.finfo(np.float32).max) else DataType("float64")
    return DataType("int32") if isinstance(value, int) and -(1 << 31) <= value < 1 << 31 else INT64


def is_value(x: object) -> bool:
    return isinstance(x, (Operand, int, float, bool, np.generic))


def const(value: Any, dtype: str | DataType) -> PrimExpr:
    """A constant of `dtype`, wrapped around for integers as the machine would."""
    kind = DataType(dtype)
    if kind.lanes > 1:
        return Broadcast(const(value, kind.element), kind.lanes)
    if isinstance(value, OpenSize):
        return as_expr(value, kind)
    if kind.is_float:
        if kind.bits == 64:
            return FloatImm(kind, float(value))
        with np.errstate(over="ignore"):  # an integer is rounded once, not to float64 before
            exact = isinstance(value, int) and -(1 << 63) <= value < 1 << 63
            return FloatImm(kind, float(np.asarray(value, np.int64 if exact else np.float64).astype(kind.numpy())))
    if kind.code == "bool":
        return IntImm(kind, int(bool(value)))
    number = int(value)
    if kind.code in ("int", "uint") and kind.bits:
        number &= (1 << kind.bits) - 1
        if kind.code == "int" and number >> (kind.bits - 1):
            number -= 1 << kind.bits
    return IntImm(kind, number)


def min_value(dtype: str | DataType) -> PrimExpr:
    """The least finite value of a type (minus infinity for floats)."""
    kind = DataType(dtype)
    if kind.is_float:
        return const(float("-inf"), kind)
    return const(0 if kind.code in ("uint", "bool") else -(1 << (kind.bits - 1)), kind)


def max_value(dtype: str | DataType) -> PrimExpr:
    """The greatest value of a type (infinity for floats)."""
    kind = DataType(dtype)
    if kind.is_float:
        return const(float("inf"), kind)
    return const((1 << (kind.bits - (kind.code == "int"))) - 1, kind)


def as_expr(value: Value, dtype: str | DataType | None = None) -> PrimExpr:
    """`value` as an expression; Python numbers become `dtype`, or int64, float32 and bool without one."""
    if isinstance(value, PrimExpr):
        return value
    if isinstance(value, Operand):
        return value.expr
    if isinstance(value, OpenSize):
        found: PrimExpr = value.expr
        return found if dtype is None else cast(dtype, found)
    if dtype is not None:
        return const(value, dtype)
    if isinstance(value, np.generic):
        return const(value.item(), DataType(value.dtype))
    if isinstance(value, bool):
        return IntImm(BOOL, int(value))
    if isinstance(value, int):
        return IntImm(INT64, value)
    if isinstance(value, float):
        return FloatImm(FLOAT32, value)
    raise CompileError(f"{value!r} ({type(value).__name__}) is not a scalar expression", code="TW0602")


def broadcast(value: PrimExpr, lanes: int) -> PrimExpr:
    return value if value.dtype.lanes == lanes else Broadcast(value, lanes)


def _promote(a: DataType, b: DataType) -> DataType:
    """The element type in which two different element types meet: floats before integers, then the wider, then unsigned before signed."""
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if a.code == "bool" or b.code == "bool":
        return b if a.code == "bool" else a
    if a.is_integer and b.is_integer:
        return a if (a.bits, a.code == "uint") > (b.bits, b.code == "uint") else b
    if a.bits != b.bits or a.code == b.code:
        return a if a.bits >= b.bits else b
    return FLOAT32  # which holds both of float16 and bfloat16


def match(a: Value, b: Value) -> tuple[PrimExpr, PrimExpr]:
    """Both as expressions of one type: Python numbers adapt to the other side, narrow types widen, scalars broadcast."""
    if not isinstance(a, PrimExpr) and isinstance(b, PrimExpr):
        a = as_expr(a, _meeting(a, b.dtype.element))
    elif not isinstance(b, PrimExpr) and isinstance(a, PrimExpr):
        b = as_expr(b, _meeting(b, a.dtype.element))
    x, y = as_expr(a), as_expr(b)
    if x.dtype is y.dtype:
        return x, y
    if x.dtype.element is not y.dtype.element:
        meet = _promote(x.dtype.element, y.dtype.element)
        x, y = cast(meet.with_lanes(x.dtype.lanes), x), cast(meet.with_lanes(y.dtype.lanes), y)
    lanes = max(x.dtype.lanes, y.dtype.lanes)
    return broadcast(x, lanes), broadcast(y, lanes)


def _meeting(number: Any, dtype: DataType) -> DataType:
    if isinstance(number, np.generic):
        number = number.item()
    return FLOAT32 if isinstance(number, float) and not dtype.is_float else INT64 if dtype == "bool" and type(number) is int else dtype


Number = (IntImm, FloatImm)


def number_of(e: PrimExpr) -> int | float | None:
    """The value of a constant, looking through broadcasts; None for anything else."""
    if isinstance(e, Broadcast):
        e = e.value
    return e.value if isinstance(e, (IntImm, FloatImm)) else None


def _fold(cls: type[Binary], a: PrimExpr, b: PrimExpr) -> PrimExpr | None:
    x, y = number_of(a), number_of(b)
    if x is None or y is None:
        return None
    if cls in (FloorDiv, FloorMod, TruncDiv, TruncMod, Div) and y == 0:
        return None
    dtype = BOOL.with_lanes(a.dtype.lanes) if issubclass(cls, Comparison) else a.dtype
    if a.dtype.is_float and a.dtype.bits < 64 and not issubclass(cls, Comparison):
        with np.errstate(all="ignore"):
            return const(cls.fold(np.float32(x), np.float32(y)), dtype)
    return const(cls.fold(x, y), dtype)


def add(a: Value, b: Value) -> PrimExpr:
    x, y = match(a, b)
    if (folded := _fold(Add, x, y)) is not None:
        return folded
    if x.dtype.is_integer:
        if isinstance(x, IntImm):
            x, y = y, x
        if number_of(y) == 0:
            return x
        if number_of(x) == 0:
            return y
        if isinstance(y, IntImm) and isinstance(x, Add) and isinstance(x.b, IntImm):
            return add(x.a, const(x.b.value + y.value, y.dtype))
        if isinstance(y, IntImm) and y.value < 0 and isinstance(x, Sub) is False:
            return Add(x, y)
    return Add(x, y)


def sub(a: Value, b: Value) -> PrimExpr:
    x, y = match(a, b)
    if (folded := _fold(Sub, x, y)) is not None:
        return folded
    if x.dtype.is_integer:
        if isinstance(y, IntImm):
            return add(x, const(-y.value, y.dtype))
        if x is y:
            return const(0, x.dtype)
        if number_of(y) == 0:
            return x
        if isinstance(x, IntImm) and isinstance(y, Sub) and isinstance(y.a, IntImm):  # reversed twice
            return add(y.b, const(x.value - y.a.value, y.dtype))
    return Sub(x, y)


def mul(a: Value, b: Value) -> PrimExpr:
    x, y = match(a, b)
    if (folded := _fold(Mul, x, y)) is not None:
        return folded
    if number_of(x) is not None:
        x, y = y, x
    n = number_of(y)
    if n == 1:
        return x
    if x.dtype.is_integer:
        if n == 0:
            return y
        if isinstance(y, IntImm) and isinstance(x, Mul) and isinstance(x.b, IntImm):
            return mul(x.a, const(x.b.value * y.value, y.dtype))
    return Mul(x, y)


def div(a: Value, b: Value) -> PrimExpr:
    """True division; integers are divided toward zero, as in C."""
    x, y = match(a, b)
    if x.dtype.is_integer:
        return truncdiv(x, y)
    if number_of(y) == 1:
        return x
    folded = _fold(Div, x, y)
    return Div(x, y) if folded is None else folded


def floordiv(a: Value, b: Value) -> PrimExpr:
    x, y = match(a, b)
    if x.dtype.is_float:
        return FLOOR(div(x, y))
    if (folded := _fold(FloorDiv, x, y)) is not None:
        return folded
    if number_of(y) == 1 or number_of(x) == 0:
        return x
    if x.dtype.bits >= 32 and isinstance(y, IntImm) and isinstance(x, Mul) and isinstance(x.b, IntImm) and y.value > 0 and x.b.value % y.value == 0:
        return mul(x.a, const(x.b.value // y.value, y.dtype))
    return FloorDiv(x, y)


def floormod(a: Value, b: Value) -> PrimExpr:
    x, y = match(a, b)
    if x.dtype.is_float:
        return _float_floormod(x, y)
    if (folded := _fold(FloorMod, x, y)) is not None:
        return folded
    if number_of(y) == 1 or number_of(x) == 0:
        return const(0, x.dtype)
    return FloorMod(x, y)


def _float_floormod(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """The remainder with the sign of `y`, as numpy's `mod`: exact, but for the rounding of a sum with `y` where the signs differ."""
    zero, rest = const(0, y.dtype), FMOD(x, y)
    signed_zero = if_then_else(compare(LT, y, zero), const(-0.0, y.dtype), zero)
    differs = compare(NE, compare(LT, rest, zero), compare(LT, y, zero))
    return if_then_else(compare(EQ, rest, zero), signed_zero, if_then_else(differs, add(rest, y), rest))


def truncdiv(a: Value, b: Value) -> PrimExpr:
    x, y = match(a, b)
    folded = _fold(TruncDiv, x, y)
    return folded if folded is not None else x if number_of(y) == 1 else TruncDiv(x, y)


def truncmod(a: Value, b: Value) -> PrimExpr:
    """The remainder with the sign of `a`, as C's `%` and `fmod`: exact, also of floating-point numbers."""
    x, y = match(a, b)
    if x.dtype.is_float:
        return FMOD(x, y)
    folded = _fold(TruncMod, x, y)
    return TruncMod(x, y) if folded is None else folded


def minimum(a: Value, b: Value) -> PrimExpr:
    x, y = match(a, b)
    folded = _fold(Min, x, y)
    return folded if folded is not None else x if x is y else Min(x, y)


def maximum(a: Value, b: Value) -> PrimExpr:
    x, y = match(a, b)
    folded = _fold(Max, x, y)
    return folded if folded is not None else x if x is y else Max(x, y)


def compare(cls: type[Comparison], a: Any, b: Any) -> PrimExpr:
    x, y = match(a, b)
    folded = _fold(cls, x, y)
    if folded is not None:
        return folded
    if x is y and not x.dtype.is_float:
        return const(int(cls in (EQ, LE, GE)), BOOL.with_lanes(x.dtype.lanes))
    return cls(x, y)


def logical_and(a: Value, b: Value) -> PrimExpr:
    x, y = match(a, b)
    for p, q in ((x, y), (y, x)):
        n = number_of(p)
        if n is not None:
            return q if n else p
    return x if x is y else And(x, y)


def logical_or(a: Value, b: Value) -> PrimExpr:
    x, y = match(a, b)
    for p, q in ((x, y), (y, x)):
        n = number_of(p)
        if n is not None:
            return p if n else q
    return x if x is y else Or(x, y)


_OPPOSITE: Final[dict[type[PrimExpr], type[Comparison]]] = {EQ: NE, NE: EQ, LT: GE, GE: LT, GT: LE, LE: GT}


def logical_not(a: Value) -> PrimExpr:
    x = as_expr(a)
    n = number_of(x)
    if n is not None:
        return const(int(not n), x.dtype)
    flipped = _OPPOSITE.get(type(x))
    if flipped is not None and not x.operands()[0].dtype.is_float:
        return flipped(*x.operands())
    return x.a if isinstance(x, Not) else Not(x)


def all_of(*conditions: Value) -> PrimExpr:
    result: PrimExpr = IntImm(BOOL, 1)
    for c in conditions:
        result = logical_and(result, c)
    return result


def any_of(*conditions: Value) -> PrimExpr:
    result: PrimExpr = IntImm(BOOL, 0)
    for c in conditions:
        result = logical_or(result, c)
    return result


def cast(dtype: str | DataType, value: Value) -> PrimExpr:
    kind, x = DataType(dtype), as_expr(value)
    if x.dtype is kind:
        return x
    if isinstance(x, Broadcast):
        return Broadcast(cast(kind.element, x.value), kind.lanes)
    n = number_of(x)
    if n is not None and (not isinstance(n, float) or math.isfinite(n) or kind.is_float):
        return const(bool(n) if kind.code == "bool" else n, kind)
    return Cast(kind, x)


def if_then_else(condition: Value, true_value: Value, false_value: Value) -> PrimExpr:
    c = as_expr(condition)
    t, f = match(true_value, false_value)
    n = number_of(c)
    if n is not None:
        return t if n else f
    if t is f:
        return t
    lanes = max(c.dtype.lanes, t.dtype.lanes)
    return Select(broadcast(c, lanes), broadcast(t, lanes), broadcast(f, lanes))


_BUILDERS: Final[dict[type, Callable[[Value, Value], PrimExpr]]] = {
    Add: add, Sub: sub, Mul: mul, Div: div, FloorDiv: floordiv, FloorMod: floormod, TruncDiv: truncdiv,
    TruncMod: truncmod, Min: minimum, Max: maximum, And: logical_and, Or: logical_or,
    **{c: functools.partial(compare, c) for c in (EQ, NE, LT, LE, GT, GE)},
}
