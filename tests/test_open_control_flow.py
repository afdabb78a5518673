"""Control flow with symbolic sizes: recurrences, loops, scans and branches as one program for all sizes, against ONNX
Runtime, in Python and saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import daily
import tilewright
from test_onnx_recurrent import case
from test_onnx_recurrent import model as recurrent_model
from tilewright.base.errors import InputError, RunError
from tilewright.compiler.open_program import OpenSizeError

ort = pytest.importorskip("onnxruntime")

Array = np.ndarray[Any, Any]
Feed = Mapping[str, Array]
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
info, node = helper.make_tensor_value_info, helper.make_node
SIZES = ((1, 1), (2, 1), (5, 3), (61, 2), (3, 40), (130, 4))
"""Steps and batches of calls."""


def real(*shape: int) -> Array:
    return np.random.default_rng([*shape]).standard_normal(shape).astype(np.float32)


def check(m: onnx.ModelProto, feeds: Sequence[Feed], folder: Path, shapes: Any = None) -> tilewright.Model:
    """Compile one program for all sizes, save and load it, and compare the answers of both with ONNX Runtime's."""
    made = tilewright.compile(m, shapes, symbolic=True)
    made.save(folder / "m.so")
    session = ort.InferenceSession(m.SerializeToString())
    for feed in feeds:
        wanted = session.run(None, dict(feed))
        for program in (made, tilewright.load(folder / "m.so")):
            found = program(**feed)
            for g, w in zip(found if isinstance(found, tuple) else (found,), wanted, strict=True):
                assert g.shape == w.shape
                np.testing.assert_allclose(g, w, 1e-3, 1e-4)
    return made


# Recurrences


def opened(m: onnx.ModelProto, *, batch_first: bool = False) -> onnx.ModelProto:
    """The model of one recurrence with symbolic steps and batch."""
    axes = {"X": ["steps", "batch"], "sequence_lens": ["batch"]}
    for i in m.graph.input:
        names = axes.get(i.name, [None, "batch"])
        dims = i.type.tensor_type.shape.dim
        for d, name in zip(dims, names[::-1] if batch_first and len(dims) == 3 else names, strict=False):
            if name is not None:
                d.dim_param = name
    return m


def recurrence(op: str, **attrs: Any) -> tuple[onnx.ModelProto, list[Feed]]:
    """A recurrence, and its inputs for all sizes."""
    _, weights, rest = case(op, np.random.default_rng(1), 5, 2, 6, 8, **attrs)
    feeds: list[Feed] = [case(op, np.random.default_rng(s + 7 * b), s, b, 6, 8, **attrs)[0] for s, b in SIZES]
    names = ["Y", "Y_h", *(["Y_c"] if op == "LSTM" else [])]
    return opened(recurrent_model(op, dict(feeds[2]), weights, rest, names)), feeds


@pytest.mark.slow
@pytest.mark.parametrize(("op", "given", "direction"), daily.sample([
    (op, given, direction) for op in ("LSTM", "GRU", "RNN") for given in ("b", "bl", "bhcp", "l", "blhc")
    for direction in ("forward", "reverse", "bidirectional")], 5, "open recurrences"))
def test_recurrences(op: str, given: str, direction: str, tmp_path: Path) -> None:
    check(*recurrence(op, given=given, direction=direction), tmp_path)


@pytest.mark.slow
def test_no_steps_and_no_batch(tmp_path: Path) -> None:
    """Zero is a size like others where the range begins there."""
    m, feeds = recurrence("LSTM", given="b", direction="bidirectional")
    made = tilewright.compile(m, {"X": ("steps=0..", "batch=0..", 6)}, symbolic=True)
    for steps, batch in ((0, 2), (3, 0), (5, 3)):
        rows, last, cell = made(real(steps, batch, 6))
        assert (rows.shape, last.shape) == ((steps, 2, batch, 8), (2, batch, 8))
        assert steps or (not last.any() and not cell.any())
    np.testing.assert_allclose(made(**feeds[2])[0], tilewright.compile(m)(**feeds[2])[0], 1e-4, 1e-5)


