"""Nodes of scalar expressions. All levels use them, from symbolic dimensions to the vectors of a kernel.

Expressions are interned: building the same expression twice gives the same object, so `is` means equal, and common
subexpressions are shared in every thread. All threads share the table. An expression is complete before it is entered;
entering takes a lock, a lookup does not. `interning.release` drops the entries without other references, as every build
does at its end. `Var` and `Buffer` are names, compared by identity and never merged. Indices are `int64`.

    expr ::= Var | IntImm | FloatImm | Binary | Not | Cast | Select | Call | Load | Ramp | Broadcast
    Binary ::= Add | Sub | Mul | Div | FloorDiv | FloorMod | TruncDiv | TruncMod | Min | Max
             | EQ | NE | LT | LE | GT | GE | And | Or
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from math import inf, isfinite
from typing import Any, ClassVar, Final, Self, TypeAlias

import numpy as np

from tilewright.base.errors import CompileError, UndecidedError
from tilewright.base.interning import interned, publish
from tilewright.base.scriptable import Scriptable
from tilewright.base.types import BOOL, FLOAT32, INT64, DataType, OpenSize, PointerType, PrimType, integer_range
from tilewright.scalar.buffer_access import BufferAccess

BUILDERS: Final[dict[type[PrimExpr] | Intrinsic, Callable[..., PrimExpr]]] = {}
"""The folding builder of `expr.py` for each node class and bit operation: `add` for `Add`, `cast` for `Cast`."""


class ExprLike(Scriptable):
    """Base of objects with Python's arithmetic operators: expressions, and objects with an expression `expr`, such as
    an axis."""

    __slots__ = ()

    @property
    def expr(self) -> PrimExpr:
        raise NotImplementedError

    __hash__ = object.__hash__

    def __add__(self, other: Value) -> PrimExpr: return BUILDERS[Add](self, other)
    def __radd__(self, other: Value) -> PrimExpr: return BUILDERS[Add](other, self)
    def __sub__(self, other: Value) -> PrimExpr: return BUILDERS[Sub](self, other)
    def __rsub__(self, other: Value) -> PrimExpr: return BUILDERS[Sub](other, self)
    def __mul__(self, other: Value) -> PrimExpr: return BUILDERS[Mul](self, other)
    def __rmul__(self, other: Value) -> PrimExpr: return BUILDERS[Mul](other, self)
    def __truediv__(self, other: Value) -> PrimExpr: return BUILDERS[Div](self, other)
    def __rtruediv__(self, other: Value) -> PrimExpr: return BUILDERS[Div](other, self)
    def __floordiv__(self, other: Value) -> PrimExpr: return BUILDERS[FloorDiv](self, other)
    def __rfloordiv__(self, other: Value) -> PrimExpr: return BUILDERS[FloorDiv](other, self)
    def __mod__(self, other: Value) -> PrimExpr: return BUILDERS[FloorMod](self, other)
    def __rmod__(self, other: Value) -> PrimExpr: return BUILDERS[FloorMod](other, self)
    def __neg__(self) -> PrimExpr: return BUILDERS[Sub](const(0, self.expr.dtype), self)
    def __lt__(self, other: Value) -> PrimExpr: return BUILDERS[LT](self, other)
    def __le__(self, other: Value) -> PrimExpr: return BUILDERS[LE](self, other)
    def __gt__(self, other: Value) -> PrimExpr: return BUILDERS[GT](self, other)
    def __ge__(self, other: Value) -> PrimExpr: return BUILDERS[GE](self, other)
    def __eq__(self, other: object) -> Any: return BUILDERS[EQ](self, other) if is_value(other) else False
    def __ne__(self, other: object) -> Any: return BUILDERS[NE](self, other) if is_value(other) else True

    def __and__(self, other: Value) -> PrimExpr: return BUILDERS[BITWISE_AND](self, other)
    def __rand__(self, other: Value) -> PrimExpr: return BUILDERS[BITWISE_AND](other, self)
    def __or__(self, other: Value) -> PrimExpr: return BUILDERS[BITWISE_OR](self, other)
    def __ror__(self, other: Value) -> PrimExpr: return BUILDERS[BITWISE_OR](other, self)
    def __xor__(self, other: Value) -> PrimExpr: return BUILDERS[BITWISE_XOR](self, other)
    def __rxor__(self, other: Value) -> PrimExpr: return BUILDERS[BITWISE_XOR](other, self)
    def __lshift__(self, other: Value) -> PrimExpr: return BUILDERS[SHIFT_LEFT](self, other)
    def __rlshift__(self, other: Value) -> PrimExpr: return BUILDERS[SHIFT_LEFT](other, self)
    def __rshift__(self, other: Value) -> PrimExpr: return BUILDERS[SHIFT_RIGHT](self, other)
    def __rrshift__(self, other: Value) -> PrimExpr: return BUILDERS[SHIFT_RIGHT](other, self)
    def __invert__(self) -> PrimExpr: return BUILDERS[BITWISE_NOT](self)

    def astype(self, dtype: str | DataType) -> PrimExpr:
        return BUILDERS[Cast](dtype, self)

    def equal(self, other: Value) -> PrimExpr:
        return BUILDERS[EQ](self, other)

    def same_as(self, other: object) -> bool:
        """Return whether both are the same object. Equal expressions are one object; variables are equal only to
        themselves."""
        return self is other


class PrimExpr(ExprLike):
    """Base of scalar (and, inside kernels, vector) expressions; `dtype` is the type of the value."""

    __slots__ = ("__weakref__", "dtype")
    dtype: DataType

    def operands(self) -> tuple[PrimExpr, ...]:
        """Return the direct operands."""
        return ()

    def with_operands(self, operands: Sequence[PrimExpr]) -> PrimExpr:
        """Return the same kind of expression over other operands, folded where possible."""
        return self

    @property
    def expr(self) -> PrimExpr:
        return self

    def __bool__(self) -> bool:
        raise UndecidedError(
            f"the value of '{self}' is not known at compile time; use if_then_else, all_of or any_of")

    def __repr__(self) -> str:
        from tilewright.scalar.walk import text_of

        return text_of(self)


Value: TypeAlias = "ExprLike | int | float | bool | np.generic"


class Var(PrimExpr):
    """A named scalar: a loop variable, a symbolic dimension, a scalar parameter, an address. Compared by identity."""

    __slots__ = ("_pointer", "name")

    def __init__(self, name: str, dtype: str | DataType | PrimType | PointerType = INT64) -> None:
        if not isinstance(name, str):
            raise CompileError(f"the name of a variable is a text, not {name!r}", code="TW0602")
        self.name = name
        self._pointer = dtype if isinstance(dtype, PointerType) else None
        self.dtype = DataType(
            "handle" if isinstance(dtype, PointerType) else dtype.dtype if isinstance(dtype, PrimType) else dtype)

    @property
    def type_annotation(self) -> PrimType | PointerType:
        """The type; that of an address with a known type of elements is a `PointerType`."""
        return PrimType(self.dtype) if self._pointer is None else self._pointer


class UnknownDim(Var):
    """An unknown dimension, `?` in texts. Each object is distinct, but types that contain `?` compare equal."""

    __slots__ = ()
    unknown: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__("?")


class IntImm(PrimExpr):
    """An integer or boolean constant. Raises `CompileError` for a value outside the type's range."""

    __slots__ = ("value",)
    value: int

    def __new__(cls, dtype: str | DataType, value: int) -> Self:
        kind, number = dtype if type(dtype) is DataType else DataType(dtype), int(value)
        key = (cls, kind, number)
        known: Self | None = interned(key)
        if known is not None:
            return known
        low, high = integer_range(kind)
        if not low <= number <= high:
            raise CompileError(
                f"{number} is not a value of {kind}, which holds {low} to {high}; use a wider type, or the wrapped "
                "value",
                code="TW0602")
        self = object.__new__(cls)
        self.dtype, self.value = kind, number
        return publish(key, self)

    def __bool__(self) -> bool:
        return self.value != 0

    def __int__(self) -> int:
        return self.value

    __index__ = __int__


