"""Loop, Scan and If of ONNX, compiled, against ONNX Runtime; what they refuse; and loops of relay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tvm
from tilewright import relay
from tilewright.base.errors import ModelError, ShapeError
from tilewright.base.types import TensorType
from tilewright.compiler.flow import needs_control
from tilewright.relay.frontend.onnx import from_onnx
from tilewright.relay.interpreter import evaluate
from tilewright.relay.loops import while_loop

ort = pytest.importorskip("onnxruntime")

Array = np.ndarray[Any, Any]
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
info, node = helper.make_tensor_value_info, helper.make_node
X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((4, 4)).astype(np.float32)


def model(
    nodes: Sequence[Any], inputs: dict[str, Array], outputs: dict[str, int], opset: int = 17, **stored: Any
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes), "g", [info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in inputs.items()],
        [info(n, t, None) for n, t in outputs.items()],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in stored.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def compare(m: onnx.ModelProto, inputs: dict[str, Array]) -> None:
    wanted = ort.InferenceSession(m.SerializeToString()).run(None, inputs)
    got = tvm.compile(m)(**inputs)
    for g, w in zip(got if isinstance(got, tuple) else (got,), wanted, strict=True):
        assert g.shape == w.shape
        assert g.dtype == w.dtype
        np.testing.assert_allclose(g, w, 1e-4, 1e-5)


def body(*more: Any, condition: str = "c", gathers: bool = True) -> onnx.GraphProto:
    """s = tanh(s + x @ w), of which each turn gives a copy."""
    nodes = [
        node("MatMul", ["x", "w"], ["xw"]), node("Add", ["s", "xw"], ["a"]), node("Tanh", ["a"], ["s2"]),
        node("Identity", ["s2"], ["y"]), *more
    ]
    outputs = [info(condition, BOOL, []), info("s2", FLOAT, [3, 4]), *([info("y", FLOAT, [3, 4])] if gathers else [])]
    return helper.make_graph(nodes, "b", [info("i", INT64, []), info("c", BOOL, []), info("s", FLOAT, [3, 4])], outputs)


@pytest.mark.parametrize("count", [0, 1, 3, 5, 100])
def test_loop_gathers(count: int) -> None:
    m = model(
        [node("Loop", ["M", "", "x"], ["last", "all"], body=body())], {"x": X}, {"last": FLOAT, "all": FLOAT}, M=count,
        w=W
    )
    compare(m, {"x": X})
    assert needs_control(from_onnx(m)[0]["main"]) == (count > 4)


@pytest.mark.parametrize("ends", [["", "", "x"], ["M", "", "x"], ["", "k", "x"], ["n", "k", "x"]])
@pytest.mark.parametrize("first", [True, False])
def test_while(ends: list[str], first: bool) -> None:
    """A condition that is computed, and a trip count that only the data says."""
    inner = helper.make_graph(
        [
            node("Add", ["s", "x"], ["s2"]), node("ReduceSum", ["s2"], ["t"], keepdims=0),
            node("Less", ["t", "most"], ["c2"])
        ], "b",
        [info("i", INT64, []), info("c", BOOL, []), info("s", FLOAT, [3, 4])],
        [info("c2", BOOL, []), info("s2", FLOAT, [3, 4])],
    )
    given = {"x": np.abs(X), "n": np.asarray(4), "k": np.asarray(first)}
    compare(model([node("Loop", ends, ["last"], body=inner)], given, {"last": FLOAT}, M=20, most=np.float32(50)), given)


def test_a_condition_that_is_made_of_itself_is_refused() -> None:
    circle = [node("Identity", ["c2"], ["c3"]), node("Identity", ["c3"], ["c2"])]
    m = model(
        [node("Loop", ["M", "", "x"], ["last"], body=body(*circle, condition="c2", gathers=False))], {"x": X},
        {"last": FLOAT}, M=3, w=W
    )
    with pytest.raises(
        ModelError,
        match=r"Loop 'Loop_0': the graph 'b' has a cycle through these nodes: Identity 'Identity_4', Identity "
        r"'Identity_5'"
    ):
        from_onnx(m)


@pytest.mark.parametrize("count", [3, 12])
@pytest.mark.parametrize("op", ["Loop", "Scan"])
def test_turns_that_are_not_alike_are_copied_out(op: str, count: int) -> None:
    """A slice whose size is the number of the turn, summed."""
    nodes = [
        node("Unsqueeze", ["i", "zero"], ["end"]), node("Slice", ["x", "zero", "end"], ["p"]),
        node("ReduceSum", ["p"], ["t"], keepdims=0), node("Add", ["s", "t"], ["s2"]), node("Identity", ["s2"], ["y"])
    ]
    states = [info("s", FLOAT, [])], [info("s2", FLOAT, []), info("y", FLOAT, [])]
    stored: dict[str, Any] = {"zero": np.array([0]), "start": np.float32(1), "M": count, "places": np.arange(count)}
    if op == "Loop":
        made = node(
            "Loop", ["M", "", "start"], ["last", "all"],
            body=helper.make_graph(
                nodes, "b", [info("i", INT64, []), info("c", BOOL, []), *states[0]], [info("c", BOOL, []), *states[1]]
            )
        )
    else:
        made = node(
            "Scan", ["start", "places"], ["last", "all"], num_scan_inputs=1,
            body=helper.make_graph(nodes, "b", [*states[0], info("i", INT64, [])], states[1])
        )
    given = {"x": np.random.default_rng(5).standard_normal(20).astype(np.float32)}
    compare(model([made], given, {"last": FLOAT, "all": FLOAT}, **stored), given)


@pytest.mark.parametrize("count", [2, 9])
@pytest.mark.parametrize("first", [True, False])
def test_a_condition_before_the_first_turn(count: int, first: bool) -> None:
    given = {"x": X, "k": np.asarray(first)}
    compare(
        model(
            [node("Loop", ["M", "k", "x"], ["last"], body=body(gathers=False))], given, {"last": FLOAT}, M=count, w=W
        ), given
    )


def growing() -> onnx.GraphProto:
    return helper.make_graph([node("Concat", ["s", "x"], ["s2"], axis=0), node("Identity", ["c"], ["c2"])], "b",
                             [info("i", INT64, []), info("c", BOOL, []), info("s", FLOAT, None)],
                             [info("c2", BOOL, []), info("s2", FLOAT, None)])


@pytest.mark.parametrize("count", [2, 10])
def test_shapes_that_change_are_copied_out(count: int) -> None:
    compare(
        model([node("Loop", ["M", "", "x"], ["last"], body=growing())], {"x": X}, {"last": FLOAT}, M=count), {"x": X}
    )


def test_shapes_that_change_for_long_are_refused() -> None:
    m = model([node("Loop", ["M", "", "x"], ["last"], body=growing())], {"x": X}, {"last": FLOAT}, M=70)
    with pytest.raises(
        ModelError,
        match=r"Loop 'Loop_0': it has 70 turns and values whose types change in them, which are copied out up to 64 "
        r"turns"
    ):
        tvm.compile(m)


def test_shapes_that_change_in_a_while_are_refused() -> None:
    m = model([node("Loop", ["", "", "x"], ["last"], body=growing())], {"x": X}, {"last": FLOAT})
    with pytest.raises(
        ModelError,
        match="it has more than 64 turns and values whose types change in them, which are copied out up to 64 turns"
    ):
        tvm.compile(m)


def test_gathering_without_a_count_is_refused() -> None:
    m = model([node("Loop", ["", "", "x"], ["last", "all"], body=body())], {"x": X}, {"last": FLOAT, "all": FLOAT}, w=W)
    with pytest.raises(ModelError, match="it has no trip count, and gives sequences or what each turn adds"):
        tvm.compile(m)


def test_loop_in_a_loop() -> None:
    """The inner one sees values of both graphs around it, among them one that the outer one computes."""
    inner = helper.make_graph([
        node("Mul", ["s", "half"], ["h"]), node("Add", ["h", "o2"], ["n"]), node("MatMul", ["x", "w"], ["xw"]),
        node("Add", ["n", "xw"], ["s2"])
    ],
                              "inner", [info("i", INT64, []), info("c", BOOL, []), info("s", FLOAT, [3, 4])],
                              [info("c", BOOL, []), info("s2", FLOAT, [3, 4])])
    outer = helper.make_graph([
        node("Tanh", ["o"], ["o2"]), node("Loop", ["N", "", "o2"], ["o3"], body=inner),
        node("ReduceSum", ["o3"], ["y"], keepdims=0)
    ],
                              "outer", [info("j", INT64, []), info("d", BOOL, []), info("o", FLOAT, [3, 4])],
                              [info("d", BOOL, []), info("o3", FLOAT, [3, 4]), info("y", FLOAT, [])])
    m = model(
        [node("Loop", ["M", "", "x"], ["last", "sums"], body=outer)], {"x": X}, {"last": FLOAT, "sums": FLOAT}, M=7,
        N=6, w=W, half=np.float32(0.5)
    )
    compare(m, {"x": X})
    np.testing.assert_allclose(evaluate(from_onnx(m)[0]["main"], X)[0], tvm.compile(m)(X)[0], 1e-4, 1e-5)


@pytest.mark.parametrize("count", [3, 9])
@pytest.mark.parametrize(
    "attrs",
    [
        {}, {"scan_input_axes": [1, 2]}, {"scan_input_directions": [1, 0]},
        {"scan_output_axes": [1], "scan_output_directions": [1]}
    ]
)
def test_scan(count: int, attrs: dict[str, Any]) -> None:
    inner = helper.make_graph([
        node("MatMul", ["s", "w"], ["sw"]), node("Add", ["sw", "p"], ["t"]), node("Mul", ["t", "q"], ["u"]),
        node("Tanh", ["u"], ["s2"]), node("Neg", ["s2"], ["y"])
    ],
                              "b", [info(n, FLOAT, [3, 4]) for n in "spq"],
                              [info("s2", FLOAT, [3, 4]), info("y", FLOAT, [3, 4])])
    rng = np.random.default_rng(2)
    axes = attrs.get("scan_input_axes", [0, 0])
    given = {"x": X} | {
        n: np.moveaxis(rng.standard_normal((count, 3, 4)).astype(np.float32), 0, a).copy() for n,
        a in zip("pq", axes, strict=True)
    }
    scanned = node("Scan", ["x", "p", "q"], ["last", "all"], body=inner, num_scan_inputs=2, **attrs)
    compare(model([scanned], given, {"last": FLOAT, "all": FLOAT}, w=W), given)


def test_scan_of_samples_of_different_lengths() -> None:
    inner = helper.make_graph([
        node("Add", ["s", "p"], ["s2"]), node("Identity", ["s2"], ["y"])
    ], "b", [info(n, FLOAT, [2]) for n in "sp"],
                              [info("s2", FLOAT, [2]), info("y", FLOAT, [2])])
    given = {"s0": np.ones((2, 2), np.float32), "p": np.arange(20, dtype=np.float32).reshape(2, 5, 2)}
    got = tvm.compile(model([
        node("Scan", ["lengths", "s0", "p"], ["last", "all"], body=inner, num_scan_inputs=1)
    ], given, {"last": FLOAT, "all": FLOAT}, opset=8,
                            lengths=np.array([5, 2])))(**given)
    sums = 1 + np.cumsum(given["p"], 1)
    np.testing.assert_allclose(got[0], [sums[0, 4], sums[1, 1]])
    np.testing.assert_allclose(got[1], [sums[0], [*sums[1, :2], *np.zeros((3, 2))]])


def test_scans_of_different_lengths_are_refused() -> None:
    inner = helper.make_graph(
        [node("Add", ["p", "q"], ["y"])], "b", [info(n, FLOAT, [4]) for n in "pq"], [info("y", FLOAT, [4])]
    )
    m = model([node("Scan", ["x", "z"], ["all"], body=inner, num_scan_inputs=2)], {"x": X, "z": X[:2]}, {"all": FLOAT})
    with pytest.raises(ModelError, match="its scanned inputs have 2, 3 slices"):
        tvm.compile(m)


def choice(condition: bool | None) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """One branch gives two rows, the other three."""
    branches = [
        helper.make_graph([node("Slice", ["x", "zero", end], ["y"])], end, [], [info("y", FLOAT, None)])
        for end in ("two", "three")
    ]
    given: dict[str, Array] = {"x": X} | ({"k": np.asarray(True)} if condition is None else {})
    stored: dict[str, Any] = {} if condition is None else {"k": np.asarray(condition)}
    return model(
        [node("If", ["k"], ["y"], then_branch=branches[0], else_branch=branches[1])], given, {"y": FLOAT},
        zero=np.array([0]), two=np.array([2]), three=np.array([3]), **stored
    ), given


@pytest.mark.parametrize("condition", [True, False])
def test_if_of_different_shapes(condition: bool) -> None:
    compare(*choice(condition))


def test_if_of_different_shapes_waits_for_its_condition() -> None:
    built, given = choice(None)
    for k in (True, False, True):
        compare(built, given | {"k": np.asarray(k)})


def test_while_loop_of_relay() -> None:
    n, x = relay.var("n", shape=(), dtype="int32"), relay.var("x", shape=(2,))
    loop = while_loop(
        lambda i, s: relay.less(i, n), [relay.const(0), x], lambda i, s: [i + relay.const(1), s * relay.const(2.0)]
    )
    main = relay.Function([n, x], relay.TupleGetItem(relay.Call(loop, [relay.const(0), x]), 1))
    given = np.int32(5), np.array([1, 3], np.float32)
    np.testing.assert_array_equal(relay.build(main, "llvm").executable(*map(np.asarray, given)), [32, 96])
    np.testing.assert_array_equal(evaluate(main, *map(np.asarray, given)), [32, 96])


def test_a_loop_keeps_its_types() -> None:
    x = relay.var("x", shape=(2,))
    with pytest.raises(
        ShapeError, match=r"loop variable 'x' has type Tensor.* before an iteration, and Tensor.* after it"
    ):
        while_loop(lambda s: relay.const(True), [x], lambda s: [relay.concatenate([s, s], 0)])


def test_what_is_written_into_is_copied_where_somebody_else_has_it() -> None:
    """The rows of a tensor that is needed later are written into a copy, those of one that is not in place."""
    data, row = relay.var("data", shape=(3, 2)), relay.var("row", shape=(2,))
    k = relay.var("k", TensorType((), "int64"))
    kept = relay.nn.relu(data)
    once = relay.write_row(kept, row, k)
    twice = relay.write_row(once, row * relay.const(2.0), relay.const(2, "int64"))
    main = relay.Function(
        [data, row, k],
        relay.If(relay.less(k, relay.const(7, "int64")), relay.Tuple([kept, twice]), relay.Tuple([kept, kept]))
    )
    given = np.arange(6, dtype=np.float32).reshape(3, 2), np.array([8, 9], np.float32)
    for place in (0, 1, 5, -1):
        got = relay.build(main, "llvm").executable(*given, np.asarray(place))
        wanted = given[0].copy()
        if 0 <= place < 3:
            wanted[place] = given[1]
        wanted[2] = given[1] * 2
        np.testing.assert_array_equal(got[0], given[0])
        np.testing.assert_array_equal(got[1], wanted)
