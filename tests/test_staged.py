"""Programs in stages: sizes and values that are only known while a program runs."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from small_models import onnxruntime_answers, stages_of
from tilewright import relay
from tilewright.base.errors import CompileError, InputError, ModelError, ShapeError
from tilewright.base.types import TensorType
from tilewright.compiler import staged
from tilewright.compiler.cache import Cache
from tilewright.compiler.staged import MOST_EDGES, SETTLED
from tilewright.relay.expr import Call, Tuple, Var
from tilewright.relay.frontend.onnx import from_onnx
from tilewright.relay.interpreter import evaluate
from tilewright.relay.op.deferred import Deferred
from tilewright.relay.op.selection import UniqueSlices
from tilewright.relay.op.sorting import TopK
from tilewright.relay.transform.stages import cut, needs_stages, resolve
from tilewright.relay.visitor import calls

pytestmark = pytest.mark.filterwarnings("ignore::tilewright.base.errors.OpenSizeWarning")

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def node(kind: str, inputs: list[str], outputs: Any = None, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, inputs, [outputs] if isinstance(outputs, str) else outputs or ["y"], **attributes)


def model(
    nodes: list[onnx.NodeProto], inputs: dict[str, Any], outputs: Any = ("y",), weights: dict[str, Any] | None = None,
    kinds: dict[str, int] | None = None,
) -> onnx.ModelProto:
    taken = [helper.make_tensor_value_info(n, (kinds or {}).get(n, FLOAT), s) for n, s in inputs.items()]
    given = [helper.make_tensor_value_info(n, (kinds or {}).get(n, FLOAT), None) for n in outputs]
    stored = [numpy_helper.from_array(np.asarray(v), n) for n, v in (weights or {}).items()]
    return helper.make_model(
        helper.make_graph(nodes, "g", taken, given, stored), opset_imports=[helper.make_opsetid("", 18)], ir_version=9
    )


def same(proto: onnx.ModelProto, *given: dict[str, Any]) -> tilewright.Model:
    """The compiled model, which answers as ONNX Runtime does."""
    compiled = tilewright.compile(proto)
    for feed in given:
        answers = compiled(feed)
        for got, wanted in zip(
            answers if isinstance(answers, tuple) else (answers,), onnxruntime_answers(proto, feed), strict=True
        ):
            assert got.dtype == wanted.dtype
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    return compiled


def floats(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def axes_of_a_sum() -> onnx.ModelProto:
    return model([node("Exp", ["x"], "e"), node("ReduceSum", ["e", "axes"], "r", keepdims=0), node("Relu", ["r"])],
                 {"x": (2, 3), "axes": (1,)}, kinds={"axes": INT64})


def any_axes_of_a_sum() -> onnx.ModelProto:
    """The same, for any number of axes."""
    proto = axes_of_a_sum()
    proto.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "n"
    return proto


def positive_rows(size: int = 5) -> onnx.ModelProto:
    """The rows of x whose largest element is positive, times a matrix."""
    nodes = [
        node("ReduceMax", ["x", "one"], "most", keepdims=0), node("Relu", ["most"], "some"),
        node("NonZero", ["some"], "where"),
        node("Reshape", ["where", "all"], "rows"), node("Gather", ["x", "rows"], "kept"), node("MatMul", ["kept", "w"]),
    ]
    return model(nodes, {"x": (size, 3)}, weights={"w": floats(3, 4, seed=1), "one": [1], "all": [-1]})


def rows(count: int, size: int = 5) -> np.ndarray[Any, Any]:
    """Rows of which `count` are positive."""
    return np.where(np.arange(size)[:, None] < count, np.abs(floats(size, 3)) + 1, -1).astype(np.float32)


# --- import and text
# ------------------------------------------------------------------------------------------------------


def test_a_node_that_waits_for_a_value_is_a_call_without_a_type() -> None:
    module, _ = from_onnx(axes_of_a_sum())
    total, relu = [c for c in calls(module["main"].body) if isinstance(c.op, Deferred)]
    assert (total.op.op_type, relu.op.op_type) == ("ReduceSum", "Relu")
    assert total.known_type() is None
    assert len(total.args) == 2
    assert str(total.span) == "ReduceSum 'ReduceSum_1'"
    x = floats(2, 3)
    np.testing.assert_allclose(evaluate(module, x, np.array([1])), np.exp(x).sum(1), rtol=1e-6)


def test_waiting_nodes_are_text_both_ways() -> None:
    module, _ = from_onnx(axes_of_a_sum())
    again = relay.parse(module.astext())
    assert again.astext() == module.astext()
    assert 'frontend.deferred(%0, %axes, source="onnx", op_type="ReduceSum", model="' in module.astext()
    x = floats(2, 3)
    np.testing.assert_array_equal(evaluate(again, x, np.array([0])), evaluate(module, x, np.array([0])))


def test_whether_a_waiting_node_is_pure() -> None:
    drawn = model([node("Dropout", ["x", "", "t"], "d"), node("Relu", ["d"])], {"x": (2,), "t": ()}, kinds={"t": BOOL})
    assert [c.op.pure for c in calls(from_onnx(drawn)[0]["main"].body)] == [False, True]
    same(drawn, {"x": floats(2), "t": np.array(False)})


# --- resolve and cut
# -----------------------------------------------------------------------------------------------------


def test_a_cut_takes_what_has_known_sizes() -> None:
    module, _ = from_onnx(axes_of_a_sum())
    function = module["main"]
    assert needs_stages(function)
    made = cut(
        resolve(function, [Var("x", TensorType((2, 3))), Var("axes", TensorType((1,), "int64"))], lambda e: None)
    )
    assert made.stage is not None
    assert [c.op.name for c in calls(made.stage.body)] == ["exp"]
    assert (made.takes, made.gives, made.sizers) == ((0,), (2, 1), ())
    assert made.rest is not None
    assert [c.op.op_type for c in calls(made.rest.body)] == ["ReduceSum", "Relu"]
    axes = made.rest.params[1]
    whole = resolve(made.rest, made.rest.params, lambda e: np.array([1]) if e is axes else None)
    assert not needs_stages(whole)
    assert whole.ret_type == TensorType((2,))


def test_a_branch_that_is_decided_is_taken_alone() -> None:
    x, n, c = relay.var("x", shape=(2, 3)), relay.var(
        "n", shape=(1,), dtype="int64"
    ), relay.var("c", shape=(), dtype="bool")
    body = relay.If(c, Call(relay.op.get("dyn.reshape")(), [x, n]), relay.exp(relay.reshape(x, (6,))))
    compiled = relay.create_executor("vm", tilewright.IRModule.from_expr(relay.Function([x, n, c], body))).evaluate()
    value = floats(2, 3)
    np.testing.assert_array_equal(compiled(value, np.array([6]), np.array(True)).numpy(), value.reshape(6))
    np.testing.assert_allclose(
        compiled(value, np.array([-7]), np.array(False)).numpy(), np.exp(value.reshape(6)), rtol=1e-6
    )


# --- the tree
# ------------------------------------------------------------------------------------------------------------


def test_values_of_inputs_are_the_key_of_the_root() -> None:
    x = floats(2, 3)
    compiled = same(
        axes_of_a_sum(), {"x": x, "axes": np.array([0])}, {"x": x, "axes": np.array([1])},
        {"x": x, "axes": np.array([0])}
    )
    root = stages_of(compiled).root
    assert root.asked == (1,)
    assert [e.is_whole and e.program is not None for e in root.edges.values()] == [True, True]


def test_texts_that_decide_are_told_apart_by_what_they_say() -> None:
    branches = [
        helper.make_graph([node("Identity", [name], "r")], name, [], [helper.make_tensor_value_info("r", FLOAT, None)])
        for name in ("two", "three")
    ]
    proto = model(
        [
            node("Equal", ["x", "word"], "is_it"), node("Squeeze", ["is_it"], "one"),
            node("If", ["one"], "y", then_branch=branches[0], else_branch=branches[1])
        ],
        {"x": (1,)}, weights={"two": floats(2), "three": floats(3)}, kinds={"x": TensorProto.STRING},
    )
    proto.graph.initializer.append(numpy_helper.from_array(np.array(["ab"], object), "word"))
    proto.opset_import[0].version = 19
    compiled = tilewright.compile(proto)
    for _ in range(3):
        assert [
            compiled(x=np.array(["".join(word)], object)).shape for word in (("a", "b"), ("b", "a"), ("c",))
        ] == [(2,), (3,), (3,)]
    root = stages_of(compiled).root
    assert root.asked == (0,) and len({*root.edges, *root.seen}) == 3


def test_stages_between_native_programs() -> None:
    proto = positive_rows(40)
    compiled = same(proto, *({"x": rows(n, 40)} for n in (2, 3, 2, 0, 5)))
    (first,) = stages_of(compiled).root.edges.values()
    assert first.next is not None
    (after,) = filter(None, first.next.symbolic.values())
    assert after.program is not None


@pytest.fixture
def known_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages of known sizes alone."""
    monkeypatch.setattr("tilewright.compiler.symbolic_stages.symbolic_stage", lambda *_: None)


