"""Small models of one operator each, and what TensorFlow Lite's reference kernels give for them.

`python tests/tflite_small.py --record` writes the file of expected outputs again, with the interpreter of
`ai-edge-litert` (`OpResolverType.BUILTIN_REF`), which is needed for nothing else.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import tflite_recurrent
from tflite_models import Op, T, model

Array = np.ndarray[Any, Any]
RECORDED = Path(__file__).parent / "tflite_recorded.json"
_ZERO = {"int8": -128, "uint8": 0}


def _random(seed: int, shape: Sequence[int]) -> Array:
    return (np.random.default_rng(seed).standard_normal(shape) * 0.5).astype(np.float32)


def _integers(seed: int, shape: Sequence[int], dtype: str = "int8") -> Array:
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(max(info.min, -127), info.max + 1, shape).astype(dtype)


def _one(
    kind: str, dtype: str, given: tuple[float, int], made: tuple[float, int], options: str = "",
    values: dict[str, Any] | None = None, shape: Sequence[int] = (3, 16), result: Sequence[int] = (),
    more: Sequence[T] = (),
) -> bytes:
    """An operator of one quantized input, and of stored ones behind it."""
    tensors = [T("x", shape, dtype, None, *given), *more, T("y", result or shape, dtype, None, *made)]
    return model(
        tensors, [Op(kind, list(range(len(tensors) - 1)), [len(tensors) - 1], options, values or {})], [0],
        [len(tensors) - 1]
    )


def _two(
    kind: str, dtype: str, options: str = "", values: dict[str, Any] | None = None,
    scales: tuple[float, ...] = (0.03, 0.05, 0.07)
) -> bytes:
    zeros = (0, 0, 0) if dtype == "int16" else (4, 11, 6)
    tensors = [T(n, (3, 16), dtype, None, s, z) for n, s, z in zip("abc", scales, zeros, strict=True)]
    return model(tensors, [Op(kind, [0, 1], [2], options, values or {})], [0, 1], [2])


def _weighted(kind: str, x: T, w: T, b: T | None, y: T, options: str, values: dict[str, Any] | None = None) -> bytes:
    tensors = [x, w, *([b] if b is not None else []), y]
    return model(
        tensors, [Op(kind, list(range(len(tensors) - 1)), [len(tensors) - 1], options, values or {})], [0],
        [len(tensors) - 1]
    )


def _conv(dtype: str) -> bytes:
    many = [0.01 * (k + 1) for k in range(4)]
    weights, stride = (4, 3, 3, 2), {"StrideW": 2, "StrideH": 1, "FusedActivationFunction": 3}
    if dtype == "uint8":
        w, b = T(
            "w", weights, "uint8", _integers(1, weights, "uint8"), 0.01, 77
        ), T("b", (4,), "int32", _integers(2, (4,)) * 9, 0.0002)
        return _weighted(
            "CONV_2D", T("x", (1, 5, 5, 2), dtype, None, 0.02, 120), w, b, T("y", (1, 5, 3, 4), dtype, None, 0.05, 100),
            "Conv2DOptions", stride
        )
    w = T("w", weights, "int8", _integers(1, weights), many)
    if dtype == "float32":
        return _weighted(
            "CONV_2D", T("x", (2, 5, 5, 2)), w, T("b", (4,), value=_random(2, (4,))), T("y", (2, 5, 3, 4)),
            "Conv2DOptions", stride
        )
    wide = dtype == "int16"
    b = T("b", (4,), "int64" if wide else "int32", _integers(2, (4,)).astype(np.int64) * 50, [1e-5] * 4)
    x = T("x", (1, 5, 5, 2), dtype, None, 0.001 if wide else 0.02, 0 if wide else -3)
    return _weighted(
        "CONV_2D", x, w, b, T("y", (1, 5, 3, 4), dtype, None, 0.001 if wide else 0.05, 0 if wide else 9),
        "Conv2DOptions", stride
    )


def _depthwise() -> bytes:
    w = T("w", (1, 3, 3, 6), "int8", _integers(1, (1, 3, 3, 6)), [0.01 * (k + 1) for k in range(6)], axis=3)
    b = T("b", (6,), "int32", _integers(2, (6,)) * 9, [0.0002 * (k + 1) for k in range(6)])
    values = {"StrideW": 1, "StrideH": 1, "DepthMultiplier": 2, "Padding": 1}
    return _weighted(
        "DEPTHWISE_CONV_2D", T("x", (1, 5, 5, 3), "int8", None, 0.02, -3), w, b,
        T("y", (1, 3, 3, 6), "int8", None, 0.05, 9), "DepthwiseConv2DOptions", values
    )


def _transposed() -> bytes:
    tensors = [
        T("s", (4,), "int32", [1, 8, 8, 2]), T("w", (2, 3, 3, 3), "int8", _integers(1, (2, 3, 3, 3)), [0.01, 0.02]),
        T("x", (1, 4, 4, 3), "int8", None, 0.02, -5), T("y", (1, 8, 8, 2), "int8", None, 0.05, 10),
    ]
    return model(
        tensors, [Op("TRANSPOSE_CONV", [0, 1, 2], [3], "TransposeConvOptions", {"StrideW": 2, "StrideH": 2})], [2], [3]
    )


def _dense(dtype: str, by_range: bool = False) -> bytes:
    w = T("w", (5, 16), "int8", _integers(1, (5, 16)), 0.02)
    if dtype == "float32":
        b, values = T("b", (5,), value=_random(2, (5,))), {"AsymmetricQuantizeInputs": by_range}
        return _weighted("FULLY_CONNECTED", T("x", (3, 16)), w, b, T("y", (3, 5)), "FullyConnectedOptions", values)
    b = T("b", (5,), "int32", _integers(2, (5,)) * 9, 0.0004)
    return _weighted(
        "FULLY_CONNECTED", T("x", (3, 16), dtype, None, 0.02, 3), w, b, T("y", (3, 5), dtype, None, 0.03, -7),
        "FullyConnectedOptions"
    )


def _dense_of_channels() -> bytes:
    """Words times bytes that have a scale for each row."""
    scales = [0.002 * (k + 1) for k in range(5)]
    w, b = T("w", (5, 16), "int8", _integers(1, (5, 16)), scales), T(
        "b", (5,), "int64", _integers(2, (5,)).astype(np.int64) * 50, [1e-5 * s for s in scales]
    )
    return _weighted(
        "FULLY_CONNECTED", T("x", (3, 16), "int16", None, 0.0015, 0), w, b, T("y", (3, 5), "int16", None, 0.01, 0),
        "FullyConnectedOptions"
    )


def _matrices() -> bytes:
    tensors = [
        T("a", (2, 3, 8), "int8", None, 0.02, 3), T("b", (2, 8, 4), "int8", None, 0.03, 5),
        T("c", (2, 3, 4), "int8", None, 0.09, -7)
    ]
    return model(tensors, [Op("BATCH_MATMUL", [0, 1], [2], "BatchMatMulOptions", {})], [0, 1], [2])


def _axes(*axes: int) -> list[T]:
    return [T("axes", (len(axes),), "int32", axes)]


def _models_of(d: str, z: int) -> dict[str, Callable[[], bytes]]:
    """Models of the integers `d`, of which `z` is the smallest."""
    keep, image, zero = {"KeepDims": True}, (1, 5, 5, 2), 0 if d == "int8" else 128
    return {
        f"logistic_{d}": lambda: _one("LOGISTIC", d, (0.05, 3), (1 / 256, z)),
        f"tanh_{d}": lambda: _one("TANH", d, (0.03, 5), (1 / 128, zero)),
        f"softmax_{d}": lambda: _one(
            "SOFTMAX", d, (0.1, 3), (1 / 256, z), "SoftmaxOptions", {"Beta": 1.3}
        ),
        f"hard_swish_{d}": lambda: _one("HARD_SWISH", d, (0.04, 5), (0.03, 7)),
        f"leaky_relu_{d}": lambda: _one(
            "LEAKY_RELU", d, (0.04, 5), (0.05, 7), "LeakyReluOptions", {"Alpha": 0.3}
        ),
        f"relu6_{d}": lambda: _one("RELU6", d, (0.04, 5), (0.02, 7)),
        f"prelu_{d}": lambda: _one(
            "PRELU", d, (0.04, 5), (0.03, 7), more=[T("a", (16,), d, np.arange(0, 96, 6), 0.01, 50)]
        ),
        f"mean_{d}": lambda: _one(
            "MEAN", d, (0.04, 5), (0.02, 7), "ReducerOptions", keep, image, (1, 1, 1, 2), _axes(1, 2)
        ),
        f"average_pool_{d}": lambda: _one(
            "AVERAGE_POOL_2D", d, (0.04, 5), (0.04, 5), "Pool2DOptions",
            {"StrideW": 2, "StrideH": 2, "FilterWidth": 3, "FilterHeight": 3}, image, (1, 3, 3, 2)),
        f"quantize_{d}": lambda: _one("QUANTIZE", d, (0.04, 5), (0.07, 9)),
        f"l2_normalization_{d}": lambda: _one("L2_NORMALIZATION", d, (0.04, 5), (1 / 128, zero)),
        f"l2_normalization_{d}_long": lambda: _one(
            "L2_NORMALIZATION", d, (0.04, 5), (1 / 128, zero), shape=(2, 400)
        ),
        f"resize_bilinear_{d}": lambda: _one(
            "RESIZE_BILINEAR", d, (0.04, 5), (0.04, 5), "ResizeBilinearOptions", {"HalfPixelCenters": True},
            (1, 3, 4, 2), (1, 5, 7, 2), _axes(5, 7)),
        f"add_{d}": lambda: _two("ADD", d), f"sub_{d}": lambda: _two("SUB", d),
        f"mul_{d}": lambda: _two("MUL", d),
        f"less_{d}": lambda: _compared("LESS", d),
        f"conv_{d}": lambda: _conv(d),
    }


def _models() -> dict[str, Callable[[], bytes]]:
    found: dict[str, Callable[[], bytes]] = {}
    for d, z in _ZERO.items():
        found |= _models_of(d, z)
    for kind, given, made in (
        ("LOGISTIC", 0.0003, 1 / 32768), ("TANH", 1 / 4096, 1 / 32768), ("EXP", 0.0001, 0.001), ("LOG", 0.0003, 0.0003)
    ):
        found[f"{kind.lower()}_int16"] = partial(_one, kind, "int16", (given, 0), (made, 0))
    for kind, options in (("ADD", "AddOptions"), ("SUB", "SubOptions")):
        found[f"{kind.lower()}_int16"] = partial(
            _two, kind, "int16", options, {"PotScaleInt16": False}, (0.0003, 0.0005, 0.0007)
        )
    return found | {
        "mul_int16": lambda: _two("MUL", "int16", scales=(0.0003, 0.0005, 0.0007)),
        "leaky_relu_int8_negative": lambda: _one(
            "LEAKY_RELU", "int8", (0.031, -9), (0.1, -33), "LeakyReluOptions", {"Alpha": -0.3}
        ),
        "mean_int32": lambda: model(
            [T("x", (3, 16), "int32"), *_axes(0, 1), T("y", (), "int32")], [Op("MEAN", [0, 1], [2], "ReducerOptions")],
            [0], [2]
        ),
        "fully_connected_int16_channels": _dense_of_channels,
        "softmax_int16": lambda: _one("SOFTMAX", "int16", (0.0005, 0), (1 / 32768, 0), "SoftmaxOptions", {"Beta": 1.0}),
        "squared_difference_int8": lambda: _two("SQUARED_DIFFERENCE", "int8"),
        "abs_int8": lambda: _one("ABS", "int8", (0.04, 5), (0.03, 7)),
        "exp_int8": lambda: _one("EXP", "int8", (0.02, 3), (0.05, -128)),
        "sqrt_int8": lambda: _one("SQRT", "int8", (0.04, -128), (0.05, 3)),
        "rsqrt_int8": lambda: _one("RSQRT", "int8", (0.04, -128), (0.05, -128)),
        "log_softmax_int8": lambda: _one("LOG_SOFTMAX", "int8", (0.1, 3), (1 / 16, 127)),
        "log_softmax_int8_fine": lambda: _one("LOG_SOFTMAX", "int8", (0.01, 10), (1 / 16, 127), shape=(3, 60)),
        "log_softmax_int8_of_one": lambda: _one("LOG_SOFTMAX", "int8", (0.1, 3), (1 / 16, 127), shape=(3, 60, 1)),
        "log_softmax_uint8": lambda: _one("LOG_SOFTMAX", "uint8", (0.1, 3), (1 / 16, 255)),
        "conv_int16": lambda: _conv("int16"), "conv_hybrid": lambda: _conv("float32"),
        "depthwise_conv_int8": _depthwise, "transpose_conv_int8": _transposed,
        "fully_connected_int8": lambda: _dense("int8"), "fully_connected_hybrid": lambda: _dense("float32"),
        "fully_connected_by_range": lambda: _dense("float32", True), "batch_matmul_int8": _matrices,
        **tflite_recurrent.MODELS,
    }


def _compared(kind: str, dtype: str) -> bytes:
    tensors = [T("a", (3, 16), dtype, None, 0.03, 4), T("b", (3, 16), dtype, None, 0.05, 11), T("c", (3, 16), "bool")]
    return model(tensors, [Op(kind, [0, 1], [2])], [0, 1], [2])


MODELS = _models()


def inputs_of(signature: Sequence[tuple[str, Sequence[Any], str]]) -> list[Array]:
    """The same random inputs each time."""
    found: list[Array] = []
    for k, (_, shape, dtype) in enumerate(signature):
        if dtype == "float32":
            found.append(np.random.default_rng(100 + k).standard_normal(shape).astype(np.float32))
        else:
            info, rng = np.iinfo(dtype), np.random.default_rng(100 + k)
            found.append(rng.integers(info.min, info.max + 1, shape).astype(dtype))
    return found


def recorded() -> dict[str, Any]:
    """Shape, type and values of each model's output."""
    return dict(json.loads(RECORDED.read_text(encoding="utf-8")))


def record() -> None:
    """Ask the interpreter."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    found = {}
    for name, make in MODELS.items():
        interpreter = Interpreter(model_content=make(), experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
        interpreter.allocate_tensors()
        details = interpreter.get_input_details()
        given = inputs_of([(d["name"], d["shape"], np.dtype(d["dtype"]).name) for d in details])
        for d, x in zip(details, given, strict=True):
            interpreter.set_tensor(d["index"], x)
        interpreter.invoke()
        y = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
        values = [float(f"{v:.8g}") for v in y.ravel()] if y.dtype.kind == "f" else y.ravel().tolist()
        found[name] = {"shape": list(y.shape), "dtype": y.dtype.name, "values": values}
    rows = ",\n".join(f"{json.dumps(n)}: {json.dumps(v, separators=(',', ':'))}" for n, v in sorted(found.items()))
    RECORDED.write_text("{\n" + rows + "\n}\n", encoding="utf-8")


if __name__ == "__main__" and "--record" in sys.argv:
    record()
