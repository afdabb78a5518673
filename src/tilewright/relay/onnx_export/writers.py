"""Writers of operators: functions that add the ONNX nodes of a call to a graph and return the names of its results.

    @writer("nn.relu")
    def relu(graph, call, x): return graph.node("Relu", [x])

A writer gets the graph, the call, and the names of its operands; a tuple is the list of the names of its fields.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tilewright.base.errors import CompileError
from tilewright.base.types import TensorType, TupleType
from tilewright.relay.expr import Call
from tilewright.relay.onnx_export.graph import Graph, Writer, element_type
from tilewright.topi.shapes import axes_of

WRITERS: Final[dict[str, Writer]] = {}
"""Operator -> its writer."""

Names = list[str]


def writer(*names: str) -> Callable[[Writer], Writer]:
    """Register the writer of operators. Operands that are tensors arrive as one name each."""

    def register(function: Writer) -> Writer:
        for name in names:
            WRITERS[name] = function
        return function

    return register


def refused(call: Call, what: str, instead: str) -> CompileError:
    """Return an error about an attribute that ONNX cannot express."""
    return CompileError(f"{call.op.name} with {what} is not written to ONNX; {instead}", code="TW0407")


def _shape(call: Call, k: int = 0) -> tuple[Any, ...]:
    return call.args[k].tensor_type.shape


SAME: Final = {
    "abs": "Abs", "acos": "Acos", "acosh": "Acosh", "add": "Add", "asin": "Asin", "asinh": "Asinh", "atan": "Atan",
    "atanh": "Atanh", "ceil": "Ceil", "copy": "Identity", "cos": "Cos", "cosh": "Cosh", "divide": "Div",
    "equal": "Equal", "erf": "Erf", "exp": "Exp", "floor": "Floor", "greater": "Greater", "less": "Less", "log": "Log",
    "logical_and": "And", "logical_not": "Not", "logical_or": "Or", "logical_xor": "Xor", "maximum": "Max",
    "minimum": "Min", "multiply": "Mul", "negative": "Neg", "nn.batch_matmul": "MatMul", "nn.dropout": "Identity",
    "nn.relu": "Relu", "power": "Pow", "round": "Round", "sigmoid": "Sigmoid", "sign": "Sign", "sin": "Sin",
    "sinh": "Sinh", "sqrt": "Sqrt", "subtract": "Sub", "tan": "Tan", "tanh": "Tanh", "where": "Where",
}
"""Operators without attributes that ONNX has under another name."""
REDUCTIONS: Final = {
    "max": "ReduceMax", "mean": "ReduceMean", "min": "ReduceMin", "prod": "ReduceProd", "sum": "ReduceSum"}
VIEWS: Final = ("expand_dims", "nn.batch_flatten", "reshape", "squeeze")
"""Operators that give a tensor another shape."""


@writer(*(n for n in SAME if n != "nn.batch_matmul"))
def same(graph: Graph, call: Call, *x: Names) -> Names:
    return graph.node(SAME[call.op.name], [n for names in x for n in names])


@writer("nn.batch_matmul")
def batch_matmul(graph: Graph, call: Call, x: Names, y: Names) -> Names:
    a = graph.node("Transpose", x, perm=[0, 2, 1]) if call.op.transpose_a else x
    b = graph.node("Transpose", y, perm=[0, 2, 1]) if call.op.transpose_b else y
    return graph.node("MatMul", a + b)


@writer("nn.dense")
def dense(graph: Graph, call: Call, x: Names, w: Names) -> Names:
    return graph.node("MatMul", [*x, *graph.node("Transpose", w, perm=[1, 0])])


@writer("nn.bias_add")
def bias_add(graph: Graph, call: Call, x: Names, bias: Names) -> Names:
    rank = len(_shape(call))
    after = rank - 1 - call.op.axis % rank
    if after:
        bias = graph.node("Reshape", [*bias, graph.integers([-1] + [1] * after, "shape")])
    return graph.node("Add", x + bias)


def _plain(call: Call, data: str, kernel: str | None = None) -> None:
    """Raise `CompileError` unless layouts are those of ONNX."""
    op = call.op
    layout = op.data_layout if kernel is not None else op.layout
    if layout != data or op.out_layout not in ("", data):
        raise refused(call, f"the layout {layout}", f"convert it to {data} by ConvertLayout")
    if kernel is not None and op.kernel_layout != kernel:
        raise refused(call, f"the kernel layout {op.kernel_layout}", f"convert it to {kernel} by ConvertLayout")


@writer("nn.conv1d", "nn.conv2d", "nn.conv3d")
def convolution(graph: Graph, call: Call, x: Names, w: Names) -> Names:
    axes = {1: "W", 2: "HW", 3: "DHW"}[call.op.rank]
    _plain(call, f"NC{axes}", f"OI{axes}")
    op = call.op
    return graph.node(
        "Conv", x + w, kernel_shape=list(_shape(call, 1)[2:]), strides=list(op.strides), dilations=list(op.dilation),
        pads=list(op.padding), group=op.groups)


@writer("nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose")
def transposed_convolution(graph: Graph, call: Call, x: Names, w: Names) -> Names:
    axes = {1: "W", 2: "HW", 3: "DHW"}[call.op.rank]
    _plain(call, f"NC{axes}", f"IO{axes}")
    op = call.op
    return graph.node(
        "ConvTranspose", x + w, kernel_shape=list(_shape(call, 1)[2:]), strides=list(op.strides),
        dilations=list(op.dilation), pads=list(op.padding), group=op.groups, output_padding=list(op.output_padding))


@writer("nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d", "nn.avg_pool1d", "nn.avg_pool2d", "nn.avg_pool3d")
def pool(graph: Graph, call: Call, x: Names) -> Names:
    op = call.op
    _plain(call, {1: "NCW", 2: "NCHW", 3: "NCDHW"}[op.rank])
    is_mean = op.name.startswith("nn.avg")
    if is_mean and any(d != 1 for d in op.dilation):
        raise refused(call, f"dilation {op.dilation}", "average windows without dilation only")
    return graph.node(
        "AveragePool" if is_mean else "MaxPool", x, kernel_shape=list(op.pool_size), strides=list(op.strides),
        pads=list(op.padding), ceil_mode=int(op.ceil_mode), dilations=None if is_mean else list(op.dilation),
        count_include_pad=int(op.count_include_pad) if is_mean else None)


@writer("nn.global_avg_pool2d", "nn.global_max_pool2d")
def global_pool(graph: Graph, call: Call, x: Names) -> Names:
    _plain(call, "NCHW")
    return graph.node("GlobalAveragePool" if "avg" in call.op.name else "GlobalMaxPool", x)


@writer("nn.batch_norm")
def batch_norm(graph: Graph, call: Call, x: Names, gamma: Names, beta: Names, mean: Names, variance: Names) -> Names:
    """The mean and the variance are results of Relay's operator, too: they are those that were given."""
    op, rank = call.op, len(_shape(call))
    axis, count = op.axis % rank, _shape(call)[op.axis]
    dtype = call.args[1].tensor_type.dtype.numpy()
    if not op.scale:
        gamma = [graph.constant(np.ones(count, dtype), "scale")]
    if not op.center:
        beta = [graph.constant(np.zeros(count, dtype), "center")]
    swapped = list(range(rank))
    swapped[1], swapped[axis] = swapped[axis], swapped[1]
    data = x if axis == 1 else graph.node("Transpose", x, perm=swapped)
    found = graph.node("BatchNormalization", data + gamma + beta + mean + variance, epsilon=op.epsilon)
    return [*(found if axis == 1 else graph.node("Transpose", found, perm=swapped)), *mean, *variance]


