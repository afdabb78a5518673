"""Builders of scalar expressions, which fold constants and drop neutral elements. The nodes are in `expr_nodes.py`.

Python's operators on expressions call these builders (`add`, `floordiv`, …). `arith` simplifies further.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.errors import CompileError
from tilewright.base.types import BOOL, FLOAT32, INT64, MINIFLOATS, DataType, OpenSize, integer_range
from tilewright.scalar.expr_nodes import (
    BITWISE_AND,
    BITWISE_NOT,
    BITWISE_OR,
    BITWISE_XOR,
    BUILDERS,
    EQ,
    FLOOR,
    FMOD,
    GE,
    GT,
    LE,
    LT,
    NE,
    SHIFT_LEFT,
    SHIFT_RIGHT,
    Add,
    And,
    Binary,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Comparison,
    Div,
    ExprLike,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Intrinsic,
    Load,
    Max,
    Min,
    Mul,
    Not,
    Number,
    Or,
    PairFunction,
    PrimExpr,
    Ramp,
    Rounding,
    Select,
    Sub,
    TruncDiv,
    TruncMod,
    UnknownDim,
    Value,
    Var,
    as_expr,
    broadcast,
    const,
    integer,
    is_value,
    number_of,
)

__all__ = [
    "BITWISE_AND", "BITWISE_NOT", "BITWISE_OR", "BITWISE_XOR", "EQ", "FLOOR", "FMOD", "GE", "GT", "LE", "LT", "NE",
    "SHIFT_LEFT", "SHIFT_RIGHT", "Add", "And", "Binary", "Broadcast", "Buffer", "Call", "Cast", "Comparison", "Div",
    "ExprLike", "FloatImm", "FloorDiv", "FloorMod", "IntImm", "Intrinsic", "Load", "Max", "Min",
    "Mul", "Not", "Number", "Or", "PairFunction", "PlacedBuffer", "PrimExpr", "Ramp", "Rounding", "Select", "Sub",
    "TruncDiv",
    "TruncMod", "UnknownDim", "Value", "Var", "add", "all_of", "any_of", "as_expr", "bitwise", "broadcast", "cast",
    "compare",
    "const", "div", "floordiv", "floormod", "if_then_else", "integer", "integer_range", "is_value", "literal",
    "logical_and", "logical_not", "logical_or", "match", "max_value", "maximum", "min_value", "minimum", "mul",
    "number_of", "sub", "truncdiv", "truncmod",
]


class PlacedBuffer(Buffer):
    """The memory from the address `pointer` on, a variable of type `handle`. Programs with it are read, printed and
    planned, but not compiled."""

    __slots__ = ("pointer",)

    def __init__(
        self, name: str, shape: Sequence[Any], dtype: str | DataType, pointer: Var, scope: str = "global",
        strides: Sequence[Any] = ()
    ) -> None:
        super().__init__(name, shape, dtype, scope, strides)
        self.pointer = pointer

    @property
    def data(self) -> PrimExpr:
        return self.pointer


def literal(value: Any, dtype: str | DataType | None = None) -> PrimExpr:
    """Return a number as an expression of `dtype`, by default TVM's type for it (int32, float32, bool): `te.const`,
    `tir.const`.

    Raises `CompileError` for a value outside the type's range, whereas folded expressions wrap around.
    """
    if isinstance(value, (ExprLike, OpenSize)):
        return as_expr(value) if dtype is None else cast(dtype, value)
    kind = _usual(value) if dtype is None else DataType(dtype)
    if not isinstance(value, (int, float, np.generic, np.ndarray)) or kind.code not in (*_NUMERIC, *MINIFLOATS):
        raise CompileError(
            f"{value!r} ({type(value).__name__}) is not a constant of type {kind}; a constant is an int, uint, float "
            "or bool number",
            code="TW0602")
    number = value.item() if isinstance(value, (np.generic, np.ndarray)) else value
    if kind.is_float:
        made = const(float(number), kind)
        largest = float(np.finfo(kind.numpy()).max) if kind.element in ("float16", "float32") else math.inf
        rounded = float(number_of(made) or 0.0)
        if math.isfinite(number) and (abs(number) > largest or not math.isfinite(rounded)):
            raise CompileError(
                f"{number} is not a value of {kind.element}: it is too large; use a wider type",
                code="TW0602")
        return made
    if isinstance(number, float) and not math.isfinite(number):
        raise CompileError(f"{number} is not a value of the integer type {kind}", code="TW0602")
    made = IntImm(kind.element, int(bool(number)) if kind.code == "bool" else int(number))
    return broadcast(made, kind.lanes)


_NUMERIC: Final = ("int", "uint", "bool", "float", "bfloat")


def _usual(value: Any) -> DataType:
    """Return the default type of a number."""
    if isinstance(value, (np.generic, np.ndarray)):
        return DataType(value.dtype)
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, float):
        return (
            FLOAT32 if not math.isfinite(value) or abs(value) <= float(np.finfo(np.float32).max)
            else DataType("float64")
        )
    return DataType("int32") if isinstance(value, int) and -(1 << 31) <= value < 1 << 31 else INT64


def min_value(dtype: str | DataType) -> PrimExpr:
    """Return the least finite value of a type (minus infinity for floats)."""
    kind = DataType(dtype)
    if kind.is_float:
        return const(float("-inf"), kind)
    return const(0 if kind.code in ("uint", "bool") else -(1 << (kind.bits - 1)), kind)


def max_value(dtype: str | DataType) -> PrimExpr:
    """Return the greatest value of a type (infinity for floats)."""
    kind = DataType(dtype)
    if kind.is_float:
        return const(float("inf"), kind)
    return const((1 << (kind.bits - (kind.code == "int"))) - 1, kind)


def _promote(a: DataType, b: DataType) -> DataType:
    """Return the common type of two element types: floats before integers, then the wider one, then unsigned before
    signed."""
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if a.code == "bool" or b.code == "bool":
        return b if a.code == "bool" else a
    if a.is_integer and b.is_integer:
        return a if (a.bits, a.code == "uint") > (b.bits, b.code == "uint") else b
    if a.bits != b.bits or a.code == b.code:
        return a if a.bits >= b.bits else b
    return FLOAT32  # it represents both float16 and bfloat16 values


def match(a: Value, b: Value) -> tuple[PrimExpr, PrimExpr]:
    """Convert both to expressions of one type: Python numbers adapt to the other side, narrow types widen, scalars
    broadcast."""
    if not isinstance(a, PrimExpr) and isinstance(b, PrimExpr):
        a = as_expr(a, _meeting(a, b.dtype.element))
    elif not isinstance(b, PrimExpr) and isinstance(a, PrimExpr):
        b = as_expr(b, _meeting(b, a.dtype.element))
    x = a if isinstance(a, PrimExpr) else as_expr(a)
    y = b if isinstance(b, PrimExpr) else as_expr(b)
    if x.dtype is y.dtype:
        return x, y
    if x.dtype.element is not y.dtype.element:
        meet = _promote(x.dtype.element, y.dtype.element)
        x, y = cast(meet.with_lanes(x.dtype.lanes), x), cast(meet.with_lanes(y.dtype.lanes), y)
    lanes = max(x.dtype.lanes, y.dtype.lanes)
    return broadcast(x, lanes), broadcast(y, lanes)


def match_small(a: Value, b: Value) -> tuple[PrimExpr, PrimExpr]:
    """Convert both to expressions of one type, as `match`; two Python integers get TVM's type for them, int32 if both
    fit. The result of the operation must not be larger than its operands."""
    if type(a) is int and type(b) is int:
        return match(literal(a), literal(b))
    return match(a, b)


def _meeting(number: Any, dtype: DataType) -> DataType:
    """Return the type of a Python number next to a value of `dtype`. Raises `CompileError` for an integer that has no
    pattern of bits in an integer type."""
    if isinstance(number, np.generic):
        number = number.item()
    if type(number) is int and not -128 <= number <= 127 and dtype.code in ("int", "uint") and dtype.bits:
        wide = 1 << dtype.bits
        if not -wide // 2 <= number < wide:
            raise CompileError(f"{number} is not a value of {dtype}; cast the other operand to a wider type",
                               code="TW0602")
    return (
        FLOAT32 if isinstance(number, float) and not dtype.is_float else INT64
        if dtype == "bool" and type(number) is int else dtype
    )


def _fold(cls: type[Binary], a: PrimExpr, b: PrimExpr) -> PrimExpr | None:
    y = number_of(b)
    x = None if y is None else number_of(a)
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
    """Divide; integers are divided toward zero, as in C."""
    x, y = match(a, b)
    if x.dtype.is_integer:
        return truncdiv(x, y)
    if number_of(y) == 1:
        return x
    folded = _fold(Div, x, y)
    return Div(x, y) if folded is None else folded


def floordiv(a: Value, b: Value) -> PrimExpr:
    x, y = match_small(a, b)
    if x.dtype.is_float:
        return FLOOR(div(x, y))
    if (folded := _fold(FloorDiv, x, y)) is not None:
        return folded
    if number_of(y) == 1 or number_of(x) == 0:
        return x
    if (
        x.dtype.bits >= 32 and isinstance(y, IntImm) and isinstance(x, Mul) and isinstance(x.b, IntImm) and y.value > 0
        and x.b.value % y.value == 0
    ):
        return mul(x.a, const(x.b.value // y.value, y.dtype))
    return FloorDiv(x, y)


def floormod(a: Value, b: Value) -> PrimExpr:
    x, y = match_small(a, b)
    if x.dtype.is_float:
        return _float_floormod(x, y)
    if (folded := _fold(FloorMod, x, y)) is not None:
        return folded
    if number_of(y) == 1 or number_of(x) == 0:
        return const(0, x.dtype)
    return FloorMod(x, y)


def _float_floormod(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """Return the remainder with the sign of `y`, like numpy's `mod`. Exact, except for the rounding of a sum with `y`
    if the signs differ."""
    zero, rest = const(0, y.dtype), FMOD(x, y)
    signed_zero = if_then_else(compare(LT, y, zero), const(-0.0, y.dtype), zero)
    differs = compare(NE, compare(LT, rest, zero), compare(LT, y, zero))
    return if_then_else(compare(EQ, rest, zero), signed_zero, if_then_else(differs, add(rest, y), rest))


def truncdiv(a: Value, b: Value) -> PrimExpr:
    x, y = match_small(a, b)
    folded = _fold(TruncDiv, x, y)
    return folded if folded is not None else x if number_of(y) == 1 or _is_zero(x) else TruncDiv(x, y)


def truncmod(a: Value, b: Value) -> PrimExpr:
    """Return the remainder with the sign of `a`, like C's `%` and `fmod`; exact for floating-point numbers, too."""
    x, y = match_small(a, b)
    if x.dtype.is_float:
        return FMOD(x, y)
    folded = _fold(TruncMod, x, y)
    return folded if folded is not None else x if _is_zero(x) else TruncMod(x, y)


