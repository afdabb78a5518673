"""Specializations and their guards: one form for fixed sizes, dynamic sizes, one program a shape, and stages."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright
from tilewright.base.errors import InputError
from tilewright.base.nd import content
from tilewright.base.types import DataType
from tilewright.compiler.cache import Cache
from tilewright.relay.frontend.onnx.registry import CONVERTERS
from tilewright.runtime.guards import Guards
from tilewright.runtime.manifest import Symbol
from tilewright.runtime.program import TensorInfo

FLOAT, INT = DataType("float32"), DataType("int64")


def a_model(dims: list[int | str]) -> onnx.ModelProto:
    """Return a model of one rectified product."""
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, dims) for n in ("x", "y")]
    nodes = [helper.make_node("Mul", ["x", "x"], ["t"]), helper.make_node("Relu", ["t"], ["y"])]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def a_reshape() -> onnx.ModelProto:
    """Return a model whose second input says the shape of the result."""
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 6]),
        helper.make_tensor_value_info("shape", TensorProto.INT64, [2])
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["a", "b"])]
    graph = helper.make_graph([helper.make_node("Reshape", ["x", "shape"], ["y"])], "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_guards_of_fixed_sizes_hold_for_one_shape() -> None:
    guards = Guards((TensorInfo("x", (2, 3), FLOAT),))
    assert guards.hold([np.zeros((2, 3), np.float32)])
    assert not guards.hold([np.zeros((3, 3), np.float32)])
    assert not guards.hold([])
    assert str(guards) == "float32 x[2, 3]"


def test_guards_of_dynamic_sizes_solve_for_the_symbols() -> None:
    inputs = (TensorInfo("x", ("n", 3), FLOAT), TensorInfo("m", ("n", "(k * 2)"), INT))
    guards = Guards(inputs, (Symbol("n", 1, 8), Symbol("k")))
    assert guards.sizes([(4, 3), (4, 10)]) == {"n": 4, "k": 5}
    assert not guards.hold([np.zeros((9, 3)), np.zeros((9, 2))])
    assert not guards.hold([np.zeros((4, 3)), np.zeros((5, 2))])
    with pytest.raises(
        InputError, match=r"dimension 0 of input 'x' is 9, but the program was compiled for n from 1 to 8"
    ):
        guards.sizes([(9, 3), (9, 2)])


def test_guards_on_contents() -> None:
    axes = np.array([1])
    guards = Guards((TensorInfo("x", (2, 3), FLOAT), TensorInfo("axes", (1,), INT)), (), ((1, content(axes)),))
    assert guards.hold([np.zeros((2, 3)), axes])
    assert not guards.hold([np.zeros((2, 3)), axes + 1])
    assert str(guards) == "float32 x[2, 3], int64 axes[1] of known values"


def test_models_are_specializations_whose_guards_hold_for_their_calls() -> None:
    fixed = tilewright.compile(a_model([2, 3]), cache=Cache(None))
    x = np.ones((2, 3), np.float32)
    fixed(x)
    (one,) = fixed.specializations()
    assert one.guards.hold([x]) and not one.guards.hold([np.ones((4, 3))])
    dynamic = tilewright.compile(a_model(["n", 3]), {"x": ("n=1..4", 3)}, cache=Cache(None))
    (one,) = dynamic.specializations()
    assert one.guards.hold([np.ones((4, 3))]) and not one.guards.hold([np.ones((5, 3))])
    shapes = tilewright.compile(a_model(["n", 3]), cache=Cache(None), symbolic=False)
    assert not shapes.specializations()
    for n in (2, 5):
        shapes(np.ones((n, 3), np.float32))
    assert [
        [s.guards.hold([np.ones((n, 3))]) for n in (2, 5)] for s in shapes.specializations()
    ] == [[True, False], [False, True]]
    stages = tilewright.compile(a_reshape(), cache=Cache(None))
    given = [np.ones((2, 6), np.float32), np.array([3, 4])]
    stages(*given)
    assert [s.guards.hold(given) for s in stages.specializations()] == [True]
    assert not stages.specializations()[0].guards.hold([given[0], np.array([4, 3])])


def depth_of(function: Callable[..., Any], found: Callable[[FrameType], bool]) -> int:
    """Return the largest number of frames of the package from the entry of `function` to one that is `found`, both
    counted."""
    deepest = 0

    def profile(frame: FrameType, event: str, arg: object) -> None:
        nonlocal deepest
        if event == "call" and found(frame):
            names = [f.filename for f in traceback.extract_stack(frame)]
            deepest = max(deepest, sum("/src/tilewright/" in n for n in names))

    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    return deepest


def test_few_frames_lead_to_the_emitter() -> None:
    model = a_model([2, 3])
    tilewright.compile(model, cache=Cache(None))  # modules are imported
    deepest = depth_of(lambda: tilewright.compile(model, cache=Cache(None)), lambda f: f.f_code.co_name == "emit")
    assert 0 < deepest <= 10


def test_few_frames_lead_to_a_converter() -> None:
    model, converters = a_model([2, 3]), {c.function.__code__ for versions in CONVERTERS.values() for c in versions}
    tilewright.compile(model, cache=Cache(None))
    deepest = depth_of(lambda: tilewright.compile(model, cache=Cache(None)), lambda f: f.f_code in converters)
    assert 0 < deepest <= 10
