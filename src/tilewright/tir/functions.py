"""Functions of scalar expressions under TVM's names, besides those of `scalar/expr.py` and `scalar/intrinsics.py`.

    tir.popcount(x), tir.clz(x)                 bits of integers
    tir.call_intrin("float32", "tir.exp", x)    an intrinsic by its name
    tir.Let(v, x + 1, v * v)                    (x + 1) * (x + 1)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from tilewright.base.errors import CompileError
from tilewright.base.types import BOOL, DataType
from tilewright.scalar import expr as E
from tilewright.scalar import intrinsics as I
from tilewright.scalar.expr import PrimExpr, Value, Var, as_expr, const
from tilewright.scalar.walk import substitute
from tilewright.tir.packed_calls import packed_call
from tilewright.tir.stmt import Evaluate, Seq, Stmt, seq

bitwise_and: Final = partial(E.bitwise, E.BITWISE_AND)
bitwise_or: Final = partial(E.bitwise, E.BITWISE_OR)
bitwise_xor: Final = partial(E.bitwise, E.BITWISE_XOR)
bitwise_not: Final = partial(E.bitwise, E.BITWISE_NOT)
shift_left: Final = partial(E.bitwise, E.SHIFT_LEFT)
shift_right: Final = partial(E.bitwise, E.SHIFT_RIGHT)


def Let(var: Var, value: Value, body: Value) -> PrimExpr:
    """Return `body` with `var` replaced by `value`. Equal expressions are one object, so the value is not repeated."""
    given = as_expr(value, None if isinstance(value, E.ExprLike) else var.dtype)
    if given.dtype is not var.dtype:
        raise CompileError(
            f"'{var.name}' is {var.dtype}, but its value is {given.dtype}; cast the value", code="TW0602")
    return substitute(as_expr(body), {var: given})


def call_intrin(dtype: str | DataType, func_name: str | E.Intrinsic, *args: Any) -> PrimExpr:
    """Return a call of an intrinsic, or of that of a name, such as `tir.exp`. Raises `CompileError` for an unknown one.
    """
    name = func_name if isinstance(func_name, str) else func_name.name
    return packed_call(dtype, args) if name == "tir.tvm_call_packed" else E.Call(dtype, name, args)


def reinterpret(dtype: str | DataType, value: Value) -> PrimExpr:
    """Return the bits of a value as a value of another type with as many bits in all lanes."""
    kind, x = DataType(dtype), as_expr(value)
    if kind is x.dtype:
        return x
    if kind.bits * kind.lanes != x.dtype.bits * x.dtype.lanes:
        raise CompileError(f"the bits of a value of {x.dtype} are no value of {kind}; the widths differ", code="TW0602")
    return I.reinterpret(x, dtype=kind)


def likely(cond: Value, span: Any = None) -> PrimExpr:
    """Return the condition; the hint is not used."""
    return as_expr(cond)


def infinity(dtype: str | DataType) -> PrimExpr:
    """Return positive infinity of a floating-point type."""
    kind = DataType(dtype)
    if not kind.is_float:
        raise CompileError(f"{kind} has no infinity; use a floating-point type", code="TW0602")
    return const(float("inf"), kind)


def isfinite(x: Value) -> PrimExpr:
    """Return whether a value is neither infinite nor NaN."""
    e = as_expr(x)
    if not e.dtype.is_float:
        return const(1, BOOL.with_lanes(e.dtype.lanes))
    return E.logical_not(E.logical_or(I.isnan(e, dtype=BOOL), I.isinf(e, dtype=BOOL)))


def all(*args: Value, span: Any = None) -> PrimExpr:
    """Return whether all conditions hold. Raises `CompileError` for none, and for other values than conditions."""
    return E.all_of(*_conditions("all", args))


def any(*args: Value, span: Any = None) -> PrimExpr:
    """Return whether one of the conditions holds. Raises `CompileError` for none, and for other values than conditions.
    """
    return E.any_of(*_conditions("any", args))


def _conditions(name: str, args: Sequence[Value]) -> list[PrimExpr]:
    found = [as_expr(a) for a in args]
    wrong = next((e for e in found if e.dtype.code != "bool"), None)
    if not found or wrong is not None:
        what = "none" if wrong is None else f"'{wrong}', which is {wrong.dtype}"
        raise CompileError(f"{name} takes one or more conditions, but was given {what}", code="TW0602")
    return found


def _division(build: Callable[[Value, Value], PrimExpr], meaning: str) -> Callable[..., PrimExpr]:
    def function(a: Value, b: Value, span: Any = None) -> PrimExpr:
        if E.number_of(as_expr(b)) == 0:
            raise CompileError(f"{a} is divided by zero", code="TW0602")
        return build(a, b)

    function.__name__ = build.__name__
    function.__doc__ = f"Return {meaning}. Raises `CompileError` for a divisor that is the constant 0."
    return function


div = _division(E.div, "the quotient of two numbers; that of integers is rounded toward zero")
floordiv = _division(E.floordiv, "the quotient, rounded down")
floormod = _division(E.floormod, "the remainder with the sign of the divisor")
truncdiv = _division(E.truncdiv, "the quotient of integers, rounded toward zero")
truncmod = _division(E.truncmod, "the remainder with the sign of the dividend")


def ceildiv(lhs: Value, rhs: Value) -> PrimExpr:
    """Return the quotient of integers, rounded up."""
    a, b = E.match(lhs, rhs)
    return E.floordiv(a + (b - 1), b)


def popcount(x: Value) -> PrimExpr:
    """Return the number of bits that are set in an integer, in its type."""
    given = _integer(x, "popcount")
    kind, width = _unsigned(given.dtype), 1
    n = _as(kind, given)
    while width < kind.bits:  # sums of pairs of bits, then of fours, and so on
        part = _pattern(kind, width, 2 * width)
        n = (n & part) + ((n >> width) & part)
        width *= 2
    return E.cast(given.dtype, n)


def clz(x: Value) -> PrimExpr:
    """Return the number of leading zero bits of an integer, as int32; the number of all bits for 0."""
    given = _integer(x, "clz")
    n, step = _as(_unsigned(given.dtype), given), 1
    while step < given.dtype.bits:
        n = n | (n >> step)
        step *= 2
    return E.cast(DataType("int32").with_lanes(given.dtype.lanes), given.dtype.bits - popcount(n))


def times_fixed_point(x: PrimExpr, multiplier: Value, left: Value, right: Value) -> PrimExpr:
    """Return `(x << left) * multiplier >> right`, rounded, for int32; intermediate values are int64."""
    factor = _shifted(multiplier, left)
    product = E.mul(E.cast("int64", x), factor)
    half = _shifted(1, right - 1 if isinstance(right, int) else E.sub(right, 1))
    return E.cast("int32", I.shift_right(E.add(product, half), E.cast("int64", right)))


def _shifted(value: Value, by: Value) -> Value:
    if isinstance(value, int) and isinstance(by, int):
        return value << by
    return I.shift_left(E.cast("int64", value), E.cast("int64", by))


def q_multiply_shift(x: Value, y: Value, q: Value, s: Value) -> PrimExpr:
    """Return `x * y * 2^(s - q)`, rounded: int32 `x` times `y`, which has `q` bits after the binary point."""
    shift, bits = _plain(s), _plain(q)
    if isinstance(shift, int) and isinstance(bits, int):
        return times_fixed_point(as_expr(x), _plain(y), max(shift, 0), bits - min(shift, 0))
    return times_fixed_point(as_expr(x), y, E.maximum(shift, 0), E.sub(bits, E.minimum(shift, 0)))


def q_multiply_shift_per_axis(
    x: Value, y: Value, ls: Value, rs: Value, q: Value, is_lshift_required: Value, is_rshift_required: Value
) -> PrimExpr:
    """Return `x * y * 2^(ls - rs - q)`, rounded; a shift that is not required is left out."""
    left = ls if _plain(is_lshift_required) else 0
    right = E.add(E.cast("int64", rs), q) if _plain(is_rshift_required) else _plain(q)
    return times_fixed_point(as_expr(x), _plain(y), left, right)


def _plain(x: Value) -> Value:
    """Return an integer constant as a Python number, and other expressions unchanged."""
    e = as_expr(x)
    return e.value if isinstance(e, E.IntImm) else x


def _integer(x: Value, name: str) -> PrimExpr:
    e = as_expr(x)
    if not e.dtype.is_integer or e.dtype.code == "bool":
        raise CompileError(f"{name} takes an integer, but was given {e.dtype}", code="TW0602")
    return e


def _unsigned(dtype: DataType) -> DataType:
    return DataType(f"uint{dtype.bits}").with_lanes(dtype.lanes)


def _as(kind: DataType, x: PrimExpr) -> PrimExpr:
    return x if x.dtype is kind else I.reinterpret(x, dtype=kind)


def _pattern(kind: DataType, ones: int, period: int) -> PrimExpr:
    """Return a constant with the lowest `ones` bits of every `period` bits set."""
    return const(sum(((1 << ones) - 1) << k for k in range(0, kind.bits, period)), kind)


def _library(name: str, *args: PrimExpr) -> PrimExpr:
    """Return a call of the C library's function for the type of the arguments; halves are computed as float32."""
    kind = args[0].dtype
    if not kind.is_float:
        raise CompileError(f"{name} takes floating-point numbers, but was given {kind}; cast them", code="TW0602")
    if kind.bits < 32:
        return E.cast(kind, _library(name, *(E.cast(DataType("float32"), a) for a in args)))
    return I.call_pure_extern(kind, name if kind.bits == 64 else f"{name}f", *args)


