"""TFLite models: each operator's bits against those of the reference kernels, control flow, variables, options, the
doors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tflite_models import Entry, Graph, Op, T, model, tflite
from tflite_recurrent import basic_lstm, integer_lstm, integer_svdf
from tflite_small import MODELS, inputs_of, recorded
from tilewright.base.errors import ModelError, OpNotImplemented
from tilewright.relay.frontend.tflite import CONVERTERS, Node, Value, from_tflite, signature
from tilewright.relay.frontend.tflite.schema import OPERATORS
from tilewright.relay.interpreter import evaluate

EXPECTED = recorded()
ADD_ONE = Graph([T("a", (2,)), T("one", (), value=1.0), T("b", (2,))], [Op("ADD", [0, 1], [2], "AddOptions")], [0], [2])
TWICE = Graph([T("a", (2,)), T("b", (2,))], [Op("ADD", [0, 0], [1], "AddOptions")], [0], [1])


def check(name: str, got: Any) -> None:
    """Integers are equal, floats within 1e-5."""
    said = EXPECTED[name]
    wanted = np.asarray(said["values"], said["dtype"]).reshape(said["shape"])
    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
    if wanted.dtype.kind == "f":
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
    else:
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("name", MODELS)
def test_an_operator_means_what_the_reference_kernels_compute(name: str) -> None:
    data = MODELS[name]()
    check(name, evaluate(from_tflite(data)[0], *inputs_of(signature(data))))


@pytest.mark.parametrize("name", [
    "conv_int8", "conv_uint8", "conv_int16", "conv_hybrid", "depthwise_conv_int8", "fully_connected_int8",
    "fully_connected_by_range", "average_pool_int8", "mean_uint8",
    "softmax_int8", "softmax_int16", "add_int8", "mul_uint8", "tanh_int16", "l2_normalization_int8",
    "resize_bilinear_uint8", "lstm", "transpose_conv_int8",
    "l2_normalization_uint8_long", "log_softmax_int8_of_one", "lstm_int8", "lstm_int8_all", "lstm_int8_wide",
    "lstm_int8_step", "lstm_basic_uint8", "lstm_hybrid_projected", "bidirectional_rnn_crossed_hybrid", "svdf_int8",
    "svdf_by_range",
])
def test_compiled_it_gives_the_same_bits(name: str) -> None:
    data = MODELS[name]()
    check(name, tvm.compile(data, threads=1)(*inputs_of(signature(data))))


@pytest.mark.parametrize(("dtype", "given", "made", "wanted"), [
    ("int8", (0.0078, -1), (0.0288, 4), [-43, 35, -72, -29, -25, 22]),
    ("int16", (0.001, 0), (0.004, 0), [-11250, 7111, -18042, -7786, -7007, 4062]),
    ("uint8", (0.02, 128), (0.05, 120), [48, 164, 7, 70, 76, 145]),
])
def test_sums_of_signed_numbers_are_those_of_the_default_kernels(
    dtype: str, given: Any, made: Any, wanted: list[int]
) -> None:
    """The reference kernels take them for unsigned; sums of unsigned ones are theirs."""
    tensors = [T("x", (6, 4), dtype, None, *given), T("a", (1,), "int32", [1]), T("y", (6,), dtype, None, *made)]
    data, info = model(tensors, [Op("SUM", [0, 1], [2], "ReducerOptions")], [0], [2]), np.iinfo(dtype)
    x = np.random.default_rng(3).integers(info.min, info.max + 1, (6, 4)).astype(dtype)
    assert tvm.compile(data, threads=1)(x).tolist() == wanted


def test_every_model_has_a_recorded_answer() -> None:
    assert set(EXPECTED) == set(MODELS)


def test_every_converter_is_of_an_operator_of_the_schema() -> None:
    assert [k for k in CONVERTERS if k not in OPERATORS] == ["TFLite_Detection_PostProcess"]


def test_a_quantized_convolution_is_one_of_the_dialect() -> None:
    text = str(from_tflite(MODELS["conv_int8"]())[0])
    assert "qnn.conv2d" in text and 'numerics="tflite"' in text and 'data_layout="NHWC"' in text


def test_the_model_may_be_a_path_bytes_or_an_object_of_the_schema_package(tmp_path: Path) -> None:
    data = MODELS["relu6_int8"]()
    (tmp_path / "m.tflite").write_bytes(data)
    found = [str(from_tflite(m)[0]) for m in (data, tmp_path / "m.tflite", tflite.Model.GetRootAs(data, 0))]
    assert found[0] == found[2] and found[1].replace(str(tmp_path), "") is not None
    (x,) = inputs_of(signature(data))
    check("relu6_int8", tvm.compile(tmp_path / "m.tflite")(x))
    check("relu6_int8", tvm.compile(tflite.Model.GetRootAs(data, 0))(x))


def test_inputs_and_outputs_have_the_names_of_their_tensors() -> None:
    mod, params = tvm.relay.frontend.from_tflite(MODELS["add_int8"]())
    assert [p.name_hint for p in mod["main"].params] == ["a", "b"] and params == {}
    assert mod["main"].attrs["output_tensor_names"] == ("c",)


def test_another_batch() -> None:
    data = MODELS["relu6_int8"]()
    mod, _ = from_tflite(data, {"x": (7, 16)})
    assert mod["main"].ret_type == tvm.relay.TensorType((7, 16), "int8")


def test_a_branch() -> None:
    main = [T("c", (), "bool"), T("x", (2,)), T("y", (2,))]
    data = model(
        main, [Op("IF", [0, 1], [2], "IfOptions", {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 2})], [0, 1], [2],
        ADD_ONE, TWICE
    )
    compiled = tvm.compile(data)
    x = np.asarray([3, 5], np.float32)
    np.testing.assert_array_equal(compiled(np.asarray(True), x), [4, 6])
    np.testing.assert_array_equal(compiled(np.asarray(False), x), [6, 10])


def test_a_composite_is_its_decomposition() -> None:
    options = {"Name": "my.doubled", "DecompositionSubgraphIndex": 1, "Version": 3}
    data = model(
        [T("x", (2,)), T("y", (2,))], [Op("STABLEHLO_COMPOSITE", [0], [1], "StableHLOCompositeOptions", options)], [0],
        [1], TWICE
    )
    np.testing.assert_array_equal(tvm.compile(data)(np.asarray([3, 5], np.float32)), [6, 10])


def _loop() -> bytes:
    condition = Graph(
        [T("k", (), "int32"), T("x", (2,)), T("n", (), "int32", 10), T("go", (), "bool")], [Op("LESS", [0, 2], [3])],
        [0, 1], [3]
    )
    turn = Graph(
        [
            T("k", (), "int32"), T("x", (2,)), T("one", (), "int32", 1), T("k2", (), "int32"), T("half", (), value=0.5),
            T("x2", (2,))
        ],
        [Op("ADD", [0, 2], [3], "AddOptions"), Op("MUL", [1, 4], [5], "MulOptions")], [0, 1], [3, 5],
    )
    main = [T("k", (), "int32"), T("x", (2,)), T("last", (), "int32"), T("y", (2,))]
    return model(
        main, [Op("WHILE", [0, 1], [2, 3], "WhileOptions", {"CondSubgraphIndex": 1, "BodySubgraphIndex": 2})], [0, 1],
        [2, 3], condition, turn
    )


@pytest.mark.parametrize("first", [0, 7, 12])
def test_a_loop_turns_as_often_as_its_condition_says(first: int) -> None:
    last, y = tvm.compile(_loop())(np.asarray(first, np.int32), np.asarray([1024, 2048], np.float32))
    turns = max(10 - first, 0)
    assert last == first + turns
    np.testing.assert_array_equal(y, np.asarray([1024, 2048]) / 2**turns)


def test_what_is_written_into_a_variable_is_read_later() -> None:
    start = Graph(
        [T("h", (), "resource"), T("v", (2,), value=[10, 20])],
        [Op("VAR_HANDLE", [], [0], "VarHandleOptions"), Op("ASSIGN_VARIABLE", [0, 1], [])], [], [],
    )
    main = [T("x", (2,)), T("h", (), "resource"), T("v", (2,)), T("y", (2,)), T("w", (2,))]
    operators = [
        Op("CALL_ONCE", [], [], "CallOnceOptions", {"InitSubgraphIndex": 1}),
        Op("VAR_HANDLE", [], [1], "VarHandleOptions"), Op("READ_VARIABLE", [1], [2]),
        Op("ADD", [0, 2], [3], "AddOptions"), Op("ASSIGN_VARIABLE", [1, 3], []), Op("READ_VARIABLE", [1], [4]),
    ]
    compiled = tvm.compile(model(main, operators, [0], [3, 4], start))
    for _ in range(2):  # a call begins with what the initialization wrote
        for y in compiled(np.asarray([1, 2], np.float32)):
            np.testing.assert_array_equal(y, [11, 22])


def test_a_shape_that_only_a_run_tells() -> None:
    data = model([T("x", (6,)), T("s", (2,), "int32"), T("y", (1, 6))], [Op("RESHAPE", [0, 1], [2])], [0, 1], [2])
    compiled = tvm.compile(data)
    x = np.arange(6, dtype=np.float32)
    for shape in ((2, 3), (3, -1)):
        np.testing.assert_array_equal(compiled(x, np.asarray(shape, np.int32)), x.reshape(shape))


def test_complex_numbers_are_inputs_and_outputs() -> None:
    data = model(
        [T("x", (2, 4)), T("n", (2,), "int32", [2, 4]), T("y", (2, 3), "complex64")], [Op("RFFT2D", [0, 1], [2])], [0],
        [2]
    )
    x = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)
    with pytest.warns(tvm.errors.NotNativeWarning):
        np.testing.assert_allclose(tvm.compile(data)(x), np.fft.rfft2(x), rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("of", "shape", "wanted"), [
    (
        ([T("a", (), "int32", np.array(-1, np.int32))], "EXPAND_DIMS", "ExpandDimsOptions", {}), (2, 3, 1),
        lambda z: z[:, :, None]
    ),
    (([T("a", (2,), "int32", np.array([1, 0], np.int32))], "TRANSPOSE", "TransposeOptions", {}), (3, 2), lambda z: z.T),
    (
        ([T("a", (1,), "int32", np.array([-1], np.int32))], "REVERSE_V2", "ReverseV2Options", {}), (2, 3),
        lambda z: z[:, ::-1]
    ),
    (
        (
            [T("a", (2,), "int32", np.array([1, 0], np.int32)), T("b", (2,), "int32", np.array([1, -1], np.int32))],
            "SLICE", "SliceOptions", {}
        ), (1, 3), lambda z: z[1:]
    ),
    (
        ([T("a", (2,), "int32", np.array([2, 0], np.int32))], "GATHER", "GatherOptions", {"Axis": -1}), (2, 2),
        lambda z: z[:, [2, 0]]
    ),
])
def test_axes_of_complex_numbers_are_counted_without_their_parts(of: Any, shape: tuple[int, ...], wanted: Any) -> None:
    more, kind, options, values = of
    tensors = [
        T("x", (2, 4)), T("n", (2,), "int32", [2, 4]), T("z", (2, 3), "complex64"), *more, T("y", shape, "complex64")
    ]
    last = len(tensors) - 1
    data = model(
        tensors, [Op("RFFT2D", [0, 1], [2]), Op(kind, [2, *range(3, last)], [last], options, values)], [0], [last]
    )
    x = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)
    np.testing.assert_allclose(tvm.compile(data)(x), wanted(np.fft.rfft2(x)), rtol=1e-5, atol=1e-5)


def with_entries(*entries: Entry) -> bytes:
    return model([T("x", (2,)), T("y", (2,))], [Op("NEG", [0], [1])], [0], [1], ADD_ONE, signatures=entries)


def test_an_entry_is_chosen_by_its_signature() -> None:
    data = with_entries(Entry("negate", 0, {"of": 0}, {"made": 1}), Entry("increase", 1, {"number": 0}, {"next": 2}))
    x = np.asarray([1.0, -2.0], np.float32)
    for key, name, wanted in (("negate", "of", -x), ("increase", "number", x + 1), (None, "x", -x)):
        module, _ = from_tflite(data, signature=key, shape_dict={name: (2,)})
        assert [v.name_hint for v in module["main"].params] == [name]
        np.testing.assert_array_equal(tvm.compile(module)(x), wanted)


@pytest.mark.parametrize(("key", "message"), [
    ("other", "the model has no signature 'other'; its signatures are: negate, odd"),
    ("odd", "the signature 'odd' has 'of', which is neither an input nor an output of its graph"),
])
def test_signatures_that_are_not_there(key: str, message: str) -> None:
    data = with_entries(Entry("negate", 0, {"of": 0}, {"made": 1}), Entry("odd", 1, {"of": 1}, {"made": 2}))
    with pytest.raises(ModelError, match=message):
        from_tflite(data, signature=key)


def test_a_converter_of_ones_own() -> None:
    data = model([T("x", (2,)), T("y", (2,))], [Op("Cube", [0], [1], custom=b"")], [0], [1])
    with pytest.raises(
        OpNotImplemented,
        match=r"no converter:\n  Cube, in 1 node: .*\nWrite one "
        r".*@tilewright\.relay\.frontend\.tflite\.register_converter\('Cube'\); or give op_converter="
    ):
        from_tflite(data)

    def cube(x: Value, *, node: Node) -> Any:
        assert node.operator.kind == "Cube"
        return tvm.relay.multiply(x.expr, tvm.relay.multiply(x.expr, x.expr))

    mod, _ = from_tflite(data, op_converter={"Cube": cube})
    np.testing.assert_array_equal(evaluate(mod, np.asarray([2, 3], np.float32)), [8, 27])


@pytest.mark.slow
def test_the_command_line_takes_the_file(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(MODELS["add_int8"]())
    for command in (["check", "m.tflite"], ["compile", "m.tflite"], ["run", "m.tflite"]):
        done = subprocess.run(
            [sys.executable, "-m", "tilewright", *command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "m.tar").exists()


REFUSED = [
    (
        lambda: model(
            [T("x", (4,)), T("y", (3,))], [Op("RESHAPE", [0], [1], "ReshapeOptions", {"NewShape": [3]})], [0], [1]
        ), "4 elements do not fit the shape \\(3,\\)"
    ),
    (
        lambda: model([T("x", (4,)), T("y", (4,))], [Op("ADD", [0], [1], "AddOptions")], [0], [1]),
        "input 'b' is missing"
    ),
    (
        lambda: model([T("x", (4,)), T("y", (4,))], [Op("ADD", [0, 0, 0], [1], "AddOptions")], [0], [1]),
        "3 inputs are given, but ADD takes at most 2: a, b"
    ),
    (lambda: model([T("x", (4,)), T("y", (4,))], [Op("RELU", [1], [1])], [0], [1]), "used before it is computed"),
    (
        lambda: model([T("x", (4,)), T("y", (4,), "int8")], [Op("QUANTIZE", [0], [1])], [0], [1]),
        "its result is int8 without a scale"
    ),
    (lambda: model([T("x", (1, 5, 5, 3)), T("w", (4, 3, 3, 2), value=np.zeros((4, 3, 3, 2))), T("y", (1, 5, 5, 4))],
                   [Op("CONV_2D", [0, 1], [2], "Conv2DOptions", {"StrideW": 1, "StrideH": 1})], [0], [2]),
                   "3 channels, which is not a multiple of 2"),
    (lambda: model(
        [T("x", (1, 5, 5, 3)), T("w", (4, 3, 3, 3), value=np.zeros((4, 3, 3, 3))), T("y", (1, 5, 5, 4))],
        [Op("CONV_2D", [0, 1], [2], "Conv2DOptions")], [0], [2]
    ),
     "strides \\(0, 0\\) and dilation \\(1, 1\\), which must all be above zero"),
    (
        lambda: model(
            [T("s", (1,), "int32", [3]), T("y", (3,))], [Op("RANDOM_UNIFORM", [0], [1], "RandomOptions")], [], [1]
        ), "its seeds are both zero"
    ),
    (
        lambda: model(
            [T("s", (2,), "int32", [0, -1]), T("y", (3,))],
            [Op("RANDOM_UNIFORM", [0], [1], "RandomOptions", {"Seed": 1})], [], [1]
        ), "would have the shape \\(0, -1\\); sizes"
    ),
    (lambda: model(
        [T("x", (2, 3)), T("u", (1, 1), value=[[1]]), T("b", (1,), "int32", [0]), T("y", (2, 3))],
        [Op("DYNAMIC_UPDATE_SLICE", [0, 1, 2], [3])], [0], [3]
    ),
     "its input has 2 dimensions, its update 2, and the start index 1 numbers"),
    (
        lambda: model(
            [T("x", (4,)), T("y", (4,))], [Op("ADD", [0, 0], [1], "AddOptions", {"FusedActivationFunction": 5})], [0],
            [1]
        ), "activation SIGN_BIT is not supported"
    ),
    (
        lambda: model(
            [T("x", (), "int8", None, 0.1), T("y", (), "int8", None, 0.1)], [Op("L2_NORMALIZATION", [0], [1])], [0], [1]
        ), "its input is a scalar, but only vectors"
    ),
    (
        lambda: model(
            [T("x", (1, 70000), "int8", None, 0.1), T("y", (1, 70000), "int8", None, 0.1)],
            [Op("L2_NORMALIZATION", [0], [1])], [0], [1]
        ), "its rows of 70000 integers are longer than"
    ),
    (
        lambda: integer_lstm(cells=0.0005),
        "the state of its cells is int16 of scale 0.0005.*but must be int16 with a power of two from 2\\^-15 to 2\\^-9"
    ),
    (lambda: integer_lstm(behind=4), "it has 4 intermediate tensors, but 5 are needed"),
    (lambda: integer_lstm(odd=3), "its input 12 has the shape \\(4,\\), but must have \\(5,\\)"),
    (lambda: integer_lstm(flat=True), "its input 8 has the shape \\(5,\\), but must be a matrix"),
    (lambda: integer_lstm(rows=3), "the state of its cells has the shape \\(3, 5\\), but must have \\(2, 5\\)"),
    (lambda: integer_lstm(peepholes=True, clip=float("nan")), "a clipping limit of its states is NaN"),
    (
        lambda: integer_svdf("int8"),
        "its state is int16 and its time weights are int8; with int8 data both must be int16"
    ),
    (
        lambda: basic_lstm("uint8", zero_point=127),
        "the zero point of its input is 127, but the basic kernel takes only 128"
    ),
    (
        lambda: basic_lstm("int8", 0),
        "its input is int8 and its state int16; the basic kernel takes float32, or uint8 with a state of int16"
    ),
]


@pytest.mark.parametrize("make, message", REFUSED)
def test_what_is_refused_names_the_operator_and_says_why(make: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        from_tflite(make())
    assert caught.value.origin is not None and caught.value.origin.kind in OPERATORS


@pytest.mark.parametrize("given, message", [
    ({"shape_dict": {"q": (1,)}}, "the model has no input 'q'; its inputs are: a, b"),
    ({"shape_dict": {"a": (1, 2, 3)}}, "has 3 dimensions, and input 'a' of the model has 2"),
    ({"dtype_dict": {"a": "float32"}}, "input 'a' of the model is int8, but dtype_dict has float32"),
])
def test_what_is_said_of_inputs_must_fit_them(given: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        from_tflite(MODELS["add_int8"](), **given)


def test_the_softmax_of_numbers_that_overflow_when_multiplied() -> None:
    file = model([T("x", (2, 2)), T("y", (2, 2))], [Op("SOFTMAX", [0], [1], "SoftmaxOptions", {"Beta": 2.0})], [0], [1])
    x = np.asarray([[-3e38, -3e38], [0, 1]], np.float32)
    got = tvm.compile(file, threads=1)(x)
    np.testing.assert_allclose(got, [[0.5, 0.5], [1 / (1 + np.exp(2)), 1 / (1 + np.exp(-2))]], rtol=1e-6)


def test_roots_of_words_are_truncated() -> None:
    """The integers are those of LiteRT's reference kernel."""
    file = model(
        [T("x", (5,), "int16", None, 0.0003, 0), T("y", (5,), "int16", None, 0.0001, 0)], [Op("SQRT", [0], [1])], [0],
        [1]
    )
    got = tvm.compile(file, threads=1)(np.asarray([0, 2, 8, 9, 10], np.int16))
    np.testing.assert_array_equal(got, [0, 244, 489, 519, 547])


