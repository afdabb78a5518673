"""Rewriting rules, checked one by one on numbers, and `rewrite_simplify` on expressions."""

from __future__ import annotations

import ast
import itertools
import random
from typing import Any

import pytest

import tilewright as tvm
from tilewright import te
from tilewright.base.errors import CompileError
from tilewright.scalar.arith import Ranges, evaluate
from tilewright.scalar.arith import rewrite_rules as R
from tilewright.scalar.arith.rewrite import decided_by, rewrite_simplify
from tilewright.scalar.expr import PrimExpr, Var

tir: Any = tvm.tir
arith: Any = tvm.arith
TABLES = ("SUMS", "QUOTIENTS", "EXTREMES", "EXTREMES_BOTH_WAYS", "COMPARISONS", "LOGIC")


def _rules(name: str) -> list[str]:
    return [line for line in getattr(R, name).replace("\n    if ", " if ").split("\n") if line]


def _trunc_div(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


FUNCTIONS: dict[str, Any] = {
    "fdiv": lambda a, b: a // b, "fmod": lambda a, b: a % b, "tdiv": _trunc_div,
    "tmod": lambda a, b: a - b * _trunc_div(a, b), "min": min, "max": max, "select": lambda c, a, b: a if c else b,
    "true": True, "false": False,
}


@pytest.mark.parametrize("table", TABLES)
def test_each_rule_on_numbers(table: str) -> None:
    draw = random.Random(1)
    for rule in _rules(table):
        left, _, rest = rule.partition(" -> ")
        right, _, condition = rest.partition(" if ")
        names = sorted({n.id for n in ast.walk(ast.parse(left)) if isinstance(n, ast.Name)} - {*FUNCTIONS})
        texts = [compile(t, rule, "eval") for t in (left, right, f"all(({condition},))" if condition else "True")]
        checked = 0
        for _ in range(2000):
            values = {n: draw.randint(-12, 12) if len(n) == 1 else draw.randint(-6, 6) for n in names}
            if table == "LOGIC" and ("(y or z)" in left or "(y and z)" in left or "select" in left):
                values = {n: bool(v % 2) for n, v in values.items()}
            try:
                before, after, holds = (eval(t, {**FUNCTIONS, "all": all}, values) for t in texts)
            except ZeroDivisionError:
                continue
            if holds:
                checked += 1
                assert before == after, f"{rule}: {values} gives {before} and {after}"
        assert checked, rule


x, y, z = (Var(n, "int32") for n in "xyz")
w = Var("w")


@pytest.mark.parametrize(("before", "after"), [
    ((x * 8 + 7) // 16, x // 2), (x + 2 < y + 3, x <= y), (x * 2 >= 3, tir.LE(2, x)), (x - (x // 3) * 3, x % 3),
    (tir.max(x, y) + tir.min(x, y), x + y), (tir.min(tir.min(tir.min(x, y), z), y), tir.min(tir.min(x, y), z)),
    (tir.all(x // 8 == 3, x % 8 == 4), x.equal(28)), (tir.any(x < 1, tir.LT(0, x)), tir.const(True, "bool")),
    (tir.Broadcast(x, 4) + tir.Broadcast(y, 4), tir.Broadcast(x + y, 4)), (x * y + x * 3, x * (y + 3)),
])
def test_rewritten_forms(before: PrimExpr, after: PrimExpr) -> None:
    assert rewrite_simplify(before, Ranges()) is after


def test_a_division_by_zero_is_refused() -> None:
    with pytest.raises(CompileError, match="divides by zero"):
        arith.Analyzer().rewrite_simplify(tir.FloorDiv(x, 0))


def test_random_expressions_keep_their_values() -> None:
    draw = random.Random(2)

    def made(depth: int) -> Any:
        if depth == 0:
            return draw.choice([x, y, tir.IntImm("int32", draw.randint(-5, 5))])
        kind = draw.choice(["add", "sub", "mul", "div", "mod", "min", "max"])
        a = made(depth - 1)
        if kind in ("div", "mod"):
            by = draw.randint(1, 6)
            return (te.floordiv if kind == "div" else te.floormod)(a, by)
        b = made(depth - 1) if kind != "mul" else tir.IntImm("int32", draw.randint(-4, 4))
        return {"add": a + b, "sub": a - b, "mul": a * b}.get(kind) if kind in ("add", "sub", "mul") else (
            tir.min(a, b) if kind == "min" else tir.max(a, b))

    for _ in range(300):
        e = made(3)
        e = e if draw.random() < 0.5 else e < made(2)
        simple = rewrite_simplify(e, Ranges())
        for a, b in itertools.product((-7, -1, 0, 2, 9), repeat=2):
            values = {x: a, y: b}
            assert evaluate(e, values) == evaluate(simple, values), f"{e} became {simple}"


def test_comparisons_follow_from_sums_of_known_ones() -> None:
    assert decided_by([x < y, y <= z], x < z) is True
    assert decided_by([x <= y, y <= z], x < z) is None
    assert decided_by([x <= y + 5, y <= z + 7], x <= z + 12) is True
    assert decided_by([x < y, y < z], tir.LE(z, x)) is False


@pytest.mark.parametrize(("before", "after"), [
    (x % 2 + (x + 1) % 2, 1), ((x + 1) // 2 - x // 2, x % 2), (x // 2 - (x - 1) // 2, x % 2 * -1 + 1),
    ((x + 5) // 2 - (x - 2) // 2, x % 2 + 3), ((x + 1) // 2 - x % 2, x // 2), (x // 2 + x % 2, (x + 1) // 2),
    (tir.Ramp(w * 8 + 1, 15, 4) % 8, tir.Ramp(1, 15, 4) % 8), (tir.Ramp(w * 4, 1, 4) % 64, tir.Ramp(w * 4 % 64, 1, 4)),
    (tir.truncmod(tir.Ramp(w * 8 + 1, 15, 4), 8), tir.truncmod(tir.Ramp(w * 8 + 1, 15, 4), 8)),
])
def test_halves_and_lanes(before: PrimExpr, after: PrimExpr | int) -> None:
    assert tvm.ir.structural_equal(rewrite_simplify(before, Ranges()), after)


def test_constants_beyond_the_type() -> None:
    least = te.min_value("int32")
    assert rewrite_simplify((least - x).equal(0), Ranges()) is x.equal(least)
    assert tvm.ir.structural_equal(rewrite_simplify((x + least).equal(0), Ranges()), False)
    assert tvm.ir.structural_equal(rewrite_simplify(tir.NE(x + least, 0), Ranges()), True)


def test_remainders_of_natural_lanes() -> None:
    lanes, natural = tir.truncmod(tir.Ramp(w * 8 + 1, 15, 4), 8), Ranges().bind(w, 0, 99)
    assert tvm.ir.structural_equal(rewrite_simplify(lanes, natural), tir.truncmod(tir.Ramp(1, 15, 4), 8))
    lanes = tir.truncmod(tir.Ramp(w * 8 + 1, 1, 4), 8)
    assert tvm.ir.structural_equal(rewrite_simplify(lanes, natural), tir.Ramp(1, 1, 4))
