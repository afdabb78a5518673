"""ONNX's element types and the operators around them, against the meaning that the specification's own implementation
gives them."""

from __future__ import annotations

import io
import itertools
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tilewright as tvm
from tilewright.base.errors import InputError, ModelError
from tilewright.base.types import DataType
from tilewright.relay.frontend import from_onnx
from tilewright.relay.interpreter import evaluate

Array = np.ndarray[Any, Any]

FLOAT8 = ("FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ")
SMALL = (*FLOAT8, "FLOAT4E2M1", "INT4", "UINT4", "INT2", "UINT2")
OPSET = 25


def node_model(
    op_type: str, inputs: dict[str, Array], known: dict[str, Array], outputs: dict[str, int], opset: int = OPSET,
    order: str = "", **attrs: Any
) -> onnx.ModelProto:
    """A model of one node; `known` are initializers, `outputs` are names and element types, `order` the node's inputs
    where it is another."""
    names = order.split(",") if order else [*inputs, *known]
    node = helper.make_node(op_type, names, list(outputs), **attrs)
    given = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in inputs.items()
    ]
    made = [helper.make_tensor_value_info(n, t, None) for n, t in outputs.items()]
    graph = helper.make_graph([node], "g", given, made, [numpy_helper.from_array(a, n) for n, a in known.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def specified(model: onnx.ModelProto, inputs: dict[str, Array]) -> list[Array]:
    """The outputs that the specification's implementation gives."""
    outputs = ReferenceEvaluator(model).run(None, inputs)
    assert isinstance(outputs, list)
    return outputs


def outcome(model: onnx.ModelProto, inputs: dict[str, Array]) -> tuple[list[Array], list[Array]]:
    """What the compiled model and the specification's implementation give."""
    got = tvm.compile(model)(**inputs)
    with np.errstate(all="ignore"):
        expected = specified(model, inputs)
    return list(got) if isinstance(got, tuple) else [got], expected


def same(model: onnx.ModelProto, inputs: dict[str, Array], rtol: float = 1e-5, atol: float = 1e-6) -> None:
    for a, b in zip(*outcome(model, inputs), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        if a.dtype.kind in "fV":
            np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol, atol)
        else:
            np.testing.assert_array_equal(a, b)


def as_onnx_runtime(model: onnx.ModelProto, inputs: dict[str, Array], rtol: float, atol: float) -> None:
    got, expected = tvm.compile(model)(**inputs), ort.InferenceSession(model.SerializeToString()).run(None, inputs)[0]
    assert got.dtype == expected.dtype and got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol, atol)


def _rng() -> np.random.Generator:
    return np.random.default_rng(7)


def _real(*shape: int) -> Array:
    return _rng().normal(0, 1, shape).astype(np.float32)


def _many_floats() -> Array:
    bits = _rng().integers(0, 1 << 32, 4000, np.uint32).view(np.float32)
    around = np.outer(
        np.array([0.4375, 15.5, 240, 248, 448, 464, 480, 57344, 61440, 65536], np.float32),
        np.array([1, -1, 1 + 1e-6, 1 - 1e-6], np.float32)
    ).ravel()
    return np.concatenate([bits, around.astype(np.float32), np.array([0, -0.0, np.inf, -np.inf, np.nan], np.float32)])


@pytest.mark.parametrize(("to", "saturate"), [*itertools.product(FLOAT8, (0, 1))])
@pytest.mark.parametrize("source", ["float32", "float16"])
def test_casts_to_float8(to: str, saturate: int, source: str) -> None:
    with np.errstate(all="ignore"):
        x = _many_floats().astype(source)
    code = getattr(TensorProto, to)
    (got,), (expected,) = outcome(node_model("Cast", {"x": x}, {}, {"y": code}, to=code, saturate=saturate), {"x": x})
    np.testing.assert_array_equal(got.view(np.uint8), expected.view(np.uint8))


@pytest.mark.parametrize(("mode", "saturate"), [*itertools.product(("up", "down", "nearest"), (0, 1))])
def test_casts_to_exponents(mode: str, saturate: int) -> None:
    x = np.abs(_many_floats())
    code = TensorProto.FLOAT8E8M0
    (got,), (expected,) = outcome(
        node_model("Cast", {"x": x}, {}, {"y": code}, to=code, saturate=saturate, round_mode=mode), {"x": x}
    )
    np.testing.assert_array_equal(got.view(np.uint8), expected.view(np.uint8))


def test_a_rounding_that_is_not_there_is_refused() -> None:
    x = _real(2)
    code = TensorProto.FLOAT8E8M0
    with pytest.raises(ModelError, match="Cast 'Cast_0': round_mode is 'even'; it must be up, down or nearest"):
        tvm.compile(node_model("Cast", {"x": x}, {}, {"y": code}, to=code, round_mode="even"))


@pytest.mark.parametrize("kind", [*SMALL, "FLOAT8E8M0", "FLOAT6E2M3", "FLOAT6E3M2", "BFLOAT16"])
@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("count", [1, 7])
def test_stored_tensors_are_unpacked(kind: str, raw: bool, count: int) -> None:
    code = getattr(TensorProto, kind, None)
    if code is None:
        pytest.skip(f"this version of onnx has no {kind}")
    dtype = helper.tensor_dtype_to_np_dtype(code)
    values = np.arange(
        1, count + 1, dtype=np.uint8
    ).astype(np.float32).astype(dtype) if kind not in ("INT2", "UINT2") else (np.arange(count) % 2).astype(dtype)
    tensor = numpy_helper.from_array(values, "w") if raw else helper.make_tensor(
        "w", code, values.shape, values.astype(np.float32).tolist()
    )
    graph = helper.make_graph(
        [helper.make_node("Identity", ["w"], ["y"])], "g", [], [helper.make_tensor_value_info("y", code, values.shape)],
        [tensor]
    )
    module, _ = from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)]))
    got = evaluate(module["main"])
    assert got.dtype == dtype
    np.testing.assert_array_equal(got.astype(np.float32), values.astype(np.float32))


