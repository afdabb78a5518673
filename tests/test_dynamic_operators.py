"""Operators whose attributes are tensors: types with unknown dimensions, the meaning of the static operator, and what
makes them static."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import tilewright
from tilewright import relay
from tilewright.base.errors import CompileError, ShapeError
from tilewright.base.types import TensorType, TupleType
from tilewright.ir import IRModule, assert_structural_equal
from tilewright.relay import transform
from tilewright.relay.expr import Call, Function, const, var
from tilewright.relay.interpreter import evaluate
from tilewright.relay.op import OPS, dynamic
from tilewright.relay.op.registry import Op
from tilewright.scalar.expr import UnknownDim

_random = np.random.default_rng(3)


def real(*shape: int) -> np.ndarray[Any, Any]:
    return _random.standard_normal(shape).astype("float32")


def ints(*values: Any) -> np.ndarray[Any, Any]:
    return np.asarray(values, "int64")


IMAGE = real(1, 2, 4, 5)
CASES: list[tuple[Op, tuple[np.ndarray[Any, Any] | np.generic, ...], Op]] = [
    (dynamic.DynReshape(), (real(2, 6), ints(3, -1)), relay.op.get("reshape")((3, -1))),
    (dynamic.DynBroadcastTo(), (real(3, 1), ints(2, 3, 4)), relay.op.get("broadcast_to")((2, 3, 4))),
    (dynamic.DynFull(), (np.float32(2.5), ints(2, 3)), relay.op.get("full")((2, 3))),
    (dynamic.DynZeros("int8"), (ints(2, 3),), relay.op.get("zeros")((2, 3), "int8")),
    (dynamic.DynOnes("float32"), (ints(4),), relay.op.get("ones")((4,), "float32")),
    (
        dynamic.DynOneHot(axis=0), (ints(0, 2, 1), np.float32(1), np.float32(0), ints(4)[0]),
        relay.op.get("one_hot")(4, 0)
    ),
    (dynamic.DynArange("int64"), (ints(2)[0], ints(9)[0], ints(3)[0]), relay.op.get("arange")(2, 9, 3, "int64")),
    (dynamic.DynArange(), (np.float32(1), np.float32(-1), np.float32(-0.5)), relay.op.get("arange")(1.0, -1.0, -0.5)),
    (dynamic.DynTile(), (real(2, 3), ints(2, 1, 2)), relay.op.get("tile")((2, 1, 2))),
    (dynamic.DynTopK(axis=1), (real(3, 6), ints(2)[0]), relay.op.get("topk")(2, 1)),
    (dynamic.DynTopK(ret_type="values"), (real(3, 6), ints(4)[0]), relay.op.get("topk")(4, ret_type="values")),
    (
        dynamic.DynStridedSlice(), (real(5, 6), ints(1, 0), ints(4, 6), ints(1, 2)),
        relay.op.get("strided_slice")((1, 0), (4, 6), (1, 2))
    ),
    (
        dynamic.DynStridedSlice("size"), (real(5, 6), ints(1), ints(2), ints(1)),
        relay.op.get("strided_slice")((1,), (2,), slice_mode="size")
    ),
    (
        dynamic.DynStridedSlice(axes=(2, 0)), (real(5, 3, 6), ints(1, 0), ints(4, 5), ints(2)),
        relay.op.get("strided_slice")((1, 0), (4, 5), (2, 2), (2, 0))
    ),
    (
        dynamic.DynNonMaxSuppression(top_k=3, return_indices=False),
        (real(2, 5, 6), ints(5, 4), real(2, 5).astype("int32"), ints(2)[0], np.float32(0.4)),
        relay.op.get("vision.non_max_suppression")(2, float(np.float32(0.4)), top_k=3, return_indices=False)
    ),
    (dynamic.DynSqueeze(), (real(1, 3, 1), ints(0, 2)), relay.op.get("squeeze")((0, 2))),
    (dynamic.DynExpandDims(2), (real(3, 4), ints(1)[0]), relay.op.get("expand_dims")(1, 2)),
    (dynamic.DynPad(), (real(2, 3), ints((0, 1), (2, 0)), np.float32(7)), relay.op.get("nn.pad")(((0, 1), (2, 0)))),
    (dynamic.DynUpsampling(), (IMAGE, np.float32(2), np.float32(3)), relay.op.get("nn.upsampling")(2, 3)),
    (
        dynamic.DynUpsampling3d(), (real(1, 2, 2, 3, 4), np.float32(2), np.float32(1), np.float32(3)),
        relay.op.get("nn.upsampling3d")(2, 1, 3)
    ),
    (dynamic.DynResize2d(), (IMAGE, ints(7, 3), np.zeros(0, "float32")), relay.op.get("image.resize2d")((7, 3))),
    (
        dynamic.DynSparseToDense(), (ints((0, 1), (2, 0)), real(2), np.float32(-1), ints(3, 2)),
        relay.op.get("sparse_to_dense")((3, 2))
    ),
]
cases = pytest.mark.parametrize(("op", "inputs", "static"), CASES, ids=[repr(c[0]) for c in CASES])


def test_every_dynamic_operator_is_here() -> None:
    assert {n for n in OPS if n.startswith("dyn.")} == {c[0].name for c in CASES}


def agree(found: Any, wanted: Any) -> None:
    for f, w in zip(found, wanted, strict=True) if isinstance(wanted, tuple) else [(found, wanted)]:
        assert (f.shape, f.dtype) == (w.shape, w.dtype)
        np.testing.assert_array_equal(f, w)


@cases
def test_the_meaning_is_that_of_the_static_operator(op: Any, inputs: Any, static: Op) -> None:
    params = [var(f"x{k}", shape=a.shape, dtype=str(a.dtype)) for k, a in enumerate(inputs)]
    call = Call(op, params)
    left = [a for k, a in enumerate(inputs) if k not in op.places]
    wanted = static.reference(*left)
    found = evaluate(Function(params, call), *inputs)
    agree(found, wanted)
    types = call.checked_type.fields if isinstance(call.checked_type, TupleType) else (call.checked_type,)
    for t, w in zip(types, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        assert isinstance(t, TensorType)
        assert t.dtype.numpy() == w.dtype
        assert any(isinstance(d, UnknownDim) for d in t.shape) != isinstance(op, dynamic.DynNonMaxSuppression)
        assert all(isinstance(d, UnknownDim) or d == n for d, n in zip(t.shape, w.shape, strict=True))


@cases
def test_constants_make_it_static(op: Any, inputs: Any, static: Op) -> None:
    args = [
        const(a) if k in op.places else var(f"x{k}", shape=a.shape, dtype=str(a.dtype)) for k, a in enumerate(inputs)
    ]
    mod = IRModule.from_expr(Call(op, args))
    after = transform.DynamicToStatic()(mod)
    assert "dyn." not in str(after)
    left = [a for k, a in enumerate(inputs) if k not in op.places]
    agree(evaluate(after, *left), static.reference(*left))
    assert_structural_equal(transform.DynamicToStatic()(after), after)


@cases
def test_it_is_printed_and_read_back(op: Any, inputs: Any, static: Op) -> None:
    params = [var(f"x{k}", shape=a.shape, dtype=str(a.dtype)) for k, a in enumerate(inputs)]
    mod = IRModule.from_expr(Function(params, Call(op, params)))
    assert_structural_equal(relay.parse(mod.astext()), mod)


def test_attributes_may_be_tensors() -> None:
    x, shape = var("x", shape=(2, 3)), var("shape", shape=(1,), dtype="int64")
    assert relay.reshape(x, shape).op.name == "dyn.reshape"
    assert relay.reshape(x, newshape=const(ints(6))).op == relay.op.get("reshape")((6,))
    widths = var("widths", shape=(2, 2), dtype="int64")
    assert relay.nn.pad(x, widths, 1.0, pad_mode="edge").op == dynamic.DynPad("edge")
    assert relay.nn.pad(x, const(ints((0, 1), (2, 0)))).op == relay.op.get("nn.pad")(((0, 1), (2, 0)))
    scale = var("scale", shape=(), dtype="float32")
    assert relay.nn.upsampling3d(
        var("v", shape=(1, 2, 3, 4, 5)), scale, scale, scale, method="trilinear"
    ).op == dynamic.DynUpsampling3d(method="trilinear")
    begin, end = (var(n, shape=(1,), dtype="int64") for n in ("begin", "end"))
    part = relay.strided_slice(x, begin, end, axes=(1,))
    assert part.op == dynamic.DynStridedSlice(axes=(1,))
    found = part.tensor_type
    assert (found.shape[0], type(found.shape[1]), found.dtype) == (2, UnknownDim, "float32")
    agree(evaluate(Function([x, begin, end], part), value := real(2, 3), ints(1), ints(3)), value[:, 1:3])
    assert relay.strided_slice(x, begin, end=[2], strides=[1]).op == dynamic.DynStridedSlice()
    assert relay.topk(x, k=var("k", shape=(), dtype="int32"), axis=0).op == dynamic.DynTopK(axis=0)
    with pytest.raises(CompileError, match=r"transpose cannot take axes as a tensor"):
        relay.transpose(x, axes=shape)
    with pytest.raises(
        CompileError,
        match=r"one_hot cannot take axis as a tensor; dyn.one_hot takes indices, on_value, off_value, depth"
    ):
        relay.one_hot(var("i", shape=(2,), dtype="int32"), const(1.0), const(0.0), depth=3, axis=shape)


@pytest.mark.parametrize("kind", ["graph", "vm", "debug"])
def test_ranges_whose_ends_are_computed(kind: str) -> None:
    n = var("n", shape=(), dtype="int64")
    program = IRModule.from_expr(
        Function(
            [n],
            relay.Tuple([relay.arange(n, dtype="int32"), relay.arange(const(1), relay.add(n, const(1, "int64")), 2)])
        )
    )
    run = relay.create_executor(kind, program).evaluate()
    for count in (4, 0, 7):
        agree(
            tuple(r.numpy() for r in run(ints(count)[0])),
            (np.arange(count, dtype="int32"), np.arange(1, count + 1, 2, dtype="float32"))
        )


def test_what_dynamic_operators_refuse() -> None:
    x = var("x", shape=(2, 3))
    with pytest.raises(ShapeError, match=r"stop must be one number, and it is"):
        relay.op.get("dyn.arange")()(const(0), x, const(1)).checked_type  # noqa: B018
    with pytest.raises(ShapeError, match="newshape must be a vector of integers of known length, and it is float32"):
        dynamic.DynReshape()(x, const(1.0))
    with pytest.raises(ShapeError, match=r"begin has 3 numbers, and the data \(2, 3\) has 2 dimensions"):
        dynamic.DynStridedSlice()(x, const(ints(0, 0, 0)), const(ints(1, 1, 1)), const(ints(1, 1, 1)))
    with pytest.raises(ShapeError, match=r"begin has 1 numbers for the 2 axes \(0, 1\)"):
        dynamic.DynStridedSlice(axes=(0, 1))(x, const(ints(0)), const(ints(1)), const(ints(1)))
    with pytest.raises(ShapeError, match="max_output_size must be one number, and it is"):
        dynamic.DynNonMaxSuppression()(
            var("d", shape=(1, 4, 6)), const(ints(4)), var("i", shape=(1, 4), dtype="int32"), const(ints(2)),
            const(0.5))
    with pytest.raises(
        ShapeError, match=r"pad_width must have the shape \(2, 2\), a pair for each dimension, and it has \(3, 2\)"
    ):
        dynamic.DynPad()(x, const(np.zeros((3, 2), "int64")), const(0.0))
    with pytest.raises(ShapeError, match=r"data must have 5 dimensions; it has 2: \(2, 3\)"):
        dynamic.DynUpsampling3d()(x, const(1.0), const(1.0), const(1.0))


def test_a_dimension_of_unknown_size_can_be_squeezed() -> None:
    x = var("x", shape=(UnknownDim(), UnknownDim()))
    program = IRModule.from_expr(Function([x], relay.squeeze(x, axis=[0])))
    run = relay.create_executor("vm", program).evaluate()
    value = real(1, 5)
    agree(run(value).numpy(), value[0])
    with pytest.raises(ShapeError, match=r"dimension 0 of \(2, 5\) is 2 and cannot be squeezed"):
        run(real(2, 5))


def test_programs_of_known_shapes_compile() -> None:
    x = var("x", shape=(2, 6))
    shape = relay.concatenate(
        [relay.strided_slice(relay.shape_of(x, dtype="int64"), begin=(0,), end=(1,)), relay.Constant(ints(3, 2))]
    )
    mod = IRModule.from_expr(relay.exp(relay.reshape(x, shape)))
    graph = relay.build(mod, target="llvm")
    from tilewright.runtime.graph_executor import GraphModule

    runner = GraphModule(graph["default"](tilewright.cpu()))
    value = real(2, 6)
    runner.run(x=value)
    np.testing.assert_allclose(runner.get_output(0).numpy(), np.exp(value.reshape(2, 3, 2)), rtol=1e-5)


@pytest.mark.parametrize("kind", ["debug", "vm", "graph"])
def test_executors_of_programs_whose_sizes_are_in_their_values(kind: str) -> None:
    node = onnx.helper.make_node("Expand", ["x", "shape"], ["y"])  # waits for its shape
    given = [
        onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [3]),
        onnx.helper.make_tensor_value_info("shape", onnx.TensorProto.INT64, [2])
    ]
    graph = onnx.helper.make_graph(
        [node], "g", given, [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)]
    )
    mod, _ = relay.frontend.from_onnx(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    )
    run = relay.create_executor(kind, mod=mod, target="llvm").evaluate()
    value = real(3)
    for wanted in (ints(2, 3), ints(4, 3)):
        np.testing.assert_array_equal(run(value, shape=wanted).numpy(), np.broadcast_to(value, wanted))