def test_states_have_the_batch_of_the_input() -> None:
    m, feeds = recurrence("GRU", given="bh")
    for i in m.graph.input:
        if i.name == "initial_h":
            i.type.tensor_type.shape.dim[1].dim_param = "states"
    made = tilewright.compile(m, symbolic=True)
    np.testing.assert_allclose(made(**feeds[2])[1][0], made(**feeds[2])[0][-1, 0], 1e-5)
    with pytest.raises(InputError, match="dimension 1 of input 'initial_h' is 4, and must be 3, like dimension 1 of"):
        made(X=real(5, 3, 6), initial_h=real(1, 4, 8))


# Loops


def model(
    nodes: Sequence[Any], inputs: Mapping[str, tuple[int, Sequence[int | str]]], outputs: Mapping[str, int],
    **stored: Any
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes), "g", [info(n, t, dims) for n, (t, dims) in inputs.items()],
        [info(n, t, None) for n, t in outputs.items()],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in stored.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def body(nodes: Sequence[Any], state: str, rows: str = "", condition: str = "c") -> onnx.GraphProto:
    """The body of a loop with the state `s`, which becomes `state`, and with gathered `rows`."""
    return helper.make_graph(
        list(nodes), "b", [info("i", INT64, []), info("c", BOOL, []), info("s", FLOAT, None)],
        [info(condition, BOOL, []), info(state, FLOAT, None), *([info(rows, FLOAT, None)] if rows else [])])


X = {"x": (FLOAT, ("n", 4))}
ROWS: list[Feed] = [{"x": real(n, 4)} for n in (1, 2, 5, 61, 300)]
STEP = [node("MatMul", ["x", "w"], ["xw"]), node("Add", ["s", "xw"], ["a"]), node("Tanh", ["a"], ["t"])]
W = real(4, 4)
COUNT = [node("Shape", ["x"], ["dims"], start=0, end=1), node("Squeeze", ["dims"], ["M"])]
"""The number of rows of `x`."""


@pytest.mark.parametrize("count", [3, 40])
def test_loops_of_known_length_gather_rows_of_symbolic_size(count: int, tmp_path: Path) -> None:
    step = [*STEP, node("Identity", ["t"], ["y"])]
    loop = node("Loop", ["M", "", "x"], ["last", "all"], body=body(step, "t", "y"))
    check(model([loop], X, {"last": FLOAT, "all": FLOAT}, M=count, w=W), ROWS, tmp_path)


def test_loops_over_the_rows_of_a_tensor(tmp_path: Path) -> None:
    """The trip count is a size, and so is the number of gathered rows."""
    step = [node("Gather", ["x", "i"], ["r"]), node("Add", ["s", "r"], ["a"]), node("Tanh", ["a"], ["t"]),
            node("Identity", ["t"], ["y"])]
    loop = node("Loop", ["M", "", "start"], ["last", "all"], body=body(step, "t", "y"))
    check(model([*COUNT, loop], X, {"last": FLOAT, "all": FLOAT}, start=real(4)), ROWS, tmp_path)


def test_loops_whose_length_is_an_input(tmp_path: Path) -> None:
    loop = node("Loop", ["k", "", "x"], ["last"], body=body(STEP, "t"))
    feeds = [{**feed, "k": np.array(k)} for feed, k in zip(ROWS, (0, 1, 3, 7, 20), strict=True)]
    check(model([loop], {**X, "k": (INT64, ())}, {"last": FLOAT}, w=W), feeds, tmp_path)


def test_loops_that_end_by_a_condition(tmp_path: Path) -> None:
    step = [node("Add", ["s", "x"], ["t"]), node("ReduceSum", ["t"], ["sum"], keepdims=0),
            node("Less", ["sum", "most"], ["go"])]
    loop = node("Loop", ["M", "", "x"], ["last"], body=body(step, "t", condition="go"))
    feeds = [{"x": np.abs(feed["x"])} for feed in ROWS]
    check(model([loop], X, {"last": FLOAT}, M=20, most=np.float32(500)), feeds, tmp_path)


