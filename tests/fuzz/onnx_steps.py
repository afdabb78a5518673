"""The operators of random ONNX graphs: each step adds one node or a few to a graph, with attributes in and beyond what
is usual."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from onnx import TensorProto, helper

from fuzz.onnx_graphs import Graph

UNARY: Final = (
    [
        "Abs", "Neg", "Relu", "Exp", "Log", "Sqrt", "Reciprocal", "Sigmoid", "Tanh", "Erf", "Floor", "Ceil", "Round",
        "Sign", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "Softplus",
        "Softsign", "Identity", "Not", "IsNaN", "IsInf", "BitwiseNot", "HardSwish", "Mish", "Gelu", "Elu", "Selu",
        "Celu", "LeakyRelu", "ThresholdedRelu", "HardSigmoid", "Shrink", "Swish"
    ]
)
BINARY: Final = [
    "Add", "Sub", "Mul", "Div", "Pow", "Mod", "PRelu", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual",
    "And", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift"
]
REDUCTIONS: Final = [
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
    "ReduceLogSumExp", "ReduceSumSquare"
]
TO: Final = (
    TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.INT8,
    TensorProto.UINT8,
             TensorProto.INT16, TensorProto.UINT16, TensorProto.INT32, TensorProto.UINT32, TensorProto.INT64,
             TensorProto.UINT64, TensorProto.BOOL)


def unary(g: Graph) -> None:
    op = g.draw.pick(UNARY)
    alpha = {"alpha": g.draw.pick((0.1, 1.0, 2.5, -0.5))} if op in (
        "Elu", "Selu", "Celu", "LeakyRelu", "ThresholdedRelu", "HardSigmoid"
    ) and g.draw.chance(0.6) else {}
    if op == "Shrink" and g.draw.chance(0.7):
        alpha = {"lambd": g.draw.pick((0.0, 0.5, 1.0)), "bias": g.draw.pick((0.0, 0.3, -1.0))}
    if op == "Gelu" and g.draw.chance(0.5):
        alpha = {"approximate": "tanh"}
    if op == "IsInf" and g.draw.chance(0.5):
        alpha = {"detect_negative": g.draw.between(0, 1), "detect_positive": g.draw.between(0, 1)}
    g.add(
        op,
        [
            g.some(
                "b" if op == "Not" else "iu" if op == "BitwiseNot" else "fiu"
                if op in ("Abs", "Neg", "Sign", "Relu", "Identity") else "f"
            )
        ], **alpha
    )


def binary(g: Graph) -> None:
    op = g.draw.pick(BINARY)
    kinds = "b" if op in (
        "And", "Or", "Xor"
    ) else "iu" if op.startswith("Bitwise") else "u" if op == "BitShift" else "fiu"
    a = g.some(kinds)
    b = g.like(a)
    more: dict[str, Any] = {}
    if op == "Mod":
        more = {"fmod": 1} if g.array(a).dtype.kind == "f" or g.draw.chance(0.3) else {}
    if op == "BitShift":
        more = {"direction": g.draw.pick(("LEFT", "RIGHT"))}
    g.add(op, [a, b] if op == "PRelu" or g.draw.chance(0.5) else [b, a], **more)


def variadic(g: Graph) -> None:
    op = g.draw.pick(("Sum", "Max", "Min", "Mean"))
    a = g.some("f" if op in ("Sum", "Mean") else "fiu")
    g.add(op, [a, *(g.like(a) for _ in range(g.draw.between(0, 2)))])


def where(g: Graph) -> None:
    a = g.some()
    shape = [d if g.draw.chance(0.7) else 1 for d in g.array(a).shape]
    condition = g.add(
        "Greater", [a, g.like(a)]
    ) if g.draw.chance(0.4) and g.array(a).dtype.kind != "b" else g.leaf(shape, "bool")
    if condition:
        g.add("Where", [condition, a, g.like(a)])


def clip(g: Graph) -> None:
    a = g.some("fiu")
    dtype = g.array(a).dtype
    low, high = (
        g.given(np.asarray(g.draw.pick(c)).astype(dtype)) if g.draw.chance(0.75) else "" for c in ((0, 1), (1, 2, 6))
    )
    g.add("Clip", [a, low, high] if high else [a, low] if low else [a])


def cast(g: Graph) -> None:
    if g.draw.chance(0.15):
        g.add("CastLike", [g.some(), g.some()])
    else:
        g.add("Cast", [g.some()], to=g.draw.pick(TO))


def reduction(g: Graph) -> None:
    op = g.draw.pick(REDUCTIONS)
    a = g.some("fi")
    rank = g.array(a).ndim
    axes = g.draw.random.sample(range(rank), g.draw.between(0, rank))
    axes = [x - rank if g.draw.chance(0.3) else x for x in axes]
    more: dict[str, Any] = {"keepdims": g.draw.between(0, 1)} if g.draw.chance(0.7) else {}
    inputs = [a]
    if op == "ReduceSum" or g.opset >= 18:
        if axes or g.draw.chance(0.5):
            inputs.append(g.ints(*axes))
        if g.draw.chance(0.2):
            more["noop_with_empty_axes"] = 1
    elif axes:
        more["axes"] = axes
    g.add(op, inputs, **more)


def arg(g: Graph) -> None:
    a = g.some("fiu", 1)
    g.add(
        g.draw.pick(("ArgMax", "ArgMin")), [a], axis=g.axis(a), keepdims=g.draw.between(0, 1),
        select_last_index=g.draw.between(0, 1)
    )


def softmax(g: Graph) -> None:
    a = g.some("f", 1)
    g.add(g.draw.pick(("Softmax", "LogSoftmax", "Hardmax", "Softmax", "LpNormalization")), [a], axis=g.axis(a))


def scan_sum(g: Graph) -> None:
    a = g.some("fi", 1)
    g.add(
        "CumSum", [a, g.given(np.asarray(g.axis(a), g.draw.pick(("int64", "int32"))))], exclusive=g.draw.between(0, 1),
        reverse=g.draw.between(0, 1)
    )


# Shapes.


def reshape(g: Graph) -> None:
    a = g.some()
    shape = [*g.array(a).shape]
    if len(shape) > 1 and g.draw.chance(0.6):
        at = g.draw.random.randrange(len(shape) - 1)
        shape[at:at + 2] = [shape[at] * shape[at + 1]]
    else:
        g.draw.random.shuffle(shape)
        if g.draw.chance(0.4):
            shape.insert(g.draw.between(0, len(shape)), 1)
    if shape and g.draw.chance(0.4):
        shape[g.draw.random.randrange(len(shape))] = -1
    if shape and shape[0] == g.array(a).shape[:1] and g.draw.chance(0.2):
        shape[0] = 0
    g.add("Reshape", [a, g.ints(*shape)], allowzero=1 if g.opset >= 14 and g.draw.chance(0.2) else None)


def transpose(g: Graph) -> None:
    a = g.some()
    axes = [*range(g.array(a).ndim)]
    g.draw.random.shuffle(axes)
    g.add("Transpose", [a], perm=axes if axes and g.draw.chance(0.8) else None)


def squeeze(g: Graph) -> None:
    a = g.some()
    ones = [k for k, d in enumerate(g.array(a).shape) if d == 1]
    if g.draw.chance(0.4):
        g.add("Flatten", [a], axis=g.draw.between(-g.array(a).ndim, g.array(a).ndim))
    elif ones and g.draw.chance(0.6):
        chosen = g.draw.random.sample(ones, g.draw.between(1, len(ones)))
        g.add("Squeeze", [a, g.ints(*chosen)] if g.draw.chance(0.8) else [a])
    else:
        g.add("Unsqueeze", [a, g.ints(g.axis(a, 1))])


def expand(g: Graph) -> None:
    a = g.some(high=4)
    if g.draw.chance(0.5):
        g.add("Tile", [a, g.ints(*(g.draw.pick((0, 1, 1, 1, 2, 3)) for _ in g.array(a).shape))])
    else:
        shape = [d if d != 1 else g.draw.pick((1, 2, 3)) for d in g.array(a).shape]
        g.add("Expand", [a, g.ints(*([2] if g.draw.chance(0.3) else []), *shape)])


def slices(g: Graph) -> None:
    a = g.some(low=1)
    shape = g.array(a).shape
    axes = g.draw.random.sample(range(len(shape)), g.draw.between(1, min(2, len(shape))))
    begin = [g.draw.pick((0, 1, -1, -2, shape[x] // 2, 100, -100)) for x in axes]
    steps = [g.draw.pick((1, 1, 1, 2, -1, -2, 3)) for _ in axes]
    end = [g.draw.pick((shape[x], shape[x] - 1, -1, 1, 0, 2**63 - 1, -100, -(2**63) + 1)) for x in axes]
    g.add(
        "Slice",
        [
            a, g.ints(*begin), g.ints(*end), g.ints(*(x - len(shape) if g.draw.chance(0.3) else x for x in axes)),
            g.ints(*steps)
        ]
    )


def pad(g: Graph) -> None:
    a = g.some("fiu", low=1)
    mode = g.draw.pick(("constant", "constant", "reflect", "edge", *(["wrap"] if g.opset >= 19 else [])))
    pads = [g.draw.pick((0, 0, 1, 2, -1)) for _ in range(2 * g.array(a).ndim)]
    value = [
        g.given(np.asarray(g.draw.pick((0, 1, 2))).astype(g.array(a).dtype))
    ] if mode == "constant" and g.draw.chance(0.6) else []
    g.add("Pad", [a, g.ints(*pads), *value], mode=mode)


def concat(g: Graph) -> None:
    a = g.some(low=1)
    value, axis = g.array(a), g.axis(a)
    fitting = [n for n, v in g.values.items() if isinstance(
        v, np.ndarray
    ) and v.dtype == value.dtype and v.ndim == value.ndim
               and all(
                   p == q for k, (p, q) in enumerate(zip(v.shape, value.shape, strict=True)) if k != axis % value.ndim
               )]
    g.add("Concat", [g.draw.pick(fitting) for _ in range(g.draw.between(1, 3))], axis=axis)


def split(g: Graph) -> None:
    a = g.some(low=1)
    axis = g.axis(a)
    size = g.array(a).shape[axis]
    first = g.draw.between(0, size)
    if g.draw.chance(0.5):
        g.add("Split", [a, g.ints(first, size - first)], 2, axis=axis)
    else:
        g.add("Split", [a], 2, axis=axis, num_outputs=2 if g.opset >= 18 else None)


def gather(g: Graph) -> None:
    a = g.some(low=1)
    axis, value = g.axis(a), g.array(a)
    size = value.shape[axis]
    if not size:
        return
    shape = [
        g.draw.pick((0, 1, 2, 3)) if g.draw.chance(0.1) else g.draw.between(1, 3) for _ in range(g.draw.between(0, 2))
    ]
    dtype = g.draw.pick(("int64", "int64", "int32"))
    match g.draw.between(0, 4):
        case 0 | 1:
            g.add("Gather", [a, g.given(g.draw.numbers.integers(-size, size, shape).astype(dtype), 0.6)], axis=axis)
        case 2:
            g.add(
                "GatherElements", [a, g.given(g.draw.numbers.integers(-size, size, value.shape).astype(dtype), 0.5)],
                axis=axis
            )
        case 3:
            index = g.draw.numbers.integers(-size, size, value.shape).astype(dtype)
            more = {
                "reduction": g.draw.pick(("none", "add", "mul", *(("max", "min") if g.opset >= 18 else ())))
            } if g.opset >= 16 else {}
            g.add("ScatterElements", [a, g.given(index, 0.5), g.leaf(value.shape, value.dtype.name)], axis=axis, **more)
        case _:
            index = np.stack(
                [g.draw.numbers.integers(0, max(1, d), (3,)) for d in value.shape[:g.draw.between(1, value.ndim)]], -1
            )
            if g.draw.chance(0.5):
                g.add("GatherND", [a, g.given(index, 0.5)])
            else:
                more = {"reduction": g.draw.pick(("none", "add", "mul"))} if g.opset >= 16 else {}
                index = np.unique(index, axis=0) if more.get("reduction", "none") == "none" else index
                g.add(
                    "ScatterND",
                    [a, g.given(index, 0.5), g.leaf((len(index), *value.shape[index.shape[1]:]), value.dtype.name)],
                    **more
                )


def selection(g: Graph) -> None:
    match g.draw.between(0, 6):
        case 0:
            a = g.some("fi", 1)
            axis = g.axis(a)
            g.add(
                "TopK", [a, g.ints(g.draw.between(0, g.array(a).shape[axis]))], 2, axis=axis,
                largest=g.draw.between(0, 1), sorted=1
            )
        case 1:
            g.add("NonZero", [g.some()])
        case 2:
            a = g.some(low=1)
            axis = g.axis(a)
            g.add(
                "Compress", [a, g.leaf((g.draw.between(1, max(1, g.array(a).shape[axis])),), "bool")],
                axis=axis if g.draw.chance(0.7) else None
            )
        case 3:
            g.add(g.draw.pick(("Shape", "Size")), [g.some()])
        case 4:
            g.add(
                "Trilu", [g.some(low=2), *([g.given(np.asarray(g.draw.between(-3, 3)))] if g.draw.chance(0.6) else [])],
                upper=g.draw.between(0, 1)
            )
        case 5:
            depth, values = g.ints(g.draw.between(1, 5)), g.leaf((2,), g.draw.pick(("float32", "int64", "int32")))
            g.add("OneHot", [g.leaf((3,), "int64", "normal"), depth, values], axis=g.draw.pick((-1, 0, 1)))
        case _:
            dtype = g.draw.pick(("float32", "int64", "int32"))
            g.add(
                "Range",
                [
                    g.given(np.asarray(v).astype(dtype))
                    for v in (g.draw.between(-3, 3), g.draw.between(-3, 9), g.draw.pick((1, 2, -1, 3)))
                ]
            )


# Products and images.


def matmul(g: Graph) -> None:
    a = g.some("f", 1)
    value = g.array(a)
    if g.draw.chance(0.4) and value.ndim == 2:
        columns, turned, turned_b = g.draw.between(1, 6), g.draw.between(0, 1), g.draw.between(0, 1)
        depth, rows = value.shape[1 - turned], value.shape[turned]
        b = g.leaf((columns, depth) if turned_b else (depth, columns), value.dtype.name)
        c = [
            g.leaf(g.draw.pick(((columns,), (1,), (rows, 1), (rows, columns), ())), value.dtype.name)
        ] if g.draw.chance(0.6) else []
        g.add(
            "Gemm", [a, b, *c], transA=turned, transB=turned_b, alpha=g.draw.pick((1.0, 0.5, 0.0)),
            beta=g.draw.pick((1.0, 2.0, 0.0))
        )
    else:
        batch = [d if g.draw.chance(0.5) else 1 for d in value.shape[:-2]] if g.draw.chance(0.5) else []
        g.add(
            "MatMul",
            [
                a,
                g.leaf(
                    (*batch, value.shape[-1], g.draw.between(1, 7)) if g.draw.chance(0.85) else (value.shape[-1],),
                    value.dtype.name
                )
            ]
        )


def einsum(g: Graph) -> None:
    text = g.draw.pick(
        (
            "ij,jk->ik", "bij,bjk->bik", "ij->ji", "ii->i", "ij,ij->", "i,j->ij", "...ij->...ji", "ij,kj->ik", "ij->j",
            "bij,jk->bik"
        )
    )
    sizes = {c: g.draw.between(1, 5) for c in "ijkb"}
    g.add(
        "Einsum",
        [
            g.leaf([sizes[c] for c in part.replace("...", "b")], "float32")
            for part in text.partition("->")[0].split(",")
        ], equation=text
    )


def image(g: Graph, low: int = 1, high: int = 2) -> str:
    """A value of (batch, channels, spatial…)."""
    fitting = [
        n for n,
        v in g.values.items() if isinstance(v, np.ndarray) and v.ndim in (3, 4) and v.dtype.name == "float32"
        and min(v.shape) > 0
    ]
    if fitting and g.draw.chance(0.6):
        return str(g.draw.pick(fitting))
    spatial = [g.draw.between(1, 7) for _ in range(g.draw.between(low, high))]
    return g.leaf((g.draw.between(1, 2), g.draw.pick((1, 2, 3, 4)), *spatial), "float32")


def window(g: Graph, a: str, pads: bool = True) -> dict[str, Any]:
    """Attributes of a window over an image."""
    n = g.array(a).ndim - 2
    found: dict[str, Any] = {"kernel_shape": [g.draw.pick((1, 2, 3, 3, 5)) for _ in range(n)]}
    if g.draw.chance(0.5):
        found["strides"] = [g.draw.pick((1, 2, 3)) for _ in range(n)]
    if g.draw.chance(0.3):
        found["dilations"] = [g.draw.pick((1, 2)) for _ in range(n)]
    if g.draw.chance(0.3):
        found["auto_pad"] = g.draw.pick(("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"))
    elif pads and g.draw.chance(0.6):
        found["pads"] = [g.draw.between(0, max(0, k - 1)) for k in found["kernel_shape"] * 2]
    return found


def convolution(g: Graph) -> None:
    a = image(g)
    channels = g.array(a).shape[1]
    groups = g.draw.pick([k for k in range(1, channels + 1) if channels % k == 0])
    out = groups * g.draw.between(1, 3)
    more = window(g, a)
    if g.draw.chance(0.3):
        w = g.leaf((channels, out // groups, *more["kernel_shape"]), "float32")
        if g.draw.chance(0.3):
            more["output_padding"] = [g.draw.between(0, 1) for _ in more["kernel_shape"]]
        g.add(
            "ConvTranspose", [a, w, *([g.leaf((out,), "float32")] if g.draw.chance(0.5) else [])], group=groups, **more
        )
    else:
        w = g.leaf((out, channels // groups, *more["kernel_shape"]), "float32")
        g.add("Conv", [a, w, *([g.leaf((out,), "float32")] if g.draw.chance(0.5) else [])], group=groups, **more)


def pool(g: Graph) -> None:
    a = image(g)
    op = g.draw.pick(
        (
            "MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", "MaxPool",
            "AveragePool"
        )
    )
    if op.startswith("Global"):
        g.add(op, [a])
        return
    more = window(g, a)
    if op == "AveragePool":
        more["count_include_pad"] = g.draw.between(0, 1)
    if (op == "AveragePool" and g.opset < 19) or (op == "LpPool" and g.opset < 18):
        more.pop("dilations", None)
    if op != "LpPool" or g.opset >= 18:
        more["ceil_mode"] = g.draw.pick((0, 0, 1))
    if op == "LpPool":
        more["p"] = g.draw.pick((1, 2, 3))
    g.add(op, [a], **more)


def norm(g: Graph) -> None:
    op = g.draw.pick(
        (
            "BatchNormalization", "InstanceNormalization", "LayerNormalization", "LRN", "GroupNormalization",
            "MeanVarianceNormalization"
        )
    )
    a = image(g)
    c = g.array(a).shape[1]
    epsilon = g.draw.pick((1e-5, 1e-3, 0.1))
    match op:
        case "BatchNormalization":
            g.add(
                op,
                [
                    a, *(g.leaf((c,), "float32", "whole") for _ in range(3)),
                    g.given(g.draw.numbers.random(c).astype("float32"))
                ], epsilon=epsilon
            )
        case "InstanceNormalization":
            g.add(op, [a, g.leaf((c,), "float32"), g.leaf((c,), "float32")], epsilon=epsilon)
        case "LayerNormalization" if g.opset >= 17:
            axis = g.axis(a)
            shape = g.array(a).shape[axis % g.array(a).ndim:]
            g.add(
                op, [a, g.leaf(shape, "float32"), *([g.leaf(shape, "float32")] if g.draw.chance(0.5) else [])],
                g.draw.pick((1, 1, 3)), axis=axis, epsilon=epsilon
            )
        case "GroupNormalization" if g.opset >= 21:
            groups = g.draw.pick([k for k in range(1, c + 1) if c % k == 0])
            g.add(op, [a, g.leaf((c,), "float32"), g.leaf((c,), "float32")], num_groups=groups, epsilon=epsilon)
        case "LRN":
            g.add(
                op, [a], size=g.draw.pick((1, 2, 3, 5)), alpha=g.draw.pick((1e-4, 0.5)), beta=g.draw.pick((0.75, 1.0)),
                bias=g.draw.pick((1.0, 2.0))
            )
        case _:
            g.add("MeanVarianceNormalization", [a])


def blocks(g: Graph) -> None:
    a = g.leaf((1, g.draw.pick((4, 8)), g.draw.pick((2, 4)), g.draw.pick((2, 6))), "float32", store=0.1)
    if g.draw.chance(0.5):
        g.add("DepthToSpace", [a], blocksize=2, mode=g.draw.pick(("DCR", "CRD")))
    else:
        g.add("SpaceToDepth", [a], blocksize=2)


def resize(g: Graph) -> None:
    a = image(g)
    shape = g.array(a).shape
    mode = g.draw.pick(("nearest", "linear", "cubic")) if len(shape) == 4 else g.draw.pick(("nearest", "linear"))
    more: dict[str, Any] = {
        "mode": mode,
        "coordinate_transformation_mode": g.draw.pick(
            ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
        )
    }
    if mode == "nearest":
        more["nearest_mode"] = g.draw.pick(("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"))
    if mode == "cubic":
        more.update(cubic_coeff_a=g.draw.pick((-0.75, -0.5)), exclude_outside=g.draw.between(0, 1))
    if g.draw.chance(0.5):
        scales = [1.0, 1.0, *(g.draw.pick((0.5, 2.0, 1.5, 0.7, 3.0, 1.0)) for _ in shape[2:])]
        g.add("Resize", [a, "", g.given(np.asarray(scales, "float32"), 0.95)], **more)
    else:
        g.add("Resize", [a, "", "", g.ints(*shape[:2], *(g.draw.between(1, 9) for _ in shape[2:]))], **more)


# Quantized.


def quantized(g: Graph) -> None:
    """Bytes by a scale, and back; between them an operator on bytes."""
    a = g.some(dtypes=("float32",))
    dtype = g.draw.pick(("int8", "uint8"))
    scale = g.given(np.asarray(g.draw.pick((0.02, 0.1, 1.0, 0.5)), "float32"), 0.95)
    zero = g.given(np.asarray(g.draw.pick((0, 3, 100 if dtype == "uint8" else -7)), dtype), 0.95)
    q = g.add("QuantizeLinear", [a, scale, zero])
    if not q:
        return
    if g.draw.chance(0.4):
        q = g.add(g.draw.pick(("Identity", "Transpose")), [q]) or q
    if g.array(q).ndim >= 2 and g.draw.chance(0.5):
        w = g.leaf((g.array(q).shape[-1], g.draw.between(1, 5)), dtype, store=0.9)
        others = [scale, g.given(np.asarray(0, dtype), 1.0)]
        g.add("QLinearMatMul", [q, scale, zero, w, *others, g.given(np.asarray(0.7, "float32"), 1.0), zero])
    elif g.array(q).ndim >= 2 and g.draw.chance(0.4):
        g.add(
            "MatMulInteger",
            [q, g.leaf((g.array(q).shape[-1], g.draw.between(1, 5)), g.draw.pick(("int8", "uint8")), store=0.8), zero]
        )
    g.add("DequantizeLinear", [q, scale, zero])


def dynamic(g: Graph) -> None:
    g.add("DynamicQuantizeLinear", [g.some(dtypes=("float32",))], 3)


def quantized_conv(g: Graph) -> None:
    a = image(g)
    dtype = g.draw.pick(("uint8", "int8"))
    scale, zero = g.given(np.asarray(0.05, "float32"), 1.0), g.given(np.asarray(g.draw.pick((0, 5)), dtype), 1.0)
    q = g.add("QuantizeLinear", [a, scale, zero])
    if not q:
        return
    channels, out, more = g.array(a).shape[1], g.draw.between(1, 5), window(g, a)
    w = g.leaf((out, channels, *more["kernel_shape"]), "int8" if g.draw.chance(0.7) else dtype, "wide", store=1.0)
    many = (out,) if g.draw.chance(0.5) else ()
    w_scale = g.given((g.draw.numbers.random(many) * 0.02 + 0.001).astype("float32"), 1.0)
    w_zero = g.given(np.zeros(many, g.array(w).dtype), 1.0)
    bias = [g.leaf((out,), "int32", "whole", store=1.0)] if g.draw.chance(0.5) else []
    y = g.add(
        "QLinearConv", [q, scale, zero, w, w_scale, w_zero, g.given(np.asarray(0.1, "float32"), 1.0), zero, *bias],
        **more
    )
    if y and g.draw.chance(0.6):
        g.add("DequantizeLinear", [y, scale, zero])


# Control flow and recurrence.


def branch(g: Graph) -> None:
    """An If over values of the graph around it."""
    a = g.some("f")
    condition = g.leaf((), "bool")
    kind = helper.np_dtype_to_tensor_dtype(g.array(a).dtype)
    bodies = []
    for k in range(2):
        op = g.draw.pick(("Neg", "Relu", "Tanh", "Identity", "Exp"))
        node = helper.make_node(op, [a], [f"b{len(g.values)}_{k}"])
        bodies.append(
            helper.make_graph([node], f"branch{k}", [], [helper.make_tensor_value_info(node.output[0], kind, None)])
        )
    g.add("If", [condition], then_branch=bodies[0], else_branch=bodies[1])


def loop(g: Graph) -> None:
    """A Loop that carries a value, with or without a scan output."""
    a = g.some(dtypes=("float32", "int64"))
    kind = helper.np_dtype_to_tensor_dtype(g.array(a).dtype)
    tag = f"l{len(g.values)}_"
    info = helper.make_tensor_value_info
    step = g.draw.pick(("Add", "Mul", "Sub"))
    nodes = [
        helper.make_node(step, [tag + "s", a], [tag + "t"]), helper.make_node("Identity", [tag + "c"], [tag + "d"])
    ]
    outputs = [info(tag + "d", TensorProto.BOOL, []), info(tag + "t", kind, None)]
    scanned = g.draw.chance(0.5)
    if scanned:
        nodes.append(helper.make_node("Identity", [tag + "t"], [tag + "u"]))
        outputs.append(info(tag + "u", kind, None))
    inputs = [
        info(tag + "i", TensorProto.INT64, []), info(tag + "c", TensorProto.BOOL, []), info(tag + "s", kind, None)
    ]
    body = helper.make_graph(nodes, "body", inputs, outputs)
    count = g.given(np.asarray(g.draw.between(0, 4)), 0.7)
    g.add(
        "Loop", [count, g.given(np.asarray(True), 0.9) if g.draw.chance(0.6) else "", a], 2 if scanned else 1, body=body
    )


def recurrent(g: Graph) -> None:
    op = g.draw.pick(("LSTM", "GRU", "RNN"))
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    steps, batch, size, hidden = (g.draw.between(1, 4) for _ in range(4))
    way = g.draw.pick(("forward", "reverse", "bidirectional"))
    n = 2 if way == "bidirectional" else 1
    inputs = [
        g.leaf((steps, batch, size), "float32"), g.leaf((n, gates * hidden, size), "float32", "normal"),
        g.leaf((n, gates * hidden, hidden), "float32", "normal")
    ]
    more: dict[str, Any] = {"linear_before_reset": g.draw.between(0, 1)} if op == "GRU" else {}
    if g.draw.chance(0.4):
        more["clip"] = g.draw.pick((0.5, 3.0))
    if g.draw.chance(0.6):
        inputs.append(g.leaf((n, 2 * gates * hidden), "float32", "normal"))
        if g.draw.chance(0.5):
            lengths = g.given(g.draw.numbers.integers(1, steps + 1, (batch,)).astype("int32"), 0.5)
            inputs += [lengths, *([g.leaf((n, batch, hidden), "float32", "normal")] if g.draw.chance(0.5) else [])]
    g.add(op, inputs, 3 if op == "LSTM" else 2, hidden_size=hidden, direction=way, **more)


STEPS: Final[dict[str, Callable[[Graph], None]]] = {
    f.__name__: f for f in (
        unary, binary, variadic, where, clip, cast, reduction, arg, softmax, scan_sum, reshape, transpose, squeeze,
        expand, slices, pad,
                            concat, split, gather, selection, matmul, einsum, convolution, pool, norm, blocks, resize,
                            quantized, dynamic, quantized_conv, branch, loop, recurrent)
}
WEIGHTS: Final = {
    "unary": 8, "binary": 8, "reduction": 5, "cast": 3, "reshape": 3, "transpose": 3, "slices": 3, "matmul": 3,
    "convolution": 3,
                  "einsum": 1, "dynamic": 1, "branch": 1, "loop": 1, "recurrent": 1, "blocks": 1, "scan_sum": 1}
"""Of 2 where nothing is said."""