def _scales(how: str, shape: tuple[int, ...]) -> tuple[Array, dict[str, Any]]:
    found: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
        "tensor": ((), {}), "axis": ((shape[1],), {"axis": 1}),
        "block": ((shape[0], -(-shape[1] // 3), *shape[2:]), {"axis": 1, "block_size": 3}),
    }
    size, attrs = found[how]
    return _rng().uniform(0.05, 0.5, size).astype(np.float32), attrs


@pytest.mark.parametrize(
    ("kind", "how"), [*itertools.product((*SMALL, "INT8", "UINT8", "INT16", "UINT16"), ("tensor", "axis", "block"))]
)
def test_quantization_of_every_type_and_granularity(kind: str, how: str) -> None:
    code = getattr(TensorProto, kind)
    x = _real(3, 8, 4)
    scale, attrs = _scales(how, x.shape)
    same(node_model("QuantizeLinear", {"x": x}, {"s": scale}, {"y": code}, output_dtype=code, **attrs), {"x": x}, 0, 0)
    (q,) = specified(
        node_model("QuantizeLinear", {"x": x}, {"s": scale}, {"y": code}, output_dtype=code, **attrs), {"x": x}
    )
    same(node_model("DequantizeLinear", {"x": q}, {"s": scale}, {"y": TensorProto.FLOAT}, **attrs), {"x": q}, 1e-6, 0)


@pytest.mark.parametrize("kind", ["INT4", "UINT4", "INT2", "UINT2", "UINT8"])
@pytest.mark.parametrize("how", ["tensor", "axis", "block"])
def test_zero_points(kind: str, how: str) -> None:
    code = getattr(TensorProto, kind)
    x = _real(3, 8, 4)
    scale, attrs = _scales(how, x.shape)
    zero = np.ones(scale.shape, np.int8).astype(helper.tensor_dtype_to_np_dtype(code))
    same(node_model("QuantizeLinear", {"x": x}, {"s": scale, "z": zero}, {"y": code}, **attrs), {"x": x}, 0, 0)
    q = (np.arange(x.size) % 2).reshape(x.shape).astype(np.int8).astype(zero.dtype)
    same(
        node_model("DequantizeLinear", {"x": q}, {"s": scale, "z": zero}, {"y": TensorProto.FLOAT}, **attrs), {"x": q},
        1e-6, 0
    )


def test_output_types_and_precision() -> None:
    x, scale = _real(4, 6), np.float16(0.25)
    q = (np.arange(24).reshape(4, 6) % 15 - 8).astype(ml_dtypes.int4)
    same(node_model("DequantizeLinear", {"x": q}, {"s": np.asarray(scale)}, {"y": TensorProto.FLOAT16}), {"x": q})
    same(
        node_model(
            "DequantizeLinear", {"x": q}, {"s": np.asarray(scale)}, {"y": TensorProto.BFLOAT16},
            output_dtype=TensorProto.BFLOAT16
        ), {"x": q}
    )
    double = node_model(
        "QuantizeLinear", {"x": x}, {"s": np.array(0.25, np.float32)}, {"y": TensorProto.INT8},
        output_dtype=TensorProto.INT8, precision=TensorProto.DOUBLE
    )
    same(double, {"x": x}, 0, 0)


def test_blocks_that_do_not_fit_are_refused() -> None:
    x = _real(2, 8)
    with pytest.raises(ModelError, match="the scale has 2 blocks along axis 1; 8 elements in blocks of 3 need 3"):
        tvm.compile(
            node_model(
                "QuantizeLinear", {"x": x}, {"s": np.ones((2, 2), np.float32)}, {"y": TensorProto.UINT8}, axis=1,
                block_size=3
            )
        )
    with pytest.raises(
        ModelError,
        match="the scale has 2 dimensions; it must be one number, or one for each element of an axis, unless "
        "block_size is set"
    ):
        tvm.compile(
            node_model("QuantizeLinear", {"x": x}, {"s": np.ones((2, 3), np.float32)}, {"y": TensorProto.UINT8}, axis=1)
        )


@pytest.mark.parametrize("zero", ["none", "number", "vector"])
@pytest.mark.parametrize(("left", "right"), [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")])
def test_integer_matrix_products(zero: str, left: str, right: str) -> None:
    a, b = _rng().integers(0, 100, (5, 12)).astype(left), _rng().integers(0, 100, (12, 7)).astype(right)
    points = {} if zero == "none" else {
        "za": np.full(() if zero == "number" else (5,), 3, left),
        "zb": np.full(() if zero == "number" else (7,), 2, right)
    }
    model = node_model("MatMulInteger", {"a": a, "b": b}, points, {"y": TensorProto.INT32}, opset=10)
    got = tvm.compile(model)(a, b)  # the other implementation takes no vectors for the rows
    wide_a, wide_b = a.astype(np.int32), b.astype(np.int32)
    if points:
        wide_a -= points["za"].astype(np.int32).reshape((-1, 1) if zero == "vector" else ())
        wide_b -= points["zb"].astype(np.int32)
    np.testing.assert_array_equal(got, wide_a @ wide_b)


@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_a_product_with_a_zero_point_for_each_column(kind: str) -> None:
    """Weights as dynamic quantization writes them: known, with a vector of zero points."""
    a, b = _rng().integers(0, 256, (2, 5, 12)).astype(np.uint8), _rng().integers(-100, 100, (12, 7)).astype(kind)
    zeros = np.asarray([0, 3, 100, 7, 1, 0, 9]).astype(kind)
    model = node_model(
        "MatMulInteger", {"a": a}, {"b": b, "za": np.asarray(np.uint8(77)), "zb": zeros}, {"y": TensorProto.INT32},
        opset=10
    )
    np.testing.assert_array_equal(
        tvm.compile(model)(a), (a.astype(np.int32) - 77) @ (b.astype(np.int32) - zeros.astype(np.int32))
    )


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_quantized_convolutions(per_channel: bool, bias: bool) -> None:
    x, w = _rng().integers(0, 255, (1, 4, 9, 9)).astype(np.uint8), _rng().integers(
        -100, 100, (6, 4, 3, 3)
    ).astype(np.int8)
    sw = _rng().uniform(0.01, 0.02, (6,) if per_channel else ()).astype(np.float32)
    known: dict[str, Array] = {
        "sx": np.array(0.02, np.float32), "zx": np.array(121, np.uint8), "w": w, "sw": sw,
        "zw": np.zeros(sw.shape, np.int8), "sy": np.array(0.3, np.float32), "zy": np.array(110, np.uint8)
    }
    if bias:
        known["b"] = _rng().integers(-500, 500, 6).astype(np.int32)
    model = node_model(
        "QLinearConv", {"x": x}, known, {"y": TensorProto.UINT8}, opset=10, pads=[1, 1, 1, 1], strides=[2, 1]
    )
    got = tvm.compile(model)(x)
    dims = (1, 6, 1, 1)
    padded = np.pad(x.astype(np.int64) - 121, ((0, 0), (0, 0), (1, 1), (1, 1)))
    sums = sum(
        np.einsum("nchw,oc->nohw", padded[:, :, i : i + 9 : 2, j : j + 9], w[:, :, i, j].astype(np.int64))
        for i in range(3) for j in range(3)
    )
    sums = sums + (known["b"].reshape(dims) if bias else 0)
    expected = np.clip(
        np.rint(sums * (np.float32(0.02) * (sw.reshape(dims) if per_channel else sw) / np.float32(0.3))) + 110, 0, 255
    ).astype(np.uint8)
    assert int(np.abs(got.astype(int) - expected).max()) <= 1 and float((got != expected).mean()) < 0.01


@pytest.mark.parametrize("attrs", [{}, {"strides": [2, 2]}, {"pads": [1, 0, 1, 2]}, {"dilations": [2, 1]}])
def test_col2im(attrs: dict[str, Any]) -> None:
    height, width = 6, 7
    pads, strides, apart = attrs.get("pads", [0] * 4), attrs.get("strides", [1, 1]), attrs.get("dilations", [1, 1])
    counts = [
        (s + pads[k] + pads[k + 2] - apart[k] * (b - 1) - 1) // strides[k] + 1 for k,
        (s, b) in enumerate(((height, 2), (width, 3)))
    ]
    x = _real(2, 3 * 6, counts[0] * counts[1])
    known = {"image": np.array([height, width]), "block": np.array([2, 3])}
    same(node_model("Col2Im", {"x": x}, known, {"y": TensorProto.FLOAT}, **attrs), {"x": x})


def test_max_unpool_fills_up_to_a_shape() -> None:
    x, where = _real(1, 1, 2, 2), np.array([[[[5, 7], [13, 15]]]], np.int64)
    attrs: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}
    same(node_model("MaxUnpool", {"x": x, "i": where}, {}, {"y": TensorProto.FLOAT}, **attrs), {"x": x, "i": where})
    same(
        node_model("MaxUnpool", {"x": x, "i": where}, {"s": np.array([1, 1, 5, 5])}, {"y": TensorProto.FLOAT}, **attrs),
        {"x": x, "i": where}
    )
    with pytest.raises(ModelError, match=r"output_shape is \(1, 1, 3, 3\)"):
        tvm.compile(
            node_model(
                "MaxUnpool", {"x": x, "i": where}, {"s": np.array([1, 1, 3, 3])}, {"y": TensorProto.FLOAT}, **attrs
            )
        )


@pytest.mark.parametrize("storage_order", [0, 1])
@pytest.mark.parametrize(
    "attrs",
    [
        {"strides": [2, 2]}, {"pads": [1, 1, 1, 1]}, {"strides": [2, 2], "ceil_mode": 1},
        {"dilations": [2, 2], "pads": [2, 2, 2, 2]}
    ]
)
def test_the_places_of_maxima(attrs: dict[str, Any], storage_order: int) -> None:
    x = _rng().permutation(2 * 3 * 7 * 6).reshape(2, 3, 7, 6).astype(np.float32)
    model = node_model(
        "MaxPool", {"x": x}, {}, {"y": TensorProto.FLOAT, "i": TensorProto.INT64}, opset=22, kernel_shape=[3, 3],
        storage_order=storage_order, **attrs
    )
    values, places = tvm.compile(model)(x)
    flat = x.reshape(6, 7, 6).transpose(0, 2, 1).reshape(-1) if storage_order else x.reshape(-1)
    np.testing.assert_array_equal(flat[places], values)
    plain = node_model("MaxPool", {"x": x}, {}, {"y": TensorProto.FLOAT}, opset=22, kernel_shape=[3, 3], **attrs)
    np.testing.assert_array_equal(values, tvm.compile(plain)(x))


@pytest.mark.parametrize("attrs", [
    {"strides": [2, 2]}, {"strides": [3, 2], "p": 1}, {"strides": [2, 3], "pads": [1, 0, 0, 1], "p": 3},
    {"strides": [3, 3], "dilations": [2, 1], "pads": [0, 1, 1, 1]},
])
def test_norms_of_windows_that_reach_behind_the_end(attrs: dict[str, Any]) -> None:
    x = _real(1, 2, 8, 7)
    as_onnx_runtime(
        node_model(
            "LpPool", {"x": x}, {}, {"y": TensorProto.FLOAT}, opset=18, kernel_shape=[3, 2], ceil_mode=1, **attrs
        ), {"x": x}, 1e-5, 1e-5
    )


def padded(pads: list[int]) -> onnx.ModelProto:
    return node_model(
        "Pad", {"x": _real(4)}, {"p": np.array(pads), "v": np.array(7, np.float32)}, {"y": TensorProto.FLOAT}, opset=18
    )


@pytest.mark.parametrize("pads", [[-2, 3], [5, -6], [-5, 5], [-4, 4], [-1, -3]])
def test_negative_pads_remove_elements_and_padding(pads: list[int]) -> None:
    as_onnx_runtime(padded(pads), {"x": _real(4)}, 0, 0)


@pytest.mark.parametrize("pads", [[-7, 2], [-3, -3]])
def test_negative_pads_that_remove_more_than_there_is(pads: list[int]) -> None:
    with pytest.raises(
        ModelError, match=r"for dimension 0 remove more than its \d elements; remove at most \d"
    ):
        tvm.compile(padded(pads))


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize(
    "transformation", ["half_pixel", "half_pixel_symmetric", "align_corners", "asymmetric", "pytorch_half_pixel"]
)
@pytest.mark.parametrize("exclude", [0, 1])
def test_antialiased_resize(mode: str, transformation: str, exclude: int) -> None:
    x = _real(1, 1, 9, 10)
    attrs = {"mode": mode, "coordinate_transformation_mode": transformation, "antialias": 1, "exclude_outside": exclude}
    scaled = node_model(
        "Resize", {"x": x}, {"s": np.array([1, 1, 0.6, 0.4], np.float32)}, {"y": TensorProto.FLOAT}, opset=19,
        order="x,,s", **attrs
    )
    compare = as_onnx_runtime if transformation == "align_corners" else same
    compare(scaled, {"x": x}, 1e-4, 1e-5)


@pytest.mark.parametrize("mode", ["linear", "cubic", "nearest"])
@pytest.mark.parametrize("transformation", ["align_corners", "tf_crop_and_resize"])
@pytest.mark.parametrize("scale", [0.6, 1.3, 0.2, 0.7])
def test_resize_to_a_length_that_is_no_whole_number(mode: str, transformation: str, scale: float) -> None:
    """The corners are those of the result; ONNX's reference implementation takes the fractional length instead, against
    the specification's text. The length is a product of float32: 10 * 0.7 is 7."""
    x, region = _real(1, 1, 10, 7), np.array([0, 0, 0.2, 0.1, 1, 1, 0.8, 1.1], np.float32)
    known = {"r": region, "s": np.array([1, 1, scale, scale], np.float32)}
    attrs: dict[str, Any] = {
        "mode": mode, "coordinate_transformation_mode": transformation, "extrapolation_value": 5.0
    }
    as_onnx_runtime(
        node_model("Resize", {"x": x}, known, {"y": TensorProto.FLOAT}, opset=19, **attrs), {"x": x}, 1e-5, 1e-5
    )


@pytest.mark.parametrize("mode", ["linear", "nearest"])
@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
@pytest.mark.parametrize("transformation", ["half_pixel", "half_pixel_symmetric", "align_corners", "asymmetric"])
def test_a_resize_that_keeps_proportions_has_one_factor(mode: str, policy: str, transformation: str) -> None:
    """Sizes are rounded; coordinates follow the factor before rounding."""
    x = _real(1, 1, 8, 3)
    attrs = {
        "mode": mode, "coordinate_transformation_mode": transformation, "keep_aspect_ratio_policy": policy,
        "axes": [2, 3]
    }
    as_onnx_runtime(
        node_model(
            "Resize", {"x": x}, {"s": np.array([11, 17])}, {"y": TensorProto.FLOAT}, opset=19, order="x,,,s", **attrs
        ), {"x": x}, 1e-4, 1e-5
    )


def test_a_factor_that_keeps_the_length_still_moves_coordinates() -> None:
    x = _real(1, 1, 4, 4)
    same(
        node_model(
            "Resize", {"x": x}, {"s": np.array([1, 1, 1.2, 1], np.float32)}, {"y": TensorProto.FLOAT}, opset=19,
            order="x,,s", mode="linear"
        ), {"x": x}, 1e-5, 1e-5
    )


def test_antialiasing_refuses_cropping() -> None:
    x = _real(1, 1, 4, 4)
    with pytest.raises(ModelError, match="antialias=1 with mode 'linear' and 'tf_crop_and_resize' is not supported"):
        tvm.compile(node_model("Resize", {"x": x}, {
            "r": np.array([0, 0, 0, 0, 1, 1, 1, 1], np.float32), "s": np.array([1, 1, 0.5, 0.5], np.float32)
        }, {"y": TensorProto.FLOAT}, opset=19,
                               mode="linear", antialias=1, coordinate_transformation_mode="tf_crop_and_resize"))


def test_mel_weights() -> None:
    known = {
        "bins": np.array(8), "length": np.array(16), "rate": np.array(8192), "low": np.array(0, np.float32),
        "high": np.array(4096, np.float32)
    }
    same(node_model("MelWeightMatrix", {}, known, {"y": TensorProto.FLOAT}, opset=17), {})


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize(
    ("shape", "dtype", "lengths", "skips"),
    [
        ((2, 40), "int64", (1, 3), 2), ((30,), "int32", (2, 2), 0), ((2, 3), "int64", (1, 3), 5),
        ((1, 2), "int32", (3, 3), 0)
    ]
)
def test_n_grams(mode: str, shape: tuple[int, ...], dtype: str, lengths: tuple[int, int], skips: int) -> None:
    pool = [0, 1, 2, 3, 0, 0, 1, 2, 3, 1, 0, 1, 2, 3, 3, 3]  # four 1-grams, three 2-grams, two 3-grams
    attrs: dict[str, Any] = {
        "ngram_counts": [0, 4, 10], "ngram_indexes": [3, 0, 1, 5, 2, 8, 6, 7, 4], "pool_int64s": pool,
        "weights": [0.5, 1.0, 2.0, 0.25, 3.0, 1.5, 4.0, 0.75, 8.0]
    }
    x = _rng().integers(0, 4, shape).astype(dtype)
    model = node_model("TfIdfVectorizer", {"x": x}, {}, {
        "y": TensorProto.FLOAT
    }, opset=17, mode=mode, min_gram_length=lengths[0], max_gram_length=lengths[1],
                       max_skip_count=skips, **attrs)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # all of it is native
        got = tvm.compile(model)(x)
    np.testing.assert_array_equal(
        got, ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    )


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
@pytest.mark.parametrize("dtype", ["int32", "uint8", "int8", "uint64"])
def test_shifts_by_more_than_there_is(direction: str, dtype: str) -> None:
    info = np.iinfo(dtype)
    x, y = np.array([info.min, 5, info.max, 3, 1], dtype), np.array(
        [1, info.bits, info.bits + 1, 0, info.bits - 1], dtype
    )
    got = tvm.compile(
        node_model(
            "BitShift", {"x": x, "y": y}, {}, {"z": helper.np_dtype_to_tensor_dtype(x.dtype)}, direction=direction
        )
    )(x, y)
    mask = (1 << info.bits) - 1
    exact = [
        (int(a) << min(int(b), 64)) & mask if direction == "LEFT" else (int(a) >> min(int(b), 64)) & mask for a,
        b in zip(x, y, strict=True)
    ]
    assert [int(v) & mask for v in got] == exact


@pytest.mark.parametrize(
    ("base", "exponent"),
    [(np.int64, np.int64), (np.int32, np.int64), (np.int64, np.float32), (np.int32, np.int32), (np.int32, np.uint8)]
)
def test_powers_of_integers(base: type[np.generic], exponent: type[np.generic]) -> None:
    """In integers that wrap around; by floats, in double precision."""
    x, y = np.array([1000003, 3, 7, -5, 2, 1], base), np.array([3, 19, 11, 9, 30, 0], exponent)
    expected = np.power(x, y) if exponent is np.float32 else np.power(x.astype(np.int64), y.astype(np.int64))
    got = tvm.compile(node_model("Pow", {"x": x, "y": y}, {}, {"z": helper.np_dtype_to_tensor_dtype(x.dtype)}))(x, y)
    np.testing.assert_array_equal(got, expected.astype(base))


@pytest.mark.parametrize(
    ("left", "right"),
    [((1, 1, 3, 4), (4, 5)), ((1, 3, 4), (1, 1, 4, 5)), ((1, 1, 4), (4,)), ((4,), (1, 2, 4, 3)), ((2, 3, 4), (1, 4, 5))]
)
def test_products_of_integers_with_leading_ones(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-(2**40), 2**40, s) for s in (left, right))
    got = tvm.compile(node_model("MatMul", {"x": x, "y": y}, {}, {"z": TensorProto.INT64}))(x, y)
    np.testing.assert_array_equal(got, x @ y, strict=True)


def test_remainders_of_floats_are_exact() -> None:
    x = np.array([1e8, 3e38, 5.3, -5.3, np.inf, 7, -0.0], np.float32)
    y = np.array([7, 1e-3, np.inf, 0.1, 2, 0, 3], np.float32)
    same(node_model("Mod", {"x": x, "y": y}, {}, {"z": TensorProto.FLOAT}, fmod=1), {"x": x, "y": y}, 0, 0)


@pytest.mark.parametrize("op_type", ["ReduceSum", "ReduceMax", "ReduceL2", "ReduceLogSumExp"])
def test_an_empty_attribute_of_axes_means_all(op_type: str) -> None:
    x = _real(2, 3)
    model = node_model(op_type, {"x": x}, {}, {"y": TensorProto.FLOAT}, opset=11)
    model.graph.node[0].attribute.append(onnx.AttributeProto(name="axes", type=onnx.AttributeProto.INTS))
    same(model, {"x": x})


@pytest.mark.parametrize(
    "op_type", ["ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare", "ReduceMean"]
)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_reductions_of_integers(op_type: str, dtype: type[np.generic]) -> None:
    """Computed in double precision where they leave the integers, and without the fraction at the end."""
    x = np.array([[3, 4, 5], [8, 1, 12]], dtype)
    exact: dict[str, list[float]] = {
        "ReduceL1": [12, 21], "ReduceL2": [7.07, 14.46], "ReduceLogSum": [2.48, 3.04], "ReduceLogSumExp": [5.41, 12.02],
        "ReduceSumSquare": [50, 209], "ReduceMean": [4, 7],
    }
    got = tvm.compile(
        node_model(
            op_type, {"x": x}, {"a": np.array([1])}, {"y": helper.np_dtype_to_tensor_dtype(x.dtype)}, opset=18,
            keepdims=0
        )
    )(x)
    assert got.dtype == dtype and got.tolist() == [int(v) for v in exact[op_type]]


@pytest.mark.parametrize(
    ("start", "end", "step"),
    [
        (-100, 0, -1), (-100, -100, -1), (100, -100, -1), (3, -100, -2), (-1, 0, -1), (-2, -5, -1), (0, -6, -1),
        (4, 1, 1), (-100, 100, 2)
    ]
)
@pytest.mark.parametrize("size", [1, 5])
def test_slices_beyond_the_ends(start: int, end: int, step: int, size: int) -> None:
    """Backward ones begin at an element that there is, as the specification says; ONNX's reference implementation
    slices as Python does."""
    x = np.arange(size, dtype=np.float32)
    known = {"s": np.array([start]), "e": np.array([end]), "a": np.array([0]), "p": np.array([step])}
    as_onnx_runtime(node_model("Slice", {"x": x}, known, {"y": TensorProto.FLOAT}, opset=13), {"x": x}, 0, 0)


@pytest.mark.parametrize("op_type", ["Softplus", "Mish"])
@pytest.mark.parametrize("stored", [False, True])
def test_functions_of_small_powers_keep_their_digits(op_type: str, stored: bool) -> None:
    x = np.array([-80, -30, -10, -9.998, -3, -0.5, 0, 1e-7, 2, 19.9, 20.1, 80], np.float32)
    given, known = ({}, {"x": x}) if stored else ({"x": x}, {})
    as_onnx_runtime(node_model(op_type, given, known, {"y": TensorProto.FLOAT}, opset=22), given, 2e-6, 0)


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 0.5), (1.5, 1.0), (0.25, 2.5)])
@pytest.mark.parametrize("stored", [False, True])
def test_fractions_of_products_of_integers(alpha: float, beta: float, stored: bool) -> None:
    a, b, c = (np.arange(n * m, dtype=np.uint32).reshape(n, m) % 7 for n, m in ((2, 3), (3, 4), (1, 4)))
    given, known = {"a": a, "b": b}, {"c": c}
    model = node_model(
        "Gemm", given if stored else given | known, known if stored else {}, {"y": TensorProto.UINT32}, opset=13,
        alpha=alpha, beta=beta
    )
    got = tvm.compile(model)(*(given if stored else given | known).values())
    assert got.dtype == np.uint32
    np.testing.assert_array_equal(got, (alpha * (a @ b) + beta * c).astype(np.uint32))