_TOO_LARGE: Final = {
    DataType("float16"): 65520.0, DataType("float32"): (2 - 2.0 ** -24) * 2.0 ** 127,
    DataType("bfloat16"): (2 - 2.0 ** -8) * 2.0 ** 127,
}
"""The least numbers that round to infinity."""


class FloatImm(PrimExpr):
    """A floating-point constant; 0.0 and -0.0 differ, and every NaN is the same."""

    __slots__ = ("value",)
    value: float

    def __new__(cls, dtype: str | DataType, value: float) -> Self:
        kind, number = DataType(dtype), float(value)
        key = (cls, kind, number.hex())
        known: Self | None = interned(key)
        if known is not None:
            return known
        if not kind.is_float:
            raise CompileError(f"{kind} is not a floating-point type; use IntImm for integers", code="TW0602")
        if isfinite(number) and abs(number) >= _TOO_LARGE.get(kind, inf):
            raise CompileError(f"{number} is not a value of {kind}: it is too large; use a wider type", code="TW0602")
        self = object.__new__(cls)
        self.dtype, self.value = kind, number
        return publish(key, self)

    def __float__(self) -> float:
        return self.value


def of_one_type(name: str, a: PrimExpr, b: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """Return two operands with one type, apart from the number of lanes: of two signed integers, the narrower one is
    widened. Raises `CompileError` for other pairs of types."""
    x, y = a.dtype.element, b.dtype.element
    if x is y:
        return a, b
    if x.code != "int" or y.code != "int":
        raise CompileError(
            f"{name} needs two operands of one type, but '{a}' is {a.dtype} and '{b}' is {b.dtype}; cast one of them",
            code="TW0602")
    wide = x if x.bits > y.bits else y
    return BUILDERS[Cast](wide.with_lanes(a.dtype.lanes), a), BUILDERS[Cast](wide.with_lanes(b.dtype.lanes), b)


class Binary(PrimExpr):
    """Base of two-operand expressions; `symbol` is the printed operator, and `fold` computes with numbers."""

    __slots__ = ("a", "b")
    a: PrimExpr
    b: PrimExpr
    symbol: ClassVar[str] = "?"
    fold: ClassVar[Callable[[Any, Any], Any]]

    def __new__(cls, a: PrimExpr, b: PrimExpr) -> Self:
        known: Self | None = interned((cls, a, b))
        if known is not None:
            return known
        if not (isinstance(a, PrimExpr) and isinstance(b, PrimExpr)):
            return cls(operand(a, b), operand(b, a))
        if a.dtype.element is not b.dtype.element:
            return cls(*of_one_type(cls.__name__, a, b))
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
        return self if a is self.a and b is self.b else BUILDERS[type(self)](a, b)


class Comparison(Binary):
    __slots__ = ()

    def asobject(self) -> Self:
        """Return the comparison itself: TVM's form of `a == b` is made into a node by this method."""
        return self

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

    def __new__(cls, a: Value) -> Self:
        a = as_expr(a)
        key = (cls, a.dtype, a)
        known: Self | None = interned(key)
        if known is not None:
            return known
        self = object.__new__(cls)
        self.dtype, self.a = a.dtype, a
        return publish(key, self)

    def operands(self) -> tuple[PrimExpr, ...]:
        return (self.a,)

    def with_operands(self, operands: Sequence[PrimExpr]) -> PrimExpr:
        return BUILDERS[Not](operands[0])


class Cast(PrimExpr):
    """A conversion by value: float to int truncates toward zero."""

    __slots__ = ("value",)
    value: PrimExpr

    def __new__(cls, dtype: str | DataType, value: Value) -> Self:
        kind = DataType(dtype)
        key = (cls, kind, value)
        known: Self | None = interned(key)
        if known is not None:
            return known
        if not isinstance(value, PrimExpr):
            return cls(kind, as_expr(value))
        self = object.__new__(cls)
        self.dtype, self.value = kind, value
        return publish(key, self)

    def operands(self) -> tuple[PrimExpr, ...]:
        return (self.value,)

    def with_operands(self, operands: Sequence[PrimExpr]) -> PrimExpr:
        (value,) = operands
        return BUILDERS[Cast](self.dtype.with_lanes(value.dtype.lanes), value)


class Select(PrimExpr):
    """`true_value if condition else false_value`, lane by lane; only the chosen side's loads may be performed."""

    __slots__ = ("condition", "false_value", "true_value")
    condition: PrimExpr
    true_value: PrimExpr
    false_value: PrimExpr

    def __new__(cls, condition: Value, true_value: Value, false_value: Value) -> Self:
        if not (
            isinstance(condition, PrimExpr) and isinstance(true_value, PrimExpr) and isinstance(false_value, PrimExpr)
        ):
            return cls(as_expr(condition), operand(true_value, false_value), operand(false_value, true_value))
        key = (cls, true_value.dtype, condition, true_value, false_value)
        known: Self | None = interned(key)
        if known is not None:
            return known
        if true_value.dtype.element is not false_value.dtype.element:
            return cls(condition, *of_one_type("Select", true_value, false_value))
        self = object.__new__(cls)
        self.dtype, self.condition = true_value.dtype, condition
        self.true_value, self.false_value = true_value, false_value
        return publish(key, self)

    def operands(self) -> tuple[PrimExpr, ...]:
        return (self.condition, self.true_value, self.false_value)

    def with_operands(self, operands: Sequence[PrimExpr]) -> PrimExpr:
        return BUILDERS[Select](*operands)


class Intrinsic:
    """A function of scalars, written `T.exp` for the `spelling` "exp". `reference` is its numpy equivalent; an
    intrinsic with `effect` is never merged or moved."""

    __slots__ = ("effect", "reference", "spelling")

    def __init__(self, spelling: str, reference: Callable[..., Any] | None = None, *, effect: bool = False) -> None:
        self.spelling, self.reference, self.effect = spelling, reference, effect

    def __call__(self, *args: Value, dtype: str | DataType | None = None) -> PrimExpr:
        values = [as_expr(a) for a in args]
        lanes = max((v.dtype.lanes for v in values), default=1)
        values = [broadcast(v, lanes) for v in values]
        return Call(DataType(dtype) if dtype else values[0].dtype, self, values)

    @property
    def name(self) -> str:
        """TVM's name of the function, such as "tir.exp"."""
        return "tir.round" if self.spelling == "nearbyint" else f"tir.{self.spelling}"

    @property
    def __name__(self) -> str:
        return self.spelling

    def same_as(self, other: object) -> bool:
        """Return whether both are one function of TVM, with any strings, which are arguments there."""
        return isinstance(other, Intrinsic) and self.name == other.name

    def __repr__(self) -> str:
        return self.spelling


class Rounding(Intrinsic):
    """A function that rounds floating-point numbers, and leaves integers as they are; constants are folded."""

    __slots__ = ()

    def __call__(self, *args: Value, dtype: str | DataType | None = None) -> PrimExpr:
        (x,) = map(as_expr, args)
        if not x.dtype.is_float or self.reference is None:
            return x
        n = number_of(x)
        return super().__call__(x, dtype=dtype) if n is None else const(float(self.reference(n)), x.dtype)


class PairFunction(Intrinsic):
    """A function of two numbers of one type; a narrower one is converted to the type of the other."""

    __slots__ = ()

    def __call__(self, *args: Value, dtype: str | DataType | None = None) -> PrimExpr:
        a, b = args
        x, y = as_expr(a), as_expr(b)
        if x.dtype.element is not y.dtype.element:
            both = BUILDERS[Add](a, b).dtype.element
            x, y = (BUILDERS[Cast](both.with_lanes(e.dtype.lanes), e) for e in (x, y))
        return super().__call__(x, y, dtype=dtype)


FLOOR: Final[Intrinsic] = Rounding("floor", np.floor)
"""`intrinsics.floor`; used for the rounded-down quotient of floating-point numbers."""
FMOD: Final = PairFunction("fmod", np.fmod)
"""`intrinsics.fmod`: the remainder of floating-point numbers with the sign of the dividend, exact for all magnitudes.
"""
BITWISE_AND: Final = Intrinsic("bitwise_and", np.bitwise_and)
BITWISE_OR: Final = Intrinsic("bitwise_or", np.bitwise_or)
BITWISE_XOR: Final = Intrinsic("bitwise_xor", np.bitwise_xor)
BITWISE_NOT: Final = Intrinsic("bitwise_not", np.bitwise_not)
SHIFT_LEFT: Final = Intrinsic("shift_left", np.left_shift)
SHIFT_RIGHT: Final = Intrinsic("shift_right", np.right_shift)
"""Bit operations of integers: Python's operators of the same meaning."""


class Call(PrimExpr):
    """An intrinsic applied to arguments."""

    __slots__ = ("args", "op")
    op: Intrinsic
    args: tuple[PrimExpr, ...]

    def __new__(cls, dtype: str | DataType, op: Intrinsic | str, args: Sequence[Value]) -> Self:
        kind, arguments = DataType(dtype), tuple(args)
        key = (cls, kind, op, arguments)
        known: Self | None = interned(key)
        if known is not None:
            return known
        if isinstance(op, str):
            from tilewright.scalar.intrinsics import call_named

            return call_named(kind, op, args)  # type: ignore[return-value]
        if not all(isinstance(a, PrimExpr) for a in arguments):
            return cls(kind, op, [as_expr(a) for a in arguments])
        self = object.__new__(cls)
        self.dtype, self.op, self.args = kind, op, arguments  # type: ignore[assignment]
        return publish(key, self)

    def operands(self) -> tuple[PrimExpr, ...]:
        return self.args

    def with_operands(self, operands: Sequence[PrimExpr]) -> PrimExpr:
        # the lanes of the result depend on the operation, such as a reduction over lanes
        if all(new.dtype.lanes == old.dtype.lanes for new, old in zip(operands, self.args, strict=True)):
            return Call(self.dtype, self.op, operands)
        if self.dtype.lanes < max((v.dtype.lanes for v in self.args), default=1):
            return Call(self.dtype, self.op, operands)
        lanes = max((v.dtype.lanes for v in operands), default=self.dtype.lanes)
        return Call(self.dtype.with_lanes(lanes), self.op, [broadcast(v, lanes) for v in operands])


class Buffer(BufferAccess):
    """A named piece of memory with a shape. `scope` is `global` (memory) or `local` (registers, else the stack).

    `shape` is a tuple of ints or integer expressions. Storage is dense, row-major and aligned to 64 bytes, unless
    `strides` of a parameter gives the distances in elements between indices of each dimension. Parameters of a kernel
    never overlap, except an output that the memory plan places on an input read only at the same element.
    `axis_separators` are where further dimensions of physical memory begin, and `elem_offset` is the distance of the
    first element from the address that a script knows: notes, which most passes drop.
    """

    __slots__ = ("__weakref__", "axis_separators", "dtype", "elem_offset", "name", "scope", "shape", "strides")

    def __init__(
        self, name: str, shape: Sequence[Any], dtype: str | DataType = FLOAT32, scope: str = "global",
        strides: Sequence[Any] = (), axis_separators: Sequence[int] = (), elem_offset: Value = 0
    ) -> None:
        self.name, self.scope, self.dtype = name, scope, DataType(dtype)
        self.elem_offset = as_expr(elem_offset, "int32")
        self.shape: tuple[Any, ...] = tuple(_known(d) for d in shape)
        self.strides: tuple[Any, ...] = tuple(_known(d) for d in strides)
        self.axis_separators = tuple(map(int, axis_separators))

    def __getitem__(self, indices: Any) -> Any:
        """Return an element, or, with slices among the indices, a `BufferRegion`."""
        items = indices if isinstance(indices, tuple) else (indices,)
        if slice not in map(type, items):
            return Load(self, items)
        from tilewright.scalar.buffer_region import region_at

        return region_at(self, items)

    def __repr__(self) -> str:
        where = "" if self.scope == "global" else f" {self.scope}"
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]{where}"


