"""Gradients of matrix products and convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tilewright.relay.expr import Call, Expr
from tilewright.relay.op.gradients.building import (
    GradientRule,
    cast,
    permuted,
    refuse,
    reshape_like,
    sum_like,
    unpermuted,
)
from tilewright.relay.op.nn_conv import Conv1dTranspose, Conv2dTranspose, Conv3dTranspose
from tilewright.relay.op.nn_gradients import CONVOLUTIONS, Conv2dBackwardWeight, kernel_gradient
from tilewright.relay.op.nn_matmul import BatchMatmul, Dense, Matmul
from tilewright.relay.op.reduction import Sum
from tilewright.relay.op.shaping import Reshape, sized
from tilewright.relay.op.transform import Reverse, Transpose
from tilewright.relay.types_of import dtype_of, rank, shape_of
from tilewright.topi.layouts import channels_first
from tilewright.topi.shapes import axis_of, is_number


def _matrix(x: Expr) -> Expr:
    """`x` as a matrix that keeps its last dimension."""
    return x if rank(x) == 2 else Reshape((-1, shape_of(x)[-1]))(x)


def _turned(x: Expr) -> Expr:
    return Transpose((*range(rank(x) - 2), rank(x) - 1, rank(x) - 2))(x)


def _dense(e: Call, g: Expr) -> list[Expr]:
    """g times the weight; the transpose of g times the data."""
    data, weight = e.args
    g = cast(g, dtype_of(data))
    rows = _matrix(g)
    own = Dense()(rows, _turned(weight))
    return [reshape_like(own, data), Dense()(_turned(rows), _turned(_matrix(data)))]


def _matmul(e: Call, g: Expr) -> list[Expr]:
    a, b = e.args
    op: Any = e.op
    if op.transpose_a and a.tensor_type.ndim > 2:
        swap = Transpose((*range(a.tensor_type.ndim - 2), a.tensor_type.ndim - 1, a.tensor_type.ndim - 2))
        own, other = _matmul(Call(Matmul(op.units, op.out_dtype, transpose_b=op.transpose_b), [swap(a), b]), g)
        return [swap(own), other]
    rows = _matrix(cast(g, dtype_of(a)))
    if op.transpose_a:
        left: Expr = Matmul(transpose_a=op.transpose_b, transpose_b=True)(b, rows)
    else:
        left = Matmul(transpose_b=not op.transpose_b)(rows, b)
    data = _matrix(a)
    right = (Matmul(transpose_a=True, transpose_b=op.transpose_a)(rows, data) if op.transpose_b
             else Matmul(transpose_a=not op.transpose_a)(data, rows))
    return [reshape_like(left, a), right]


def _batch_matmul(e: Call, g: Expr) -> list[Expr]:
    a, b = e.args
    op: Any = e.op
    g = cast(g, dtype_of(a))
    left = (BatchMatmul(transpose_a=op.transpose_b, transpose_b=True)(b, g) if op.transpose_a
            else BatchMatmul(transpose_b=not op.transpose_b)(g, b))
    right = (BatchMatmul(transpose_a=True, transpose_b=op.transpose_a)(g, a) if op.transpose_b
             else BatchMatmul(transpose_a=not op.transpose_a, transpose_b=False)(a, g))
    return [sum_like(left, a), sum_like(right, b)]


def _bias_add(e: Call, g: Expr) -> list[Expr]:
    channels = axis_of(e.op.axis, rank(g))
    return [g, Sum((channels,), exclude=True)(g)]


_TRANSPOSED: Final = {1: Conv1dTranspose, 2: Conv2dTranspose, 3: Conv3dTranspose}


def _conv(e: Call, g: Expr) -> list[Expr]:
    """A transposed convolution of g; a convolution of the data with g, in which batch and channels change roles."""
    data, weight = e.args
    op: Any = e.op
    if op.blocked:
        refuse(e, f"for the layouts {op.data_layout} and {op.kernel_layout}; use layouts without blocks")
    data_order, kernel_order, out_order = op.axes()
    x, w = permuted(data, data_order), permuted(weight, kernel_order)
    g = unpermuted(cast(g, dtype_of(data)), out_order)
    return [unpermuted(_into_data(op, g, x, w), data_order), unpermuted(_into_kernel(op, g, x, w), kernel_order)]


def _into_data(op: Any, g: Expr, x: Expr, w: Expr) -> Expr:
    """The gradient of NC… data: a convolution with the reversed kernel for strides of one, else a transposed one."""
    n = op.rank
    reach = [(k - 1) * d for k, d in zip(shape_of(w)[2:], op.dilation, strict=True)] * 2
    padding = tuple(r - p for r, p in zip(reach, op.padding, strict=True))
    if all(s == 1 for s in op.strides) and all(is_number(p) and p >= 0 for p in padding):
        return CONVOLUTIONS[n](padding=padding, dilation=op.dilation, groups=op.groups)(
            g, _reversed_kernel(w, op.groups))
    return _TRANSPOSED[n](
        strides=op.strides, padding=op.padding, dilation=op.dilation, groups=op.groups, data_layout=channels_first(n),
        output_padding=_left_over(op, shape_of(x), shape_of(w), shape_of(g)))(g, w)


def _reversed_kernel(w: Expr, groups: int) -> Expr:
    """An OI… kernel reversed along its spatial dimensions, with inputs and outputs exchanged in each group."""
    out, depth, *sizes = shape_of(w)
    spatial = range(2, 2 + len(sizes))
    if groups == 1:
        found: Expr = Transpose((1, 0, *spatial))(w)
    else:
        split = sized((groups, out // groups, depth, *sizes))(w)
        found = sized((groups * depth, out // groups, *sizes))(
            Transpose((0, 2, 1, *(d + 1 for d in spatial)))(split))
    for d in spatial:
        found = Reverse(d)(found) if shape_of(w)[d] != 1 else found
    return found


def _into_kernel(op: Any, g: Expr, x: Expr, w: Expr) -> Expr:
    """The gradient of the kernel, OI…, for NC… data."""
    if op.rank != 2:
        return kernel_gradient(g, x, shape_of(w)[2:], op.strides, op.padding, op.dilation, op.groups)
    return Conv2dBackwardWeight(strides=op.strides, padding=op.padding, dilation=op.dilation, groups=op.groups,
                                channels=shape_of(w)[0], kernel_size=shape_of(w)[2:])(g, x)


def _left_over(op: Any, data: Sequence[Any], kernel: Sequence[Any], out: Sequence[Any]) -> tuple[Any, ...]:
    """The number of elements at the end of each spatial dimension of the data, padding included, that no window
    reads."""
    n = op.rank
    return tuple(data[2 + k] + op.padding[k] + op.padding[n + k] - (kernel[2 + k] - 1) * op.dilation[k] - 1
                 - (out[2 + k] - 1) * op.strides[k] for k in range(n))


RULES: Final[dict[str, GradientRule]] = {
    "nn.dense": _dense,
    "nn.matmul": _matmul,
    "nn.batch_matmul": _batch_matmul,
    "nn.bias_add": _bias_add,
    **dict.fromkeys(("nn.conv1d", "nn.conv2d", "nn.conv3d"), _conv),
}
"""The rules by operator name."""