@writer(*VIEWS)
def view(graph: Graph, call: Call, x: Names) -> Names:
    return graph.node("Reshape", [*x, graph.integers(call.tensor_type.shape, "shape")])


@writer("transpose")
def transpose(graph: Graph, call: Call, x: Names) -> Names:
    rank = len(_shape(call))
    axes = range(rank)[::-1] if not call.op.axes else [a % rank for a in call.op.axes]
    return graph.node("Transpose", x, perm=list(axes))


@writer("layout_transform")
def layout_transform(graph: Graph, call: Call, x: Names) -> Names:
    source, target = str(call.op.src_layout), str(call.op.dst_layout)
    if sorted(source) != sorted(target) or any(c not in string.ascii_uppercase for c in source):
        raise refused(call, f"the layouts {source} and {target}", "write the blocks as reshape and transpose")
    return graph.node("Transpose", x, perm=[source.index(c) for c in target])


@writer("nn.pad")
def pad(graph: Graph, call: Call, x: Names, value: Names) -> Names:
    mode = {"constant": "constant", "edge": "edge", "reflect": "reflect"}.get(str(call.op.pad_mode))
    if mode is None:
        raise refused(call, f"the mode {call.op.pad_mode}", "use constant, edge or reflect")
    before, after = zip(*call.op.pad_width, strict=True)
    fill = value if mode == "constant" else []
    return graph.node("Pad", [*x, graph.integers([*before, *after], "pads"), *fill], mode=mode)


