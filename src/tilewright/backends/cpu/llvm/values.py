"""Expressions as LLVM text: one rule per kind of node.

Integers wrap around. Integer division by zero gives zero, as in numpy, never a trap. `Max(a, b)` and `Min(a, b)` of
floats have the semantics of the x86 instructions: NaN in the first operand is kept, NaN in the second is dropped. Only
the chosen side of a `Select` reads memory: a scalar condition branches, a vector condition masks.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Final

from tilewright.backends.cpu.llvm.conversion import cast, convert, is_short, narrow, widen
from tilewright.backends.cpu.llvm.function import FunctionText, Mask, Rule, Value
from tilewright.backends.cpu.llvm.intrinsics import call
from tilewright.backends.cpu.llvm.masks import fixed_lanes
from tilewright.backends.cpu.llvm.memory import as_ramp, load
from tilewright.backends.cpu.llvm.text import constant, lanes_constant, register_type, suffix, vector
from tilewright.base.types import BOOL, FLOAT32, INT64, DataType
from tilewright.scalar import expr as E
from tilewright.scalar.expr import PrimExpr, number_of
from tilewright.scalar.walk import shared_choices

_COMPARE: Final = {E.EQ: "eq", E.NE: "ne", E.LT: "lt", E.LE: "le", E.GT: "gt", E.GE: "ge"}
_MIRROR: Final = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def arithmetic(integer: str, real: str, boolean: str) -> Rule:
    """Return the rule of an operation that has an instruction for integers, one for floats and one for truth values."""

    def rule(f: FunctionText, e: E.Binary) -> Value:
        (a, at), (b, bt) = f.value(e.a), f.value(e.b)
        level, dtype = f.place(max(at, bt)), e.dtype
        if is_short(dtype):
            wide = register_type(FLOAT32.with_lanes(dtype.lanes))
            result = f.put(f"{real} {wide} {widen(f, a, level, dtype)}, {widen(f, b, level, dtype)}", level)
            return narrow(f, result, level, dtype), level
        operation = real if dtype.is_float else boolean if dtype.code == "bool" else integer
        return f.put(f"{operation} {register_type(dtype)} {a}, {b}", level), level

    return rule


def extremum(name: str, test: str, boolean: str) -> Rule:
    """Return the rule of `Max` or `Min`."""

    def rule(f: FunctionText, e: E.Binary) -> Value:
        (a, at), (b, bt) = f.value(e.a), f.value(e.b)
        level, dtype = f.place(max(at, bt)), e.dtype
        kind = register_type(dtype)
        if dtype.code == "bool":
            return f.put(f"{boolean} {kind} {a}, {b}", level), level
        if not dtype.is_float:
            intrinsic = f"llvm.{'s' if dtype.code == 'int' else 'u'}{name}.{suffix(dtype)}"
            target = f.declare(intrinsic, kind, f"{kind}, {kind}")
            return f.put(f"call {kind} {target}({kind} {a}, {kind} {b})", level), level
        wide, x, y = (kind, a, b)
        if is_short(dtype):
            wide, x, y = register_type(
                FLOAT32.with_lanes(dtype.lanes)
            ), widen(f, a, level, dtype), widen(f, b, level, dtype)
        better = f.put(f"fcmp {test} {wide} {y}, {x}", level)
        return f.put(
            f"select {register_type(BOOL.with_lanes(dtype.lanes))} {better}, {kind} {b}, {kind} {a}", level
        ), level

    return rule


def compare(f: FunctionText, e: E.Comparison) -> Value:
    narrowed = _compare_lanes(f, e)
    if narrowed is not None:
        return narrowed
    (a, at), (b, bt) = f.value(e.a), f.value(e.b)
    level, dtype, test = f.place(max(at, bt)), e.a.dtype, _COMPARE[type(e)]
    kind = register_type(dtype)
    if dtype.is_float:
        if is_short(dtype):
            kind, a, b = register_type(
                FLOAT32.with_lanes(dtype.lanes)
            ), widen(f, a, level, dtype), widen(f, b, level, dtype)
        return f.put(f"fcmp {'une' if test == 'ne' else 'o' + test} {kind} {a}, {b}", level), level
    sign = "" if test in ("eq", "ne") else "s" if dtype.code == "int" else "u"
    return f.put(f"icmp {sign}{test} {kind} {a}, {b}", level), level


def _compare_lanes(f: FunctionText, e: E.Comparison) -> Value | None:
    """Compare `ramp(base, s, n) < limit` in 32 bits: the lane numbers with `limit - base`, clamped to their range."""
    dtype, test = e.a.dtype, _COMPARE[type(e)]
    if dtype.lanes == 1 or dtype.element is not INT64:
        return None
    left, right = as_ramp(e.a), as_ramp(e.b)
    if left is None or right is None:
        return None
    if left[1] == 0:
        left, right, test = right, left, _MIRROR[test]
    (base, stride), (limit, flat) = left, right
    if flat != 0 or not 0 < abs(stride) < 1 << 20:
        return None
    n = dtype.lanes
    ends = (0, stride * (n - 1))
    cut = E.minimum(E.maximum(E.sub(limit, base), min(ends) - 1), max(ends) + 1)
    text, need = f.value(E.cast("int32", cut))
    against, _ = (f"splat (i32 {text})", 0) if number_of(E.cast("int32", cut)) is not None else f.splat(
        (text, need), DataType(f"int32x{n}"))
    level = f.place(need)
    lanes = lanes_constant(DataType(f"int32x{n}"), range(0, stride * n, stride))
    sign = "" if test in ("eq", "ne") else "s"
    return f.put(f"icmp {sign}{test} {vector('i32', n)} {lanes}, {against}", level), level


def logical(operation: str) -> Rule:
    """Return the rule of `And` and `Or`; a scalar second operand that loads is evaluated only if it decides."""

    def rule(f: FunctionText, e: E.Binary) -> Value:
        if e.dtype.lanes == 1 and f.facts.loads(e.b):
            a, _ = f.value(e.a)
            fixed = ("false" if operation == "and" else "true", 0)
            if operation == "and":
                return f.choose(a, "i1", lambda: f.value(e.b), lambda: fixed)
            return f.choose(a, "i1", lambda: fixed, lambda: f.value(e.b))
        (a, at), (b, bt) = f.value(e.a), f.value(e.b)
        level = f.place(max(at, bt))
        return f.put(f"{operation} {register_type(e.dtype)} {a}, {b}", level), level

    return rule


def negate(f: FunctionText, e: E.Not) -> Value:
    a, need = f.value(e.a)
    level = f.place(need)
    return f.put(
        f"xor {register_type(e.dtype)} {a}, {'true' if e.dtype.lanes == 1 else 'splat (i1 true)'}", level
    ), level


def division(*, floor: bool, quotient: bool) -> Rule:
    """Return the rule of an integer division or remainder."""

    def rule(f: FunctionText, e: E.Binary) -> Value:
        (a, at), (b, bt) = f.value(e.a), f.value(e.b)
        level, divisor = f.place(max(at, bt)), number_of(e.b)
        unsigned = e.dtype.code != "int" or (isinstance(divisor, int) and divisor > 0 and is_not_negative(f, e.a))
        if isinstance(divisor, int) and divisor != 0:
            return _divide_by(
                f, e.dtype, a, b, divisor, level, unsigned=unsigned, floor=floor, quotient=quotient
            ), level
        return _divide(f, e.dtype, a, b, level, floor=floor, quotient=quotient), level

    return rule


def _divide_by(
    f: FunctionText, dtype: DataType, a: str, b: str, divisor: int, level: int, *, unsigned: bool, floor: bool,
    quotient: bool
) -> str:
    """Divide by a constant other than zero."""
    kind, n = register_type(dtype), dtype.lanes
    if divisor == -1:  # the quotient of the least number overflows: it wraps around
        zero = "0" if n == 1 else "zeroinitializer"
        return f.put(f"sub {kind} {zero}, {a if quotient else zero}", level)
    power = divisor > 0 and divisor & (divisor - 1) == 0
    if power and (unsigned or floor):
        number = divisor.bit_length() - 1 if quotient else divisor - 1
        operand = str(number) if n == 1 else f"splat (i{dtype.bits} {number})"
        return f.put(f"{('lshr' if unsigned else 'ashr') if quotient else 'and'} {kind} {a}, {operand}", level)
    if unsigned:
        return f.put(f"{'udiv' if quotient else 'urem'} {kind} {a}, {b}", level)
    if not floor:
        return f.put(f"{'sdiv' if quotient else 'srem'} {kind} {a}, {b}", level)
    whole = f.put(f"sdiv {kind} {a}, {b}", level) if quotient else ""
    return _floored(f, dtype, whole, f.put(f"srem {kind} {a}, {b}", level), b, level)


def _floored(f: FunctionText, dtype: DataType, whole: str, rest: str, b: str, level: int) -> str:
    """Convert a quotient (or, without one, a remainder) toward zero to one toward minus infinity."""
    kind, truth, zero = register_type(dtype), register_type(
        BOOL.with_lanes(dtype.lanes)
    ), "zeroinitializer" if dtype.lanes > 1 else "0"
    differs = f.put(f"icmp slt {kind} {f.put(f'xor {kind} {rest}, {b}', level)}, {zero}", level)
    inexact = f.put(f"icmp ne {kind} {rest}, {zero}", level)
    adjust = f.put(f"and {truth} {differs}, {inexact}", level)
    if whole:
        return f.put(f"add {kind} {whole}, {f.put(f'sext {truth} {adjust} to {kind}', level)}", level)
    return f.put(f"add {kind} {rest}, {f.put(f'select {truth} {adjust}, {kind} {b}, {kind} {zero}', level)}", level)


def _divide(f: FunctionText, dtype: DataType, a: str, b: str, level: int, *, floor: bool, quotient: bool) -> str:
    """Divide by a run-time value: zero and the overflowing case are replaced before, and their results after."""
    kind, truth, n = register_type(dtype), register_type(BOOL.with_lanes(dtype.lanes)), dtype.lanes
    zero, one = ("0", "1") if n == 1 else ("zeroinitializer", f"splat (i{dtype.bits} 1)")
    signed = dtype.code == "int"
    by_zero = unsafe = f.put(f"icmp eq {kind} {b}, {zero}", level)
    if signed:
        minus = "-1" if n == 1 else f"splat (i{dtype.bits} -1)"
        unsafe = f.put(f"or {truth} {by_zero}, {f.put(f'icmp eq {kind} {b}, {minus}', level)}", level)
    safe = f.put(f"select {truth} {unsafe}, {kind} {one}, {kind} {b}", level)
    sign = "s" if signed else "u"
    rest = f.put(f"{sign}rem {kind} {a}, {safe}", level)
    if not quotient:
        return _floored(f, dtype, "", rest, safe, level) if floor and signed else rest
    whole = f.put(f"{sign}div {kind} {a}, {safe}", level)
    if floor and signed:
        whole = _floored(f, dtype, whole, rest, safe, level)
    if signed:  # by -1 the quotient is -a, which wraps around where the division would trap
        whole = f.put(
            f"select {truth} {unsafe}, {kind} {f.put(f'sub {kind} {zero}, {a}', level)}, {kind} {whole}", level)
    return f.put(f"select {truth} {by_zero}, {kind} {zero}, {kind} {whole}", level)


def true_division(f: FunctionText, e: E.Div) -> Value:
    """Return a quotient; division by a power of two is a product with the same result."""
    divisor = number_of(e.b)
    if e.dtype.is_float and e.dtype.bits >= 32 and divisor is not None and abs(
        math.frexp(divisor)[0]
    ) == 0.5 and 2.0**-100 < abs(divisor) < 2.0**100:
        return f.value(E.mul(e.a, E.const(1 / divisor, e.dtype)))
    return _REAL_DIVISION(f, e) if e.dtype.is_float else _TRUNCATED(f, e)


def is_not_negative(f: FunctionText, e: PrimExpr) -> bool:
    """Return whether `e` is known to be at least zero, or is a variable recorded as such when it was bound."""
    if e in f.not_negative or e.dtype.code in ("uint", "bool"):
        return True
    n = number_of(e)
    if n is not None:
        return n >= 0
    match e:
        case E.Add() | E.Mul() | E.Min():
            known = is_not_negative(f, e.a) and is_not_negative(f, e.b)
        case E.Max():
            known = is_not_negative(f, e.a) or is_not_negative(f, e.b)
        case E.FloorDiv() | E.FloorMod() | E.TruncDiv():
            divisor = number_of(e.b)
            known = divisor is not None and divisor > 0 and (type(e) is E.FloorMod or is_not_negative(f, e.a))
        case E.Ramp():
            known = is_not_negative(f, e.base) and is_not_negative(f, e.stride)
        case E.Broadcast() | E.Cast():
            known = is_not_negative(f, e.value)
        case _:
            known = False
    if known:
        f.not_negative.add(e)
    return known


def ramp(f: FunctionText, e: E.Ramp) -> Value:
    element, n = e.dtype.element, e.dtype.lanes
    stride = number_of(e.stride)
    base = f.value(e.base) if constant(e.base) is None else None
    kind = register_type(e.dtype)
    if isinstance(stride, int):
        if base is None:
            first = number_of(e.base)
            values = [int(first or 0) + stride * k for k in range(n)]
            return f"<{', '.join(f'{register_type(element)} {v}' for v in values)}>", 0
        steps, level = lanes_constant(e.dtype, range(0, stride * n, stride)) if stride else "zeroinitializer", base[1]
    else:
        step, at = f.splat(f.value(e.stride), e.dtype)
        level = f.place(max(at, base[1] if base else 0))
        steps = f.put(f"mul {kind} {step}, {lanes_constant(e.dtype, range(n))}", level)
    start, at = f.splat(base or f.value(e.base), e.dtype)
    level = f.place(max(level, at))
    return f.put(f"add {kind} {start}, {steps}", level), level


def broadcast(f: FunctionText, e: E.Broadcast) -> Value:
    return f.splat(f.value_in_any_lane(e.value), e.dtype)


def select(f: FunctionText, e: E.Select) -> Value:
    condition, kind, touches = e.condition, register_type(e.dtype), f.facts.loads
    guarded = touches(e.true_value) or touches(e.false_value)
    if isinstance(condition, E.Broadcast):
        condition = condition.value
    if guarded and condition.dtype.lanes == 1:
        c, _ = f.value(condition)
        for x in shared_choices(e.true_value, e.false_value):
            f.value(x)
        return f.choose(c, kind, lambda: f.value(e.true_value), lambda: f.value(e.false_value))
    step = _step_that_keeps_nan(e)
    if step is None and guarded:
        return _select_by_mask(f, e)
    if step is not None and f.value(step.a)[0] == _identity(step):
        return f.value(step.b)
    (c, ct), (a, at), (b, bt) = f.value(condition), f.value(e.true_value), f.value(e.false_value)
    level = f.place(max(ct, at, bt))
    return f.put(f"select {register_type(condition.dtype)} {c}, {kind} {a}, {kind} {b}", level), level


def _step_that_keeps_nan(e: E.Select) -> E.Max | E.Min | None:
    """Match `max(acc, x)` of `x if x != x else max(acc, x)`, a maximum or minimum of floats that keeps NaN.

    Its condition reads `x` in any case.
    """
    test, x, step = e.condition, e.true_value, e.false_value
    if not (isinstance(step, E.Max | E.Min) and isinstance(test, E.NE) and e.dtype.is_float):
        return None
    return step if x is step.b and x is test.a and x is test.b else None


def _identity(step: E.Max | E.Min) -> str | None:
    """Return the initial value of `step` as text; an accumulator that still has it takes the first element."""
    return constant(E.const(-math.inf if isinstance(step, E.Max) else math.inf, step.dtype))


def _select_by_mask(f: FunctionText, e: E.Select) -> Value:
    """Evaluate both sides, each reading memory only in its lanes."""
    kind, outer = register_type(e.dtype), f.mask
    c, ct = f.value(e.condition)
    if isinstance(e.true_value, E.Load) and outer is None and not f.facts.loads(e.false_value):
        f.mask = _side_mask(f, e, (c, ct), wanted=True)
        value = load(f, e.true_value, e.false_value)
        f.mask = None
        return value
    for x in shared_choices(e.true_value, e.false_value):
        f.value(x)
    sides = []
    for side, wanted in ((e.true_value, True), (e.false_value, False)):
        if f.facts.loads(side):
            f.mask = _side_mask(f, e, (c, ct), wanted=wanted)
        sides.append(f.value(side))
        f.mask = outer
    (a, at), (b, bt) = sides
    level = f.place(max(ct, at, bt))
    return f.put(f"select {register_type(e.condition.dtype)} {c}, {kind} {a}, {kind} {b}", level), level


def _side_mask(f: FunctionText, e: E.Select, condition: Value, *, wanted: bool) -> Mask:
    """Return the lanes of the current mask that take one side of a select."""
    truth, (text, level), outer = register_type(e.condition.dtype), condition, f.mask
    fixed = fixed_lanes(f, e.condition)
    if not wanted:
        level = f.place(level)
        text = f.put(f"xor {truth} {text}, splat (i1 true)", level)
        fixed = None if fixed is None else tuple(not on for on in fixed)
    if outer is not None:
        level = f.place(max(level, outer.level))
        text = f.put(f"and {truth} {text}, {outer.text}", level)
        fixed = None if fixed is None or outer.fixed is None else tuple(map(operator.and_, fixed, outer.fixed))
    return Mask(text, level, e.dtype.lanes, fixed)


_REAL_DIVISION: Final = arithmetic("sdiv", "fdiv", "and")
_TRUNCATED: Final = division(floor=False, quotient=True)

RULES: Final[dict[type, Callable[[FunctionText, Any], Value]]] = {
    E.Add: arithmetic("add", "fadd", "or"), E.Sub: arithmetic("sub", "fsub", "xor"),
    E.Mul: arithmetic("mul", "fmul", "and"),
    E.Div: true_division, E.TruncDiv: _TRUNCATED, E.TruncMod: division(floor=False, quotient=False),
    E.FloorDiv: division(floor=True, quotient=True), E.FloorMod: division(floor=True, quotient=False),
    E.Max: extremum("max", "ogt", "or"), E.Min: extremum("min", "olt", "and"),
    **dict.fromkeys(_COMPARE, compare), E.And: logical("and"), E.Or: logical("or"), E.Not: negate,
    E.Cast: cast, E.Select: select, E.Call: call, E.Load: load, E.Ramp: ramp, E.Broadcast: broadcast,
}
"""The rule that writes each kind of expression."""

__all__ = ["RULES", "convert", "is_not_negative"]
