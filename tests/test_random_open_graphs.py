"""Random graphs with open dimensions: one program each, right or refused at every size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import daily
import tilewright
from fuzz.kinds import load
from fuzz.outcomes import AGREES, EXPLAINED, REFUSED, WRONG, Draw, silent
from fuzz.runner import smallest
from random_open_graphs import CALLS, FEWEST
from tilewright.base.errors import InputError

pytest.importorskip("onnxruntime", reason="onnxruntime, the reference, is not installed")
pytestmark = pytest.mark.slow

OFTEN = 0.5
"""Part of the graphs that must have a program for all sizes."""


@pytest.mark.parametrize("part", daily.sample(range(100), 1, "random open graphs"))
def test_random_graphs_with_open_dimensions(part: int) -> None:
    kind = load("open")
    outcomes = {n: kind.run(kind.draw(Draw(1, n)), silent) for n in range(20 * part, 20 * part + 20)}
    assert {n: o for n, o in outcomes.items() if o.category not in (AGREES, EXPLAINED, REFUSED)} == {}
    assert [o.category for o in outcomes.values()].count(AGREES) >= OFTEN * len(outcomes)


def test_a_number_draws_the_same_graph_at_several_sizes() -> None:
    kind = load("open")
    for number in range(8):
        case, again = kind.draw(Draw(20, number)), kind.draw(Draw(20, number))
        assert case.model == again.model and case.shapes == again.shapes
        assert FEWEST <= len(case.calls) <= CALLS
        for feeds, others in zip(case.calls, again.calls, strict=True):
            assert all(np.array_equal(feeds[n], others[n]) for n in feeds)


def test_a_planted_fault_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.relay.op import elementwise

    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", "off")
    monkeypatch.setattr(elementwise.Tanh, "compute", lambda self, x: elementwise.Sigmoid().compute(x))
    kind = load("open")
    cases = (kind.draw(Draw(5, n)) for n in range(30, 200))
    found = ((c, kind.run(c, silent)) for c in cases if {"Tanh"} < {n.op_type for n in c.model.graph.node})
    case, outcome = next((c, o) for c, o in found if o.category == WRONG)
    small: Any = smallest(kind, case, outcome)
    assert [n.op_type for n in small.model.graph.node] == ["Tanh"]


def test_slices_between_symbolic_bounds_are_not_called_where_the_bounds_cross() -> None:
    from test_open_sizes import FLOAT, model, node

    nodes = [
        node("Shape", ["x"], "shape"), node("Gather", ["shape", "zero"], "size"), node("Sub", ["size", "one"], "end"),
        node("Slice", ["x", "one", "end", "zero"], "y")]
    of = model(nodes, {"x": ["n", 3]}, {"zero": np.array([0]), "one": np.array([1])}, {"x": FLOAT})
    program = tilewright.compile(of, shapes={"x": ("n", 3)})
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.testing.assert_array_equal(program(x), x[1:3])
    assert program(x[:2]).shape == (0, 3)
    with pytest.raises(InputError, match="dimension 0 of input 'x' is 1, but the program was compiled for"):
        program(x[:1])


def test_slices_with_a_step_from_the_end_are_not_called_where_they_begin_before_the_data() -> None:
    from test_open_sizes import FLOAT, model, node

    nodes = [node("Slice", ["x", "begin", "end", "zero", "two"], "y")]
    of = model(nodes, {"x": ["n", 3]}, {
        "begin": np.array([-2]), "end": np.array([-1]), "zero": np.array([0]), "two": np.array([2])}, {"x": FLOAT})
    program = tilewright.compile(of, shapes={"x": ("n", 3)})
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.testing.assert_array_equal(program(x), x[-2:-1:2])
    with pytest.raises(InputError, match="dimension 0 of input 'x' is 1, but the program was compiled for"):
        program(x[:1])


def test_a_resize_of_one_pixel_to_symbolic_sizes_repeats_it() -> None:
    from test_open_sizes import FLOAT, model, node

    nodes = [
        node("Shape", ["like"], "sizes"),
        node("Resize", ["x", "", "", "sizes"], "y", mode="linear", coordinate_transformation_mode="align_corners")]
    of = model(nodes, {"x": [1, 1, 1, 1], "like": [1, 1, "h", "w"]}, {}, {"x": FLOAT, "like": FLOAT})
    program = tilewright.compile(of, shapes={"like": (1, 1, "h", "w")})
    x = np.full((1, 1, 1, 1), 3, np.float32)
    for shape in ((1, 1, 4, 5), (1, 1, 1, 1), (1, 1, 1, 3)):
        np.testing.assert_array_equal(program(x, np.zeros(shape, np.float32)), np.full(shape, 3, np.float32))