@pytest.mark.usefixtures("known_sizes")
def test_counts_that_come_back_are_compiled_when_that_pays(slow_clock: int) -> None:
    compiled = same(positive_rows(), {"x": rows(1)})
    (first,) = stages_of(compiled).root.edges.values()
    assert first.next is not None
    for count in range(1, slow_clock + 3):
        x = rows(3)
        np.testing.assert_allclose(compiled(x), x[:3] @ floats(3, 4, seed=1), rtol=1e-5)
        edges = list(first.next.edges.values())
        assert len(edges) == 1 + (count > slow_clock)
        assert all(e.program is not None for e in edges)


@pytest.mark.usefixtures("known_sizes")
def test_where_nothing_runs_on_values_small_stages_are_compiled_when_that_pays(
    monkeypatch: pytest.MonkeyPatch, slow_clock: int
) -> None:
    monkeypatch.setattr(staged, "TRIED", 0)
    size = SETTLED + 3
    compiled = same(positive_rows(size), *({"x": rows(n, size)} for n in range(SETTLED)))
    (first,) = stages_of(compiled).root.edges.values()
    assert first.next is not None
    for count in range(1, slow_clock + 3):
        x = rows(SETTLED, size)
        np.testing.assert_allclose(compiled(x), x[:SETTLED] @ floats(3, 4, seed=1), rtol=1e-5)
        edge = next(reversed(first.next.edges.values()))
        assert (edge.program is not None) == (count > slow_clock)


