"""`tir.IndexMap` under TVM's names: shapes, inverses with and without unused places, and arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright.base.errors import ScheduleError
from tilewright.scalar.arith import evaluate
from tilewright.scalar.expr import integer
from tilewright.tir import IndexMap, Var

BY_FOUR = IndexMap.from_func(lambda i: [i // 4, i % 4])


def test_indices_and_shapes_have_the_type_of_the_arguments() -> None:
    for dtype in ("int32", "int64"):
        found = BY_FOUR.map_indices([tvm.runtime.const(42, dtype)])
        tvm.ir.assert_structural_equal(found, [tvm.tir.const(10, dtype), tvm.tir.const(2, dtype)])
    tvm.ir.assert_structural_equal(BY_FOUR.map_shape([14]), [4, 4])
    with pytest.raises(ScheduleError, match=r"takes any number of them; pass ndim="):
        IndexMap.from_func(lambda *i: i)
    assert len(IndexMap.from_func(lambda *i: i[::-1], 3).initial_indices) == 3


def test_inverse() -> None:
    assert BY_FOUR.inverse([16]).is_equivalent_to(IndexMap.from_func(lambda i, j: [i * 4 + j]))
    assert not BY_FOUR.is_equivalent_to(IndexMap.from_func(lambda i: [i // 4, i % 2]))
    with pytest.raises(ScheduleError, match=r"has no inverse for the sizes \(14\): "):
        BY_FOUR.inverse([14])


@pytest.mark.parametrize(("how", "shape"), [
    (lambda i: [i // 4, i % 4], [15]), (lambda i: [(i + 1) // 4, (i + 1) % 4], [14]), (lambda i: [i // 4, i % 4], [3]),
    (lambda i: [(i + 5) // 32, ((i + 5) // 4) % 8, (i + 5) % 4], [116]),
    (lambda i, j: [(i + 1) // 4, (j + 5) // 8, (i + 1) % 4, (j + 5) % 8], [14, 31]),
])
def test_places_without_an_element(how: Any, shape: list[int]) -> None:
    """The condition of an inverse map is false at exactly the places that an element of the shape is mapped to."""
    index_map = IndexMap.from_func(how)
    back, unused = index_map.non_surjective_inverse(shape)
    reached = {}
    for at in np.ndindex(*shape):
        place = tuple(evaluate(r, dict(zip(index_map.params, at, strict=True))) for r in index_map.results)
        reached[place] = at
    for place in np.ndindex(*map(integer, index_map.map_shape(shape))):
        values = dict(zip(back.initial_indices, place, strict=True))
        assert bool(evaluate(unused, values)) == (place not in reached)
        if place in reached:
            assert tuple(evaluate(r, values) for r in back.final_indices) == reached[place]


def test_condition_by_digits() -> None:
    """The condition is one on the quotient and one on the remainder, which are places of the result."""
    back, unused = IndexMap.from_func(lambda i: [i // 32, (i // 4) % 8, i % 4]).non_surjective_inverse([116])
    i, j, k = back.initial_indices
    tvm.ir.assert_structural_equal(unused, tvm.tir.And(i.equal(3), j * 4 + k >= 20))
    back, unused = IndexMap.from_func(lambda i: [(i + 1) // 4, (i + 1) % 4]).non_surjective_inverse([14])
    i, j = back.initial_indices
    first, last = tvm.tir.And(i.equal(0), j < 1), tvm.tir.And(i.equal(3), j.equal(3))
    tvm.ir.assert_structural_equal(unused, tvm.tir.Or(first, last))


def test_arrays() -> None:
    n = np.arange(15, dtype="int8")
    found = BY_FOUR.map_ndarray(tvm.nd.array(n)).numpy()
    assert found.tolist() == [*n.reshape(-1)[:12].reshape(3, 4).tolist(), [12, 13, 14, 0]]
    with pytest.raises(ScheduleError, match="no known range"):
        IndexMap.from_func(lambda i: [i - 3]).map_ndarray(tvm.nd.array(n))
    assert isinstance(BY_FOUR.initial_indices[0], Var)