def test_angles_are_those_of_c() -> None:
    v = np.array([0.0, -0.0, 1, -1, 2.5, -3e38, 3e38, 1e-38, np.inf, -np.inf, np.nan], np.float32)
    y, x = (np.ascontiguousarray(g.ravel()) for g in np.meshgrid(v, v))
    found = tvm.compile(model([T(n, y.shape) for n in "yxz"], [Op("ATAN2", [0, 1], [2], "", {})], [0, 1], [2]))(y, x)
    wanted = np.arctan2(y, x)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    number = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(found)[number], np.signbit(wanted)[number])


@pytest.mark.parametrize(("kind", "weights"), [("uint8", "uint8"), ("int8", "int8"), ("int16", "int8")])
@pytest.mark.parametrize("depth", [1, 3, 64])
@pytest.mark.parametrize("bias", [None, "wide"])
def test_fully_connected_layers_round_once(kind: str, weights: str, depth: int, bias: str | None) -> None:
    """Every sum half-way between two results is rounded as LiteRT's reference kernels round it."""
    interpreter = pytest.importorskip(
        "ai_edge_litert.interpreter", reason="ai-edge-litert, whose kernels are the reference, is not installed"
    )
    units, random, info, range_ = 500, np.random.default_rng(depth), np.iinfo(kind), np.iinfo(weights)
    w = random.integers(max(range_.min, -127), range_.max + 1, (units, depth)).astype(weights)
    x = random.integers(info.min, info.max + 1, (2, depth)).astype(kind)
    zero = {"uint8": 137}.get(kind, 0)
    tensors = [
        T("x", (2, depth), kind, None, 0.01, zero),
        T("w", (units, depth), weights, w, 0.03, {"uint8": 119}.get(weights, 0))
    ]
    if bias:
        wide = "int64" if kind == "int16" else "int32"
        tensors.append(
            T(
                "b", (units,), wide, random.integers(-90, 90, units).astype(wide),
                float(np.float32(0.01) * np.float32(0.03)), 0
            )
        )
    tensors.append(T("y", (2, units), kind, None, 0.01 * depth**0.5 * (20 if kind == "int16" else 1), zero))
    source = model(
        tensors, [Op("FULLY_CONNECTED", [*range(len(tensors) - 1)], [len(tensors) - 1], "FullyConnectedOptions", {})],
        [0], [len(tensors) - 1]
    )
    asked = interpreter.Interpreter(
        model_content=source, experimental_op_resolver_type=interpreter.OpResolverType.BUILTIN_REF
    )
    asked.allocate_tensors()
    asked.set_tensor(asked.get_input_details()[0]["index"], x)
    asked.invoke()
    np.testing.assert_array_equal(
        tvm.compile(from_tflite(source)[0])(x), asked.get_tensor(asked.get_output_details()[0]["index"])
    )
