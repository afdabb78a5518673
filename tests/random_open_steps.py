"""The operators of random graphs with open dimensions: each step adds one node or a few to a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from onnx import TensorProto

from random_open_graphs import Graph

UNARY: Final = (
    "Abs", "Neg", "Relu", "Sigmoid", "Tanh", "Erf", "Floor", "Ceil", "Sign", "Sin", "Softplus", "Identity", "Elu",
    "LeakyRelu", "HardSigmoid", "HardSwish", "Sqrt", "Exp", "Round",
)
REDUCTIONS: Final = (
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceSumSquare",
    "ReduceMean", "ReduceMax",
)


def unary(g: Graph) -> None:
    g.add(g.draw.pick(UNARY), [g.some()])


def binary(g: Graph) -> None:
    a = g.some("f" if g.draw.chance(0.85) else "i")
    b = g.like(a)
    op = g.draw.pick(("Add", "Sub", "Mul", "Add", "Mul", "Div", "Max", "Min", "Less", "Equal", "Greater"))
    g.add(op, [a, b] if g.draw.chance(0.5) else [b, a])


def where(g: Graph) -> None:
    a = g.some()
    condition = g.add("Greater", [a, g.like(a)]) if g.draw.chance(0.7) else g.some("b")
    g.add("Where", [condition, a, g.like(a)])


def cast(g: Graph) -> None:
    g.add("Cast", [g.some("fib")], to=g.draw.pick((
        TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL,
        TensorProto.DOUBLE)))


def clip(g: Graph) -> None:
    g.add("Clip", [g.some(), g.const(np.float32(g.draw.pick((0, -1)))), g.const(np.float32(g.draw.pick((1, 6))))])


def reduction(g: Graph) -> None:
    op = g.draw.pick(REDUCTIONS)
    a = g.some(low=1)
    axes = g.draw.random.sample(range(g.rank(a)), g.draw.between(1, g.rank(a)))
    axes = [x - g.rank(a) if g.draw.chance(0.3) else x for x in axes]
    as_input = op == "ReduceSum" or g.opset >= 18
    g.add(op, [a, *([g.ints(*axes)] if as_input else [])], keepdims=g.draw.between(0, 1),
          axes=None if as_input else axes)


def arg(g: Graph) -> None:
    a = g.some(low=1)
    g.add(g.draw.pick(("ArgMax", "ArgMin")), [a], axis=g.axis(a), keepdims=g.draw.between(0, 1),
          select_last_index=g.draw.between(0, 1))


def softmax(g: Graph) -> None:
    a = g.some(low=1)
    g.add(g.draw.pick(("Softmax", "Softmax", "LogSoftmax", "Hardmax", "LpNormalization")), [a], axis=g.axis(a))


def scan_sum(g: Graph) -> None:
    a = g.some(low=1)
    g.add("CumSum", [a, g.const(np.int64(g.axis(a)))], exclusive=g.draw.between(0, 1), reverse=g.draw.between(0, 1))


def top(g: Graph) -> None:
    a = g.some(low=1)
    axis = g.axis(a)
    k = g.size(a, axis) if g.draw.chance(0.3) else g.ints(g.draw.between(1, max(1, g.least(a, axis))))
    g.add("TopK", [a, k], 2, axis=axis, largest=g.draw.between(0, 1))


# Shapes.


def reshape(g: Graph) -> None:
    """Merge axes, split one of known size, exchange axes without moving elements, or insert ones."""
    a = g.some("fi", low=1)
    rank = g.rank(a)
    parts: list[int | str] = [0 if g.draw.chance(0.5) else g.size(a, k) for k in range(rank)]
    at = g.draw.between(0, rank - 1)
    match g.draw.between(0, 4):
        case 0 if at + 1 < rank:
            merged = -1 if g.draw.chance(0.5) else g.add("Mul", [g.size(a, at), g.size(a, at + 1)])
            parts[at:at + 2] = [merged]
            parts[at + 1:] = [g.size(a, k) for k in range(at + 2, rank)]
        case 1:
            size = g.named(g.dims(a)[at])
            factor = g.draw.pick((2, 3))
            if isinstance(size, int) and size % factor == 0:
                parts[at:at + 1] = [factor, size // factor] if g.draw.chance(0.5) else [size // factor, factor]
            else:
                by = g.add("Div", [g.size(a, at), g.ints(factor)]) if g.draw.chance(0.5) else -1
                parts[at:at + 1] = [factor, by] if g.draw.chance(0.5) else [by, factor]
            parts[at + 2:] = [g.size(a, k) for k in range(at + 1, rank)]
        case 2:
            parts = [g.size(a, k) for k in g.draw.random.sample(range(rank), rank)]
        case 3:
            parts = [[-1], [-1, g.size(a, -1)], [g.size(a, 0), -1]][g.draw.between(0, 2)]  # type: ignore[assignment]
        case _:
            parts = [g.size(a, k) for k in range(rank)]
            parts.insert(g.draw.between(0, rank), 1)
    if "" not in parts:
        g.add("Reshape", [a, g.vector(parts)])


def transpose(g: Graph) -> None:
    a = g.some("fi", low=1)
    g.add("Transpose", [a], perm=g.draw.random.sample(range(g.rank(a)), g.rank(a)))


def squeeze(g: Graph) -> None:
    a = g.some("fi")
    ones = [k for k, d in enumerate(g.dims(a)) if {*d} == {1}]
    if g.draw.chance(0.3):
        g.add("Flatten", [a], axis=g.draw.between(-g.rank(a), g.rank(a)))
    elif ones and g.draw.chance(0.7):
        g.add("Squeeze", [a, g.ints(g.draw.pick(ones))])
    else:
        g.add("Unsqueeze", [a, g.ints(g.axis(a, 1))])


def expand(g: Graph) -> None:
    a = g.some("fi", high=4)
    match g.draw.between(0, 3):
        case 0:
            g.add("Tile", [a, g.ints(*(g.draw.pick((1, 1, 2, 3)) for _ in range(g.rank(a))))])
        case 1 if g.rank(a):
            b = g.some(low=1)
            repeats: list[int | str] = [1] * g.rank(a)
            repeats[g.axis(a)] = g.size(b, g.axis(b))
            g.add("Tile", [a, g.vector(repeats)])
        case 2:
            b = g.draw.pick([n for n in g.values if _fits(g, a, n)])
            g.add("Expand", [a, g.add("Shape", [b])])
        case _:
            b = g.some(low=1)
            grown: list[int | str] = [
                g.size(b, g.axis(b)) if {*d} == {1} and g.draw.chance(0.5) else 1 for d in g.dims(a)]
            g.add("Expand", [a, g.vector([*([2] if g.draw.chance(0.3) else []), *grown])])


def _fits(g: Graph, a: str, b: str) -> bool:
    """Whether a value broadcasts to the shape of another one."""
    mine, theirs = g.dims(a), g.dims(b)
    return len(mine) <= len(theirs) and all(
        x == y or {*x} == {1} for x, y in zip(reversed(mine), reversed(theirs), strict=False))


def slices(g: Graph) -> None:
    a = g.some("fi", low=1)
    axes = g.draw.random.sample(range(g.rank(a)), g.draw.between(1, min(2, g.rank(a))))
    begin: list[int | str] = [g.draw.pick((0, 0, 1, -1, -2, 2, _part(g, a, x))) for x in axes]
    end: list[int | str] = [
        g.draw.pick((2**63 - 1, -1, 1, 2, 100, g.size(a, x), _part(g, a, x), _part(g, a, x))) for x in axes]
    steps = [g.draw.pick((1, 1, 1, 2, 3)) for _ in axes]
    if g.draw.chance(0.15):
        begin, end, steps = [-1] * len(axes), [-(2**63) + 1] * len(axes), [g.draw.pick((-1, -1, -2)) for _ in axes]
    g.add("Slice", [a, g.vector(begin), g.vector(end), g.ints(*axes), g.ints(*steps)])


def _part(g: Graph, a: str, axis: int) -> str:
    """A dimension less a number, or divided by one, as a vector of one element."""
    op, by = g.draw.pick((("Sub", 1), ("Div", 2), ("Sub", 2), ("Div", 3), ("Mul", 2), ("Add", 1)))
    return g.add(op, [g.size(a, axis), g.ints(by)])


def pad(g: Graph) -> None:
    a = g.some(low=1)
    rank = g.rank(a)
    pads: list[int | str] = [g.draw.pick((0, 0, 1, 2, -1)) for _ in range(2 * rank)]
    mode = g.draw.pick(("constant", "constant", "reflect", "edge"))
    if mode == "constant" and g.draw.chance(0.3):
        b = g.some(low=1)
        pads[g.draw.between(0, 2 * rank - 1)] = _part(g, b, g.axis(b))
    g.add("Pad", [a, g.vector(pads), *([g.const(np.float32(2))] if mode == "constant" else [])], mode=mode)


def concat(g: Graph) -> None:
    a = g.some("fi", low=1)
    axis = g.axis(a)
    dims = g.dims(a)
    fitting = [n for n in g.values if g.kind(n) == g.kind(a) and g.rank(n) == len(dims) and all(
        p == q for k, (p, q) in enumerate(zip(g.dims(n), dims, strict=True)) if k != axis % len(dims))]
    g.add("Concat", [g.draw.pick(fitting) for _ in range(g.draw.between(2, 3))], axis=axis)


def split(g: Graph) -> None:
    a = g.some(low=1)
    axis = g.axis(a)
    first = g.draw.between(1, max(1, g.least(a, axis) - 1))
    if g.draw.chance(0.5):
        rest = g.add("Sub", [g.size(a, axis), g.ints(first)])
        g.add("Split", [a, g.vector([first, rest] if g.draw.chance(0.5) else [rest, first])], 2, axis=axis)
    else:
        g.add("Split", [a], 2, axis=axis, num_outputs=2 if g.opset >= 18 else None)


def gather(g: Graph) -> None:
    a = g.some("fi", low=1)
    axis = g.axis(a)
    size = g.least(a, axis)
    if not size:
        return
    match g.draw.between(0, 3):
        case 0:
            g.add("Gather", [a, g.const(np.int64(g.draw.between(-size, size - 1)))], axis=axis)
        case 1:
            g.add("Gather", [a, g.ints(*(g.draw.between(-size, size - 1) for _ in range(3)))], axis=axis)
        case 2:
            index = g.leaf([g.dim() for _ in range(g.draw.between(1, 2))], "int64", -size, size)
            g.add("Gather", [a, index], axis=axis)
        case _:
            names = [g.named(d) for d in g.dims(a)]
            if None not in names:
                g.add("GatherElements", [a, g.leaf(names, "int64", -size, size)], axis=axis)  # type: ignore[arg-type]


def numbers(g: Graph) -> None:
    """Sizes as values: ranges, constants of a shape, floats of a size, triangles."""
    a = g.some(low=1)
    axis = g.axis(a)
    match g.draw.between(0, 4):
        case 0:
            end = g.size(a, axis, scalar=True)
            step = g.const(np.int64(g.draw.pick((1, 1, 2, 3))))
            g.add("Range", [g.const(np.int64(g.draw.pick((0, 0, 1)))), end, step])
        case 1:
            g.add("ConstantOfShape", [g.add("Shape", [a])])
        case 2:
            size = g.add("Cast", [g.size(a, axis, scalar=g.draw.chance(0.5))], to=TensorProto.FLOAT)
            size = g.add("Sqrt", [size]) if g.draw.chance(0.4) else size
            g.add(g.draw.pick(("Mul", "Div")), [a, size])
        case 3 if g.rank(a) >= 2:
            g.add("Trilu", [a, *([g.const(np.int64(g.draw.between(-2, 2)))] if g.draw.chance(0.5) else [])],
                  upper=g.draw.between(0, 1))
        case _:
            g.add("Size", [a])


# Products, windows and recurrences.


def matmul(g: Graph) -> None:
    a = g.some(low=2)
    dims = g.dims(a)
    depth = g.named(dims[-1])
    if g.draw.chance(0.3):  # with another value, such as queries with keys
        b = g.draw.pick([n for n in g.values if g.kind(n).name == "float32" and g.rank(n) >= 2])
        order = [*range(g.rank(b))]
        g.add("MatMul", [a, g.add("Transpose", [b], perm=[*order[:-2], order[-1], order[-2]])])
    elif depth is None:
        g.add("MatMul", [a, g.add("Transpose", [a], perm=[*range(len(dims) - 2), len(dims) - 1, len(dims) - 2])])
    elif isinstance(depth, str):
        g.add("MatMul", [a, g.leaf((depth, g.dim()))])
    elif len(dims) == 2 and g.draw.chance(0.5):
        n, turned = g.draw.between(1, 40), g.draw.between(0, 1)
        b = g.weights(*((n, depth) if turned else (depth, n)))
        g.add("Gemm", [a, b, *([g.weights(n)] if g.draw.chance(0.6) else [])], transB=turned,
              alpha=g.draw.pick((1.0, 1.0, 0.5)))
    else:
        g.add("MatMul", [a, g.weights(depth, g.draw.between(1, 40))])


def image(g: Graph, ranks: tuple[int, ...] = (3, 4)) -> tuple[str, int] | None:
    """A value of (batch, channels, spatial…) and its number of channels."""
    fitting = [n for n in g.values if n not in g.stored and g.kind(n).name == "float32" and g.rank(n) in ranks
               and isinstance(g.named(g.dims(n)[1]), int)]
    if fitting and g.draw.chance(0.75):
        name = str(g.draw.pick(fitting[-4:]))
        return name, g.dims(name)[1][0]
    channels = g.draw.pick((1, 2, 3, 4, 8, 16))
    spatial = [g.draw.pick((*g.sizes, *g.sizes, g.draw.between(3, 9))) for _ in range(g.draw.pick(ranks) - 2)]
    return g.leaf((g.draw.pick((1, 1, 2, *g.sizes)), channels, *spatial)), channels


def window(g: Graph, a: str) -> dict[str, Any]:
    n = g.rank(a) - 2
    kernel = [g.draw.pick((1, 2, 3, 3, 5))] * n if g.draw.chance(0.7) else [g.draw.between(1, 4) for _ in range(n)]
    found: dict[str, Any] = {"kernel_shape": kernel}
    if g.draw.chance(0.4):
        found["strides"] = [g.draw.pick((1, 2, 2, 3)) for _ in range(n)]
    if g.draw.chance(0.2):
        found["dilations"] = [g.draw.pick((1, 2)) for _ in range(n)]
    if g.draw.chance(0.2):
        found["auto_pad"] = g.draw.pick(("SAME_UPPER", "SAME_LOWER", "VALID"))
    elif g.draw.chance(0.8):
        found["pads"] = [k // 2 for k in kernel] * 2 if g.draw.chance(0.7) else [
            g.draw.between(0, k - 1) for k in kernel * 2]
    return found


def convolution(g: Graph) -> None:
    found = image(g)
    if found is None:
        return
    a, channels = found
    groups = g.draw.pick([1, 1, max(channels, 1), *(k for k in range(1, channels + 1) if channels % k == 0)])
    out = groups * g.draw.pick((1, 1, 2, 8 if groups == 1 else 1))
    more = window(g, a)
    if g.draw.chance(0.25):
        g.add("ConvTranspose", [a, g.weights(channels, out // groups, *more["kernel_shape"])], group=groups, **more)
    else:
        bias = [g.weights(out)] if g.draw.chance(0.5) else []
        g.add("Conv", [a, g.weights(out, channels // groups, *more["kernel_shape"]), *bias], group=groups, **more)


def pool(g: Graph) -> None:
    found = image(g)
    if found is None:
        return
    a, _ = found
    op = g.draw.pick(("MaxPool", "AveragePool", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"))
    if op.startswith("Global"):
        g.add(op, [a])
        return
    more = window(g, a)
    if op == "AveragePool":
        more["count_include_pad"] = g.draw.between(0, 1)
        if g.opset < 19:
            more.pop("dilations", None)
    g.add(op, [a], ceil_mode=g.draw.pick((0, 0, 0, 1)), **more)


def norm(g: Graph) -> None:
    found = image(g, (2, 3, 4))
    if found is None:
        return
    a, channels = found
    match g.draw.between(0, 3):
        case 0:
            positive = g.const((g.draw.numbers.random(channels) + 0.2).astype(np.float32))
            g.add("BatchNormalization", [a, *(g.weights(channels) for _ in range(3)), positive])
        case 1:
            g.add("InstanceNormalization", [a, g.weights(channels), g.weights(channels)])
        case 2 if g.opset >= 21:
            groups = g.draw.pick([k for k in range(1, channels + 1) if channels % k == 0] or [1])
            g.add("GroupNormalization", [a, g.weights(channels), g.weights(channels)], num_groups=groups)
        case _:
            size = g.named(g.dims(a)[-1])
            if isinstance(size, int) and g.opset >= 17:
                g.add("LayerNormalization", [a, g.weights(size), g.weights(size)], axis=-1)


def resize(g: Graph) -> None:
    found = image(g)
    if found is None:
        return
    a, channels = found
    rank = g.rank(a)
    mode = g.draw.pick(("nearest", "nearest", "linear", "cubic") if rank == 4 else ("nearest", "linear"))
    more: dict[str, Any] = {
        "mode": mode,
        "coordinate_transformation_mode": g.draw.pick(
            ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"))}
    if mode == "nearest":
        more["nearest_mode"] = g.draw.pick(("round_prefer_floor", "floor", "ceil"))
    if g.draw.chance(0.5):
        scales = [1.0, 1.0, *(g.draw.pick((2.0, 2.0, 0.5, 3.0, 1.0)) for _ in range(rank - 2))]
        g.add("Resize", [a, "", g.const(np.asarray(scales, np.float32))], **more)
        return
    b = g.some(low=1)
    spatial = [g.draw.pick((_part(g, a, k), g.size(b, g.axis(b)), g.draw.between(1, 12))) for k in range(2, rank)]
    g.add("Resize", [a, "", "", g.vector([g.size(a, 0), channels, *spatial])], **more)


def blocks(g: Graph) -> None:
    found = image(g, (4,))
    if found is None:
        return
    op = g.draw.pick(("DepthToSpace", "SpaceToDepth"))
    g.add(op, [found[0]], blocksize=2, mode=g.draw.pick(("DCR", "CRD")) if op == "DepthToSpace" else None)


def recurrent(g: Graph) -> None:
    op = g.draw.pick(("LSTM", "GRU", "RNN"))
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    fitting = [n for n in g.values if n not in g.stored and g.kind(n).name == "float32" and g.rank(n) == 3
               and isinstance(g.named(g.dims(n)[2]), int)]
    inner = g.draw.between(1, 6)
    a = str(g.draw.pick(fitting)) if fitting and g.draw.chance(0.7) else g.leaf((g.dim(), g.dim(), inner))
    way = g.draw.pick(("forward", "reverse", "bidirectional"))
    n, hidden, size = 2 if way == "bidirectional" else 1, g.draw.between(1, 9), g.dims(a)[2][0]
    inputs = [a, g.weights(n, gates * hidden, size), g.weights(n, gates * hidden, hidden)]
    if g.draw.chance(0.6):
        inputs.append(g.weights(n, 2 * gates * hidden))
    before = g.draw.between(0, 1) if op == "GRU" else None
    g.add(op, inputs, 3 if op == "LSTM" else 2, hidden_size=hidden, direction=way, linear_before_reset=before)


STEPS: Final[tuple[tuple[Callable[[Graph], None], int], ...]] = (
    (unary, 6), (binary, 8), (where, 2), (cast, 2), (clip, 1), (reduction, 4), (arg, 2), (softmax, 3), (scan_sum, 2),
    (top, 2), (reshape, 6), (transpose, 3), (squeeze, 3), (expand, 4), (slices, 5), (pad, 4), (concat, 4), (split, 3),
    (gather, 4), (numbers, 5), (matmul, 5), (convolution, 6), (pool, 4), (norm, 4), (resize, 3), (blocks, 1),
    (recurrent, 2),
)
"""The steps with how often each is taken."""