@pytest.mark.usefixtures("known_sizes")
def test_where_counts_come_back_often_the_next_one_is_compiled_at_its_second_call(slow_clock: int) -> None:
    compiled = same(positive_rows(), {"x": rows(1)})
    for _ in range(slow_clock):
        compiled(rows(1))
    (first,) = stages_of(compiled).root.edges.values()
    assert first.next is not None
    compiled(rows(3))
    assert len(first.next.edges) == 1
    compiled(rows(3))
    assert [e.program is not None for e in first.next.edges.values()] == [True, True]


@pytest.mark.usefixtures("known_sizes")
def test_what_another_model_compiled_is_not_run_on_values(tmp_path: Path, slow_clock: int) -> None:
    kept = Cache(tmp_path / "cache")
    feeds = [{"x": floats(2, 3), "axes": np.array([axis])} for axis in (0, 1, -1, -2)] + [
        {"x": floats(2, 3), "axes": np.array([axis, other])} for axis, other in ((0, 1), (1, 0))
    ]
    first = tilewright.compile(any_axes_of_a_sum(), cache=kept)
    wanted = [first(feed) for _ in range(slow_clock) for feed in feeds][-len(feeds) :]
    assert all(e.program is not None for e in stages_of(first).root.edges.values())
    second = tilewright.compile(any_axes_of_a_sum(), cache=kept)
    for feed, right in zip(feeds, wanted, strict=True):
        np.testing.assert_array_equal(second(feed), right)
    assert [e.use.seconds for e in stages_of(second).root.edges.values()] == [0] * len(feeds)
    assert "llvm" not in second.report.phases


