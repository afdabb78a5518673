"""`tilewright.InferenceSession` in the place of ONNX Runtime's: the same answers, the same questions, and its
messages."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import small_models as models
import tilewright
import tilewright.compat.onnx_session as ours
from tilewright.base.errors import InputError, OptionError, TargetError

CPU = ["CPUExecutionProvider"]


def described(model: onnx.ModelProto) -> onnx.ModelProto:
    model.producer_name, model.domain, model.model_version, model.doc_string = "maker", "org.example", 7, "what it does"
    model.graph.doc_string = "how"
    helper.set_model_props(model, {"character": "a\nb", "color": "red"})
    return model


def batch(rows: int = 2) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).standard_normal((rows, 16), np.float32)


def test_answers_and_questions_are_those_of_onnx_runtime(tmp_path: Path) -> None:
    import onnxruntime as theirs

    file = tmp_path / "m.onnx"
    onnx.save(described(models.mlp(batch="n")), file)
    options = theirs.SessionOptions()
    options.intra_op_num_threads = 1
    a, b = tilewright.InferenceSession(
        str(file), options, providers=CPU
    ), theirs.InferenceSession(str(file), options, providers=CPU)
    for rows in (1, 3):
        np.testing.assert_allclose(
            a.run(None, {"x": batch(rows)})[0], b.run(None, {"x": batch(rows)})[0], rtol=1e-5, atol=1e-6
        )
    for one, other in ((a.get_inputs(), b.get_inputs()), (a.get_outputs(), b.get_outputs())):
        assert [(x.name, x.shape, x.type) for x in one] == [(x.name, x.shape, x.type) for x in other]
    mine, hers = a.get_modelmeta(), b.get_modelmeta()
    for name in (
        "producer_name", "graph_name", "domain", "description", "graph_description", "version", "custom_metadata_map"
    ):
        assert getattr(mine, name) == getattr(hers, name), name
    assert a.get_providers() == b.get_providers() == CPU
    assert a.model.threads == 1
    assert str(a.get_inputs()[0]) == str(b.get_inputs()[0])


def test_bytes_and_protos_and_chosen_outputs() -> None:
    node = helper.make_node
    nodes = [node("Relu", ["x"], ["low"]), node("Neg", ["x"], ["minus"])]
    model = models.graph(nodes, {"x": (2, 3)}, {"low": (2, 3), "minus": (2, 3)}, {})
    x = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
    for source in (model, model.SerializeToString()):
        session = ours.InferenceSession(source)
        np.testing.assert_array_equal(session.run(["minus"], {"x": x})[0], -x)
        assert [y.tolist() for y in session.run([], {"x": x})] == [np.maximum(x, 0).tolist(), (-x).tolist()]
        np.testing.assert_array_equal(session.run(["low"], {"x": x.tolist()})[0], np.maximum(x, 0))
    with pytest.raises(InputError, match="'high' is not an output of the model; its outputs are: low, minus"):
        session.run(["high"], {"x": x})


@pytest.mark.parametrize(("feed", "message"), [
    ({}, r"missing input 'x'; the model takes x: tensor\(float\)\['n', 16\]"),
    ({"z": batch(), "x": batch()}, "'z' is not an input of the model; the model takes x"),
    (
        {"x": batch().astype(np.float64)},
        r"input 'x' has the element type float64, but the model takes float32; convert it with .astype\('float32'\)"
    ),
    ({"x": batch()[0]}, r"input 'x' has 1 dimensions, \[16\], but the model takes 2: \['n', 16\]"),
    ({"x": batch()[:, :5]}, r"input 'x' has size 5 in dimension 1 of \[2, 5\], but the model takes \['n', 16\]"),
    ([batch()], "input_feed must be a mapping of names to arrays, not a list"),
    ({"x": batch(), "w0": batch()}, "'w0' is not an input of the model"),
])
def test_inputs_that_do_not_fit_are_refused_before_anything_is_compiled(feed: Any, message: str) -> None:
    session = ours.InferenceSession(models.mlp(batch="n"))
    compiled = dict(session.model.report.kernels)
    with pytest.raises(InputError, match=message):
        session.run(None, feed)
    assert session.model.report.kernels == compiled and len(session.model.specializations()) == 1


def test_collection_of_garbage_is_suspended_while_a_session_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    compiled = tilewright.compile(models.mlp())

    def compile(*args: Any, **options: Any) -> Any:
        seen.append(gc.isenabled())
        return compiled

    monkeypatch.setattr(ours.session, "compile", compile)
    ours.InferenceSession(models.mlp())
    assert seen == [False] and gc.isenabled()


def test_sizes_that_contradict_the_model_or_each_other() -> None:
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [d, 3])
             for n, d in (("a", "n"), ("b", "m"), ("c", "n + m"))]
    nodes = [
        helper.make_node("Concat", ["a", "b"], ["d"], axis=0), helper.make_node("Mul", ["c", "d"], ["y"])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    proto = helper.make_model(
        helper.make_graph(nodes, "g", infos, outputs), opset_imports=[helper.make_opsetid("", 17)])

    def feed(*rows: int) -> dict[str, Any]:
        return {n: np.ones((k, 3), np.float32) for n, k in zip("abc", rows, strict=True)}

    session = ours.InferenceSession(proto, symbolic=True)
    assert session.run(None, feed(2, 3, 5))[0].shape == (5, 3)
    assert session.run(None, feed(0, 3, 3))[0].shape == (3, 3)
    assert len(session.model.specializations()) == 1
    with pytest.raises(InputError, match=r"dimension 0 of input 'c' is 6, and must be .* = 5, where n is 2"):
        session.run(None, feed(2, 3, 6))
    limited = ours.InferenceSession(proto, shapes={"a": ("1..4", 3), "b": ("m", 3)})
    for rows in (0, 5):
        with pytest.raises(
            InputError, match=f"dimension 0 of input 'a' is {rows}, but the program was compiled for n from 1 to 4"
        ):
            limited.run(None, feed(rows, 1, rows + 1))


def test_one_number_in_an_array_is_a_scalar() -> None:
    model = models.graph([helper.make_node("Add", ["x", "s"], ["y"])], {"x": (3,), "s": ()}, {"y": (3,)}, {})
    x = np.arange(3, dtype=np.float32)
    for scalar in (np.float32(2), np.full(1, 2, np.float32), np.full((1, 1), 2, np.float32)):
        np.testing.assert_array_equal(ours.InferenceSession(model).run(None, {"x": x, "s": scalar})[0], x + 2)
        np.testing.assert_array_equal(tilewright.compile(model)(x, scalar), x + 2)
    with pytest.raises(InputError, match=r"input 's' has 1 dimensions, \[2\], but the model takes 0: \[\]"):
        ours.InferenceSession(model).run(None, {"x": x, "s": x[:2]})
    with pytest.raises(InputError, match=r"input 's' has shape \[2\], expected float32 s\[\]"):
        tilewright.compile(model)(x, x[:2])


def test_a_weight_that_is_also_an_input_cannot_be_replaced() -> None:
    model = models.mlp()
    model.graph.input.append(helper.make_tensor_value_info("w0", TensorProto.FLOAT, [16, 32]))
    session = ours.InferenceSession(model)
    assert [a.name for a in session.get_inputs()] == ["x"] and [
        a.name for a in session.get_overridable_initializers()
    ] == ["w0"]
    with pytest.raises(InputError, match="'w0' is a weight that is stored in the model, and cannot be replaced"):
        session.run(None, {"x": batch(), "w0": np.zeros((16, 32), np.float32)})


def test_free_dimensions_are_fixed_by_options() -> None:
    options = ours.SessionOptions()
    options.add_free_dimension_override_by_name("n", 4)
    session = ours.InferenceSession(models.mlp(batch="n"), options)
    assert session.model.inputs[0].shape == (4, 16)
    with pytest.raises(InputError, match=r"has size 2 in dimension 0 of \[2, 16\], but the model takes \[4, 16\]"):
        session.run(None, {"x": batch()})
    options.add_free_dimension_override_by_name("m", 4)
    with pytest.raises(OptionError, match="no input has the free dimension 'm'; the free dimensions are: n"):
        ours.InferenceSession(models.mlp(batch="n"), options)
    marked = models.mlp(batch="n")
    marked.graph.input[0].type.tensor_type.shape.dim[0].ClearField("dim_param")
    marked.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    options = ours.SessionOptions()
    options.add_free_dimension_override_by_denotation("DATA_BATCH", 3)
    assert ours.InferenceSession(marked, options).model.inputs[0].shape == (3, 16)


def _file_for_an_optimized_model() -> None:
    ours.InferenceSession(models.mlp(), ours.SessionOptions(optimized_model_filepath="m.onnx"))


REFUSED: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (
        lambda: ours.InferenceSession(models.mlp(), providers=["CUDAExecutionProvider"]), TargetError,
        "none of the providers CUDAExecutionProvider is available"
    ),
    (_file_for_an_optimized_model, OptionError, "optimized_model_filepath is not supported: .*session.model.save"),
    (
        lambda: ours.InferenceSession(models.mlp(), ours.SessionOptions(intra_op_num_threads=-2)), OptionError,
        "intra_op_num_threads is -2"
    ),
    (
        lambda: ours.SessionOptions().register_custom_ops_library("x.so"), OptionError,
        "'x.so' cannot be loaded: .*register_converter"
    ),
    (
        lambda: ours.SessionOptions().add_initializer("w", None), OptionError,
        "the weight 'w' cannot be given from outside"
    ),
    (
        lambda: ours.SessionOptions().get_session_config_entry("k"), OptionError,
        "there is no session configuration entry 'k'"
    ),
    (lambda: ours.OrtValue.ortvalue_from_numpy(batch(), "cuda"), TargetError, "device 'cuda' cannot hold values"),
    (
        lambda: ours.OrtValue.ortvalue_from_numpy(batch()).update_inplace(batch(3)), InputError,
        r"float32\[2, 16\]; float32\[3, 16\] cannot replace it"
    ),
    (lambda: ours.InferenceSession(models.mlp()).end_profiling(), OptionError, "nothing was profiled"),
    (lambda: ours.InferenceSession(models.mlp()).io_binding().run(), InputError, "no output is bound"),
]


@pytest.mark.parametrize(("act", "kind", "message"), REFUSED)
def test_what_is_refused(act: Callable[[], Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        act()


def test_options_that_have_no_meaning_are_taken_and_unknown_ones_are_not() -> None:
    options = ours.SessionOptions()
    options.enable_cpu_mem_arena = False
    options.graph_optimization_level = ours.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.execution_mode = ours.ExecutionMode.ORT_PARALLEL
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    session = ours.InferenceSession(models.mlp(), options)
    np.testing.assert_allclose(session.run(None, {"x": batch()}, ours.RunOptions())[0].sum(1), 1, rtol=1e-5)
    with pytest.raises(AttributeError):
        options.intra_op_threads = 3  # type: ignore[attr-defined]
    assert ours.get_available_providers() == CPU and ours.get_device() == "CPU"


def test_providers_that_are_not_here_are_left_out_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="CUDAExecutionProvider is not available; the model runs on the CPU"):
        session = ours.InferenceSession(models.mlp(), providers=[("CUDAExecutionProvider", {"device_id": 0}), *CPU])
    assert session.get_providers() == CPU


def test_values_and_bindings() -> None:
    session, x = ours.InferenceSession(models.mlp()), batch()
    (expected,) = session.run(None, {"x": x})
    value = ours.OrtValue.ortvalue_from_numpy(x)
    assert (
        value.shape(), value.data_type(), value.device_name(), value.is_tensor()
    ) == ([2, 16], "tensor(float)", "cpu", True)
    assert value.element_type() == TensorProto.FLOAT and value.data_ptr() == x.ctypes.data and value.has_value()
    np.testing.assert_array_equal(session.run_with_ort_values(["y"], {"x": value})[0].numpy(), expected)
    binding, out = session.io_binding(), ours.OrtValue.ortvalue_from_shape_and_type([2, 10], np.float32)
    binding.bind_ortvalue_input("x", value)
    binding.bind_ortvalue_output("y", out)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(out.numpy(), expected)
    binding.clear_binding_outputs()
    binding.bind_cpu_input("x", 2 * x)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], session.run(None, {"x": 2 * x})[0])
    sequence = ours.OrtValue([x, x])
    assert sequence.is_tensor_sequence() and sequence.data_type() == "seq(tensor(float))"


def test_profiling_writes_a_trace(tmp_path: Path) -> None:
    options = ours.SessionOptions(enable_profiling=True, profile_file_prefix=str(tmp_path / "trace"))
    session = ours.InferenceSession(models.mlp(), options)
    session.run(None, {"x": batch()})
    path = Path(session.end_profiling())
    assert path.parent == tmp_path
    assert [event["name"] for event in json.loads(path.read_text())] == ["model_loading", "model_run"]


def _types() -> dict[str, onnx.TypeProto]:
    floats, ints = (helper.make_tensor_type_proto(t, [1]) for t in (TensorProto.FLOAT16, TensorProto.INT64))
    return {
        "tensor(float16)": floats, "seq(tensor(int64))": helper.make_sequence_type_proto(ints),
        "optional(tensor(float16))": helper.make_optional_type_proto(floats),
        "map(int64,tensor(float16))": helper.make_map_type_proto(TensorProto.INT64, floats),
        "unknown": onnx.TypeProto(),
    }


@pytest.mark.parametrize("text", _types())
def test_types_have_the_names_of_onnx_runtime(text: str) -> None:
    from tilewright.compat.onnx_session.values import node_arg

    assert node_arg(helper.make_value_info("v", _types()[text])).type == text


@pytest.mark.filterwarnings("ignore::tilewright.base.errors.OpenSizeWarning")
def test_dictionaries_come_as_a_list() -> None:
    """As ONNX Runtime gives them: what scikit-learn's classifiers are exported with."""
    zipped = helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_strings=["ham", "spam"])
    entry = helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    y = helper.make_value_info("y", helper.make_sequence_type_proto(entry))
    graph = helper.make_graph([zipped], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])], [y])
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)], ir_version=8
    )
    session = ours.InferenceSession(model)
    assert session.get_outputs()[0].type == "seq(map(string,tensor(float)))"
    assert session.run(None, {"x": np.array([[0.25, 0.75]], np.float32)}) == [[{"ham": 0.25, "spam": 0.75}]]