@writer("nn.softmax", "nn.log_softmax")
def softmax(graph: Graph, call: Call, x: Names) -> Names:
    """These versions of ONNX normalize all axes from a given one on, so the axis becomes the last."""
    kind = "Softmax" if call.op.name == "nn.softmax" else "LogSoftmax"
    rank = len(_shape(call))
    axis = call.op.axis % rank
    if axis == rank - 1:
        return graph.node(kind, x, axis=axis)
    swapped = list(range(rank))
    swapped[-1], swapped[axis] = swapped[axis], swapped[-1]
    found = graph.node(kind, graph.node("Transpose", x, perm=swapped), axis=rank - 1)
    return graph.node("Transpose", found, perm=swapped)


@writer(*REDUCTIONS)
def reduction(graph: Graph, call: Call, x: Names) -> Names:
    axes = axes_of(call.op.axis, len(_shape(call)), call.op.exclude)
    if not axes:
        return graph.node("Identity", x)
    return graph.node(REDUCTIONS[call.op.name], x, axes=list(axes), keepdims=int(call.op.keepdims))


@writer("argmax", "argmin")
def extreme(graph: Graph, call: Call, x: Names) -> Names:
    op = call.op
    axes = axes_of(op.axis, len(_shape(call)), op.exclude)
    if len(axes) != 1 or op.select_last_index:
        raise refused(call, f"the axes {tuple(axes)} and select_last_index={op.select_last_index}", "reduce one axis")
    found = graph.node("ArgMax" if op.name == "argmax" else "ArgMin", x, axis=axes[0], keepdims=int(op.keepdims))
    return graph.node("Cast", found, to=element_type(call.tensor_type.dtype))


@writer("split")
def split(graph: Graph, call: Call, x: Names) -> Names:
    axis = call.op.axis % len(_shape(call))
    kind = call.known_type()
    fields = kind.fields if isinstance(kind, TupleType) else ()
    sizes = [t.shape[axis] for t in fields if isinstance(t, TensorType)]
    return graph.node("Split", x, len(sizes), axis=axis, split=sizes)


@writer("concatenate")
def concatenate(graph: Graph, call: Call, x: Names) -> Names:
    return graph.node("Concat", x, axis=call.op.axis % len(call.tensor_type.shape))


@writer("stack")
def stack(graph: Graph, call: Call, x: Names) -> Names:
    rank = len(call.tensor_type.shape)
    axis = call.op.axis % rank
    parts = [n for name in x for n in graph.node("Unsqueeze", [name], axes=[axis])]
    return graph.node("Concat", parts, axis=axis)


@writer("strided_slice")
def strided_slice(graph: Graph, call: Call, x: Names, *more: Names) -> Names:
    shape = _shape(call)
    if more or any(not isinstance(d, int) for d in shape):
        raise refused(call, "dynamic bounds or sizes", "give the sizes values")
    begins, ends, steps = [], [], []
    for first, count, step in call.op.slices(shape):
        last = first + count * step
        begins.append(first)
        ends.append(last if last >= 0 else np.iinfo(np.int64).min)
        steps.append(step)
    inputs = [graph.integers(v, n) for v, n in ((begins, "starts"), (ends, "ends"), (range(len(shape)), "axes"))]
    return graph.node("Slice", [*x, *inputs, graph.integers(steps, "steps")])