def _known(d: Any) -> Any:
    """Return a size of a buffer: an int if it is constant, else an expression."""
    return int(d) if isinstance(d, IntImm) else d.expr if isinstance(d, OpenSize) else d


class Load(PrimExpr):
    """An element of a buffer; a vector of elements if the last index is a vector."""

    __slots__ = ("buffer", "indices")
    buffer: Buffer
    indices: tuple[PrimExpr, ...]

    def __new__(cls, buffer: Buffer, indices: Sequence[Value]) -> Self:
        at = tuple(as_expr(i) for i in indices)
        lanes = max((i.dtype.lanes for i in at), default=1)
        kind = buffer.dtype.with_lanes(lanes)
        key = (cls, kind, buffer, at)
        known: Self | None = interned(key)
        if known is not None:
            return known
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

    def __new__(cls, base: Value, stride: Value, lanes: int) -> Self:
        base = as_expr(base)
        step = as_expr(stride, base.dtype)
        kind = base.dtype.with_lanes(lanes)
        key = (cls, kind, base, step)
        known: Self | None = interned(key)
        if known is not None:
            return known
        self = object.__new__(cls)
        self.dtype, self.base, self.stride = kind, base, step
        return publish(key, self)

    @property
    def lanes(self) -> int:
        return self.dtype.lanes

    def operands(self) -> tuple[PrimExpr, ...]:
        return (self.base, self.stride)

    def with_operands(self, operands: Sequence[PrimExpr]) -> PrimExpr:
        return Ramp(operands[0], operands[1], self.dtype.lanes)