@pytest.mark.usefixtures("known_sizes")
def test_a_second_branch_is_compiled_when_that_pays(slow_clock: int) -> None:
    """Behind `SETTLED` shapes a new one runs by its numpy meaning, until that took as long as compiling."""
    compiled = same(
        branches_for_two_widths(), *({"x": floats(n, 4), "c": np.array(True)} for n in range(1, SETTLED + 2))
    )
    for count in range(1, slow_clock + 3):
        compiled(floats(2, 3), np.array(False))
        edge = next(reversed(stages_of(compiled).root.edges.values()))
        assert (edge.program is not None) == (count > slow_clock)


@pytest.mark.usefixtures("known_sizes")
@pytest.mark.parametrize("tried", [0, staged.TRIED])
def test_what_is_warmed_up_is_compiled_at_its_first_call(monkeypatch: pytest.MonkeyPatch, tried: int) -> None:
    monkeypatch.setattr(staged, "TRIED", tried)
    size = SETTLED + 3
    compiled = same(positive_rows(size), *({"x": rows(n, size)} for n in range(SETTLED)))
    x = rows(SETTLED, size)
    compiled.warm_up(x)
    (first,) = stages_of(compiled).root.edges.values()
    assert first.next is not None
    assert next(reversed(first.next.edges.values())).program is not None
    np.testing.assert_allclose(compiled(x=x), x[:SETTLED] @ floats(3, 4, seed=1), rtol=1e-5)


def test_warming_up_a_single_program_is_a_call() -> None:
    compiled = tilewright.compile(model([node("Relu", ["x"])], {"x": (2, 3)}))
    compiled.warm_up({"x": floats(2, 3)})
    with pytest.raises(InputError, match="the model has no input 'z'"):
        compiled.warm_up(z=floats(2, 3))


@pytest.mark.usefixtures("known_sizes")
def test_large_stages_are_compiled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged, "SMALL", 0)
    monkeypatch.setattr("tilewright.compiler.stage_growth.SMALL", 0)
    size = SETTLED + 3
    compiled = same(positive_rows(size), *({"x": rows(n, size)} for n in range(size)))
    assert all(e.program is not None for e in stages_of(compiled).edges())
    assert len(list(stages_of(compiled).edges())) == size + 1