def _of_library(name: str, meaning: str) -> Any:
    def function(*args: Value) -> PrimExpr:
        return _library(name, *(E.match(*args) if len(args) == 2 else map(as_expr, args)))

    function.__name__, function.__doc__ = name, f"Return {meaning}, by the C library."
    return function


log10 = _of_library("log10", "the decimal logarithm")
log1p = _of_library("log1p", "log(1 + x), exact near 0")
copysign = _of_library("copysign", "the magnitude of `x` with the sign of `y`")
atan2 = _of_library("atan2", "the angle of the point (`y`, `x`), from the signs of both")
hypot = _of_library("hypot", "sqrt(x * x + y * y), without overflow of the squares")
nextafter = _of_library("nextafter", "the number next to `x` in the direction of `y`")


def ldexp(x1: Value, x2: Value) -> PrimExpr:
    """Return `x1` times 2 to the power `x2`, an integer, by the C library."""
    x, n = as_expr(float(x1) if type(x1) is int else x1), E.cast("int32", as_expr(x2))
    if x.dtype.bits < 32:
        return E.cast(x.dtype, ldexp(E.cast(DataType("float32"), x), n))
    return I.call_pure_extern(x.dtype, "ldexp" if x.dtype.bits == 64 else "ldexpf", x, n)


def exp10(x: Value) -> PrimExpr:
    """Return 10 to the power `x`."""
    e = as_expr(float(x) if type(x) is int else x)
    return _library("pow", const(10.0, e.dtype), e)


def stmt_seq(*args: Stmt | PrimExpr) -> Stmt:
    """Return statements, or expressions for their effects, in order."""
    return seq(*(Evaluate(a) if isinstance(a, PrimExpr) else a for a in args))


def stmt_list(stmt: Stmt) -> list[Stmt]:
    """Return the statements of a sequence; a single statement is a list of one."""
    return list(stmt.stmts) if isinstance(stmt, Seq) else [stmt]
