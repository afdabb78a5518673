"""Systems of linear equations under TVM's names: `arith.solve_linear_equations`."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

import tilewright as tvm
from tilewright import te
from tilewright.ir.structural import structural_equal
from tilewright.scalar.arith import evaluate
from tilewright.scalar.range import Range

arith: Any = tvm.arith
X, Y, Z, P = (te.var(n) for n in "xyzp")


def values(e: Any, at: dict[Any, int]) -> int:
    return int(evaluate(e, at))


def test_unique_solution() -> None:
    found = arith.solve_linear_equations([(X + Y).equal(20), (X - Y).equal(P)], [X, Y])
    assert not found.dst.variables and values(found.dst.relations[0], {P: 4}) == 1
    for p in (4, 10):
        assert (values(found.src_to_dst[X], {P: p}), values(found.src_to_dst[Y], {P: p})) == (10 + p // 2, 10 - p // 2)
    assert not all(values(r, {P: 3}) for r in found.dst.relations)


def test_free_variables_and_their_ranges() -> None:
    found = arith.solve_linear_equations([(X + Y + Z).equal(15), (X + Y).equal(10)], [X, Y, Z])
    (n,) = found.dst.variables
    for variable, e in ((X, n + 10), (Y, -n), (Z, 5)):
        assert structural_equal(found.src_to_dst[variable], e)
    found = arith.solve_linear_equations([(X + Y).equal(0)], [X, Y], {X: Range(-5, 5), Y: Range(0, 10)})
    (n,) = found.dst.variables
    assert found.dst.ranges == {n: Range(-9, 1)} and list(map(str, found.dst.relations)) == ["(-5 <= n0)"]


def test_contradictions_and_other_relations() -> None:
    for equations in ([X.equal(3), X.equal(4)], [(X * 2 + Y * 4).equal(3)]):
        found = arith.solve_linear_equations(equations, [X, Y])
        assert not found.dst.variables and [str(r) for r in found.dst.relations] == ["False"]
    found = arith.solve_linear_equations([X.equal(Y + 1), (X * Y).equal(6), X < 9], [X, Y])
    (n,) = found.dst.variables
    assert [values(r, {n: 2}) for r in found.dst.relations] == [1, 1]
    assert not all(values(r, {n: 3}) for r in found.dst.relations)
    nothing = arith.solve_linear_equations([X.equal(1)])
    assert nothing.src is nothing.dst and nothing.src_to_dst == {}


@pytest.mark.parametrize("seed", range(30))
def test_both_sets_have_the_same_solutions(seed: int) -> None:
    """Each solution of random equations has exactly one counterpart, and each value of the new variables is one."""
    rng = random.Random(seed)
    count = rng.randint(1, 3)
    variables, box = [X, Y, Z][:count], range(-4, 5)
    relations = []
    for _ in range(rng.randint(1, 3)):
        left = sum((v * rng.randint(-3, 3) for v in variables), te.const(rng.randint(-4, 4), "int64"))
        relations.append(left.equal(0) if rng.random() < 0.8 else left <= rng.randint(-3, 3))
    found = arith.solve_linear_equations(relations, variables, {v: Range(box[0], box[-1] + 1) for v in variables})
    expected = {
        p for p in itertools.product(box, repeat=count)
        if all(values(r, dict(zip(variables, p, strict=True))) for r in relations)}
    made = set()
    for p in expected:
        at = dict(zip(variables, p, strict=True))
        new = {n: values(e, at) for n, e in found.dst_to_src.items()}
        assert all(r.min.value <= new[n] < r.min.value + r.extent.value for n, r in found.dst.ranges.items())
        assert all(values(r, new) for r in found.dst.relations)
        made.add(tuple(values(found.src_to_dst[v], new) for v in variables))
    assert made == expected
    within = [range(r.min.value, r.min.value + r.extent.value) for r in map(found.dst.ranges.get, found.dst.variables)]
    if len(list(found.dst.variables)) < 3:
        for q in itertools.product(*within):
            new = dict(zip(found.dst.variables, q, strict=True))
            if all(values(r, new) for r in found.dst.relations):
                assert tuple(values(found.src_to_dst[v], new) for v in variables) in expected


def test_bounds_of_inequalities() -> None:
    problem, ranges = [X + Y <= 20, X - Y >= 10], {X: Range(-100, 100), Y: Range(0, 10)}
    found = arith._ffi_api.SolveInequalitiesAsCondition([X, Y], ranges, problem)
    assert [str(c) for c in found] == ["(x >= (y + 10))", "(x <= (20 - y))", "(y >= 0)", "(y <= 5)"]
    inside = arith.solve_linear_inequalities(problem, [X, Y], ranges)
    assert inside.ranges == {X: Range.from_min_extent(Y + 10, 11), Y: Range(0, 6)}
    assert [str(r) for r in inside.relations] == ["(x <= (20 - y))"]
    moved = arith.solve_linear_inequalities(problem, [X, Y], ranges, deskew_range=True)
    a, b = moved.dst.variables
    assert moved.dst.ranges == {a: Range(0, 11), b: Range(0, 6)}
    for variable, e in ((X, a + (b + 10)), (Y, b)):
        assert structural_equal(moved.src_to_dst[variable], e)
    assert structural_equal(moved.dst_to_src[a], X - Y - 10)
    assert structural_equal(moved.dst.relations[0], b * 2 + a <= 10)


def test_inequalities_with_one_solution_or_none() -> None:
    problem = [X + Y >= 10, X - Y >= 2, X <= 6]
    inside = arith.solve_linear_inequalities(problem, [X, Y])
    assert inside.ranges == {X: Range(6, 7), Y: Range(4, 5)} and not inside.relations
    moved = arith.solve_linear_inequalities(problem, [X, Y], deskew_range=True)
    assert not moved.dst.variables and [int(moved.src_to_dst[v]) for v in (X, Y)] == [6, 4]
    none = arith.solve_linear_inequalities([X >= 5, X * 2 <= 9], [X])
    assert not none.variables and [str(r) for r in none.relations] == ["False"]


@pytest.mark.parametrize("seed", range(40))
def test_bounds_hold_for_the_solutions_only(seed: int) -> None:
    rng = random.Random(seed)
    variables, box = [X, Y, Z][: rng.randint(1, 3)], range(-4, 5)
    problem = []
    for _ in range(rng.randint(1, 4)):
        e = sum((v * rng.randint(-3, 3) for v in variables), te.const(rng.randint(-5, 5), "int64"))
        problem.append(rng.choice([e <= 0, e >= 0, e < Z, e.equal(rng.randint(-2, 2))]))
    ranges = {v: Range(-4, 5) for v in variables}
    parameters = [v for v in (X, Y, Z) if v not in variables]
    found = arith._ffi_api.SolveInequalitiesAsCondition(variables, ranges, problem)
    inside = arith.solve_linear_inequalities(problem, variables, ranges)
    moved = arith.solve_linear_inequalities(problem, variables, ranges, deskew_range=True)
    for point in itertools.product(box, repeat=len(variables) + len(parameters)):
        at = dict(zip([*variables, *parameters], point, strict=True))
        holds = all(values(c, at) for c in problem)
        assert holds == all(values(c, at) for c in found)
        ends = {v: (values(r.min, at), values(r.min + r.extent, at)) for v, r in inside.ranges.items()}
        within = all(low <= at[v] < end for v, (low, end) in ends.items())
        assert holds == (bool(inside.variables) and within and all(values(r, at) for r in inside.relations))
        if holds:
            new = {**at, **{n: values(e, at) for n, e in moved.dst_to_src.items()}}
            assert all(values(r, new) for r in moved.dst.relations)
            assert all(values(moved.src_to_dst[v], new) == at[v] for v in variables)