@pytest.mark.usefixtures("known_sizes")
def test_edges_that_were_not_used_for_long_go(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_EDGES > SETTLED
    monkeypatch.setattr(staged, "MOST_EDGES", 2)
    monkeypatch.setattr(staged, "TRIED", 0)
    compiled = same(positive_rows(), *({"x": rows(n)} for n in (1, 2, 1, 3)))
    (first,) = stages_of(compiled).root.edges.values()
    assert first.next is not None
    assert [
        key[0].shape if hasattr(key[0], "shape") else np.frombuffer(key[-1], np.int64)[0] for key in first.next.edges
    ] == [1, 3]


def test_what_decides_is_found_again_when_more_is_asked() -> None:
    """A second value decides only where the first one says so; the ways that were known before it are not confused with
    others."""
    then = helper.make_graph(
        [node("ReduceSum", ["x", "axes"], "r", keepdims=0)], "then", [],
        [helper.make_tensor_value_info("r", FLOAT, None)]
    )
    other = helper.make_graph([node("Neg", ["x"], "q")], "else", [], [helper.make_tensor_value_info("q", FLOAT, None)])
    proto = model([
        node("If", ["c"], "p", then_branch=then, else_branch=other), node("Abs", ["p"])
    ], {"x": (2, 3), "c": (), "axes": (1,)},
                  kinds={"c": BOOL, "axes": INT64})
    x = floats(2, 3)
    feeds = [
        {"x": x, "c": np.array(c), "axes": np.array([a])} for c, a in ((False, 0), (True, 0), (True, 1), (False, 1))
    ]
    compiled = same(proto, *feeds, *feeds)
    assert stages_of(compiled).root.asked == (1, 2)


def branches_for_two_widths() -> onnx.ModelProto:
    """A program that can only be made of one of its branches: which, the condition says."""

    def branch(name: str, width: int) -> onnx.GraphProto:
        weight = numpy_helper.from_array(np.ones((width, 2), np.float32), "w")
        return helper.make_graph(
            [node("MatMul", ["x", "w"], name)], name, [], [helper.make_tensor_value_info(name, FLOAT, None)], [weight]
        )

    return model([
        node("If", ["c"], "p", then_branch=branch("wide", 4), else_branch=branch("narrow", 3)), node("Abs", ["p"])
    ],
                 {"x": ("n", "m"), "c": ()}, kinds={"c": BOOL})


def test_a_branch_that_does_not_fit_is_left_out_when_it_is_not_taken() -> None:
    proto = branches_for_two_widths()
    compiled = same(proto, {"x": floats(2, 4), "c": np.array(True)}, {"x": floats(5, 3), "c": np.array(False)})
    with pytest.raises(CompileError, match="MatMul"):
        compiled({"x": floats(2, 4), "c": np.array(False)})
    with pytest.raises(CompileError, match="MatMul"):
        compiled({"x": floats(2, 3), "c": np.array(True)})


def test_what_goes_on_changing_is_not_compiled_behind_it_either() -> None:
    """The places of what is positive differ in number from call to call, and so does what is made of them, in two
    stages."""
    nodes = [
        node("NonZero", ["x"], "places"), node("Transpose", ["places"], "rows"),
        node("GatherND", ["x", "rows"], "kept"), node("Greater", ["kept", "half"], "big"),
        node("NonZero", ["big"], "again"), node("Cast", ["again"], to=FLOAT),
    ]
    compiled = tilewright.compile(model(nodes, {"x": (40,)}, weights={"half": np.float32(0.5)}))
    for count in range(1, 30):
        x = np.zeros(40, np.float32)
        x[:count] = np.linspace(0.1, 1, count)
        assert compiled(x).shape == (1, int((x > 0.5).sum()))
    programs = [e for e in stages_of(compiled).edges() if e.program is not None]
    assert len(programs) <= 2 * (SETTLED + 1)


@pytest.mark.usefixtures("known_sizes")
def test_open_sizes_of_inputs_are_keys_of_the_root_too() -> None:
    proto = model(
        [node("Relu", ["x"], "r"), node("NonZero", ["r"], "z"), node("Cast", ["z"], to=FLOAT)], {"x": ("n", 3)}
    )
    compiled = same(proto, {"x": floats(2, 3)}, {"x": floats(4, 3)}, {"x": floats(2, 3, seed=1)})
    assert len(stages_of(compiled).root.edges) == 2


def test_threads_and_out() -> None:
    compiled, x = tilewright.compile(positive_rows(), threads=1), rows(3)
    wanted = compiled(x)
    stages_of(compiled).use_threads(2)
    out = np.empty_like(wanted)
    assert compiled(x, out=out) is out
    np.testing.assert_array_equal(out, wanted)
    assert len(compiled.benchmark(x, repeat=2, number=1).results) == 2


def test_results_are_arrays_of_their_own() -> None:
    proto = model([
        node("Identity", ["x"], "a"), node("Identity", ["x"], "b"), node("ReduceSum", ["x", "axes"], "s")
    ], {"x": (2,), "axes": (1,)},
                  ["a", "b", "s"], kinds={"axes": INT64})
    x = floats(2)
    a, b, _ = tilewright.compile(proto)(x, np.array([0]))
    a[0], b[0] = 5, 7
    assert (a[0], b[0], x[0]) == (5, 7, floats(2)[0])


# --- models
# ---------------------------------------------------------------------------------------------------------------


def test_shape_arithmetic_of_computed_sizes() -> None:
    nodes = [
        node("NonZero", ["x"], "z"), node("Shape", ["z"], "s"), node("Gather", ["s", "one"], "n"),
        node("Mul", ["n", "two"], "m"),
        node("Unsqueeze", ["m", "zero"], "u"), node("Expand", ["half", "u"], "w"),
        node("Concat", ["w", "w"], "c", axis=0), node("ReduceSum", ["c"]),
    ]
    weights = {"one": np.array(1), "two": np.array(2), "zero": np.array([0]), "half": np.array([0.5], np.float32)}
    same(
        model(nodes, {"x": (3, 3)}, weights=weights),
        *({"x": (floats(3, 3, seed=k) > 0.3).astype(np.float32)} for k in range(3))
    )


def test_slices_by_computed_bounds() -> None:
    nodes = [
        node("ArgMax", ["x"], "at", axis=0, keepdims=0), node("Unsqueeze", ["at", "zero"], "start"),
        node("Add", ["start", "two"], "end"), node("Slice", ["x", "start", "end", "zero"], "part"),
        node("Exp", ["part"]),
    ]
    proto = model(nodes, {"x": (8,)}, weights={"zero": np.array([0]), "two": np.array([2])})
    same(proto, *({"x": floats(8, seed=k)} for k in range(3)))


def test_the_tail_of_a_detector() -> None:
    nodes = [
        node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], "kept"),
        node("Gather", ["kept", "two"], "ids", axis=1), node("Gather", ["flat", "ids"], "best"),
        node("Reshape", ["boxes", "rows"], "flat"), node("Mul", ["best", "size"]),
    ]
    weights = {
        "most": np.array([4]), "overlap": np.array([0.5], np.float32), "least": np.array([0.2], np.float32),
        "two": np.array(2),
        "rows": np.array([-1, 4]), "size": np.array([640, 480, 640, 480], np.float32),
    }
    feeds = []
    for seed in range(4):
        corner = np.random.default_rng(seed).random((1, 20, 2), np.float32)
        scores = np.random.default_rng(seed + 9).random((1, 2, 20), np.float32)
        feeds.append({"boxes": np.concatenate([corner, corner + 0.2], -1), "scores": scores})
    same(model(nodes, {"boxes": (1, 20, 4), "scores": (1, 2, 20)}, weights=weights), *feeds)


