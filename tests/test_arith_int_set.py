"""Symbolic intervals, deduced bounds, regions and narrowed conditions of `arith`."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

import tilewright as tvm
from tilewright import te
from tilewright.scalar.arith import evaluate
from tilewright.scalar.arith.deduce import narrow_predicate_expression
from tilewright.scalar.arith.int_set import neg_inf, pos_inf, union_lower_bound
from tilewright.scalar.expr import Var
from tilewright.scalar.range import Range

arith: Any = tvm.arith
tir: Any = tvm.tir
IntervalSet = arith.IntervalSet

a, b, c, i, n = (Var(name, "int32") for name in "abcin")


@pytest.mark.parametrize(("e", "low", "high"), [
    (a + b, b, b + 10), (a - b * 2, 0 - b * 2, 10 - b * 2), (a * -2, -20, 0), (a // 4, 0, 2), (a % 16, 0, 10),
    (tir.max(a, a + 1), 1, 11), (tir.Select(a > 0, a - 1, a + 1), -1, 11), (tir.Ramp(a, 3, 4), 0, 19),
    (tir.Cast("int64", a) + 1, 1, 11), (a % 4, 0, 3),
])
def test_intervals_of_expressions(e: Any, low: Any, high: Any) -> None:
    analyzer = arith.Analyzer()
    found = analyzer.int_set(e, {a: IntervalSet(0, 10)})
    assert analyzer.can_prove_equal(found.min_value, low) and analyzer.can_prove_equal(found.max_value, high)


def test_kinds_of_sets() -> None:
    analyzer = arith.Analyzer()
    assert analyzer.int_set(a * c, {a: IntervalSet(0, 10)}).is_everything()  # the sign of c is unknown
    assert IntervalSet(pos_inf(), neg_inf()).is_nothing() and not arith.IntSet.single_point(2).is_nothing()
    assert arith.IntSet.vector(tir.Ramp(10, 3, 2)).max_value.value == 13
    both = union_lower_bound([IntervalSet(neg_inf(), 0), IntervalSet(1, pos_inf())])
    assert both.min_value is neg_inf() and both.max_value is pos_inf()
    assert str(union_lower_bound([IntervalSet(0, 3), IntervalSet(5, 9)]).max_value) == "3"


def test_deduced_bounds() -> None:
    sets = {b: IntervalSet(2, 3), c: IntervalSet(10, 15)}
    found = arith.deduce_bound(a, a * 4 + b < c, sets, {})
    assert arith.Analyzer().can_prove_equal(found.max_value, (c - 1 - b) // 4) and found.min_value is neg_inf()
    assert arith.deduce_bound(a, a // -8 <= 3, {}, {}).min_value.value == -31
    assert arith.deduce_bound(a, a * 5 == -10, {}, {}).max_value.value == -2
    assert arith.deduce_bound(a, a * 4 == b, sets, {}).is_nothing()
    assert arith.deduce_bound(a, a % 16 < 10, {}, {}).is_nothing()
    assert [str(e) for e in arith.detect_clip_bound(tir.all(a < b * 6, a - 1 > 0), [a])] == ["2", "((b * 6) + -1)"]
    assert arith.detect_clip_bound(tir.all(a < b), [a, b]) == []


def test_deduced_bounds_hold() -> None:
    draw, checked = random.Random(4), 0
    for _ in range(300):
        e: Any = a
        for _ in range(draw.randint(1, 3)):
            k = draw.choice([-4, -3, -2, 2, 3, 5])
            e = draw.choice([e * k, e // k, e + b * k, k - e])
        kind = draw.choice([tir.LT, tir.LE, tir.GT, tir.GE])
        condition = kind(e, tir.IntImm("int32", draw.randint(-9, 9)))
        found = arith.deduce_bound(a, condition, {}, {b: IntervalSet(-1, 2)})
        if found.is_nothing():
            continue
        checked += 1
        low = found.min_value.value if found.min_value is not neg_inf() else -60
        high = found.max_value.value if found.max_value is not pos_inf() else 60
        for value, other in itertools.product(range(max(low, -60), min(high, 60) + 1), (-1, 0, 2)):
            assert evaluate(condition, {a: value, b: other}), (condition, found, value, other)
    assert checked > 200


def test_regions() -> None:
    def bounds(region: Any) -> list[str]:
        return [f"{r.min_value}..{r.max_value}" for r in region]

    dom = {i: Range(0, 64)}
    strided = [Range.from_min_extent(i * 4, 8)]
    assert bounds(arith.estimate_region_lower_bound(strided, dom, True)) == ["0..259"]
    assert arith.estimate_region_lower_bound([Range.from_min_extent(i * 4, 2)], dom, True) is None
    assert bounds(arith.estimate_region_upper_bound([Range.from_min_extent(i * 4, 2)], dom, True)) == ["0..253"]
    falling = [Range.from_min_extent(20 - i * 4, 16)]
    assert bounds(arith.estimate_region_strict_bound(falling, {i: Range(0, 4)}, True)) == ["8..35"]


@pytest.mark.parametrize(("condition", "wanted"), [
    (i < n, i < 0), (i >= n, i >= 7), (tir.Not(i < n), tir.Not(i < 7)), (i // n == 0, False), (i % 8 == n, False),
    ((i + n) // 4 > 0, tir.FloorDiv(tir.Add(i, tir.IntImm("int32", 0)), 4) > 0),
    (tir.NE(i, n), tir.any(i < 0, tir.LT(7, i))), (i > 5, i > 5),
])
def test_narrowed_conditions(condition: Any, wanted: Any) -> None:
    found = narrow_predicate_expression(condition, {n: Range(0, 8)})
    assert found is (tir.const(False, "bool") if wanted is False else wanted)


def test_common_subexpressions() -> None:
    shared = te.exp(a.astype("float32") + b.astype("float32"))
    assert arith.detect_common_subexpr(shared + shared * te.floor(shared), 2) == {shared: 3}
    assert arith.detect_common_subexpr(a + b, 2) == {}