class Broadcast(PrimExpr):
    """One value in every lane."""

    __slots__ = ("value",)
    value: PrimExpr

    def __new__(cls, value: Value, lanes: int) -> Self:
        value = as_expr(value)
        kind = value.dtype.with_lanes(lanes)
        key = (cls, kind, value)
        known: Self | None = interned(key)
        if known is not None:
            return known
        self = object.__new__(cls)
        self.dtype, self.value = kind, value
        return publish(key, self)

    @property
    def lanes(self) -> int:
        return self.dtype.lanes

    def operands(self) -> tuple[PrimExpr, ...]:
        return (self.value,)

    def with_operands(self, operands: Sequence[PrimExpr]) -> PrimExpr:
        return Broadcast(operands[0], self.dtype.lanes)


def is_value(x: object) -> bool:
    return isinstance(x, (ExprLike, int, float, bool, np.generic))


def const(value: Any, dtype: str | DataType) -> PrimExpr:
    """Return a constant of `dtype`; integers wrap around."""
    kind = DataType(dtype)
    if kind is INT64 and type(value) is int and -(1 << 63) <= value < 1 << 63:
        return IntImm(kind, value)
    if kind.lanes > 1:
        return Broadcast(const(value, kind.element), kind.lanes)
    if isinstance(value, OpenSize):
        return as_expr(value, kind)
    if kind.is_float:
        if kind.bits == 64:
            return FloatImm(kind, float(value))
        with np.errstate(over="ignore"):  # an integer is rounded once, without a detour to float64
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