@pytest.mark.parametrize("attributes", [{"sorted": 0}, {"sorted": 1}, {"axis": 0}, {"axis": 1, "sorted": 0}])
def test_unique_elements_and_slices(attributes: dict[str, int]) -> None:
    x = np.random.default_rng(0).integers(0, 3, (4, 3)).astype(np.float32)
    outputs = ["y", "first", "inverse", "counts"]
    proto = model(
        [node("Unique", ["x"], outputs, **attributes)], {"x": (4, 3)}, outputs, kinds=dict.fromkeys(outputs[1:], INT64)
    )
    same(proto, {"x": x}, {"x": np.tile(x[:1], (4, 1))})


def test_compress_by_a_computed_condition() -> None:
    nodes = [node("Greater", ["v", "zero"], "c"), node("Compress", ["x", "c"], "part", axis=1), node("Tanh", ["part"])]
    proto = model(nodes, {"x": (2, 4), "v": (4,)}, weights={"zero": np.array(0, np.float32)})
    same(proto, *({"x": floats(2, 4), "v": floats(4, seed=k)} for k in range(3)))


def test_windows_put_back_together() -> None:
    nodes = [node("Col2Im", ["x", "image", "block"], pads=[1, 0, 1, 2], strides=[1, 2], dilations=[2, 1])]
    proto = model(nodes, {"x": (2, 12, 12), "image": (2,), "block": (2,)}, kinds={"image": INT64, "block": INT64})
    same(proto, {"x": floats(2, 12, 12), "image": np.array([4, 5]), "block": np.array([2, 2])})
    with pytest.raises(
        CompileError,
        match=r"Col2Im 'Col2Im_0': its input has 12 rows and 12 columns; blocks of \(2, 2\) in an image of \(3, 5\) "
        r"need"
    ):
        tilewright.compile(proto)(floats(2, 12, 12), np.array([3, 5]), np.array([2, 2]))