def _is_zero(e: PrimExpr) -> bool:
    return isinstance(e, IntImm) and e.value == 0


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
    if kind.lanes > 1 and x.dtype.lanes == 1:
        return Broadcast(cast(kind.element, x), kind.lanes)
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


_LOGICAL: Final[dict[Intrinsic, Callable[..., PrimExpr]]] = {
    BITWISE_AND: logical_and, BITWISE_OR: logical_or, BITWISE_XOR: functools.partial(compare, NE),
    BITWISE_NOT: logical_not,
}
_FOLDED: Final[dict[Intrinsic, Callable[..., int]]] = {
    BITWISE_AND: operator.and_, BITWISE_OR: operator.or_, BITWISE_XOR: operator.xor, BITWISE_NOT: operator.invert,
    SHIFT_LEFT: operator.lshift, SHIFT_RIGHT: operator.rshift,
}


def bitwise(op: Intrinsic, *operands: Value) -> PrimExpr:
    """Apply a bit operation to integers, or a logical operation to booleans: Python's `&`, `|`, `^`, `~`, `<<`, `>>`.

    Raises `CompileError` for floats, and for a constant shift outside `[0, bits)`.
    """
    values = match(*operands) if len(operands) == 2 else tuple(map(as_expr, operands))
    kind = values[0].dtype
    if kind.code == "bool" and op in _LOGICAL:
        return _LOGICAL[op](*values)
    if not kind.is_integer:
        raise CompileError(f"'{op}' takes integers, but an operand is {kind}; cast it first", code="TW0602")
    known = [number_of(v) for v in values]
    if op in (SHIFT_LEFT, SHIFT_RIGHT) and known[1] is not None and not 0 <= known[1] < kind.bits:
        raise CompileError(
            f"'{op}' of {kind} by {known[1]} is undefined; a shift is at least 0 and less than {kind.bits}",
            code="TW0602")
    return op(*values) if None in known else const(_FOLDED[op](*known), kind)


_BUILDERS: Final[dict[type[PrimExpr] | Intrinsic, Callable[..., PrimExpr]]] = {
    Add: add, Sub: sub, Mul: mul, Div: div, FloorDiv: floordiv, FloorMod: floormod, TruncDiv: truncdiv,
    TruncMod: truncmod, Min: minimum, Max: maximum, And: logical_and, Or: logical_or,
    **{c: functools.partial(compare, c) for c in (EQ, NE, LT, LE, GT, GE)}, Not: logical_not, Cast: cast,
    Select: if_then_else, **{op: functools.partial(bitwise, op) for op in _FOLDED},
}
BUILDERS.update(_BUILDERS)
