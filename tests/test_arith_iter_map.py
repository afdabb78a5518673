"""Iterator maps of `arith`: known forms, and random maps checked by enumeration."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

import tilewright as tvm
from tilewright.ir import structural_equal
from tilewright.scalar.arith import evaluate
from tilewright.scalar.arith.polynomials import exact_quotient, is_same
from tilewright.scalar.expr import Var
from tilewright.scalar.range import Range

arith: Any = tvm.arith
tir: Any = tvm.tir

x, y, z, c = (Var(n, "int32") for n in "xyzc")


def found(indices: list[Any], dom: dict[Var, Any], **options: Any) -> list[tuple[str, str, str]]:
    """Return the extent, the scale and the base of each index; empty without a map."""
    result = arith.detect_iter_map(indices, {v: Range(0, n) for v, n in dom.items()}, **options)
    assert bool(result.indices) != bool(result.errors)
    return [(str(s.args[0].extent), str(s.args[0].scale), str(s.base)) if s.args else ("1", "1", str(s.base))
            for s in result.indices]


def test_fusions_and_splits() -> None:
    assert found([y * 3 + 1 + x], {x: 3, y: 4}) == [("12", "1", "1")]
    assert found([(y + 1) * c + x], {x: c, y: 4}) == [("(c * 4)", "1", "c")]
    assert found([x // 6, x % 6 // 2, x % 2], {x: 24}) == [("4", "1", "0"), ("3", "1", "0"), ("2", "1", "0")]
    assert found([x * 2 // 4 * 4 + x * 2 % 4], {x: 8}) == [("8", "2", "0")]
    assert found([x // c, x % c], {x: y * c})[1] == ("c", "1", "0")
    assert not found([y * 4 + x], {x: 3, y: 4}) and not found([x, x], {x: 3}) and not found([x * y], {x: 2, y: 2})


def test_padded_and_overlapping_iterators() -> None:
    assert found([(y + 64) // 32, (y + 64) % 32], {y: 192}, check_level="bijective") == [
        ("6", "1", "2"), ("32", "1", "0")]
    assert found([(y + 80) // 32], {y: 176}) == [("6", "1", "2")]
    assert not found([(y + 80) // 32, (y + 80) % 32], {y: 176})
    assert found([x * 7 + y], {x: 3, y: 8}) == [("22", "1", "0")]
    assert not found([x * 7 + y], {x: 3, y: 8}, check_level="bijective")
    padded = arith.detect_iter_map([x // 4], {x: Range(0, 6)}).padding_predicate
    assert evaluate(padded, {x: 5}) is False or evaluate(padded, {x: 5}) == 0


def test_conditions() -> None:
    assert found([x * 10 + y], {x: 13, y: 10}, predicate=x * 10 + y < 128) == [("128", "1", "0")]
    assert found([x * 10 + y], {x: 13, y: 10}, predicate=tir.all(x * 10 + y > 5, x * 10 + y <= 127)) == [
        ("122", "1", "6")]
    assert not found([x, y], {x: 128, y: 128}, predicate=x * 128 + y < 100)
    inside = x * 4 + y  # a condition on a part of a sum that has a condition, too
    assert found([inside // 2, inside % 2], {x: 3, y: 4}, predicate=inside < 10) == [("5", "1", "0"), ("2", "1", "0")]
    assert found([inside * 3 + z], {x: 3, y: 4, z: 3}, predicate=tir.all(inside * 3 + z < 28, inside < 10)) == [
        ("28", "1", "0")]


def test_expressions_of_iterators_and_inverse_maps() -> None:
    dom = {x: Range(0, 64), y: Range(0, 64)}
    indices = arith.detect_iter_map([x % 16 * 4 + y % 4, x // 16, y // 4], dom).indices
    assert arith.normalize_iter_map_to_expr(indices[1]) is x // 16
    outs = [Var(f"o{i}", "int32") for i in range(3)]
    inverse = arith.inverse_affine_iter_map(indices, outs)
    assert is_same(inverse[x], outs[0] // 4 + outs[1] * 16) and is_same(inverse[y], outs[0] % 4 + outs[2] * 4)
    n = Var("n", "int32")
    assert arith.iter_map_simplify([(x // n) * n + x % n], {x: Range(0, n * 32)}) == [x]
    total = arith.normalize_to_iter_sum(z + (y + x * 4 + 2) * n + 3, {x: Range(0, 9), y: Range(0, 4), z: Range(0, 3)})
    assert [str(a.scale) for a in total.args] == ["(n * 4)", "n", "1"] and is_same(total.base, n * 2 + 3)
    mark = arith.IterMark(x, 10)
    assert structural_equal(arith.IterSplitExpr(mark, 1, 10, 1), arith.IterSplitExpr(arith.IterMark(x, 10), 1, 10, 1))


def test_exact_quotients() -> None:
    assert exact_quotient(x * y * 4, x * 2) is y * 2 and exact_quotient(x * 4 + y, x) is None
    assert is_same(x * (y + 1), x * y + x) and is_same(tir.min(x, y) - x, tir.min(tir.IntImm("int32", 0), y - x))


def made(draw: random.Random, variables: list[Var], depth: int) -> Any:
    """Return a random affine index."""
    if depth == 0 or draw.random() < 0.2:
        return draw.choice(variables)
    kind = draw.randrange(4)
    if kind < 2:
        return made(draw, variables, depth - 1) * draw.choice([1, 2, 3, 4]) + made(draw, variables, depth - 1)
    by = draw.choice([2, 3, 4])
    inner = made(draw, variables, depth - 1) + draw.choice([0, 0, 1, 5])
    return inner // by if kind == 2 else inner % by


@pytest.mark.parametrize("level", ["surjective", "bijective"])
def test_random_maps_by_enumeration(level: str) -> None:
    draw, accepted = random.Random(3), 0
    for _ in range(400):
        variables = [x, y, z][: draw.randint(1, 3)]
        sizes = {v: draw.choice([2, 3, 4, 6, 8]) for v in variables}
        indices = [made(draw, variables, 2) for _ in range(draw.randint(1, 2))]
        ranges = {v: Range(0, n) for v, n in sizes.items()}
        predicate: Any = True
        if draw.random() < 0.3:
            predicate = indices[0] < draw.randint(1, 8)
        result = arith.detect_iter_map(indices, ranges, predicate, level).indices
        if not result:
            continue
        accepted += 1
        points = []
        for values in itertools.product(*map(range, sizes.values())):
            at = dict(zip(variables, values, strict=True))
            if evaluate(tir.const(True, "bool") if predicate is True else predicate, at):
                point = tuple(int(evaluate(e, at)) for e in indices)
                assert point == tuple(int(evaluate(arith.normalize_iter_map_to_expr(s), at)) for s in result)
                points.append(point)
        axes = [[int(str(s.base)) + i * (s.args[0].scale.value if s.args else 0)
                 for i in range(s.args[0].extent.value if s.args else 1)] for s in result]
        assert set(points) == set(itertools.product(*axes)), (indices, sizes, predicate, axes)
        assert level == "surjective" or len(points) == len(set(points)), (indices, sizes, predicate)
    assert accepted > 20


# Division into an outer and an inner part.
def divided(indices: list[Any], dom: dict[Var, Any], inner: list[Var], **options: Any) -> list[tuple[str, str]]:
    """Return both parts of each index, and of the condition, as text; empty without a division."""
    parts = arith.subspace_divide(indices, {v: Range(0, n) for v, n in dom.items()}, inner, **options)
    texts = [tuple(str(arith.normalize_iter_map_to_expr(m.source)) for m in pair) for pair in parts[:-1]]
    return [*texts, *(tuple(str(m.extent) for m in pair) for pair in parts[-1:])]  # type: ignore[list-item]


def test_division_of_sums() -> None:
    dom = {x: 3, y: 4, z: 5}
    assert divided([z * 12 + y * 3 + x + c], dom, [x]) == [("((z * 4) + y)", "(x + c)"), ("True", "True")]
    assert divided([z * 12 + y * 3 + x], dom, [x, y]) == [("z", "((y * 3) + x)"), ("True", "True")]
    assert divided([z * 12 + y * 3 + x], dom, [z]) == []
    assert divided([x * 4 + y], {x: 1, y: 4}, [y], simplify_trivial_iterators=False) == [("x", "y"), ("True", "True")]
    assert divided([z, y * 3 + x], dom, [x, y]) == [("z", "0"), ("0", "((y * 3) + x)"), ("True", "True")]


def test_division_of_conditions() -> None:
    dom = {x: 3, y: 4, z: 5}
    index = [z * 12 + y * 3 + x]
    assert divided(index, dom, [x], predicate=z * 4 + y < 18)[1] == ("(((z * 4) + y) < 18)", "True")
    assert divided([z, y * 3 + x], dom, [x, y], predicate=y * 3 + x < 10)[2] == ("True", "(((y * 3) + x) < 10)")
    assert divided(index, dom, [x], predicate=z * 12 + y * 3 + x < 50) == []


@pytest.mark.parametrize("seed", range(20))
def test_division_of_random_maps(seed: int) -> None:
    rng = random.Random(seed)
    names = [Var(f"v{k}", "int32") for k in range(4)]
    sizes = {v: rng.choice((1, 2, 3, 4, 6)) for v in names}
    whole: Any = 0
    for v in names:
        whole = whole * sizes[v] + v
    total = 1
    for n in sizes.values():
        total *= n
    by = rng.choice([n for n in range(1, total + 1) if total % n == 0])
    indices = [whole // by, whole % by]
    inner = names[rng.randrange(1, 4):]
    parts = arith.subspace_divide(indices, {v: Range(0, n) for v, n in sizes.items()}, inner)
    if not parts:
        return
    for values in itertools.product(*(range(n) for n in sizes.values())):
        at = dict(zip(names, values, strict=True))
        outside, inside = ({v: n if (v in inner) is k else 0 for v, n in at.items()} for k in (False, True))
        for index, (outer, own) in zip(indices, parts, strict=False):
            high = evaluate(arith.normalize_iter_map_to_expr(outer.source), outside)
            low = evaluate(arith.normalize_iter_map_to_expr(own.source), inside)
            assert evaluate(index, at) == high * own.extent.value + low
            assert 0 <= low < own.extent.value