def test_a_shrink_whose_threshold_is_below_zero() -> None:
    x = np.array([-2, -1, -0.3, 0, 0.1, 1, 2], np.float32)
    as_onnx_runtime(
        node_model("Shrink", {"x": x}, {}, {"y": TensorProto.FLOAT}, opset=9, lambd=-0.25, bias=1.0), {"x": x}, 0, 0
    )


def test_dynamic_quantization_rounds_once() -> None:
    """The scale, the zero point and the integers are those of ONNX Runtime, bit by bit; zeros have the scale 1."""
    shape = (4, 64)
    model = node_model(
        "DynamicQuantizeLinear", {"x": _real(*shape)}, {},
        {"y": TensorProto.UINT8, "s": TensorProto.FLOAT, "z": TensorProto.UINT8}, opset=11
    )
    program, session = tvm.compile(model), ort.InferenceSession(model.SerializeToString())
    random = _rng()
    for factor in (0.0, 1.0, -1e-40, *np.exp(random.uniform(-9, 9, 30))):
        x = (random.standard_normal(shape) * factor).astype(np.float32)
        for found, expected in zip(program(x), session.run(None, {"x": x}), strict=True):
            np.testing.assert_array_equal(found, expected)


def test_remainders_by_infinity() -> None:
    x, y = np.array([5, -5, 0, 5, -5], np.float32), np.array([np.inf, np.inf, -np.inf, -np.inf, -np.inf], np.float32)
    got = tvm.compile(node_model("Mod", {"x": x, "y": y}, {}, {"z": TensorProto.FLOAT}, fmod=0))(x, y)
    np.testing.assert_array_equal(got, np.mod(x, y))


