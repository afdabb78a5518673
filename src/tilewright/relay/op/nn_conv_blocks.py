"""Convolutions of tensors with blocked channels, which a hook of `AlterOpLayout` creates from `nn.conv2d`.

`nn.conv2d` accepts the same layouts. These operators have separate names, so that a hook of `nn.conv2d` is not called
for them again.
"""

from __future__ import annotations

from tilewright.base.errors import ShapeError
from tilewright.base.types import TensorType, Type
from tilewright.relay.op.nn_conv import Conv
from tilewright.relay.op.registry import Fusion, op, tensors


@op("nn.contrib_conv2d_NCHWc", kind=Fusion.OUT_FUSABLE)
class Conv2dNCHWc(Conv):
    """Two-dimensional convolution: data (batch, in / x, height, width, x) in NCHW[x]c, weight (out / y, in / x, kh, kw,
    x, y) in OIHW[x]i[y]o.

    The result is in `out_layout`, NCHW[y]c.
    """

    data_layout: str = "NCHW8c"
    rank = 2


@op("nn.contrib_depthwise_conv2d_NCHWc", kind=Fusion.OUT_FUSABLE)
class DepthwiseConv2dNCHWc(Conv):
    """Depthwise convolution: data (batch, in / x, height, width, x) in NCHW[x]c, weight (out / y, 1, kh, kw, 1, y) in
    OIHW1i[y]o.

    `groups` is the number of input channels.
    """

    data_layout: str = "NCHW8c"
    rank = 2

    def infer(self, data: Type, weight: Type) -> TensorType:
        """The type of `nn.conv2d`; the kernel has one input channel for each output."""
        depth = self.kernel_shape(tensors(weight)[0])[1]
        if isinstance(depth, int) and depth != 1:
            raise ShapeError("a depthwise kernel has one input channel for each output, but this one "
                             f"({self.kernel_layout}) has {depth}")
        return Conv.infer(self, data, weight)