@pytest.mark.parametrize("attrs", [
    {}, {"scan_input_axes": [1, 2]}, {"scan_input_directions": [1, 0]},
    {"scan_output_axes": [1], "scan_output_directions": [1]}])
def test_scans(attrs: dict[str, Any], tmp_path: Path) -> None:
    step = [node("MatMul", ["s", "w"], ["sw"]), node("Add", ["sw", "p"], ["a"]), node("Mul", ["a", "q"], ["u"]),
            node("Tanh", ["u"], ["t"]), node("Neg", ["t"], ["y"])]
    inner = helper.make_graph(
        step, "b", [info(n, FLOAT, None) for n in "spq"], [info("t", FLOAT, None), info("y", FLOAT, None)])
    axes = attrs.get("scan_input_axes", [0, 0])
    inputs: dict[str, tuple[int, Sequence[int | str]]] = {"x": (FLOAT, ("n", 4))}
    for name, axis in zip("pq", axes, strict=True):
        dims: list[int | str] = ["n", 4]
        dims.insert(axis, "steps")
        inputs[name] = FLOAT, tuple(dims)
    feeds = [
        {"x": real(n, 4), **{name: np.ascontiguousarray(np.moveaxis(real(steps, n, 4), 0, axis))
                             for name, axis in zip("pq", axes, strict=True)}} for steps, n in SIZES]
    scan = node("Scan", ["x", "p", "q"], ["last", "all"], body=inner, num_scan_inputs=2, **attrs)
    check(model([scan], inputs, {"last": FLOAT, "all": FLOAT}, w=W), feeds, tmp_path)


# Branches


def branch(name: str, *nodes: Any) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), name, [], [info("y", FLOAT, None)])


def test_branches_of_one_size(tmp_path: Path) -> None:
    chosen = node("If", ["k"], ["y"], then_branch=branch("a", node("Tanh", ["x"], ["y"])),
                  else_branch=branch("b", node("MatMul", ["x", "w"], ["y"])))
    feeds = [{**feed, "k": np.array(k)} for feed in ROWS for k in (False, True)]
    check(model([chosen], {**X, "k": (BOOL, ())}, {"y": FLOAT}, w=W), feeds, tmp_path)


def test_a_condition_on_a_size(tmp_path: Path) -> None:
    chosen = node("If", ["few"], ["y"], then_branch=branch("a", node("Tanh", ["x"], ["y"])),
                  else_branch=branch("b", node("Neg", ["x"], ["y"])))
    check(model([*COUNT, node("Less", ["M", "most"], ["few"]), chosen], X, {"y": FLOAT}, most=10), ROWS, tmp_path)


def summed(*inputs: str) -> onnx.GraphProto:
    return branch("sum", node("Sum", [*inputs], ["s"]), node("Tanh", ["s"], ["y"]))


def test_sizes_that_both_branches_require_to_be_equal(tmp_path: Path) -> None:
    inputs = {**X, "z": (FLOAT, ("m", 4)), "k": (BOOL, ())}
    product = branch("product", node("Mul", ["x", "z"], ["y"]))
    m = model([node("If", ["k"], ["y"], then_branch=summed("x", "z"), else_branch=product)], inputs, {"y": FLOAT})
    made = check(m, [{**x, "z": x["x"] + 1, "k": np.array(k)} for x in ROWS for k in (False, True)], tmp_path)
    with pytest.raises(InputError, match="dimension 0 of input 'z' is 3, and must be 2, like dimension 0 of input 'x'"):
        tilewright.load(tmp_path / "m.so")(real(2, 4), real(3, 4), np.array(True))
    assert made(real(2, 4), real(1, 4), np.array(True)).shape == (2, 4)  # interpreted


def test_sizes_that_one_branch_requires_to_be_equal() -> None:
    inputs = {**X, "z": (FLOAT, ("m", 4)), "k": (BOOL, ())}
    m = model([node("If", ["k"], ["y"], then_branch=summed("x", "z"), else_branch=summed("x"))], inputs, {"y": FLOAT})
    with pytest.raises(OpenSizeError, match="depends on values that the program computes"):
        tilewright.compile(m, symbolic=True)