def test_extremes_of_nothing() -> None:
    for kind, answer in (("ReduceMax", -np.inf), ("ReduceMin", np.inf)):
        got = tilewright.compile(
            model([node(kind, ["x", "axes"])], {"x": (2, 0), "axes": (1,)}, kinds={"axes": INT64})
        )(floats(2, 0), np.array([1]))
        np.testing.assert_array_equal(got, np.full((2, 1), answer, np.float32))


def test_places_in_a_scalar_and_in_nothing() -> None:
    for shape in ((), (0,), (2, 0)):
        x = np.ones(shape, np.float32)
        proto = model([node("NonZero", ["x"])], {"x": shape}, kinds={"y": INT64})
        got = tilewright.compile(proto)(x)
        wanted = np.stack(np.nonzero(x)) if shape else np.zeros((0, 1), np.int64)
        assert (got.shape, got.dtype) == (wanted.shape, np.int64)


@pytest.mark.slow
def test_a_long_chain_of_waiting_nodes() -> None:
    nodes = [node("ReduceSum", ["x", "axes"], "t0")] + [
        node("Neg", [f"t{k}"], f"t{k + 1}") for k in range(3000)
    ] + [node("Identity", ["t3000"])]
    proto = model(nodes, {"x": (2, 3), "axes": (1,)}, kinds={"axes": INT64})
    x = floats(2, 3)
    np.testing.assert_allclose(tilewright.compile(proto)(x, np.array([1])), x.sum(1, keepdims=True), rtol=1e-5)


def test_many_stages_one_after_another() -> None:
    nodes = [node("Identity", ["x"], "t0")]
    for k in range(6):
        nodes += [node("NonZero", [f"t{k}"], f"z{k}"), node("Cast", [f"z{k}"], f"t{k + 1}", to=FLOAT)]
    nodes.append(node("Identity", ["t6"]))
    compiled = same(model(nodes, {"x": (3,)}), {"x": np.array([0, 2, 3], np.float32)})
    assert len(list(stages_of(compiled).edges())) == 7


# --- modules
# -------------------------------------------------------------------------------------------------------------


def test_dynamic_operators_of_a_module() -> None:
    x, n = relay.var("x", shape=(relay.Any(), 4)), relay.var("n", shape=(2,), dtype="int64")
    body = relay.tanh(relay.reshape(relay.exp(x), relay.add(n, relay.const([0, 1], "int64"))))
    module = tilewright.IRModule.from_expr(relay.Function([x, n], body))
    machine = tilewright.runtime.vm.VirtualMachine(relay.vm.compile(module, "llvm"), tilewright.cpu())
    for size, shape in ((3, [2, 5]), (2, [4, 1]), (3, [6, 1])):
        value = floats(size, 4)
        found = machine.run(value, np.array(shape))
        assert isinstance(found, tilewright.nd.NDArray)
        np.testing.assert_allclose(
            found.numpy(), np.tanh(np.exp(value)).reshape(shape[0], shape[1] + 1), rtol=1e-5
        )


def test_a_branch_for_inputs_of_open_sizes() -> None:
    text = "def @main(%c: bool, %x: Tensor[(?), float32]) { if (%c) { nn.relu(%x) } else { tanh(%x) } }"
    run = relay.build(relay.parse(f'#[version = "0.0.5"]\n{text}'), "llvm").executable
    for size in (3, 5, 3):
        x = floats(size)
        np.testing.assert_array_equal(run(np.array(True), x), np.maximum(x, 0))
        np.testing.assert_allclose(run(np.array(False), x), np.tanh(x), rtol=1e-5)


