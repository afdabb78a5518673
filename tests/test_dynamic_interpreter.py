"""Programs whose sizes are only known while they run, run on values."""

from __future__ import annotations

import tracemalloc
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases

import tilewright
from small_models import onnxruntime_answers
from tilewright import relay
from tilewright.base.errors import ModelError, Origin, RunError, ShapeError
from tilewright.compiler.staged import MOST_EDGES, Stages
from tilewright.relay import dynamic_interpreter
from tilewright.relay.dynamic_interpreter import Conversions, DynamicProgram, TooLargeError, meaning_of
from tilewright.relay.expr import Call, Function, Tuple, Var
from tilewright.relay.frontend.onnx import registry
from tilewright.relay.frontend.onnx.deferred import defer
from tilewright.relay.interpreter import evaluate

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
Array = np.ndarray[Any, Any]


def floats(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def waiting(kind: str, count: int, **attributes: Any) -> Call:
    """A node of which nothing is known but how many inputs it has."""
    names = [f"x{k}" for k in range(count)]
    proto = helper.make_node(kind, names, ["y"], **attributes)
    (made,) = defer(
        proto, Origin("here", kind), {"": 18}, (), {"use_nt_batch_matmul": False}, {n: Var(n, None) for n in names}
    )
    assert isinstance(made, Call)
    return made


def over_variables(call: Call) -> Function:
    """The function of a call of variables."""
    return Function([v for v in call.args if isinstance(v, Var)], call)


def stages_of(model: tilewright.Model) -> Stages:
    assert model._stages is not None
    return model._stages


def conversions_of(call: Call, *given: tuple[Array, ...]) -> int:
    """How many conversions these inputs need; each answer is that of converting for them alone."""
    function = over_variables(call)
    made = Conversions(1 << 20)
    run = meaning_of(function, made)
    for args in given:
        np.testing.assert_array_equal(run(*args), evaluate(function, *args))
    return sum(len(alike) for alike in made.of(call.op)._all.values())


def test_what_sizes_do_not_decide_is_converted_once() -> None:
    data, sizes = floats(9, 3), [2, 7, 4, 9]
    assert conversions_of(waiting("Gather", 2), *((data[:n], np.arange(n) - 1) for n in sizes)) == 1
    assert conversions_of(waiting("Shape", 1), *((data[:n],) for n in sizes)) == 1
    assert conversions_of(waiting("Concat", 3, axis=0), *((data[:n], data, data[: n // 2]) for n in sizes)) == 1
    assert conversions_of(waiting("Add", 2), *((data[:n], data[:n]) for n in sizes)) == 1
    assert conversions_of(waiting("Transpose", 1), *((data[:n],) for n in sizes)) == 1


def test_what_sizes_decide_is_converted_for_each_answer() -> None:
    data = floats(9, 3)
    one = floats(1, 3)
    assert conversions_of(
        waiting("Add", 2), (data, data), (data, one), (data[:4], one), (one, data[:5]), (one, one)
    ) == 3
    assert conversions_of(waiting("Squeeze", 1), (data,), (one,), (data[:4],)) == 2
    first, last = np.array([1]), np.array([6])
    # up to 6, up to the end, nothing
    assert conversions_of(waiting("Slice", 3), *((data[:n], first, last) for n in (2, 7, 4, 9, 8, 3, 1, 0))) == 3


def test_what_values_decide_is_converted_for_each_value() -> None:
    data = floats(9, 3)
    assert conversions_of(
        waiting("ReduceSum", 2), *((data[:n], np.array([axis])) for n in (2, 5) for axis in (0, 1))
    ) == 2


def test_nodes_of_one_kind_share_their_conversions() -> None:
    a, b = waiting("Neg", 1), waiting("Neg", 1)
    proto = helper.make_node("Neg", ["other"], ["name"], name="called")
    (c,) = defer(
        proto, Origin("called", "Neg"), {"": 18}, (), {"use_nt_batch_matmul": False}, {"other": Var("other", None)}
    )
    made = Conversions(1 << 20)
    assert made.of(a.op) is made.of(b.op) is made.of(c.op)  # type: ignore[attr-defined]
    assert made.of(a.op) is not made.of(waiting("Abs", 1).op)


def test_conversions_and_sizes_that_are_kept_are_few() -> None:
    call = waiting("ReduceSum", 2)
    made = Conversions(1 << 20)
    run = meaning_of(over_variables(call), made)
    for n in range(dynamic_interpreter.MOST_SIZES + 5):
        run(floats(n + 1), np.array([0]))
    kept = made.of(call.op)
    assert len(kept._known) <= dynamic_interpreter.MOST_SIZES
    assert all(len(alike) <= dynamic_interpreter.MOST_CONVERSIONS for alike in kept._all.values())


def test_errors_name_the_node_that_was_given_the_values() -> None:
    data = Var("data", None)
    calls = []
    for name in ("first", "second"):
        proto = helper.make_node("Concat", ["a", "b"], ["y"], axis=0)
        calls += defer(
            proto, Origin(name, "Concat"), {"": 18}, (), {"use_nt_batch_matmul": False},
            {"a": data, "b": Var("b", None)}
        )
    b, c = calls[0].args[1], calls[1].args[1]  # type: ignore[attr-defined]
    run = meaning_of(Function([data, b, c], Tuple(tuple(calls))), Conversions(1 << 20))
    assert [x.shape for x in run(floats(2, 3), floats(4, 3), floats(1, 3))] == [(6, 3), (3, 3)]
    with pytest.raises(ShapeError, match="Concat 'second'"):
        run(floats(2, 3), floats(4, 3), floats(1, 2))


def test_values_without_meaning_name_the_node() -> None:
    x, n = relay.var("x", shape=(4,)), relay.var("n", shape=(1,), dtype="int64")
    call = Call(relay.op.get("dyn.reshape")(), [x, n], span=Origin("here", "Reshape"))
    run = meaning_of(Function([x, n], call), Conversions(1 << 20))
    with pytest.raises(ShapeError, match=r"Reshape 'here': dyn.reshape: \(4,\) has 4 elements"):
        run(floats(4), np.array([3]))
    total = Call(relay.op.get("add")(), [Var("y", None), Var("z", None)], span=Origin("there", "Add"))
    with pytest.raises(
        RunError, match=r"Add 'there': add of float32\[2\], float32\[3\] fails for these values"
    ):
        meaning_of(over_variables(total), Conversions(1 << 20))(floats(2), floats(3))


def test_operators_with_much_to_do_are_too_large() -> None:
    call = waiting("MatMul", 2)
    run = meaning_of(over_variables(call), Conversions(1 << 12))
    assert run(floats(3, 4), floats(4, 5)).shape == (3, 5)
    with pytest.raises(TooLargeError):
        run(floats(300, 40), floats(40, 50))


def test_only_operators_run_on_values() -> None:
    x, c = relay.var("x", shape=(relay.Any(),)), relay.var("c", shape=(), dtype="bool")
    with pytest.raises(TooLargeError):
        DynamicProgram(
            Function([x, c], relay.If(c, relay.exp(x), relay.tanh(x))), Conversions(1 << 20)
        )([floats(2), np.array(True)])


def test_outputs_are_arrays_of_their_own() -> None:
    x = relay.var("x", shape=(relay.Any(), 3))
    value = floats(2, 3)
    (a, b, c), lists = DynamicProgram(
        Function([x], Tuple((x, relay.transpose(x), Tuple((x,))))), Conversions(1 << 20)
    )([value])
    assert lists == ()
    assert a is not value and b.flags.c_contiguous and not np.shares_memory(b, value) and not np.shares_memory(a, c)


def test_a_prepared_function_gives_what_evaluating_it_gives() -> None:
    x, y = relay.var("x", shape=(2, 3)), relay.var("y", shape=(2, 3))
    parts = relay.split(relay.concatenate((relay.exp(x), y), axis=1), 2, axis=1)
    tuples = relay.Function([x, y], relay.Tuple([parts[0] + parts[1], relay.const(2.0), y]))
    branch = relay.Function([x, y], relay.If(relay.const(True), x + y, y))
    for function in (tuples, branch):
        given = floats(2, 3), floats(2, 3, seed=1)
        run = meaning_of(function)
        for found in (run(*given), run(*given)):
            for got, wanted in zip(np.atleast_1d(*found), np.atleast_1d(*evaluate(function, *given)), strict=True):
                np.testing.assert_array_equal(got, wanted)


@pytest.mark.slow
def test_every_node_of_the_conformance_suite_runs_on_values() -> None:
    """With stand-ins for sizes in its conversion, each gives what it gives when it is converted for its sizes."""
    tried = 0
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for case in collect_testcases(None):
            model, given = case.model, case.data_sets or ()
            if model is None or len(model.graph.node) != 1 or model.graph.initializer:
                continue
            for inputs, _ in given:
                if all(isinstance(x, (np.ndarray, np.generic)) for x in inputs):
                    tried += _agrees(model, list(map(np.asarray, inputs)), case.name)
    assert tried > 1000


def _agrees(proto: onnx.ModelProto, inputs: list[Array], name: str) -> bool:
    (node,) = proto.graph.node
    params = {i.name: Var(i.name, None) for i in proto.graph.input}
    opsets = {registry.domain_of(o.domain): o.version for o in proto.opset_import}
    outputs = defer(node, Origin(name, node.op_type), opsets, proto.functions, {"use_nt_batch_matmul": False}, params)
    function = Function(list(params.values()), Tuple(tuple(outputs)))
    run = meaning_of(function, Conversions(1e18))
    try:
        answers = [list(_tensors(run(*inputs))) for _ in range(2)]
    except TooLargeError:
        return False  # a loop
    for found in answers:
        for got, wanted in zip(found, _tensors(evaluate(function, *inputs)), strict=True):
            assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype), name
            if got.dtype.kind in "fcV":
                np.testing.assert_allclose(
                    got.astype(np.complex128), wanted.astype(np.complex128), 1e-4, 1e-6, err_msg=name
                )
            else:
                np.testing.assert_array_equal(got, wanted, name)
    return True


def _tensors(value: Any) -> Iterator[Array]:
    if isinstance(value, tuple):
        for part in value:
            yield from _tensors(part)
    elif value is not None:
        yield value


# --- whole programs
# ----------------------------------------------------------------------------------------------------------


def detector(boxes: int = 24, classes: int = 3) -> onnx.ModelProto:
    """The boxes of each class that are sure enough, the best ten of them, all classes together; nothing where there is
    none."""
    nodes, found, labels = [], [], []
    weights: dict[str, Any] = {
        "sure": np.float32(0.5), "zero": [0], "one": [1], "ten": [10], "all": [-1], "first": np.array(0),
        "two": np.float32(2)
    }
    for k in range(classes):
        weights[f"k{k}"] = np.array(k)
        nodes += [
            helper.make_node("Gather", ["scores", f"k{k}"], [f"s{k}"], axis=1),
            helper.make_node("Greater", [f"s{k}", "sure"], [f"m{k}"]),
            helper.make_node("NonZero", [f"m{k}"], [f"n{k}"]), helper.make_node("Transpose", [f"n{k}"], [f"t{k}"]),
            helper.make_node("GatherND", [f"s{k}", f"t{k}"], [f"v{k}"]),
            helper.make_node("NonZero", [f"m{k}"], [f"o{k}"]),
            helper.make_node("Transpose", [f"o{k}"], [f"u{k}"]),
            helper.make_node("GatherND", ["boxes", f"u{k}"], [f"b{k}"]),
            helper.make_node("Shape", [f"v{k}"], [f"c{k}"]),
            helper.make_node("Concat", [f"c{k}", "ten"], [f"d{k}"], axis=0),
            helper.make_node("ReduceMin", [f"d{k}"], [f"e{k}"], keepdims=1),
            helper.make_node("TopK", [f"v{k}", f"e{k}"], [f"w{k}", f"i{k}"]),
            helper.make_node("Gather", [f"b{k}", f"i{k}"], [f"f{k}"], axis=0),
            helper.make_node(
                "ConstantOfShape", [f"e{k}"], [f"l{k}"], value=numpy_helper.from_array(np.array([k], np.int64))
            ),
        ]
        found.append(f"f{k}")
        labels.append(f"l{k}")
    none = helper.make_graph(
        [helper.make_node("Identity", ["together"], ["same"])], "none", [],
        [helper.make_tensor_value_info("same", FLOAT, None)]
    )
    some = helper.make_graph(
        [
            helper.make_node("ReduceMax", ["together"], ["most"]),
            helper.make_node("Div", ["together", "most"], ["scaled"])
        ], "some", [],
        [helper.make_tensor_value_info("scaled", FLOAT, None)])
    nodes += [
        helper.make_node("Concat", found, ["together"], axis=0), helper.make_node("Concat", labels, ["label"], axis=0),
        helper.make_node("Shape", ["label"], ["count"]), helper.make_node("Gather", ["count", "first"], ["number"]),
        helper.make_node("Equal", ["number", "first"], ["empty"]),
        helper.make_node("If", ["empty"], ["chosen"], then_branch=none, else_branch=some),
        helper.make_node("Mul", ["chosen", "two"], ["box"]),
    ]
    graph = helper.make_graph(
        nodes, "g",
        [
            helper.make_tensor_value_info("boxes", FLOAT, (boxes, 4)),
            helper.make_tensor_value_info("scores", FLOAT, (boxes, classes))
        ],
        [helper.make_tensor_value_info("box", FLOAT, None), helper.make_tensor_value_info("label", INT64, None)],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def picture(*counts: int, boxes: int = 24) -> dict[str, Array]:
    """Boxes of which so many are sure of each class."""
    random = np.random.default_rng(list(counts))
    scores = random.uniform(0, 0.4, (boxes, len(counts)))
    for k, n in enumerate(counts):
        scores[random.permutation(boxes)[:n], k] += 0.55
    return {"boxes": random.random((boxes, 4), np.float32) + 0.1, "scores": scores.astype(np.float32)}


def test_counts_that_were_not_met_before() -> None:
    proto = detector()
    compiled = tilewright.compile(proto)
    counts = [
        (2, 3, 4), (0, 0, 0), (24, 24, 24), (0, 1, 0), (1, 1, 1), (24, 0, 7), (10, 10, 10), (11, 9, 0), (5, 6, 7),
        (0, 0, 24), (3, 12, 1)
    ]
    for feed in [picture(*c) for c in counts]:
        for got, wanted in zip(compiled(feed), onnxruntime_answers(proto, feed), strict=True):
            assert got.dtype == wanted.dtype
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    # the first counts, and what is behind them
    assert sum(e.program is not None for e in stages_of(compiled).edges()) <= 4


def test_memory_does_not_grow_with_the_counts() -> None:
    compiled = tilewright.compile(detector())
    random = np.random.default_rng(0)
    feeds = [picture(*random.integers(0, 25, 3)) for _ in range(120)]
    for feed in feeds[:60]:
        compiled(feed)
    tracemalloc.start()
    for feed in feeds[60:80]:
        compiled(feed)
    before = tracemalloc.get_traced_memory()[0]
    for feed in feeds[80:]:
        compiled(feed)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 1 << 20
    points = [e.next for e in stages_of(compiled).edges() if e.next is not None]
    assert all(len(p.seen) <= MOST_EDGES for p in points)


def test_no_elements_are_asked_for() -> None:
    """Of five elements the greatest none: an empty result, as it was with a K that is known, and one that is
    computed."""
    graph = helper.make_graph(
        [helper.make_node("TopK", ["x", "k"], ["v", "i"])], "g",
        [helper.make_tensor_value_info("x", FLOAT, (2, 5)), helper.make_tensor_value_info("k", INT64, (1,))],
        [helper.make_tensor_value_info("v", FLOAT, None), helper.make_tensor_value_info("i", INT64, None)])
    compiled = tilewright.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))
    for k in (3, 0, 1):
        values, places = compiled(floats(2, 5), np.array([k]))
        assert (values.shape, places.shape, places.dtype) == ((2, k), (2, k), np.int64)
    with pytest.raises(ModelError, match=r"K \(the number of results\) is -1; it must not be negative"):
        compiled(floats(2, 5), np.array([-1]))


def test_moving_much_is_not_too_large() -> None:
    x, n = relay.var("x", shape=(relay.Any(), 4)), relay.var("n", shape=(1,), dtype="int64")
    one, zero = relay.const([1], "int64"), relay.const([0], "int64")
    part = relay.transpose(Call(relay.op.get("dyn.strided_slice")(), [x, zero, n, one]), (1, 0))
    assert meaning_of(
        Function([x, n], part), Conversions(1 << 10)
    )(floats(5000, 4), np.array([4000])).shape == (4, 4000)
