"""`arith.Analyzer`, remainders, and linear forms, under TVM's names."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest

import tilewright as tvm
from tilewright import te
from tilewright.base.errors import CompileError
from tilewright.scalar.arith import Evaluator, ModularSet

arith: Any = tvm.arith
X, Y = te.var("x"), te.var("y")
Bound = arith.ConstIntBound


def test_bounds() -> None:
    a = arith.Analyzer()
    assert a.const_int_bound(X) == Bound(Bound.NEG_INF, Bound.POS_INF)
    assert a.const_int_bound(te.var("b", "int8")) == Bound(-128, 127)
    a.update(X, Bound(0, 4))
    a.update(Y, Bound(1, 10))
    assert a.const_int_bound(X - Y) == Bound(-10, 3)
    a.update(X, Bound(0, Bound.POS_INF), override=True)
    assert a.const_int_bound(1 - X) == Bound(Bound.NEG_INF, 1)
    wide = tvm.tir.Cast("float64", Y)
    assert a.const_int_bound(tvm.tir.Cast("int32", tvm.tir.ceil(tvm.tir.log2(wide)))) == Bound(0, 4)
    assert a.can_prove_greater_equal(X + 3, 3) and not a.can_prove_less(X, 100)
    with pytest.raises(CompileError, match=r"'y' has ConstIntBound.* already"):
        a.update(Y, Bound(1, 11))


def test_ranges_and_values() -> None:
    a = arith.Analyzer()
    a.bind(X, tvm.ir.Range(0, 8))
    a.bind(Y, X * 4 + 1)
    assert a.simplify((X * 4 + 3) // 4) is X and a.can_prove(Y < 32) and not a.can_prove(Y < 29)
    assert a.can_prove_equal(Y * 2, X * 8 + 2) and not a.can_prove_equal(X, Y)
    n = te.var("n")
    a.bind(n, tvm.ir.Range.from_min_extent(2, X + 1))
    assert a.const_int_bound(n) == Bound(2, 9)
    with a.constraint_scope(X >= 5):
        assert a.can_prove(X * 2 >= 10)
    assert not a.can_prove(X * 2 >= 10)
    assert tvm.ir.Range(3) == tvm.ir.Range(0, 3) and str(tvm.ir.Range(1, 3)) == "Range(1, 3)"


@pytest.mark.parametrize(("e", "coeff", "base"), [
    (X * 6 + Y * 4, 2, 0), ((X * 4 + 2) * (Y * 6 + 1), 4, 2), (tvm.tir.floormod(X * 128 + Y * 4, 256), 4, 0),
    (tvm.tir.truncdiv(X * 4 + 2, 2), 1, 0), ((X * 4 + 2) >> 1, 2, 1), ((X * 4 + 2) // 2, 2, 1),
    (tvm.tir.truncmod(X * 4 + 1, 4), 1, 0), (tvm.tir.truncmod(X * 4, 4), 0, 0), ((X * 4 + 3) % 2, 0, 1),
    ((X * 4 + 3) % 8, 4, 3), (te.min(X * 3, Y * 9), 3, 0), (te.max(X * 3 + 1, Y * 9 + 4), 3, 1),
    (te.const(6, "int64") + 1, 0, 7), (X << 3, 8, 0),
    (te.var("b", "int8") * 3, 1, 0), (te.var("b", "uint8") * 6, 2, 0),
    ((X * 4).astype("float32").astype("int32"), 1, 0),
])
def test_remainders(e: Any, coeff: int, base: int) -> None:
    found = arith.Analyzer().modular_set(e)
    assert (found.coeff, found.base) == (coeff, base) or (coeff == 0 and found.coeff > 0 and base % found.coeff == 0)


def test_remainders_hold() -> None:
    """The value of a random expression always has the remainder that is derived for it."""
    rng = random.Random(0)
    rules: list[Any] = [
        lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, te.min, te.max, tvm.tir.floormod,
        tvm.tir.floordiv, tvm.tir.truncmod, tvm.tir.truncdiv]
    for _ in range(300):
        parts: list[Any] = [X, Y, te.const(rng.randint(1, 12), "int64"), X * rng.randint(1, 6) + rng.randint(0, 5)]
        for _ in range(4):
            second = rng.choice([*parts, te.const(rng.randint(1, 8), "int64")])
            with contextlib.suppress(CompileError):  # a division by the constant 0
                parts.append(rng.choice(rules)(rng.choice(parts), second))
        a = arith.Analyzer()
        a.update(X, ModularSet(3, 2))
        found = a.modular_set(parts[-1])
        for _ in range(20):
            values = {X: rng.randint(-9, 9) * 3 + 2, Y: rng.randint(-20, 20)}
            try:
                value = int(Evaluator(values).value(parts[-1]))
            except ZeroDivisionError:
                continue
            assert (value - found.base) % found.coeff == 0 if found.coeff else value == found.base


def test_linear_equations() -> None:
    detect = arith.detect_linear_equation
    assert list(map(str, detect(X * 4 + (Y + 2) * 3, [X, Y]))) == ["4", "3", "6"]
    assert list(map(str, detect(X * Y + 1, [X]))) == ["y", "1"]
    assert detect(X * X, [X]) == detect(X // 2, [X]) == []


def test_analyzer_scopes_of_remainders() -> None:
    a = arith.Analyzer()
    with a.constraint_scope(tvm.tir.all(Y % 4 == 1, X > 0)):
        assert a.modular_set(Y * 2) == ModularSet(8, 2)
    assert a.modular_set(Y) == ModularSet(1, 0)


def test_remainders_of_several_conditions() -> None:
    """Conditions on one variable combine, those of truncated remainders as well."""
    a = arith.Analyzer()
    with a.constraint_scope(tvm.tir.truncmod(Y, 3) == 2), a.constraint_scope(Y % 5 == 3):
        assert a.modular_set(Y) == ModularSet(15, 8)
        with a.constraint_scope(Y % 3 == 1):
            assert a.modular_set(Y) == ModularSet(15, 8)
    assert a.modular_set((X * 16 + Y * 4) & 31) == ModularSet(4, 0)
    assert a.modular_set(tvm.tir.truncdiv(X * 8, 4)) == ModularSet(2, 0)


@pytest.mark.parametrize("kind", ["floordiv", "truncdiv", "floormod", "truncmod", "shift", "and", "product", "square"])
def test_bounds_hold(kind: str) -> None:
    """All values of an operation are within its bounds, also for divisors of both signs and unlimited operands."""
    bitwise: dict[str, Any] = {
        "shift": lambda a, b: a >> b, "and": lambda a, b: a & b, "product": lambda a, b: a * b,
        "square": lambda a, b: a * a}
    operation = bitwise[kind](X, Y) if kind in bitwise else getattr(tvm.tir, kind)(X, Y)
    rng = random.Random(kind)
    for _ in range(200):
        a = arith.Analyzer()
        values = []
        for v in (X, Y):
            lo, hi = sorted((rng.randint(-12, 12), rng.randint(-12, 12)))
            no_low, no_high = rng.random() < 0.2, rng.random() < 0.2
            if kind == "shift" and v is Y:
                lo, hi, no_low, no_high = abs(lo), abs(lo) + 3, False, False
            a.update(v, Bound(Bound.NEG_INF if no_low else lo, Bound.POS_INF if no_high else hi))
            values.append(range(lo - 50 * no_low, hi + 1 + 50 * no_high))
        found = a.const_int_bound(operation)
        for x in values[0]:
            for y in rng.sample(values[1], min(8, len(values[1]))):
                if y or kind in bitwise:
                    assert found.min_value <= int(Evaluator({X: x, Y: y}).value(operation)) <= found.max_value


def test_bounds_of_conversions() -> None:
    """An integer keeps its bounds in a floating-point type that holds it exactly."""
    a = arith.Analyzer()
    small = tvm.tir.truncmod(te.var("small", "int8"), 3)
    assert a.const_int_bound(small.astype("float32").astype("int32")) == Bound(-2, 2)
    a.update(X, Bound(0, 4096))
    assert a.const_int_bound(X.astype("float16").astype("int32")).max_value == Bound.POS_INF