def test_argwhere_of_a_module() -> None:
    x = relay.var("x", shape=(2, 3))
    run = relay.create_executor("vm", tilewright.IRModule.from_expr(relay.Function([x], relay.argwhere(x)))).evaluate()
    value = (floats(2, 3) > 0).astype(np.float32)
    np.testing.assert_array_equal(run(value).numpy(), np.argwhere(value).astype(np.int32))


def test_results_that_are_tuples_of_tensors_of_unknown_sizes() -> None:
    x = relay.var("x", shape=(2, 3))
    value = np.array([[3, 1, 2], [3, 1, 2]], np.float32)
    unique, largest = UniqueSlices()(x), TopK(2)(x)
    slices, best = UniqueSlices().reference(value), TopK(2).reference(value)
    for body, wanted in (
        (unique, slices), (Tuple((largest, x, Tuple((unique, largest)))), (*best, value, *slices, *best))
    ):
        found = tilewright.compile(tilewright.IRModule.from_expr(relay.Function([x], body)))(value)
        assert len(found) == len(wanted)
        for f, w in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(f, w)


# --- what is refused
# -----------------------------------------------------------------------------------------------------


def test_a_stage_that_cannot_be_converted_names_its_node() -> None:
    compiled = tilewright.compile(axes_of_a_sum())
    with pytest.raises(CompileError, match="ReduceSum 'ReduceSum_1'"):
        compiled(floats(2, 3), np.array([7]))
    np.testing.assert_allclose(compiled(floats(2, 3), np.array([1])), np.exp(floats(2, 3)).sum(1), rtol=1e-6)


@pytest.mark.parametrize(("size", "why"), [(-3, "negative size"), (10**12, "more memory than the limit of 512 GB")])
def test_sizes_that_no_memory_has_are_refused(size: int, why: str) -> None:
    compiled = tilewright.compile(
        model([node("ConstantOfShape", ["n"], "c"), node("ReduceSum", ["c"])], {"n": (1,)}, kinds={"n": INT64})
    )
    with pytest.raises(ShapeError, match=rf"ConstantOfShape 'ConstantOfShape_0'.*{why}"):
        compiled(np.array([size]))
    assert compiled(np.array([3])) == 0


def test_a_model_in_stages_is_not_one_program() -> None:
    compiled = tilewright.compile(positive_rows())
    compiled(rows(2))
    with pytest.raises(InputError, match="some sizes of the model are only known at run time"):
        _ = compiled.artifact


def test_what_a_call_gives_is_checked() -> None:
    compiled = tilewright.compile(positive_rows())
    for args, named, why in [
        ((), {}, "missing input 'x'"), ((rows(1), rows(1)), {}, "2 inputs were given"),
        ((floats(2, 2),), {}, r"has the shape \(2, 2\)"),
        ((rows(1),), {"x": rows(1)}, "given twice"), ((), {"z": rows(1)}, "no input 'z'"),
        ((rows(1).astype(np.float64),), {}, "has dtype float64"),
    ]:
        with pytest.raises(InputError, match=why):
            compiled(*args, **named)


def test_references_beside_unknown_sizes_are_refused() -> None:
    x, n = relay.var("x", shape=(4,)), relay.var("n", shape=(2,), dtype="int64")
    body = relay.RefRead(relay.RefCreate(Call(relay.op.get("dyn.reshape")(), [x, n])))
    with pytest.raises(CompileError, match="is not supported together with sizes known only at run time"):
        relay.vm.compile(tilewright.IRModule.from_expr(relay.Function([x, n], body)), "llvm")


def test_nothing_is_said_of_host_steps() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same(positive_rows(), {"x": rows(2)})


def test_models_that_contradict_themselves_are_refused_at_import() -> None:
    with pytest.raises(ModelError, match="uses 1 tensors that no node computes"):
        tilewright.compile(model([node("ReduceSum", ["x", "nothing"])], {"x": (2,)}))
