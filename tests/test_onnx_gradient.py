"""Gradient of ONNX: derivatives through every operator whose rule there is, against central differences, and what is
refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import daily
import tilewright as tvm
from tilewright.base.errors import CompileError, ModelError

pytestmark = pytest.mark.slow

DOMAIN = "ai.onnx.preview.training"
Array = np.ndarray[Any, Any]
rng = np.random.default_rng(5)


def real(*shape: int) -> Array:
    return rng.normal(0, 1, shape)


def model(
    nodes: list[onnx.NodeProto], inputs: dict[str, Array], outputs: list[str], known: dict[str, Array] | None = None
) -> onnx.ModelProto:
    of = {
        np.dtype(np.float64): TensorProto.DOUBLE, np.dtype(np.float32): TensorProto.FLOAT,
        np.dtype(bool): TensorProto.BOOL, np.dtype(np.int64): TensorProto.INT64
    }
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(n, of[x.dtype], x.shape) for n, x in inputs.items()],
        [onnx.ValueInfoProto(name=n) for n in outputs],
        [numpy_helper.from_array(v, n) for n, v in (known or {}).items()],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)], ir_version=8
    )


def gradient(xs: list[str], y: str, outputs: list[str], **more: Any) -> onnx.NodeProto:
    return helper.make_node(
        "Gradient", more.pop("given", [*xs, *more.get("zs", [])]), outputs, domain=DOMAIN, xs=xs, y=y, **more
    )


@dataclass(frozen=True)
class Case:
    """An operator, the inputs that derivatives are taken by, and others that it reads."""

    op_type: str
    xs: tuple[Array, ...]
    known: dict[str, Array] = field(default_factory=dict)
    attrs: dict[str, Any] = field(default_factory=dict)
    order: str = ""
    outputs: int = 1


def _positive(*shape: int) -> Array:
    return np.abs(real(*shape)) + 0.5


CASES = [
    *[
        Case(name, (real(3, 4),))
        for name in (
            "Exp", "Tanh", "Sigmoid", "Erf", "Sin", "Cos", "Tan", "Sinh", "Cosh", "Atan", "Asinh", "Abs", "Neg", "Relu",
            "Identity", "LeakyRelu"
        )
    ],
    *[Case(name, (_positive(3, 4),)) for name in ("Log", "Sqrt", "Reciprocal")],
    *[Case(name, (rng.uniform(-0.8, 0.8, (3, 4)),)) for name in ("Asin", "Acos", "Atanh")],
    Case("Acosh", (_positive(3, 4) + 1,)),
    *[
        Case(name, (real(*a), real(*b))) for name in ("Add", "Sub", "Mul", "Max", "Min") for a,
        b in (((3, 4), (3, 4)), ((4,), (3, 1)), ((), (2, 3)))
    ],
    *[Case("Div", (real(*a), _positive(*b))) for a, b in (((3, 4), (3, 4)), ((3, 1), (4,)))],
    *[Case("Pow", (_positive(*a), real(*b))) for a, b in (((3, 4), (3, 4)), ((3, 1), (4,)))],
    Case("Pow", (real(3, 4),), {"b": np.array(3.0)}, order="x0 b"),
    Case("Where", (real(3, 4), real(4)), {"c": rng.integers(0, 2, (3, 4)) > 0}, order="c x0 x1"),
    Case("Clip", (real(3, 4),), {"a": np.array(-0.5), "b": np.array(0.5)}, order="x0 a b"),
    Case("Cast", (real(3, 4),), attrs={"to": TensorProto.DOUBLE}),
    Case("Floor", (real(3, 4),)), Case("Sign", (real(3, 4),)),
    Case("Expand", (real(3, 1),), {"s": np.array([2, 3, 4])}, order="x0 s"),
    *[
        Case(name, (real(3, 4, 5),), attrs={"axes": axes, "keepdims": keep})
        for name in ("ReduceMean", "ReduceSumSquare", "ReduceL2") for axes, keep in (([1], 1), ([0, 2], 0))
    ],
    Case("ReduceSum", (real(3, 4, 5),), {"axes": np.array([-1])}, {"keepdims": 0}, "x0 axes"),
    Case("ReduceMean", (real(3, 4),)),
    *[Case(name, (real(3, 4, 5),), attrs={"axis": axis}) for name in ("Softmax", "LogSoftmax") for axis in (-1, 1)],
    *[Case("Transpose", (real(2, 3, 4),), attrs=a) for a in ({}, {"perm": [1, 2, 0]})],
    Case("Reshape", (real(2, 6),), {"s": np.array([3, -1])}, order="x0 s"),
    Case("Unsqueeze", (real(2, 6),), {"s": np.array([1])}, order="x0 s"),
    Case("Squeeze", (real(2, 1, 6),), {"s": np.array([1])}, order="x0 s"),
    Case("Flatten", (real(2, 3, 2),)),
    Case("Concat", (real(2, 3), real(2, 1), real(2, 3)), attrs={"axis": 1}),
    Case("Split", (real(2, 6),), attrs={"axis": 1}, outputs=2),
    *[
        Case("MatMul", (real(*a), real(*b))) for a,
        b in (((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((1, 3, 4), (2, 4, 5)), ((4,), (4, 5)))
    ],
    *[Case("Gemm", (real(*a), real(*b), real(5)), attrs={"transA": ta, "transB": tb, "alpha": 0.5})
      for a, b, ta,
      tb in (((3, 4), (4, 5), 0, 0), ((4, 3), (4, 5), 1, 0), ((3, 4), (5, 4), 0, 1), ((4, 3), (5, 4), 1, 1))],
    Case("Conv", (real(1, 2, 4, 5), real(3, 2, 2, 3), real(3)), attrs={"pads": [1, 0, 0, 1], "strides": [1, 2]}),
    Case("Conv", (real(2, 4, 5), real(2, 2, 3)), attrs={"group": 2}),
    *[Case(name, (real(1, 2, 4, 5),), attrs={"kernel_shape": [2, 3], "strides": [2, 1], "pads": [0, 1, 0, 1]})
      for name in ("MaxPool", "AveragePool")],
    Case("GlobalAveragePool", (real(1, 2, 3, 4),)),
    Case("BatchNormalization", (real(2, 3, 4), real(3), real(3), real(3), _positive(3))),
    Case("LayerNormalization", (real(2, 3, 4), real(4), real(4))),
    Case("InstanceNormalization", (real(2, 3, 4), real(3), real(3))),
    Case("Gather", (real(3, 4),), {"i": np.array([[2, 0], [-1, 2]])}, {"axis": 0}, "x0 i"),
    Case("GatherElements", (real(3, 4),), {"i": np.array([[2, 0], [1, 2]])}, {"axis": 1}, "x0 i"),
    Case("GatherND", (real(3, 4),), {"i": np.array([[2, 0], [1, 2], [2, 0]])}, order="x0 i"),
    Case("Pad", (real(2, 3),), {"p": np.array([1, 0, 0, 2])}, order="x0 p"),
    Case("Slice", (real(4, 5),), {"a": np.array([3, 1]), "b": np.array([0, 5]), "c": np.array([0, 1]),
                                  "d": np.array([-1, 2])}, order="x0 a b c d"),
    Case("Tile", (real(2, 3),), {"r": np.array([2, 2])}, order="x0 r"),
    *[Case(name, (real(3, 4),), attrs={"axes": [1], "keepdims": 0})
      for name in ("ReduceMax", "ReduceMin", "ReduceLogSumExp")],
    Case("CumSum", (real(3, 4),), {"axis": np.array(1)}, order="x0 axis"),
]


@pytest.mark.parametrize("case", daily.sample(CASES, 40, "derivatives"), ids=lambda c: c.op_type)
def test_derivatives_are_those_of_differences(case: Case) -> None:
    given = {f"x{k}": x for k, x in enumerate(case.xs)}
    names = case.order.split() or list(given)
    parts = [f"y{k}" for k in range(case.outputs)]
    nodes = [helper.make_node(case.op_type, names, parts, **case.attrs)]
    (whole,) = (tvm.compile(model(nodes, given, parts[-1:], case.known))(given),)
    weights = real(*whole.shape)  # only the last output counts: nothing reaches the others
    nodes += [
        helper.make_node("Mul", [parts[-1], "w"], ["weighted"]),
        helper.make_node("ReduceSum", ["weighted"], ["sum"], keepdims=0)
    ]
    known = case.known | {"w": weights}
    value = tvm.compile(model(nodes, given, ["sum"], known))
    slopes = [f"d{k}" for k in range(len(given))]
    found = tvm.compile(model([*nodes, gradient(list(given), "sum", slopes)], given, slopes, known))(given)
    for (name, x), slope in zip(given.items(), found if isinstance(found, tuple) else (found,), strict=True):
        step, wanted = 1e-5, np.zeros_like(x)
        for at in np.ndindex(x.shape):
            moved = np.zeros_like(x)
            moved[at] = step
            wanted[at] = (value(given | {name: x + moved}) - value(given | {name: x - moved})) / (2 * step)
        assert slope.shape == x.shape and slope.dtype == x.dtype
        np.testing.assert_allclose(slope, wanted, rtol=1e-5, atol=1e-7)


SQUARE = [helper.make_node("Mul", ["a", "a"], ["h"]), helper.make_node("Mul", ["h", "b"], ["y"])]


def test_derivatives_by_an_intermediate_tensor_take_it_as_independent() -> None:
    a, b = np.array(3, np.float32), np.array(5, np.float32)
    got = tvm.compile(model([*SQUARE, gradient(["h", "b"], "y", ["dh", "db"])], {"a": a, "b": b}, ["dh", "db"]))(a, b)
    assert [float(g) for g in got] == [5, 9]


def test_derivatives_at_values_other_than_those_of_the_graph() -> None:
    a, b, c = (np.array(v, np.float32) for v in (3, 5, 7))
    nodes = [*SQUARE, gradient(["a"], "y", ["da"], zs=["b"], given=["c", "b"])]
    y, da = tvm.compile(model(nodes, {"a": a, "b": b, "c": c}, ["y", "da"]))(a, b, c)
    assert (float(y), float(da)) == (45, 2 * 7 * 5)


def test_derivatives_by_what_is_stored_and_folded() -> None:
    """`a` is known, and so is all that is computed from it."""
    nodes = [
        helper.make_node("Exp", ["w"], ["e"]), helper.make_node("Mul", ["w", "a"], ["p"]),
        helper.make_node("Add", ["e", "p"], ["y"])
    ]
    a = np.array(2, np.float32)
    known = {"w": np.array(0, np.float32)}
    got = tvm.compile(model([*nodes, gradient(["w"], "y", ["dw"], zs=["a"])], {"a": a}, ["dw"], known))(a)
    assert float(got) == 3


def test_nodes_may_stand_in_any_order_and_results_may_be_left_out() -> None:
    a, b = np.array(3, np.float32), np.array(5, np.float32)
    assert float(
        tvm.compile(model([gradient(["a", "b"], "y", ["", "db"]), *SQUARE], {"a": a, "b": b}, ["db"]))(a, b)
    ) == 9


def test_second_derivatives() -> None:
    a, b = np.array(3, np.float32), np.array(5, np.float32)
    nodes = [*SQUARE, gradient(["a", "b"], "y", ["da", "db"]), gradient(["a", "b"], "da", ["daa", "dab"])]
    got = tvm.compile(model(nodes, {"a": a, "b": b}, ["daa", "dab"]))(a, b)
    assert [float(g) for g in got] == [10, 6]


def test_nothing_depends_on_what_is_not_read() -> None:
    a, b = np.array(3, np.float32), np.array(5, np.float32)
    got = tvm.compile(
        model([helper.make_node("Exp", ["a"], ["y"]), gradient(["b"], "y", ["db"], zs=["a"])], {"a": a, "b": b}, ["db"])
    )(a, b)
    assert float(got) == 0


def _refused(nodes: list[onnx.NodeProto], inputs: dict[str, Array], output: str, why: str) -> None:
    with pytest.raises((ModelError, CompileError), match=why):
        tvm.compile(model(nodes, inputs, [output]))


def test_what_is_refused() -> None:
    x = np.ones((1, 1, 3, 3), np.float32)
    product = [helper.make_node("ReduceProd", ["x"], ["y"])]
    _refused([*product, gradient(["x"], "y", ["d"])], {"x": x}, "d", "the operator 'prod' has no gradient")
    tanh = [helper.make_node("Tanh", ["x"], ["y"])]
    _refused(
        [*tanh, gradient(["x"], "y", ["d"])], {"x": x}, "d",
        r"'y' is float32 of shape \(1, 1, 3, 3\); only a single real number can be differentiated"
    )
    _refused(
        [*tanh, gradient(["x"], "y", ["d"], given=["x", "x"])], {"x": x}, "d",
        "2 values are given, but xs and zs name 1 tensors"
    )
    _refused([*tanh, gradient(["x"], "z", ["d"])], {"x": x}, "d", "uses 1 tensors that no node computes: 'z'")
    whole = model([helper.make_node("F", ["x"], ["d"], domain="own")], {"x": np.array(1, np.float32)}, ["d"])
    whole.opset_import.add(domain="own", version=1)
    whole.functions.append(
        helper.make_function("own", "F", ["x"], ["d"], [*tanh, gradient(["x"], "y", ["d"])], list(whole.opset_import))
    )
    with pytest.raises(
        ModelError,
        match="it is inside a function, where derivatives are not supported; inline the functions"
    ):
        tvm.compile(whole)
