"""Operators that compute gradients of convolutions with respect to their kernels."""

from __future__ import annotations

from typing import Final

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import DataType, TensorType, Type
from tilewright.relay.expr import Call, Expr
from tilewright.relay.op.nn_conv import Conv1d, Conv2d, Conv3d, narrowed, normalized, ordered
from tilewright.relay.op.nn_matmul import product_dtype
from tilewright.relay.op.registry import Array, Fusion, Op, Precision, op, tensors
from tilewright.relay.op.shaping import sized
from tilewright.relay.op.transform import StridedSlice, Transpose
from tilewright.topi import channel_blocks
from tilewright.topi import transform as topi
from tilewright.topi.layouts import channels_first, data_axes, kernel_axes
from tilewright.topi.shapes import Shape, differ, inverse, is_multiple, require_rank, text
from tilewright.topi.windows import window_count

CONVOLUTIONS: Final = {1: Conv1d, 2: Conv2d, 3: Conv3d}
"""The convolutions by number of spatial dimensions."""


def _exchanged(shape: Shape, groups: int) -> tuple[Shape, tuple[int, ...], Shape]:
    """How the data of a kernel gradient exchange batch and channels: the shape with separate groups, the axes, and the
    result (channels / groups, groups * batch, …)."""
    batch, channels, *sizes = shape
    spatial = range(3, 3 + len(sizes))
    return ((batch, groups, channels // groups, *sizes), (2, 1, 0, *spatial),
            (channels // groups, groups * batch, *sizes))


def _reversed(ndim: int) -> tuple[int, ...]:
    """The axes that exchange the first two dimensions."""
    return (1, 0, *range(2, ndim))


def kernel_gradient(grad: Expr, data: Expr, kernel: Shape, strides: Shape, padding: Shape, dilation: Shape,
                    groups: int) -> Expr:
    """The gradient of an OI… kernel of the spatial shape `kernel`, for NC… data: a convolution of the data with `grad`
    that exchanges batch and channels, and strides and dilation."""
    rank = len(kernel)
    split, axes, joined = _exchanged(data.tensor_type.shape, groups)
    x = (Transpose(_reversed(rank + 2))(data) if groups == 1
         else sized(joined)(Transpose(axes)(sized(split)(data))))
    w = Transpose(_reversed(rank + 2))(grad)
    found = CONVOLUTIONS[rank](strides=dilation, padding=padding, dilation=strides, groups=groups)(x, w)
    inside = StridedSlice((0,) * rank, tuple(kernel), (1,) * rank, tuple(range(2, rank + 2)))(found)
    return Transpose(_reversed(rank + 2))(inside)


@op("nn.conv2d_backward_weight", kind=Fusion.OPAQUE)
class Conv2dBackwardWeight(Op):
    """The gradient of the weight of `nn.conv2d`, from that of its result and the data."""

    precision = Precision.NEVER
    strides: tuple[int, ...] = (1, 1)
    """Step of the convolution's window along each spatial dimension, in elements."""
    padding: tuple[int, ...] = (0, 0)
    """Number of zeros around the data: one for all sides, one for each dimension, or `(*before, *after)`."""
    dilation: tuple[int, ...] = (1, 1)
    """Distance between neighbouring taps of the kernel along each spatial dimension, in elements."""
    groups: int = 1
    """Number of groups of channels that are convolved separately; it divides both channel counts."""
    channels: int | None = None
    """Number of output channels of the convolution; None takes it from the gradient."""
    kernel_size: tuple[int, ...] | None = None
    """Spatial shape of the kernel; required."""
    grad_layout: str = "NCHW"
    """Layout of the gradient, such as "NCHW" or "NHWC"."""
    data_layout: str = "NCHW"
    """Layout of the data, such as "NCHW" or "NHWC"."""
    kernel_layout: str = "OIHW"
    """Layout of the result, such as "OIHW" or "HWIO"."""
    out_dtype: str = ""
    """Type of the result; "" means that of the data."""

    def __post_init__(self) -> None:
        normalized(self, 2, "strides", "dilation", "kernel_size")

    def _shapes(self, grad: Type, data: Type) -> tuple[Shape, Shape, Shape]:
        """Return the shapes of the gradient and of the data in NCHW order, and of the kernel in OIHW order."""
        g, d = tensors(grad, data)
        if self.kernel_size is None:
            raise ShapeError("kernel_size is missing; give the spatial shape of the kernel")
        grads = ordered(require_rank(g, 4, "grad").shape, data_axes(self.grad_layout, 2))
        shape = ordered(require_rank(d, 4, "data").shape, data_axes(self.data_layout, 2))
        for n in (grads[1], shape[1]):
            if self.groups < 1 or not is_multiple(n, self.groups):
                raise ShapeError(f"the {n} channels cannot be divided among {self.groups} groups")
        counts = [window_count(shape[2 + k], self.padding[k], self.padding[2 + k], self.kernel_size[k], self.strides[k],
                               self.dilation[k], k) for k in range(2)]
        if any(map(differ, (shape[0], self.channels or grads[1], *counts), grads)):
            raise ShapeError(f"the gradient {text(grads)} must have the shape of the convolution's result, "
                             f"{text((shape[0], self.channels or grads[1], *counts))}")
        return grads, shape, (grads[1], shape[1] // self.groups, *self.kernel_size)

    def infer(self, grad: Type, data: Type) -> TensorType:
        """(out channels, in channels / groups, *kernel_size); `out_dtype` or the dtype of the data."""
        kernel = self._shapes(grad, data)[2]
        g, d = tensors(grad, data)
        return TensorType(ordered(kernel, inverse(kernel_axes(self.kernel_layout, 2))),
                          product_dtype(d.dtype, g.dtype, self.out_dtype))

    def reference(self, grad: Array, data: Array) -> Array:
        g, x = grad.transpose(data_axes(self.grad_layout, 2)), data.transpose(data_axes(self.data_layout, 2))
        split, axes, joined = _exchanged(x.shape, self.groups)
        swapped = _reversed(4)
        conv = Conv2d(strides=self.dilation, padding=self.padding, dilation=self.strides, groups=self.groups)
        found = conv.reference(x.reshape(split).transpose(axes).reshape(joined), g.transpose(swapped))
        high, wide = self.kernel_size or (0, 0)
        kernel = found[:, :, :high, :wide].transpose(swapped).transpose(inverse(kernel_axes(self.kernel_layout, 2)))
        return narrowed(kernel, product_dtype(DataType(data.dtype), DataType(grad.dtype), self.out_dtype))

    def compute(self, grad: te.Tensor, data: te.Tensor) -> te.Tensor:
        g, x = (topi.transpose(t, data_axes(a, 2)) for t, a in ((grad, self.grad_layout), (data, self.data_layout)))
        split, axes, joined = _exchanged(topi.dims(x), self.groups)
        found = channel_blocks.conv(
            topi.regroup(x, split, axes, joined, "exchanged"), topi.transpose(g, _reversed(4)), self.dilation,
            self.padding, self.strides, self.groups, channels_first(2), "OIHW", channels_first(2),
            product_dtype(data.dtype, grad.dtype, self.out_dtype))
        kernel = topi.strided_slice(found, [0] * 4, [1] * 4, [*topi.dims(found)[:2], *(self.kernel_size or ())])
        order = [_reversed(4)[a] for a in inverse(kernel_axes(self.kernel_layout, 2))]
        return topi.transpose(kernel, order)

    def simplify(self, call: Call) -> Expr | None:
        """A convolution that exchanges batch and channels."""
        if call.tensor_type.dtype is not call.args[1].tensor_type.dtype or self.kernel_size is None:
            return None
        grad, data = (Transpose(data_axes(layout, 2))(x) for x, layout in
                      zip(call.args, (self.grad_layout, self.data_layout), strict=True))
        found = kernel_gradient(grad, data, self.kernel_size, self.strides, self.padding, self.dilation, self.groups)
        return Transpose(inverse(kernel_axes(self.kernel_layout, 2)))(found, span=call.span)