@writer("cast")
def cast(graph: Graph, call: Call, x: Names) -> Names:
    return graph.node("Cast", x, to=element_type(call.tensor_type.dtype))


@writer("clip")
def clip(graph: Graph, call: Call, x: Names) -> Names:
    kind = call.tensor_type.dtype.numpy()
    bounds = [graph.constant(np.array(v, kind), n) for v, n in ((call.op.a_min, "min"), (call.op.a_max, "max"))]
    return graph.node("Clip", x + bounds)


@writer("nn.leaky_relu")
def leaky_relu(graph: Graph, call: Call, x: Names) -> Names:
    return graph.node("LeakyRelu", x, alpha=float(call.op.alpha))


@writer("nn.prelu")
def prelu(graph: Graph, call: Call, x: Names, slope: Names) -> Names:
    rank = len(_shape(call))
    after = rank - 1 - call.op.axis % rank
    wide = graph.node("Reshape", [*slope, graph.integers([-1] + [1] * after, "shape")]) if after else slope
    return graph.node("PRelu", x + wide)


@writer("nn.lrn")
def lrn(graph: Graph, call: Call, x: Names) -> Names:
    op = call.op
    if op.axis % len(_shape(call)) != 1:
        raise refused(call, f"axis {op.axis}", "normalize across axis 1")
    return graph.node("LRN", x, size=op.size, alpha=float(op.alpha), beta=float(op.beta), bias=float(op.bias))


@writer("rsqrt")
def rsqrt(graph: Graph, call: Call, x: Names) -> Names:
    return graph.node("Reciprocal", graph.node("Sqrt", x))


@writer("take")
def take(graph: Graph, call: Call, x: Names, indices: Names) -> Names:
    op = call.op
    if op.axis is None or op.batch_dims:
        raise refused(call, "a flat index or batch dimensions", "give an axis")
    if call.args[1].tensor_type.dtype not in ("int32", "int64"):
        indices = graph.node("Cast", indices, to=element_type(TensorType((), "int64").dtype))
    return graph.node("Gather", x + indices, axis=op.axis % len(_shape(call)))


@writer("broadcast_to")
def broadcast_to(graph: Graph, call: Call, x: Names, *shape: Names) -> Names:
    return graph.node("Expand", [*x, graph.integers(call.tensor_type.shape, "shape")])


@writer("zeros", "ones", "zeros_like", "ones_like")
def filled(graph: Graph, call: Call, *_like: Names) -> Names:
    kind = call.tensor_type
    if any(not isinstance(d, int) for d in kind.shape):
        raise refused(call, "symbolic sizes", "give the sizes values")
    fill: Callable[..., Any] = np.zeros if call.op.name.startswith("zeros") else np.ones
    return [graph.constant(fill(kind.shape, kind.dtype.numpy()))]


@writer("image.resize2d")
def resize(graph: Graph, call: Call, x: Names) -> Names:
    op = call.op
    if op.layout != "NCHW" or op.extrapolation_value or (op.roi and any(op.roi)):
        raise refused(
            call, f"the layout {op.layout}, a region or an extrapolation value", "resize NCHW without a region")
    mode = {"nearest_neighbor": "nearest", "linear": "linear", "cubic": "cubic"}[str(op.method)]
    rounding = {
        "": "round_prefer_floor", "round": "round_prefer_ceil", "round_prefer_floor": "round_prefer_floor",
        "round_prefer_ceil": "round_prefer_ceil", "floor": "floor", "ceil": "ceil"}[str(op.rounding_method)]
    roi, scales = (graph.constant(np.zeros(0, np.float32), n) for n in ("roi", "scales"))
    sizes = graph.integers(call.tensor_type.shape, "sizes")
    return graph.node(
        "Resize", [*x, roi, scales, sizes], mode=mode, nearest_mode=rounding if mode == "nearest" else None,
        coordinate_transformation_mode=str(op.coordinate_transformation_mode),
        cubic_coeff_a=float(op.cubic_alpha) if mode == "cubic" else None,
        exclude_outside=int(op.cubic_exclude) if mode == "cubic" else None)