def as_expr(value: Value, dtype: str | DataType | None = None) -> PrimExpr:
    """Return `value` as an expression; a Python number gets the type `dtype`, by default int64, float32 or bool."""
    if isinstance(value, PrimExpr):
        return value
    if isinstance(value, ExprLike):
        return value.expr
    if isinstance(value, OpenSize):
        found: PrimExpr = value.expr
        return found if dtype is None else BUILDERS[Cast](dtype, found)
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


def operand(value: Value, other: Value) -> PrimExpr:
    """Return `value` as an operand of a node; a number gets the type of the other operand, if that is an expression.

    Raises `CompileError` for a number that the type does not represent.
    """
    if not isinstance(other, ExprLike) or isinstance(value, ExprLike):
        return as_expr(value)
    kind = other.expr.dtype
    found = as_expr(value, kind)
    if isinstance(value, (int, float, np.generic)) and not kind.is_float and number_of(found) != value:
        raise CompileError(f"{value} is not a value of {kind}, the type of '{other}'", code="TW0602")
    return found


def broadcast(value: PrimExpr, lanes: int) -> PrimExpr:
    return value if value.dtype.lanes == lanes else Broadcast(value, lanes)


def integer(e: PrimExpr) -> int:
    """Return the value of an integer constant. Raises `TypeError` for any other expression."""
    if not isinstance(e, IntImm):
        raise TypeError(f"{e} is not an integer constant")
    return e.value


Number = (IntImm, FloatImm)


def number_of(e: PrimExpr) -> int | float | None:
    """Return the value of a constant, including broadcast ones; None for any other expression."""
    if isinstance(e, (IntImm, FloatImm)):
        return e.value
    return e.value.value if isinstance(e, Broadcast) and isinstance(e.value, (IntImm, FloatImm)) else None
