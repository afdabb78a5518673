"""`tilewright check` and `tilewright.check`: what they say of models that are native, slow, unknown and refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import small_models as models
import tilewright
from tilewright.base.errors import ModelError, NoNativeKernel
from tilewright.compiler.check import Operator, has_kernel
from tilewright.driver.main import main
from tilewright.driver.report import show
from tilewright.relay.op.registry import OPS


def unknown() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Own", ["x"], ["a"], name="mine", domain="com.me"), helper.make_node("Relu", ["a"], ["y"])
    ]
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "xy"]
    return helper.make_model(
        helper.make_graph(nodes, "g", infos[:1], infos[1:]),
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.me", 1)]
    )


@pytest.mark.slow
def test_a_native_model() -> None:
    report = tilewright.check(models.mlp(batch="n"))
    assert report.ok and not report.unknown and report.opsets == {"": 17}
    assert [(o.name, o.count, o.runs) for o in report.operators] == [
        ("Gemm", 2, "native"), ("Relu", 1, "native"), ("Softmax", 1, "native")
    ]
    assert report.open_sizes == {"x": ("n",)} and report.outputs[0].shape == ("n", 10)
    assert report.symbolic and not report.why_not_symbolic
    assert report.rules == ("n (dimension 0 of input 'x'): from 1",)
    assert [sizes for sizes, _ in report.memory] == ["n = 1", "n = 64"]
    assert report.memory[0][1] <= report.memory[1][1]
    static = tilewright.check(models.mlp(batch="n"), {"x": (2, 16)})
    assert static.ok and static.symbolic is None


def test_an_unknown_operator_and_how_to_supply_it() -> None:
    report = tilewright.check(unknown())
    why = "there is no converter; write one: @tilewright.relay.frontend.onnx.register_converter('Own', domain='com.me')"
    assert report.unknown == (Operator("Own", "com.me", 1, "unknown", why, ("mine",)),)
    assert not report.ok and not report.refused


def test_what_is_refused_although_all_operators_are_known() -> None:
    model = models.mlp()
    model.graph.node[0].attribute.append(helper.make_attribute("odd", 1))
    report = tilewright.check(model)
    assert not report.ok and "attribute 'odd' is not one of Gemm" in report.refused


def test_what_is_no_model_is_an_error() -> None:
    with pytest.raises(ModelError, match="is empty"):
        tilewright.check(b"")


def test_operators_without_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    assert has_kernel(OPS["nn.softmax"]()) and has_kernel(OPS["nn.dropout"]())
    monkeypatch.setattr("tilewright.compiler.check.has_kernel", lambda op: op.name != "nn.relu")
    slow = next(o for o in tilewright.check(models.mlp()).operators if o.name == "Relu")
    assert (slow.runs, slow.why, slow.nodes) == ("numpy", "nn.relu (1 times) has no native kernel", ("relu0",))


def test_operators_that_wait_for_values() -> None:
    """The axes of a sum are an input: what follows is compiled when they are known."""
    nodes = [helper.make_node("ReduceSum", ["x", "axes"], ["s"], name="sum"), helper.make_node("Relu", ["s"], ["y"])]
    infos = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]),
        helper.make_tensor_value_info("axes", TensorProto.INT64, [1])
    ]
    made = helper.make_graph(nodes, "g", infos, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    report = tilewright.check(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)]))
    decides = (
        "computed values determine the sizes of its results; later operators are in stages of their own, compiled for "
        "all sizes if possible"
    )
    follows = (
        "the sizes of its inputs depend on computed values; it is in a later stage, compiled for all sizes if possible")
    assert report.ok and report.staged == (
        Operator("ReduceSum", "", 1, "staged", decides, ("sum",)),
        Operator("Relu", "", 1, "staged", follows, ("Relu_1",))
    )


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "good.onnx", tmp_path / "bad.onnx"
    onnx.save(models.mlp(batch="n"), good)
    onnx.save(unknown(), bad)
    assert main(["check", str(good)]) == 0
    said = capsys.readouterr().out
    for words in ("opset ai.onnx 17", "x: float[n, 16]", "Gemm", "native", "'x' has symbolic sizes (n)",
                  "One program serves all sizes.", "n (dimension 0 of input 'x'): from 1",
                  "memory between kernels for n = 64: "):
        assert words in said
    assert main(["check", str(bad), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] is False and found["operators"][0]["runs"] == "unknown"
    assert main(["check", str(bad)]) == 1
    assert "register_converter('Own', domain='com.me')" in capsys.readouterr().out


def test_one_warning_lists_all_that_is_not_native(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two operators whose kernels are taken away run by their numpy meaning."""

    def none(*args: object) -> None:
        raise NoNativeKernel

    for name in ("erf", "sinh"):
        monkeypatch.setattr(OPS[name], "compute", none)
    nodes = [
        helper.make_node("Erf", ["x"], ["y"], name="first"), helper.make_node("Sinh", ["z"], ["w"], name="second"),
        helper.make_node("Relu", ["z"], ["r"])
    ]
    model = models.graph(nodes, {"x": (3,), "z": (4,)}, {"y": (3,), "w": (4,), "r": (4,)}, {})
    words = r"2 of 3 steps of 'model' have no native kernel and run in numpy: erf: Erf 'first'; sinh: Sinh 'second'"
    with pytest.warns(tilewright.errors.NotNativeWarning, match=words) as said:
        compiled = tilewright.compile(model)
    assert len(said) == 1
    y, w, r = compiled(np.ones(3, np.float32), np.ones(4, np.float32))
    np.testing.assert_allclose([y[0], w[0], r[0]], [0.8427008, 1.1752012, 1], rtol=1e-6)