def test_random_numbers() -> None:
    draws: dict[str, dict[str, Any]] = {
        "RandomUniform": {"low": -1.0, "high": 3.0}, "RandomNormal": {"mean": 1.0, "scale": 2.0}
    }
    for op_type, attrs in draws.items():
        values = tvm.compile(node_model(op_type, {}, {}, {"y": TensorProto.FLOAT}, shape=[64, 64], seed=3.0, **attrs))()
        again = tvm.compile(node_model(op_type, {}, {}, {"y": TensorProto.FLOAT}, shape=[64, 64], seed=4.0, **attrs))()
        assert abs(float(values.mean()) - 1) < 0.15 and not np.array_equal(values, again)
        assert abs(float(values.std()) - (4 / 12**0.5 if op_type == "RandomUniform" else 2)) < 0.1
    p = np.full((50, 50), 0.3, np.float32)
    assert abs(
        float(tvm.compile(node_model("Bernoulli", {"x": p}, {}, {"y": TensorProto.FLOAT}))(p).mean()) - 0.3
    ) < 0.05
    logs = np.log(np.array([[0.1, 0.2, 0.7]], np.float32))
    drawn = tvm.compile(node_model("Multinomial", {"x": logs}, {}, {"y": TensorProto.INT32}, sample_size=4000))(logs)
    np.testing.assert_allclose(np.bincount(drawn[0], minlength=3) / 4000, [0.1, 0.2, 0.7], atol=0.03)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_dropout_in_training_mode(dtype: type[np.generic]) -> None:
    x = (1 + _rng().random((50, 40))).astype(dtype)
    kinds: dict[str, int] = {"y": helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), "mask": TensorProto.BOOL}
    ratio, training = np.array(0.3, dtype), np.array(True)
    # computed, and known while compiling
    for given, known in (({"r": ratio, "t": training}, {}), ({}, {"r": ratio, "t": training})):
        y, mask = tvm.compile(node_model("Dropout", {"x": x, **given}, known, kinds, seed=3))(x=x, **given)
        assert y.dtype == dtype and abs(float(mask.mean()) - 0.7) < 0.05
        np.testing.assert_allclose(
            y.astype(np.float64), np.where(mask, x.astype(np.float64) / 0.7, 0), 2e-3 if dtype is np.float16 else 1e-6
        )
    kept, mask = tvm.compile(node_model("Dropout", {"x": x}, {"r": ratio, "t": np.array(False)}, kinds))(x=x)
    assert mask.all() and np.array_equal(kept, x)
    halves = tvm.compile(node_model("Dropout", {"x": x}, {"t": training}, {"y": kinds["y"]}, order="x,,t"))(x=x)
    assert abs(float((halves == 0).mean()) - 0.5) < 0.05


