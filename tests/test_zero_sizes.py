"""Zero is a size: every ONNX operator on tensors without elements, against ONNX's reference implementation.

A sample is drawn each day, by a seed that a failure shows; `TILEWRIGHT_TEST_ALL=1` runs all cases.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import daily
import tilewright
from test_onnx_kinds import node_model
from tilewright.base.errors import CompileError

Array = np.ndarray[Any, Any]
SAMPLE = 48
FLOAT, INT64, BOOL, UINT8, INT32 = (
    TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.UINT8, TensorProto.INT32
)
SHAPES = ((0, 3), (2, 0), (0, 0), (2, 0, 3), (0, 3, 4), (2, 3, 0))


@dataclass(frozen=True)
class Case:
    """One node: the inputs that are given, those that are known, and its outputs."""

    op_type: str
    inputs: dict[str, Array]
    known: dict[str, Array] = field(default_factory=dict)
    attrs: dict[str, Any] = field(default_factory=dict)
    outputs: tuple[int, ...] = (FLOAT,)
    opset: int = 20
    order: str = ""

    @property
    def name(self) -> str:
        shapes = " ".join("x".join(map(str, x.shape)) or "one" for x in (*self.inputs.values(), *self.known.values()))
        return f"{self.op_type} {shapes} {' '.join(f'{k}={v}' for k, v in self.attrs.items())}".strip()


def real(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def elementwise(x: Array) -> Iterator[Case]:
    for op_type in (
        "Relu", "Exp", "Neg", "Sigmoid", "Softmax", "LogSoftmax", "Hardmax", "Erf", "Flatten", "Transpose", "Softplus",
        "Mish", "Gelu", "Trilu"
    ):
        yield Case(op_type, {"x": x})
    yield from (
        Case(op_type, {"x": x}, outputs=(kind,)) for op_type,
        kind in (("Shape", INT64), ("Size", INT64), ("NonZero", INT64), ("IsNaN", BOOL))
    )
    yield from (Case(op_type, {"x": x, "z": x}) for op_type in ("Sum", "Max", "Add"))
    yield from (
        Case("Where", {"c": np.zeros(x.shape, bool), "x": x, "z": x}),
        Case("Clip", {"x": x}, {"l": np.array(0, np.float32)}), Case("Mod", {"x": x, "z": x}, attrs={"fmod": 1})
    )
    yield from (
        Case("Cast", {"x": x}, attrs={"to": INT32}, outputs=(INT32,)),
        Case("QuantizeLinear", {"x": x}, {"s": np.array(0.1, np.float32), "z": np.array(3, np.uint8)}, outputs=(UINT8,))
    )
    yield from (
        Case("Reshape", {"x": x}, {"n": ints(0)}), Case("Reshape", {"x": x}, {"n": ints(-1, 3)}),
        Case("Reshape", {"x": x}, {"n": ints(5, 0)}, {"allowzero": 1})
    )
    rank = x.ndim
    yield from (
        Case("Pad", {"x": x}, {"p": ints(*[1] * 2 * rank)}), Case("Tile", {"x": x}, {"r": ints(*[2] * rank)}),
        Case("Tile", {"x": x}, {"r": ints(*[0] * rank)})
    )
    yield from (
        Case("Expand", {"x": x}, {"n": ints(2, *[1] * rank)}), Case("Unique", {"x": x}),
        Case("ConstantOfShape", {}, {"n": np.array(x.shape)})
    )
    yield Case("ReverseSequence", {"x": x}, {"l": np.full(x.shape[1], min(1, x.shape[0]))})


def along_axes(x: Array, axis: int) -> Iterator[Case]:
    size, gone = x.shape[axis], [0 if k == axis else d for k, d in enumerate(x.shape)]
    for what in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare"):
        yield from (Case(f"Reduce{what}", {"x": x}, {"a": ints(axis)}, {"keepdims": k}) for k in (0, 1))
    yield from (Case("TopK", {"x": x}, {"k": ints(k)}, {"axis": axis}, (FLOAT, INT64)) for k in range(min(size, 1) + 1))
    yield from (
        Case("CumSum", {"x": x}, {"a": np.array(axis)}, attrs) for attrs in ({}, {"exclusive": 1, "reverse": 1})
    )
    yield from (
        Case("Unsqueeze", {"x": x}, {"a": ints(axis)}), Case("Concat", {"x": x, "z": x}, attrs={"axis": axis}),
        Case("Compress", {"x": x}, {"c": np.zeros(size, bool)}, {"axis": axis})
    )
    yield from (
        Case("Gather", {"x": x, "i": i}, attrs={"axis": axis})
        for i in (np.zeros((0, 2), np.int64), *([ints(0, -1)] if size else []))
    )
    yield from (Case("GatherElements", {"x": x, "i": np.zeros(gone, np.int64)}, attrs={"axis": axis}),
                Case(
                    "ScatterElements", {"x": x, "i": np.zeros(gone, np.int64), "u": real(*gone)}, attrs={"axis": axis}
                ))
    yield from (
        Case("Slice", {"x": x}, {"s": ints(0), "e": ints(0), "a": ints(axis)}),
        Case("Slice", {"x": x}, {"s": ints(-1), "e": ints(-100), "a": ints(axis), "p": ints(-1)})
    )
    yield from (
        Case("Split", {"x": x}, {"n": ints(size, 0)}, {"axis": axis}, (FLOAT, FLOAT)),
        Case("LayerNormalization", {"x": x}, {"w": np.ones(x.shape[axis:], np.float32)}, {"axis": axis})
    )
    yield from (
        Case("OneHot", {"i": np.zeros(x.shape, np.int64)}, {"d": np.array(3), "v": np.arange(2, dtype=np.float32)}, {
            "axis": axis
        }),
        *([Case("ArgMax", {"x": x}, attrs={"axis": axis}, outputs=(INT64,))] if size else [])
    )


def products() -> Iterator[Case]:
    for a, b in (
        ((0, 3), (3, 4)), ((2, 0), (0, 4)), ((2, 3), (3, 0)), ((0, 2, 3), (3, 4)), ((2, 2, 0), (2, 0, 3)),
        ((0, 2, 3), (0, 3, 4)), ((1, 2, 3), (0, 3, 4)), ((0, 0), (0, 0))
    ):
        yield Case("MatMul", {"x": real(*a), "z": real(*b)})
        yield Case("MatMulInteger", {"x": np.zeros(a, np.uint8), "z": np.zeros(b, np.uint8)}, outputs=(INT32,))
        yield from [Case("Gemm", {"x": real(*a), "z": real(*b), "c": real(b[1])})] if len(a) == len(b) == 2 else []
    yield from (
        Case("MatMul", {"x": real(*a), "z": real(*b)}) for a, b in (((0,), (0,)), ((0,), (0, 3)), ((3, 0), (0,)))
    )
    for equation, shapes in (
        ("ij,jk->ik", ((0, 3), (3, 4))), ("ij,jk->ik", ((2, 0), (0, 4))), ("bij,bjk->bik", ((0, 2, 3), (0, 3, 4))),
        ("ij->i", ((3, 0),)), ("ij->ji", ((0, 3),)), ("i,j->ij", ((0,), (3,)))
    ):
        yield Case("Einsum", {f"x{k}": real(*s) for k, s in enumerate(shapes)}, attrs={"equation": equation})


def layers() -> Iterator[Case]:
    x, one, four = real(0, 3, 5, 5), np.ones(3, np.float32), real(0, 4, 4, 4)
    yield from (
        Case("Conv", {"x": x}, {"w": real(4, 3, 3, 3), "b": real(4)}),
        Case("Conv", {"x": real(2, 0, 5, 5)}, {"w": real(4, 0, 3, 3)}),
        Case("Conv", {"x": real(2, 3, 5, 5)}, {"w": real(0, 3, 3, 3)})
    )
    yield from (
        Case("ConvTranspose", {"x": x}, {"w": real(3, 4, 3, 3)}),
        Case("Conv", {"x": real(0, 3, 5)}, {"w": real(4, 3, 3)})
    )
    yield from (
        Case(op_type, {"x": x}, attrs={"kernel_shape": [2, 2]}) for op_type in ("MaxPool", "AveragePool", "LpPool")
    )
    yield from (Case(op_type, {"x": x}) for op_type in ("GlobalAveragePool", "GlobalMaxPool"))
    yield from (
        Case("BatchNormalization", {"x": x}, {"s": one, "b": one, "m": one, "v": one}),
        Case("InstanceNormalization", {"x": x}, {"s": one, "b": one}), Case("LRN", {"x": x}, attrs={"size": 3})
    )
    yield from (
        Case("DepthToSpace", {"x": four}, attrs={"blocksize": 2}),
        Case("SpaceToDepth", {"x": four}, attrs={"blocksize": 2}), Case("GridSample", {"x": x, "g": real(0, 2, 2, 2)})
    )
    yield from (
        Case("Resize", {"x": x}, {"s": np.array([1, 1, 2, 2], np.float32)}, order="x,,s"),
        Case("Det", {"x": real(0, 3, 3)})
    )
    yield from (
        Case("Squeeze", {"x": real(*s)}, {"a": ints(axis)}) for s, axis in (((1, 0, 3), 0), ((0, 1), 1), ((1, 1, 0), 0))
    )
    yield from (
        Case("GatherND", {"x": real(3, 4), "i": np.zeros((0, 2), np.int64)}),
        Case("ScatterND", {"x": real(3, 4), "i": np.zeros((0, 2), np.int64), "u": real(0)})
    )


def every_case() -> list[Case]:
    found = [c for s in SHAPES for c in elementwise(real(*s))] + [
        c for s in SHAPES for axis in range(len(s)) for c in along_axes(real(*s), axis)
    ]
    return [*found, *products(), *layers()]


def chosen() -> list[Case]:
    return daily.sample(every_case(), SAMPLE)


@pytest.mark.parametrize("case", chosen(), ids=lambda c: f"day {daily.SEED}: {c.name}")
def test_tensors_without_elements(case: Case) -> None:
    """The same results; what the reference implementation refuses may be refused, with a message."""
    model = node_model(
        case.op_type, case.inputs, case.known, {f"y{k}": kind for k, kind in enumerate(case.outputs)}, opset=case.opset,
        order=case.order, **case.attrs
    )
    try:
        with np.errstate(all="ignore"):
            expected = ReferenceEvaluator(model).run(None, case.inputs)
    except Exception:  # whatever numpy raises
        expected = None
    try:
        got = tilewright.compile(model, threads=1)(**case.inputs)
    except CompileError:
        assert expected is None
        return
    for a, b in zip(got if isinstance(got, tuple) else [got], expected or (), strict=expected is not None):
        assert a.shape == np.shape(b)
        np.testing.assert_allclose(a.astype(np.float64), np.asarray(b, np.float64), 1e-4, 1e-5)


@pytest.mark.parametrize(("op_type", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_a_sequence_without_steps(op_type: str, gates: int) -> None:
    """The state is that from before; ONNX's reference implementation refuses it."""
    states = 2 if op_type == "LSTM" else 1
    before = {f"s{k}": real(1, 2, 4) for k in range(states)}
    order = ",".join(["x", "w", "r", "", "", *before])
    model = node_model(
        op_type, {"x": real(0, 2, 3), **before}, {"w": real(1, 4 * gates, 3), "r": real(1, 4 * gates, 4)},
        {f"y{k}": FLOAT for k in range(1 + states)}, order=order, hidden_size=4
    )
    rows, *after = tilewright.compile(model)(real(0, 2, 3), *before.values())
    assert rows.shape == (0, 1, 2, 4)
    for a, b in zip(after, before.values(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("rows", [8, 64])
def test_constants_without_elements_in_batches_that_threads_share(rows: int) -> None:
    """A batch is cut in parts where the constants are few bytes for each image, which there may be none of."""
    for op_type, shape, weights in (
        ("MatMul", (rows, 4), {"w": np.zeros((4, 0), np.float32)}),
        ("Conv", (rows, 3, 6, 6), {"w": np.zeros((0, 3, 3, 3), np.float32)}),
        ("Gemm", (rows, 4), {"w": np.zeros((4, 0), np.float32), "b": np.zeros((1, 0), np.float32)}),
    ):
        taken, given = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", shape), ("y", None)))
        stored = [numpy_helper.from_array(v, n) for n, v in weights.items()]
        graph = helper.make_graph([helper.make_node(op_type, ["x", *weights], ["y"])], "g", [taken], [given], stored)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        found = np.asarray(tilewright.compile(model, threads=2)(np.ones(shape, np.float32)))
        assert found.size == 0 and found.shape[0] == rows


@pytest.mark.parametrize("level", [0, 1, 2, 3])
@pytest.mark.parametrize(("op_type", "shape", "axis", "options", "weights", "given"), [
    ("ReduceProd", (3, 1, 4, 2), 0, {"axes": [0], "keepdims": 0}, {}, (1, 4, 2)),
    ("ReduceProd", (3, 1, 4, 2), 2, {"axes": [0], "keepdims": 0}, {}, (1, 0, 2)),
    ("Conv", (3, 2, 4, 4), 0, {}, {"w": np.ones((5, 2, 3, 3), np.float32)}, (0, 5, 2, 2)),
    ("Identity", (2, 1, 4, 2), 0, {}, {}, (0, 1, 4, 2)),
])
def test_slices_without_elements_have_their_shape_at_every_level(
    level: int, op_type: str, shape: tuple[int, ...], axis: int, options: dict[str, Any], weights: dict[str, Array],
    given: tuple[int, ...],
) -> None:
    bounds = {"starts": ints(1), "ends": ints(1), "axes": ints(axis)}
    nodes = [
        helper.make_node("Slice", ["x", *bounds], ["s"]), helper.make_node(op_type, ["s", *weights], ["y"], **options)
    ]
    taken, result = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", shape), ("y", None)))
    stored = [numpy_helper.from_array(v, n) for n, v in {**bounds, **weights}.items()]
    model = helper.make_model(
        helper.make_graph(nodes, "g", [taken], [result], stored), opset_imports=[helper.make_opsetid("", 17)],
        ir_version=9
    )
    found = np.asarray(tilewright.compile(model, opt_level=level)(np.ones(shape, np.float32)))
    assert found.shape == given
    np.testing.assert_array_equal(found, np.ones(given, np.float32))