@pytest.mark.filterwarnings("ignore::tilewright.base.errors.OpenSizeWarning")
@pytest.mark.parametrize(("kind", "gates"), [("LSTM", 4), ("GRU", 3)])
def test_cells_of_any_number_of_steps_are_not_refused(kind: str, gates: int) -> None:
    """They are compiled for the sizes that come."""
    weights = {n: np.zeros((1, gates * 4, k), np.float32) for n, k in (("w", 3), ("r", 4))}
    nodes = [helper.make_node(kind, ["x", "w", "r"], ["y"], hidden_size=4)]
    taken = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["t", 2, 3])
    given = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(
        nodes, "g", [taken], [given], [onnx.numpy_helper.from_array(v, n) for n, v in weights.items()]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=9)
    report = tilewright.check(model)
    assert report.ok, report.refused
    compiled = tilewright.compile(model)
    assert [np.shape(compiled(np.zeros((t, 2, 3), np.float32))) for t in (2, 5)] == [(2, 1, 2, 4), (5, 1, 2, 4)]


def _range() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], start=0, end=1), helper.make_node("Squeeze", ["s"], ["n"]),
        helper.make_node("Constant", [], ["zero"], value_int=0), helper.make_node("Constant", [], ["one"], value_int=1),
        helper.make_node("Range", ["zero", "n", "one"], ["y"]),
    ]
    taken, given = helper.make_tensor_value_info(
        "x", TensorProto.FLOAT, ["n"]
    ), helper.make_tensor_value_info("y", TensorProto.INT64, None)
    return helper.make_model(
        helper.make_graph(nodes, "g", [taken], [given]), opset_imports=[helper.make_opsetid("", 17)], ir_version=9
    )


def _max_pool() -> onnx.ModelProto:
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], strides=[2, 2])
    taken, given = helper.make_tensor_value_info(
        "x", TensorProto.FLOAT, ["n", 2, "h", "w"]
    ), helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    return helper.make_model(
        helper.make_graph([node], "g", [taken], [given]), opset_imports=[helper.make_opsetid("", 17)], ir_version=9
    )


def _sliced(nodes: Sequence[onnx.NodeProto] = (), output: str = "y") -> onnx.ModelProto:
    """A slice whose end is only known to be the end of a symbolic dimension once that has limits."""
    slice_ = helper.make_node("Slice", ["x", "begin", "end"], ["y"])
    taken = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])
    given = helper.make_tensor_value_info(output, TensorProto.FLOAT if output == "y" else TensorProto.INT64, None)
    bounds = [onnx.numpy_helper.from_array(np.array([v]), n) for n, v in (("begin", 0), ("end", 10**9))]
    return helper.make_model(
        helper.make_graph([slice_, *nodes], "g", [taken], [given], bounds),
        opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_a_model_that_needs_numbers_for_its_sizes_is_not_refused(capsys: pytest.CaptureFixture[str]) -> None:
    report = tilewright.check(_sliced([helper.make_node("NonZero", ["y"], ["z"])], "z"))
    assert report.ok and report.symbolic is False and "depends on values" in report.why_not_symbolic
    assert not report.rules and not report.memory
    show(report)
    assert "Stages serve the sizes, compiled for all of them if possible, because" in capsys.readouterr().out


@pytest.mark.parametrize(("model", "shapes"), [
    (_range, [(3,), (5,)]), (_max_pool, [(1, 2, 4, 6), (2, 2, 6, 4)]), (_sliced, [(2, 4), (7, 4)]),
])
def test_models_of_open_sizes_that_run_are_not_refused(
    model: Callable[[], onnx.ModelProto], shapes: list[tuple[int, ...]]
) -> None:
    report = tilewright.check(model())
    assert report.ok and report.symbolic, report.why_not_symbolic
    compiled = tilewright.compile(model())
    assert not compiled.why_not_symbolic
    for shape in shapes:
        x = np.random.default_rng(0).random(shape, np.float32)
        np.testing.assert_array_equal(compiled(x), models.onnxruntime_answers(model(), {"x": x})[0])