@pytest.mark.parametrize(("opset", "ends"), [(21, (-8, 7)), (24, (4, -6))])
def test_numbers_that_do_not_fit_into_four_bits(opset: int, ends: tuple[int, int]) -> None:
    """Out of range is undefined; ONNX's implementation held numbers at the ends, and lets the high bits go since."""
    x = np.array([-12, 10, 3.5, -2], np.float32)
    found = tvm.compile(node_model("Cast", {"x": x}, {}, {"y": TensorProto.INT4}, opset=opset, to=TensorProto.INT4))(x)
    assert found.astype(int).tolist() == [*ends, 3, -2]



def _png(pixels: Array) -> Array:
    image = pytest.importorskip("PIL.Image")
    file = io.BytesIO()
    image.fromarray(pixels).save(file, "png")
    return np.frombuffer(file.getvalue(), np.uint8)


def test_images_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = _rng().integers(0, 255, (5, 4, 3)).astype(np.uint8)
    encoded = _png(pixels)
    for pixel_format, expected in (("RGB", pixels), ("BGR", pixels[..., ::-1])):
        model = node_model("ImageDecoder", {"x": encoded}, {}, {"y": TensorProto.UINT8}, pixel_format=pixel_format)
        np.testing.assert_array_equal(evaluate(from_onnx(model)[0]["main"], encoded), expected)
    gray = node_model("ImageDecoder", {"x": encoded}, {}, {"y": TensorProto.UINT8}, pixel_format="Grayscale")
    assert evaluate(from_onnx(gray)[0]["main"], encoded).shape == (5, 4, 1)
    with pytest.raises(InputError, match="the bytes cannot be decoded as an image"):
        evaluate(from_onnx(gray)[0]["main"], np.zeros_like(encoded))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelError, match="decoding images needs Pillow, which is not installed"):
        from_onnx(gray)


def test_strings_in_models() -> None:
    words = np.array(["a", "bc", "a"], object)
    graph = helper.make_graph(
        [
            helper.make_node("StringConcat", ["x", "w"], ["joined"]), helper.make_node("Equal", ["x", "w"], ["equal"]),
            helper.make_node("Cast", ["equal"], ["y"], to=TensorProto.FLOAT)
        ],
        "g", [helper.make_tensor_value_info("x", TensorProto.STRING, (3,))],
        [
            helper.make_tensor_value_info("joined", TensorProto.STRING, (3,)),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, (3,))
        ],
        [numpy_helper.from_array(np.array(["a"], object), "w")])
    joined, y = tvm.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10))(words)
    assert joined.tolist() == ["aa", "bca", "aa"] and y.tolist() == [1, 0, 1]


def test_every_dtype_has_its_code() -> None:
    for kind in (*SMALL, "FLOAT8E8M0"):
        dtype = helper.tensor_dtype_to_np_dtype(getattr(TensorProto, kind))
        assert DataType(dtype).numpy() == dtype
