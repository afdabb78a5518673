"""Canonical sums: their forms, and that they keep the values of random expressions."""

from __future__ import annotations

import random
from typing import Any

import pytest

import tilewright as tvm
from tilewright.scalar.arith import Ranges, evaluate
from tilewright.scalar.arith.canonical import canonical_simplify
from tilewright.scalar.expr import PrimExpr, Var

tir: Any = tvm.tir
x, y, z = (Var(n, "int32") for n in "xyz")
tdiv, tmod = tir.truncdiv, tir.truncmod
NATURAL = Ranges().bind(x, 0, 1000).bind(y, 0, 1000)


@pytest.mark.parametrize(("before", "after"), [
    (2 + (3 * x + z + y + 1) * 4 + x, x * 13 + z * 4 + y * 4 + 6), (y + x * 3 - 5 * x + 1 + y, y * 2 + 1 - x * 2),
    ((x + x + y * 3) // 2, y * 3 // 2 + x), ((x + x + y * 3) % 2, y * 3 % 2), ((x + y + x + y * 3) % 2, 0),
    (x // 6 * 6 + x // 3 % 2 * 3 + x % 3, x), (x % 16 // 2 * 2 // 6, x % 16 // 6), (x * 8 % 16, x % 2 * 8),
    ((17 + 48 * x) // 16, x * 3 + 1), (tdiv(17 + 48 * x, 16), tdiv(x * 48 + 17, 16)), (tmod(-x, 2), tmod(x, -2) * -1),
    ((x * 4 + y - 466036) % 24528 % 16, (x * 4 + y + 12) % 16), (x * 4 % 16 % 8, x % 2 * 4), (x * 32 * x % x, 0),
    (x * (2 * y) * 3 // (3 * y * z), x * 2 // z), (x * 32 * x % (x * z), x * 32 % z * x),
])
def test_forms(before: PrimExpr, after: PrimExpr | int) -> None:
    assert canonical_simplify(before, Ranges()) is tir.const(after, "int32")


def test_forms_of_natural_numbers() -> None:
    divided = tdiv(x * 4 + y, 2) * 2 + tmod(x * 4 + y, 2)
    assert canonical_simplify(divided, NATURAL) is x * 4 + y
    assert canonical_simplify(tdiv(17 + 48 * x, 16), NATURAL) is x * 3 + 1
    sum_of_casts = tir.Cast("int64", x + y + 1) - tir.Cast("int64", x)
    assert canonical_simplify(sum_of_casts, NATURAL) is tir.Cast("int64", y) + 1


def test_a_conversion_to_a_narrower_type_stays_where_a_value_may_not_fit() -> None:
    i, j = Var("i", "int64"), Var("j", "int64")
    narrow = tir.Cast("int32", i + j - 100)
    ranges = Ranges().bind(i, 0, 2**31 - 1).bind(j, 0, 10)
    assert canonical_simplify(narrow, ranges) is narrow
    assert canonical_simplify(narrow, Ranges().bind(i, 0, 9).bind(j, 0, 10)) is not narrow


def _drawn(draw: random.Random, depth: int) -> Any:
    if not depth or draw.random() < 0.15:
        return draw.choice([x, y, z, tir.const(draw.randint(-9, 9), "int32")])
    a = _drawn(draw, depth - 1)
    kind = draw.randrange(9)
    if kind < 4:
        b = _drawn(draw, depth - 1)
        return [a + b, a - b, tir.Min(a, b), tir.Select(a < b, a, b)][kind]
    c = tir.const(draw.choice([2, 3, 4, 6, 8, 12]), "int32")
    return [a * draw.choice([-3, -1, 2, 3, 4]), a // c, a % c, tdiv(a, c), tmod(a, c)][kind - 4]


def test_random_expressions_keep_their_values() -> None:
    draw = random.Random(2)
    for _ in range(400):
        e, ends = _drawn(draw, 4), {v: sorted(draw.sample(range(-20, 20), 2)) for v in (x, y, z)}
        ranges = Ranges()
        for v, (low, high) in ends.items():
            ranges = ranges.bind(v, low, high)
        found = canonical_simplify(e, ranges)
        for _ in range(10):
            values = {v: draw.randint(*span) for v, span in ends.items()}
            assert evaluate(found, values) == evaluate(e, values), f"{e} became {found}: {values}"