def pooled(width: int, *then: Any) -> onnx.GraphProto:
    """A branch that drops the last dimension of the pooled values `p` where this is 1, and continues with `z`."""
    z = [helper.make_graph([node(op, [*given], [op])], op, [], [info(op, FLOAT, None)])
         for op, given in (("Squeeze", ["p", "last"]), ("Identity", ["p"]))]
    return branch(
        "pooled", node("AveragePool", ["x"], ["p"], kernel_shape=[width], strides=[width]),
        node("Shape", ["p"], ["dims"], start=2), node("Equal", ["dims", "unit"], ["one"]),
        node("If", ["one"], ["z"], then_branch=z[0], else_branch=z[1]), *then)


def chosen_by_sizes(then: onnx.GraphProto, otherwise: onnx.GraphProto) -> onnx.ModelProto:
    return model(
        [node("If", ["k"], ["y"], then_branch=then, else_branch=otherwise)],
        {"x": (FLOAT, ("b", 4, "n")), "k": (BOOL, ())}, {"y": FLOAT}, w=W, unit=np.array([1]), last=np.array([2]))


TURNED = node("Transpose", ["z"], ["t"], perm=[1, 0]), node("MatMul", ["w", "t"], ["y"])
"""Operators on a matrix."""


@pytest.mark.slow
def test_a_size_that_decides_a_rank_in_a_branch(tmp_path: Path) -> None:
    """Each branch requires its own size, of the calls that take it."""
    negated = node("Transpose", ["z"], ["t"], perm=[1, 0]), node("Neg", ["t"], ["y"])
    m = chosen_by_sizes(pooled(8, *TURNED), pooled(10, *negated))
    feeds = [{"x": real(b, 4, n), "k": np.array(k)} for b in (1, 3) for n, k in (
        (10, True), (15, True), (10, False), (11, False), (16, False), (19, False))]
    made = check(m, feeds, tmp_path)
    for program in (made, tilewright.load(tmp_path / "m.so")):
        for n, k, rule in ((16, True, 8), (80, True, 8), (20, False, 10)):
            with pytest.raises(RunError, match=rf"\((n|max\(n, 10\)) // {rule}\) must be 1 where this branch is taken"):
                program(x=real(2, 4, n), k=np.array(k))
        np.testing.assert_allclose(program(**feeds[1]), made(**feeds[1]))


@pytest.mark.slow
def test_a_size_that_a_branch_excludes(tmp_path: Path) -> None:
    """The rank that is valid may be that for all other sizes."""
    convolved = [node("Conv", ["z", "taps"], ["c"]), node("ReduceMax", ["c"], ["y"], axes=[2], keepdims=0)]
    m = chosen_by_sizes(pooled(2, *convolved), branch("r", node("ReduceMean", ["x"], ["y"], axes=[2], keepdims=0)))
    m.graph.initializer.append(numpy_helper.from_array(real(4, 4, 1), "taps"))
    made = check(m, [{"x": real(2, 4, n), "k": np.array(k)} for n in (4, 9, 61) for k in (False, True)], tmp_path)
    assert made(x=real(2, 4, 3), k=np.array(False)).shape == (2, 4)
    with pytest.raises(RunError, match="the condition on sizes must be false where this branch is taken"):
        made(x=real(2, 4, 3), k=np.array(True))


