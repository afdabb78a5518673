"""Integer expressions: every rewrite and every bound is checked against evaluation on random numbers."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.base import interning
from tilewright.base.errors import InternalError
from tilewright.scalar import expr
from tilewright.scalar.arith import (
    Ranges,
    assume,
    bounds,
    conjuncts,
    evaluate,
    expression,
    linear,
    prove,
    simplify,
    solve,
)
from tilewright.scalar.arith.divisors import divisors
from tilewright.scalar.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Broadcast,
    Buffer,
    PrimExpr,
    Ramp,
    Var,
    all_of,
    any_of,
    as_expr,
    compare,
    floordiv,
    floormod,
    if_then_else,
    logical_not,
    maximum,
    minimum,
)
from tilewright.scalar.walk import walk

x, y, z = Var("x"), Var("y"), Var("z")
SPANS = {x: (0, 7), y: (-3, 4), z: (0, 2)}
KNOWN = Ranges(dict(SPANS))
POINTS = [
    dict(zip(SPANS, values, strict=True))
    for values in itertools.product(*(range(lo, hi + 1) for lo, hi in SPANS.values()))
]


def grow(inner: st.SearchStrategy[PrimExpr]) -> st.SearchStrategy[PrimExpr]:
    divisor = st.sampled_from([1, 2, 3, 4, 6, 8, 12])
    condition = st.builds(compare, st.sampled_from([EQ, NE, LT, LE, GT, GE]), inner, inner)
    return st.one_of(
        st.builds(lambda a, b: a + b, inner, inner),
        st.builds(lambda a, b: a - b, inner, inner),
        st.builds(lambda a, k: a * k, inner, st.integers(-4, 8)),
        st.builds(lambda a, b: a * b, inner, inner),
        st.builds(floordiv, inner, divisor),
        st.builds(floormod, inner, divisor),
        st.builds(minimum, inner, inner),
        st.builds(maximum, inner, inner),
        st.builds(if_then_else, condition, inner, inner),
    )


integers = st.recursive(st.one_of(st.sampled_from([x, y, z]), st.integers(-9, 16).map(as_expr)), grow, max_leaves=10)
comparisons = st.builds(compare, st.sampled_from([EQ, NE, LT, LE, GT, GE]), integers, integers)
conditions = st.one_of(
    comparisons, st.builds(all_of, comparisons, comparisons),
    st.builds(lambda a, b: any_of(a, logical_not(b)), comparisons, comparisons)
)


@pytest.mark.slow
@settings(max_examples=600, deadline=None)
@given(integers)
def test_simplify_keeps_values_and_bounds_hold(e: PrimExpr) -> None:
    simple = simplify(e, KNOWN)
    lo, hi = bounds(e, KNOWN)
    for point in POINTS[:: 1 + len(POINTS) // 60]:
        value = evaluate(e, point)
        assert evaluate(simple, point) == value, (e, simple, point)
        assert (lo is None or lo <= value) and (hi is None or value <= hi), (e, lo, hi, value)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(integers)
def test_simplify_without_ranges_keeps_values(e: PrimExpr) -> None:
    simple = simplify(e, Ranges())
    for point in ({x: -17, y: 5, z: 100}, {x: 8, y: -8, z: -1}, {x: 0, y: 0, z: 0}, {x: 23, y: 47, z: -95}):
        assert evaluate(simple, point) == evaluate(e, point), (e, simple)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(integers)
def test_simplify_is_idempotent(e: PrimExpr) -> None:
    once = simplify(e, Ranges(dict(SPANS)))
    again = simplify(once, Ranges(dict(SPANS)))
    assert again is once or len(str(again)) <= len(str(once)), (once, again)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(conditions)
def test_what_is_proved_is_true(c: PrimExpr) -> None:
    known, simple = prove(c, KNOWN), simplify(c, KNOWN)
    for point in POINTS[:: 1 + len(POINTS) // 60]:
        value = evaluate(c, point)
        assert known is None or known == value, (c, point)
        assert evaluate(simple, point) == value, (c, simple, point)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(comparisons)
def test_what_is_assumed_holds(c: PrimExpr) -> None:
    narrowed = assume(c, KNOWN)
    for point in POINTS:
        if evaluate(c, point):
            for v, value in point.items():
                lo, hi = narrowed.of(v)
                assert (lo is None or lo <= value) and (hi is None or value <= hi), (c, v, narrowed)


@settings(max_examples=300, deadline=None)
@given(comparisons)
def test_a_solved_condition_says_the_same(c: PrimExpr) -> None:
    solved = solve(c, x, Ranges())
    if solved is None:
        return
    for point in POINTS:
        low, end = (None if s is None else evaluate(s, point) for s in solved)
        assert ((low is None or low <= point[x]) and (end is None or point[x] < end)) == evaluate(c, point), (c, solved)


@settings(max_examples=200, deadline=None)
@given(integers)
def test_a_linear_form_is_the_expression(e: PrimExpr) -> None:
    back = expression(linear(e))
    for point in POINTS[::13]:
        assert evaluate(back, point) == evaluate(e, point)


w, h, f = Var("w"), Var("h"), Var("f")
RULES: list[tuple[Any, Any]] = [
    ((x * 8 + 3) // 8, x + 0),
    ((x * 8 + y) // 8, x + y // 8),
    ((f // 56) * 56 * 64 + (f % 56) * 64 + x, f * 64 + x),
    ((f // 8) * 8 + f % 8, f + 0),
    ((f // 3) // 5, f // 15),
    ((f // 3) % 5 * 3 + f % 3, f % 15),
    ((f % 12) // 4, f // 4 % 3),
    ((f % 12) % 4, f % 4),
    ((f * 6) % 12, f % 2 * 6),
    (x // 8, 0),
    (x % 8, x),
    ((f * 4 + z) // 8, f // 2),
    ((f * 4 + z) % 8, f % 2 * 4 + z),
    ((h * 16 + 9) // 8, h * 2 + 1),
    (minimum(x, 9), x),
    (maximum(x, y - 20), x),
    (minimum(h + 1, h + 3), h + 1),
    (if_then_else(x < 8, h, w), h),
    (((f * 4 + z) // 8 // 6) * 48 + ((f * 4 + z) // 8 % 6) * 8 + (f * 4 + z) % 8, f * 4 + z),
    (h - h, 0),
    (2 * h + 3 * w - h - 3 * w, h),
]


@pytest.mark.parametrize(("before", "after"), RULES, ids=str)
def test_rules(before: PrimExpr, after: PrimExpr | int) -> None:
    assert simplify(before, KNOWN) is simplify(as_expr(after), KNOWN)


PROOFS = [
    (h * 8 + x < h * 8 + 8, True),
    (h * 8 + x >= h * 8 + 8, False),
    (h * 8 + x < h * 8 + 7, None),
    (all_of(x >= 0, x < 8), True),
    (any_of(x < 0, x > 7), False),
    (logical_not(compare(EQ, x, 8)), True),
    (compare(EQ, h * 2, w * 2 + 1), False),
    (Ramp(h * 8, 1, 8) < Broadcast(h * 8 + 8, 8), True),
    (Ramp(h * 8, 1, 8) < Broadcast(h * 8 + 7, 8), None),
    (Ramp(h * 8, 1, 8) < Broadcast(h * 8, 8), False),
]


@pytest.mark.parametrize(("condition", "expected"), PROOFS, ids=str)
def test_proofs(condition: PrimExpr, expected: bool | None) -> None:
    assert prove(condition, KNOWN) is expected


def test_comparisons_have_one_form() -> None:
    for same in (h + 1 <= w, h < w, w > h, w - h >= 1, 2 * h + 1 < 2 * w):
        assert str(simplify(same, Ranges())) in ("(h < w)", "(w >= (h + 1))")
    assert str(simplify(5 - h > 0, Ranges())) == "(h < 5)"


def test_vectors_become_ramps() -> None:
    lanes = Broadcast(h, 4) * 8 + Ramp(as_expr(0), 1, 4) * 2 + 1
    assert simplify(lanes, Ranges()) is Ramp(h * 8 + 1, 2, 4)
    assert simplify(Ramp(h * 4, 1, 4) // 4, Ranges()) is Broadcast(h, 4)


def test_small_types_wrap_around() -> None:
    a = Buffer("a", (4,), "uint8")[0]
    assert bounds(a, Ranges()) == (0, 255)
    assert bounds(a + a, Ranges()) == (0, 255)
    assert bounds(a.astype("int32") + a.astype("int32"), Ranges()) == (0, 510)
    assert (a * 2 // 2).dtype == "uint8" and not any(e is a for e in [simplify(a * 2 // 2, Ranges())])


def test_a_variable_with_one_value_is_that_value() -> None:
    assert simplify(h * 3 + w, Ranges().bind(h, 2, 2).bind(w, 1, 1)) is as_expr(7)


def test_a_fact_about_a_sum_bounds_larger_sums() -> None:
    known = Ranges(facts={x: (0, None), y: (1, None), x + y: (7, None)}).bind(z, 0, 3)
    assert bounds(x + y - 7, known) == (0, None)
    assert bounds(x + y + y + z, known) == (2, None)  # the fact says nothing about another multiple
    assert prove(minimum(z * 7, x + y - 7) >= 0, known) is True
    assert prove(x + y >= 8, known) is None


def test_a_fact_about_a_difference_bounds_it() -> None:
    known = Ranges(facts={x: (0, None), y: (1, None), x - y * 2: (7, None)}).bind(z, 0, 3)
    assert prove(minimum(z * 7, x - y * 2 - 7) >= 0, known) is True
    assert prove(x - y * 2 >= 8, known) is None


def test_conjuncts_are_in_order() -> None:
    parts = [h < 1, w < 2, x < 3]
    assert [str(c) for c in conjuncts(all_of(*parts))] == [str(c) for c in parts]


@pytest.mark.parametrize(
    ("a", "b", "quotient"),
    [
        (5, -(2**31), 0), (-(2**31), -(2**31), 1), (-(2**31), 2, -(2**30)), (-7, 2, -3), (7, -2, -3),
        (-(2**31), 3, -715827882)
    ]
)
def test_division_toward_zero_of_the_least_integers(a: int, b: int, quotient: int) -> None:
    x, y = Var("x", "int32"), Var("y", "int32")
    assert evaluate(expr.truncdiv(x, y), {x: a, y: b}) == quotient


def test_evaluating_an_unknown_variable_is_refused() -> None:
    with pytest.raises(InternalError, match="variable 'h' has no value here"):
        evaluate(h + 1)
    with pytest.raises(InternalError, match="reads memory, but a number is expected"):
        evaluate(Buffer("a", (1,))[0])


def test_a_long_sum_is_no_deep_recursion() -> None:
    total: PrimExpr = as_expr(0)
    terms = [Var(f"v{i}") for i in range(3000)]
    for t in terms:
        total = total + t
    assert len(simplify(total, Ranges()).operands()) == 2
    assert math.isclose(len(linear(total).coefs), 3000) and sum(1 for _ in walk(h)) == 1


def test_what_is_held_stays_the_same_object_and_the_rest_is_forgotten() -> None:
    x, y = Var("x"), Var("y")
    held = (x + 1) * 3
    for k in range(100):
        assert isinstance(y * 7 + k, PrimExpr)  # what is imported meanwhile stays
    interning.release()
    known = len(interning._INTERNED)
    for k in range(100):
        assert isinstance(x * 7 + k, PrimExpr)
    assert len(interning._INTERNED) > known
    interning.release()
    assert len(interning._INTERNED) <= known
    assert (x + 1) * 3 is held


def test_divisors() -> None:
    assert divisors(36) == [1, 2, 3, 4, 6, 9, 12, 18, 36] and divisors(7) == [1, 7] and divisors(1) == [1]
    assert divisors(36, 10) == [1, 2, 3, 4, 6, 9]
