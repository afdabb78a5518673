"""Random TFLite operators: tensors, options and values in and beyond what converters write.

A tensor with a value is stored in the file, one without is an input. Sizes of outputs are those that LiteRT finds
(`tflite_kind.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from fuzz import arrays
from fuzz.outcomes import Draw
from tflite_models import Op, T

Made = tuple[list[T], Op]
FLOAT_UNARY: Final = (
    [
        "ABS", "NEG", "EXP", "LOG", "SQRT", "RSQRT", "SIN", "COS", "FLOOR", "CEIL", "ROUND", "SIGN", "TANH", "LOGISTIC",
        "RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "ELU", "GELU", "HARD_SWISH", "SQUARE", "LEAKY_RELU",
        "LOG_SOFTMAX", "SOFTMAX", "L2_NORMALIZATION", "ZEROS_LIKE"
    ]
)
BYTE_UNARY: Final = [
    "LOGISTIC", "TANH", "RELU", "RELU6", "RELU_N1_TO_1", "LEAKY_RELU", "HARD_SWISH", "ABS", "EXP", "LOG", "SQRT",
    "RSQRT", "SOFTMAX", "LOG_SOFTMAX", "QUANTIZE", "L2_NORMALIZATION", "ELU", "GELU", "NEG"
]
FIXED: Final = {
    "LOGISTIC": (256, 0), "SOFTMAX": (256, 0), "TANH": (128, 128), "L2_NORMALIZATION": (128, 128),
    "LOG_SOFTMAX": (16, 255)
}
"""Of unsigned bytes: one over the scale, and the zero point, that the results of these operators have to have."""
OPTIONS: Final = {
    "LEAKY_RELU": "LeakyReluOptions", "SOFTMAX": "SoftmaxOptions", "GELU": "GeluOptions", "ADD": "AddOptions",
    "SUB": "SubOptions", "MUL": "MulOptions", "DIV": "DivOptions",
}
COUNTED: Final = ["float32", "float32", "int32", "int64", "int8", "uint8", "int16", "bool"]
BYTES: Final = ("int8", "int8", "uint8", "int16")


def tensor(
    draw: Draw, name: str, shape: Sequence[int], dtype: str = "float32", quantized: bool = False, stored: float = 0.0,
    mood: str = ""
) -> T:
    """A tensor; quantized by a random scale, stored with a probability."""
    value = arrays.values(draw, shape, dtype, mood or ("wide" if quantized else "")) if draw.chance(stored) else None
    scale, zero = scaled(draw, dtype) if quantized else ((), 0)
    return T(name, tuple(shape), dtype, value, scale, zero)


def scaled(draw: Draw, dtype: str) -> tuple[float, int]:
    """A scale and a zero point."""
    scale = draw.pick((0.003, 0.01, 0.05, 0.1, 1.0, draw.random.uniform(0.001, 0.2)))
    if dtype == "int16":
        return scale / 64, 0
    return scale, draw.between(*((0, 255) if dtype == "uint8" else (-128, 127)))


def numbers(name: str, *values: int, dtype: str = "int32") -> T:
    return T(name, (len(values),), dtype, np.asarray(values, dtype))


def scalar(name: str, value: Any, dtype: str = "int32") -> T:
    return T(name, (), dtype, np.asarray(value, dtype))


def made(kind: str, inputs: Sequence[T], outputs: Sequence[T], options: str = "", **values: Any) -> Made:
    tensors = [*inputs, *outputs]
    n = len(inputs)
    return tensors, Op(kind, list(range(n)), list(range(n, len(tensors))), options, values)


def out(like: T, dtype: str = "", name: str = "y") -> T:
    """A result of the type and scale of another tensor."""
    return T(
        name, like.shape, dtype or like.dtype, None, like.scale if not dtype else (),
        like.zero_point if not dtype else 0
    )


def broadcastable(draw: Draw, shape: Sequence[int]) -> tuple[int, ...]:
    changed = [d if draw.chance(0.6) else 1 for d in shape]
    return tuple(changed[draw.random.randrange(len(changed) + 1):] if draw.chance(0.3) else changed)


def unary(draw: Draw) -> Made:
    kind = draw.pick(FLOAT_UNARY)
    x = tensor(draw, "x", arrays.shape_of(draw, 1, 4))
    values = {
        "Alpha": draw.pick((0.1, 1.5, -0.3, 0.0))
    } if kind == "LEAKY_RELU" else {"Beta": draw.pick((1.0, 0.3, 2.0))} if kind == "SOFTMAX" else {}
    if kind == "GELU":
        values = {"Approximate": draw.chance(0.5)}
    return made(kind, [x], [out(x)], OPTIONS.get(kind, ""), **values)


def byte_unary(draw: Draw) -> Made:
    kind, dtype = draw.pick(BYTE_UNARY), draw.pick(BYTES)
    x = tensor(draw, "x", arrays.shape_of(draw, 1, 4), dtype, True)
    scale, zero = scaled(draw, dtype)
    if kind in FIXED:
        over, point = FIXED[kind]
        scale, zero = (1 / 32768, 0) if dtype == "int16" else (1 / over, point - (128 if dtype == "int8" else 0))
    values = {
        "Alpha": draw.pick((0.1, 1.5, -0.3))
    } if kind == "LEAKY_RELU" else {"Beta": draw.pick((1.0, 0.3))} if kind == "SOFTMAX" else {}
    y = T("y", x.shape, draw.pick(BYTES) if kind == "QUANTIZE" else dtype, None, scale, zero)
    if y.dtype == "int16":
        y = T("y", x.shape, "int16", None, scale, 0)
    return made(kind, [x], [y], OPTIONS.get(kind, ""), **values)


def between(draw: Draw) -> Made:
    """QUANTIZE of floats, DEQUANTIZE, CAST."""
    shape = arrays.shape_of(draw, 1, 4)
    match draw.between(0, 2):
        case 0:
            return made("QUANTIZE", [tensor(draw, "x", shape)], [tensor(draw, "y", shape, draw.pick(BYTES), True)])
        case 1:
            return made("DEQUANTIZE", [tensor(draw, "x", shape, draw.pick(BYTES), True)], [T("y", shape)])
        case _:
            x = tensor(draw, "x", shape, draw.pick(COUNTED))
            return made("CAST", [x], [T("y", shape, draw.pick(COUNTED))])


def binary(draw: Draw) -> Made:
    kind = draw.pick(
        ["ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "POW", "FLOOR_DIV", "FLOOR_MOD"]
    )
    dtype = draw.pick(("float32", "float32", "int32", "int64", *BYTES))
    quantized = dtype in BYTES
    shape = arrays.shape_of(draw, 1, 4)
    a, b = (
        tensor(draw, n, s, dtype, quantized, 0.3 if n == "b" else 0.0) for n,
        s in (("a", shape), ("b", broadcastable(draw, shape)))
    )
    y = tensor(draw, "y", shape, dtype, quantized)
    if kind in ("MAXIMUM", "MINIMUM"):
        b, y = T("b", b.shape, dtype, b.value, a.scale, a.zero_point), out(a)
    values = {"FusedActivationFunction": draw.pick((0, 0, 1, 2, 3))} if kind in ("ADD", "SUB", "MUL", "DIV") else {}
    if dtype == "int16" and kind in ("ADD", "SUB"):
        values["PotScaleInt16"] = False
    return made(
        kind, [a, b] if draw.chance(0.7) or kind in ("MAXIMUM", "MINIMUM") else [b, a], [y], OPTIONS.get(kind, ""),
        **values
    )


def compare(draw: Draw) -> Made:
    kind, dtype = draw.pick(
        ["EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"]
    ), draw.pick(("float32", "int32", "int64", "int8", "uint8"))
    shape = arrays.shape_of(draw, 1, 4)
    a, b = (tensor(draw, n, s, dtype, dtype in BYTES) for n, s in (("a", shape), ("b", broadcastable(draw, shape))))
    return made(kind, [a, b], [T("y", shape, "bool")])


def reduce(draw: Draw) -> Made:
    kind = draw.pick(["SUM", "MEAN", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "REDUCE_ANY", "REDUCE_ALL"])
    dtype = "bool" if kind in ("REDUCE_ANY", "REDUCE_ALL") else draw.pick(
        ("float32", "float32", "int32", "int64", "int8", "uint8")
    )
    shape = arrays.shape_of(draw, 1, 4)
    quantized = dtype in BYTES
    axes = draw.random.sample(range(len(shape)), draw.between(0, len(shape)))
    x = tensor(draw, "x", shape, dtype, quantized)
    y = tensor(draw, "y", shape, dtype, True) if quantized and kind in ("SUM", "MEAN") else out(x)
    return made(
        kind, [x, numbers("axes", *(a - len(shape) if draw.chance(0.3) else a for a in axes))], [y], "ReducerOptions",
        KeepDims=draw.chance(0.5)
    )


def arg(draw: Draw) -> Made:
    shape, kind = arrays.shape_of(draw, 1, 4), draw.pick(("ARG_MAX", "ARG_MIN"))
    dtype = draw.pick(("float32", "int32", "int8", "uint8"))
    x = tensor(draw, "x", shape, dtype, dtype in BYTES)
    to = draw.pick((("int32", 2), ("int64", 4)))
    return made(
        kind, [x, scalar("axis", draw.between(-len(shape), len(shape) - 1))], [T("y", shape, to[0])],
        f"Arg{kind[4:].title()}Options", OutputType=to[1]
    )


def anything(draw: Draw, low: int = 1, high: int = 4) -> T:
    dtype = draw.pick(COUNTED)
    return tensor(draw, "x", arrays.shape_of(draw, low, high), dtype, dtype in ("int8", "uint8") and draw.chance(0.7))


def shapes(draw: Draw) -> Made:
    x = anything(draw)
    rank = len(x.shape)
    match draw.between(0, 7):
        case 0:
            shape = [*x.shape]
            draw.random.shuffle(shape)
            if draw.chance(0.5):
                shape[0] = -1
            return made("RESHAPE", [x, numbers("shape", *shape)], [out(x)], "ReshapeOptions", NewShape=shape)
        case 1:
            return made("TRANSPOSE", [x, numbers("perm", *draw.random.sample(range(rank), rank))], [out(x)])
        case 2:
            return made("EXPAND_DIMS", [x, scalar("axis", draw.between(-rank - 1, rank))], [out(x)])
        case 3:
            return made(
                "SQUEEZE", [x], [out(x)], "SqueezeOptions",
                SqueezeDims=[k for k, d in enumerate(x.shape) if d == 1 and draw.chance(0.6)]
            )
        case 4:
            return made("TILE", [x, numbers("multiples", *(draw.pick((0, 1, 1, 2, 3)) for _ in x.shape))], [out(x)])
        case 5:
            shape = [d if d != 1 else draw.pick((1, 2, 3)) for d in x.shape]
            return made("BROADCAST_TO", [x, numbers("shape", *([2] if draw.chance(0.3) else []), *shape)], [out(x)])
        case 6:
            return made("REVERSE_V2", [x, numbers("axes", draw.between(-rank, rank - 1))], [out(x)])
        case _:
            return made(draw.pick(("SHAPE", "RANK")), [x], [T("y", (rank,), "int32")], "")


def slices(draw: Draw) -> Made:
    x = anything(draw)
    rank = len(x.shape)
    if draw.chance(0.3):
        begin = [draw.between(0, d) for d in x.shape]
        size = [draw.pick((-1, draw.between(0, d - b))) for b, d in zip(begin, x.shape, strict=True)]
        return made("SLICE", [x, numbers("begin", *begin), numbers("size", *size)], [out(x)])
    begin = [draw.pick((0, 1, -1, -2, d // 2)) for d in x.shape]
    end = [draw.pick((d, d - 1, -1, 1, 0, 100)) for d in x.shape]
    steps = [draw.pick((1, 1, 1, 2, -1, -2)) for _ in x.shape]
    masks = {
        f"{n}Mask": draw.random.randrange(1 << rank) if draw.chance(0.3) else 0 for n in ("Begin", "End", "ShrinkAxis")
    }
    return made(
        "STRIDED_SLICE", [x, numbers("begin", *begin), numbers("end", *end), numbers("strides", *steps)], [out(x)],
        "StridedSliceOptions", **masks
    )


def pads(draw: Draw) -> Made:
    x = anything(draw)
    widths = np.asarray([[draw.pick((0, 0, 1, 2)) for _ in range(2)] for _ in x.shape], draw.pick(("int32", "int64")))
    p = T("paddings", widths.shape, widths.dtype.name, widths)
    match draw.between(0, 2):
        case 0:
            return made("PAD", [x, p], [out(x)])
        case 1:
            value = arrays.values(draw, (), x.dtype, "ones")
            return made("PADV2", [x, p, T("value", (), x.dtype, value, x.scale, x.zero_point)], [out(x)])
        case _:
            return made("MIRROR_PAD", [x, p], [out(x)], "MirrorPadOptions", Mode=draw.between(0, 1))


def joins(draw: Draw) -> Made:
    x = anything(draw)
    rank = len(x.shape)
    axis = draw.between(-rank, rank - 1)
    match draw.between(0, 4):
        case 0 | 1:
            others = [
                T(
                    f"x{k}", [draw.between(1, 3) if n == axis % rank else d for n, d in enumerate(x.shape)], x.dtype,
                    None, x.scale, x.zero_point
                ) for k in range(draw.between(0, 2))
            ]
            return made("CONCATENATION", [x, *others], [out(x)], "ConcatenationOptions", Axis=axis)
        case 2:
            return made(
                "PACK", [x, out(x, name="x1")], [out(x)], "PackOptions", ValuesCount=2,
                Axis=draw.between(-rank - 1, rank)
            )
        case 3:
            n = x.shape[axis]
            return made("UNPACK", [x], [out(x, name=f"y{k}") for k in range(n)], "UnpackOptions", Num=n, Axis=axis)
        case _:
            n = x.shape[axis]
            if draw.chance(0.5):
                parts = draw.pick([k for k in range(1, n + 1) if n % k == 0] or [1])
                return made(
                    "SPLIT", [scalar("axis", axis), x], [out(x, name=f"y{k}") for k in range(parts)], "SplitOptions",
                    NumSplits=parts
                )
            first = draw.between(0, n)
            return made(
                "SPLIT_V", [x, numbers("sizes", first, draw.pick((-1, n - first))), scalar("axis", axis)],
                [out(x, name="y0"), out(x, name="y1")], "SplitVOptions", NumSplits=2
            )


def gathers(draw: Draw) -> Made:
    x = anything(draw)
    rank = len(x.shape)
    axis = draw.between(-rank, rank - 1)
    match draw.between(0, 5):
        case 0 | 1:
            index = draw.numbers.integers(0, max(1, x.shape[axis]), arrays.shape_of(draw, 0, 2)).astype("int32")
            return made("GATHER", [x, T("i", index.shape, "int32", index)], [out(x)], "GatherOptions", Axis=axis)
        case 2:
            depth = draw.between(1, rank)
            index = np.stack([draw.numbers.integers(0, max(1, d), (3,)) for d in x.shape[:depth]], -1).astype("int32")
            return made("GATHER_ND", [x, T("i", index.shape, "int32", index)], [out(x)])
        case 3:
            index = draw.numbers.integers(0, 6, (4, 1)).astype("int32")
            return made(
                "SCATTER_ND",
                [
                    T("i", (4, 1), "int32", index), tensor(draw, "u", (4, 3), draw.pick(("float32", "int32"))),
                    numbers("shape", 6, 3)
                ], [T("y", (6, 3))]
            )
        case 4:
            places = tensor(draw, "i", arrays.shape_of(draw, 1, 2), "int32", mood="normal")
            dtype = draw.pick(("float32", "int32", "int64", "bool"))
            on, off = (scalar(n, v, dtype) for n, v in (("on", draw.pick((1, 3))), ("off", 0)))
            return made(
                "ONE_HOT", [places, scalar("depth", draw.between(0, 5)), on, off], [T("y", (1,), dtype)],
                "OneHotOptions", Axis=draw.pick((-1, 0, 1))
            )
        case _:
            return made("TOPK_V2", [x, scalar("k", draw.between(0, x.shape[-1]))], [out(x), T("n", x.shape, "int32")])


def choices(draw: Draw) -> Made:
    x = anything(draw)
    match draw.between(0, 3):
        case 0:
            c = tensor(draw, "c", broadcastable(draw, x.shape), "bool")
            return made("SELECT_V2", [c, x, out(x, name="z")], [out(x)])
        case 1:
            return made(
                "WHERE", [tensor(draw, "c", x.shape, draw.pick(("bool", "int32", "float32")))],
                [T("y", (1, len(x.shape)), "int64")]
            )
        case 2:
            y = tensor(draw, "v", x.shape, draw.pick(("float32", "int32", "int64")))
            return made(
                "CUMSUM", [y, scalar("axis", draw.between(-len(x.shape), len(x.shape) - 1))], [out(y)], "CumsumOptions",
                Exclusive=draw.chance(0.4), Reverse=draw.chance(0.4)
            )
        case _:
            a, b = (tensor(draw, n, x.shape, "bool") for n in "ab")
            kind = draw.pick(("LOGICAL_AND", "LOGICAL_OR", "LOGICAL_NOT"))
            return made(kind, [a] if kind == "LOGICAL_NOT" else [a, b], [out(a)])


def blocks(draw: Draw) -> Made:
    dtype = draw.pick(("float32", "int8", "uint8", "int32"))
    x = tensor(
        draw, "x", (draw.pick((1, 4)), draw.pick((2, 4)), draw.pick((2, 6)), draw.pick((4, 8))), dtype,
        dtype in ("int8", "uint8")
    )
    match draw.between(0, 3):
        case 0:
            return made("SPACE_TO_DEPTH", [x], [out(x)], "SpaceToDepthOptions", BlockSize=2)
        case 1:
            return made("DEPTH_TO_SPACE", [x], [out(x)], "DepthToSpaceOptions", BlockSize=2)
        case 2:
            widths = T("p", (2, 2), "int32", np.asarray([[0, draw.pick((0, 2))], [draw.pick((0, 2)), 0]]))
            return made("SPACE_TO_BATCH_ND", [x, numbers("b", 2, 2), widths], [out(x)])
        case _:
            crops = T("c", (2, 2), "int32", np.asarray([[0, draw.pick((0, 1))], [draw.pick((0, 1)), 0]]))
            return made(
                "BATCH_TO_SPACE_ND",
                [T("x", (4, *x.shape[1:]), dtype, None, x.scale, x.zero_point), numbers("b", 2, 2), crops], [out(x)]
            )


# Products and images.


def window(draw: Draw) -> dict[str, Any]:
    return {
        "Padding": draw.between(0, 1), "StrideW": draw.pick((1, 2, 3)), "StrideH": draw.pick((1, 2)),
        "FusedActivationFunction": draw.pick((0, 0, 1, 2, 3))
    }


def weights(draw: Draw, shape: Sequence[int], dtype: str, axis: int, channels: int) -> tuple[T, list[float]]:
    """Stored weights: floats, or bytes by one scale or one for each channel."""
    if dtype == "float32":
        return T("w", shape, dtype, arrays.values(draw, shape, dtype)), [1.0]
    if dtype == "uint8":
        scale = draw.pick((0.01, 0.03))
        return T("w", shape, dtype, arrays.values(draw, shape, dtype, "wide"), scale, draw.between(0, 255)), [scale]
    scales = [draw.random.uniform(0.002, 0.03) for _ in range(channels if draw.chance(0.7) else 1)]
    values = np.maximum(arrays.values(draw, shape, "int8", "wide"), -127).astype("int8")
    return T("w", shape, "int8", values, scales, [0] * len(scales), axis if len(scales) > 1 else 0), scales


def bias(draw: Draw, x: T, scales: Sequence[float], channels: int) -> T:
    if x.dtype == "float32":
        return T("b", (channels,), "float32", arrays.values(draw, (channels,), "float32"))
    kind = "int64" if x.dtype == "int16" else "int32"
    values = draw.numbers.integers(-3000, 3000, (channels,)).astype(kind)
    return T(
        "b", (channels,), kind, values, [s * float(np.asarray(x.scale)) for s in scales], [0] * len(scales)
    )


def convolution(draw: Draw) -> Made:
    dtype = draw.pick(("float32", "int8", "int8", "uint8", "int16"))
    batch, height, width, depth = draw.between(1, 2), draw.between(1, 7), draw.between(1, 7), draw.between(1, 4)
    rows, columns = draw.between(1, 3), draw.between(1, 3)
    x = tensor(draw, "x", (batch, height, width, depth), dtype, dtype != "float32")
    values = {**window(draw), "DilationWFactor": draw.pick((1, 1, 2)), "DilationHFactor": draw.pick((1, 1, 2))}
    y = tensor(draw, "y", (1,), dtype, dtype != "float32")
    if draw.chance(0.45):
        multiplier = draw.between(1, 3)
        w, scales = weights(draw, (1, rows, columns, depth * multiplier), dtype, 3, depth * multiplier)
        return made(
            "DEPTHWISE_CONV_2D", [x, w, bias(draw, x, scales, depth * multiplier)], [y], "DepthwiseConv2DOptions",
            DepthMultiplier=multiplier, **values
        )
    channels = draw.between(1, 9)
    w, scales = weights(draw, (channels, rows, columns, depth), dtype, 0, channels)
    return made("CONV_2D", [x, w, bias(draw, x, scales, channels)], [y], "Conv2DOptions", **values)


def transposed(draw: Draw) -> Made:
    dtype = draw.pick(("float32", "int8", "uint8", "int16"))
    depth, channels, rows, columns = (draw.between(1, 3) for _ in range(4))
    x = tensor(draw, "x", (1, draw.between(1, 5), draw.between(1, 5), depth), dtype, dtype != "float32")
    w, scales = weights(draw, (channels, rows, columns, depth), dtype, 0, channels)
    sw, sh, padding = draw.between(1, 2), draw.between(1, 2), draw.between(0, 1)
    sizes = [
        d * s if not padding else (d - 1) * s + k for d, s,
        k in zip(x.shape[1:3], (sh, sw), (rows, columns), strict=True)
    ]
    more = [bias(draw, x, scales, channels)] if draw.chance(0.5) else []
    y = tensor(draw, "y", (1, *sizes, channels), dtype, dtype != "float32")
    return made(
        "TRANSPOSE_CONV", [numbers("s", 1, *sizes, channels), w, x, *more], [y], "TransposeConvOptions",
        Padding=padding, StrideW=sw, StrideH=sh
    )


def dense(draw: Draw) -> Made:
    dtype = draw.pick(("float32", "int8", "int8", "uint8", "int16"))
    rows, depth, channels = draw.between(1, 4), draw.pick((1, 3, 8, 16, 20)), draw.pick((1, 2, 5, 16, 33))
    x = tensor(draw, "x", (rows, depth), dtype, dtype != "float32")
    w, scales = weights(draw, (channels, depth), dtype, 0, channels)
    more = [bias(draw, x, scales, channels)] if draw.chance(0.6) else []
    y = tensor(draw, "y", (rows, channels), dtype, dtype != "float32")
    return made(
        "FULLY_CONNECTED", [x, w, *more], [y], "FullyConnectedOptions", FusedActivationFunction=draw.pick((0, 1, 3)),
        KeepNumDims=draw.chance(0.3)
    )


def matrices(draw: Draw) -> Made:
    dtype = draw.pick(("float32", "float32", "int8", "int16"))
    m, k, n = (draw.between(1, 6) for _ in range(3))
    turned = draw.chance(0.3), draw.chance(0.3)
    batch = arrays.shape_of(draw, 0, 2, 3)
    a = tensor(draw, "a", (*batch, *((k, m) if turned[0] else (m, k))), dtype, dtype != "float32")
    b = tensor(draw, "b", (*broadcastable(draw, batch), *((n, k) if turned[1] else (k, n))), dtype, dtype != "float32")
    y = tensor(draw, "y", (1,), dtype, dtype != "float32")
    if dtype == "int16":  # LiteRT's sums overflow where they are far more than results hold
        y = T("y", (1,), dtype, None, 20 * float(a.scale) * float(b.scale), 0)  # type: ignore[arg-type]
    return made("BATCH_MATMUL", [a, b], [y], "BatchMatMulOptions", AdjX=turned[0], AdjY=turned[1])


def pool(draw: Draw) -> Made:
    kind = draw.pick(("MAX_POOL_2D", "AVERAGE_POOL_2D", "L2_POOL_2D", "MAX_POOL_2D", "AVERAGE_POOL_2D"))
    dtype = draw.pick(("float32", "float32", "int8", "uint8", "int16")) if kind != "L2_POOL_2D" else "float32"
    x = tensor(
        draw, "x", (draw.between(1, 2), draw.between(1, 7), draw.between(1, 7), draw.between(1, 4)), dtype,
        dtype != "float32"
    )
    return made(
        kind, [x], [out(x)], "Pool2DOptions", FilterWidth=draw.between(1, 3), FilterHeight=draw.between(1, 3),
        **window(draw)
    )


def resize(draw: Draw) -> Made:
    dtype = draw.pick(("float32", "float32", "int8", "uint8", "int16"))
    x = tensor(draw, "x", (1, draw.between(1, 5), draw.between(1, 5), draw.between(1, 3)), dtype, dtype != "float32")
    size, half, align = numbers("s", draw.between(1, 8), draw.between(1, 8)), draw.chance(0.4), draw.chance(0.4)
    kind, options = draw.pick(
        (("RESIZE_BILINEAR", "ResizeBilinearOptions"), ("RESIZE_NEAREST_NEIGHBOR", "ResizeNearestNeighborOptions"))
    )
    return made(kind, [x, size], [out(x)], options, AlignCorners=align and not half, HalfPixelCenters=half)


def prelu(draw: Draw) -> Made:
    dtype = draw.pick(("float32", "int8", "uint8"))
    shape = arrays.shape_of(draw, 2, 4)
    x = tensor(draw, "x", shape, dtype, dtype != "float32")
    alpha = tensor(draw, "alpha", broadcastable(draw, shape[1:]), dtype, dtype != "float32", stored=1.0)
    return made("PRELU", [x, alpha], [tensor(draw, "y", shape, dtype, dtype != "float32")])


OPERATORS: Final[tuple[Callable[[Draw], Made], ...]] = (
    unary, unary, byte_unary, byte_unary, byte_unary, between, binary, binary, binary, compare, reduce, reduce, arg,
    shapes, slices, slices, pads, joins,
    gathers, choices, blocks, convolution, convolution, convolution, transposed, dense, dense, matrices, pool, resize,
    resize, prelu,
)