@pytest.mark.slow
def test_least_sizes_of_branches(tmp_path: Path) -> None:
    """A least size that both branches need limits the program, and a larger one the calls that take the branch."""
    then, otherwise = (branch(
        "c", node("Pad", ["x", f"pads{n}"], ["r"], mode="reflect"),
        node("Conv", ["r", f"taps{n}"], ["c"], strides=[2]),
        node("ReduceMax", ["c"], ["y"], axes=[2], keepdims=0)) for n in (24, 10))
    m = model(
        [node("If", ["k"], ["y"], then_branch=then, else_branch=otherwise)],
        {"x": (FLOAT, ("b", 4, "n")), "k": (BOOL, ())}, {"y": FLOAT}, taps24=real(3, 4, 24), taps10=real(3, 4, 10),
        pads24=np.array([0, 0, 12, 0, 0, 12]), pads10=np.array([0, 0, 5, 0, 0, 5]))
    feeds = [{"x": real(b, 4, n), "k": np.array(k)} for b in (1, 3) for n, k in (
        (13, True), (14, True), (61, True), (6, False), (7, False), (12, False), (13, False), (200, False))]
    made = check(m, feeds, tmp_path)
    for program in (made, tilewright.load(tmp_path / "m.so")):
        for n in (6, 12):
            with pytest.raises(RunError, match="n must be at least 13 where this branch is taken"):
                program(x=real(2, 4, n), k=np.array(True))
    with pytest.raises(InputError, match="dimension 2 of input 'x' is 5, but the program was compiled for n from 6"):
        tilewright.load(tmp_path / "m.so")(x=real(2, 4, 5), k=np.array(False))


def test_a_least_size_of_a_branch_with_results_of_all_sizes(tmp_path: Path) -> None:
    """The results of a branch with a least size have the sizes of the call."""
    mirrored = branch(
        "m", node("Pad", ["x", "pads"], ["r"], mode="reflect"),
        node("Slice", ["r", "from", "to", "last"], ["s"]), node("Mul", ["s", "x"], ["y"]))
    m = model(
        [node("If", ["k"], ["y"], then_branch=mirrored, else_branch=branch("n", node("Neg", ["x"], ["y"])))],
        {"x": (FLOAT, ("b", "n")), "k": (BOOL, ())}, {"y": FLOAT}, **{
            "from": np.array([3]), "to": np.array([-11]), "last": np.array([1]),
            "pads": np.array([0, 7, 0, 7])})
    feeds = [{"x": real(b, n), "k": np.array(k)} for b in (1, 5) for n, k in (
        (8, True), (9, True), (64, True), (300, True), (1, False), (7, False), (8, False), (65, False))]
    made = check(m, feeds, tmp_path)
    with pytest.raises(RunError, match="n must be at least 8 where this branch is taken"):
        made(x=real(2, 7), k=np.array(True))


@pytest.mark.parametrize("then", [
    [node("ReduceMean", ["z"], ["y"], keepdims=0)], [node("MatMul", ["z", "w"], ["y"])]])
def test_a_size_that_decides_between_two_valid_ranks(then: Sequence[Any]) -> None:
    """No rank is chosen if both are valid, or if sizes decide whether one is."""
    with pytest.raises(OpenSizeError, match="depends on values that the program computes"):
        tilewright.compile(chosen_by_sizes(pooled(8, *then), pooled(8, *then)), symbolic=True)


def test_the_last_step_of_a_reversed_recurrence_is_no_constant() -> None:
    from tilewright.base.types import TensorType
    from tilewright.relay.expr import Constant, Expr, Var
    from tilewright.relay.frontend.operators import op
    from tilewright.relay.frontend.pytorch.recurrent import CELLS, Products, _direction
    from tilewright.relay.frontend.tflite.sequences import over_time
    from tilewright.relay.visitor import post_order
    from tilewright.scalar.arith.open_sizes import open_size, samples
    from tilewright.scalar.expr import Var as Symbol

    def step(data: Sequence[Expr], states: Sequence[Expr]) -> tuple[Expr, list[Expr]]:
        made = op.tanh(op.add(data[0], states[0]))
        return made, [made]

    n = Symbol("n")
    with samples({n: 61}):
        steps = open_size(n)
        x, state = Var("x", TensorType((steps, 2, 3), "float32")), Var("h", TensorType((2, 3), "float32"))
        _, rows = _direction(x, [state], Products(lambda v: v, lambda h: h, []), CELLS["rnn_tanh"], True)
        for found in (over_time([x], [state], step, True), rows):
            assert found.tensor_type.shape[0] == steps
            assert 60 not in [e.value.item() for e in post_order(found) if isinstance(e, Constant) and not e.value.ndim]
