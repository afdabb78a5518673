"""Convolutions of tensors whose channels stand in blocks: what a hook of `AlterOpLayout` makes of `nn.conv2d`.

`nn.conv2d` takes the same layouts; these have names of their own, so that a hook of `nn.conv2d` is not asked about them again.
"""

from __future__ import annotations

from tilewright.base.errors import ShapeError
from tilewright.base.types import TensorType, Type
from tilewright.relay.op.nn_conv import Conv
from tilewright.relay.op.registry import Fusion, op, tensors


@op("nn.contrib_conv2d_NCHWc", kind=Fusion.OUT_FUSABLE)
class Conv2dNCHWc(Conv):
    """Two-dimensional convolution: data (batch, in / x, height, width, x) in NCHW[x]c, weight (out / y, in / x, kh, kw, x, y) in OIHW[x]i[y]o.

    The result is in `out_layout`, NCHW[y]c, or in the layout of the data without one.
    """

    strides: tuple[int, ...] = (1, 1)
    padding: tuple[int, ...] = (0, 0)
    dilation: tuple[int, ...] = (1, 1)
    groups: int = 1
    channels: int | None = None
    kernel_size: tuple[int, ...] | None = None
    data_layout: str = "NCHW8c"
    kernel_layout: str = "OIHW"
    out_layout: str = ""
    out_dtype: str = ""
    rank = 2


@op("nn.contrib_depthwise_conv2d_NCHWc", kind=Fusion.OUT_FUSABLE)
class DepthwiseConv2dNCHWc(Conv):
    """Each channel with its own kernels: data (batch, in / x, height, width, x) in NCHW[x]c, weight (out / y, 1, kh, kw, 1, y) in OIHW1i[y]o.

    `groups` is the number of input channels.
    """

    strides: tuple[int, ...] = (1, 1)
    padding: tuple[int, ...] = (0, 0)
    dilation: tuple[int, ...] = (1, 1)
    groups: int = 1
    channels: int | None = None
    kernel_size: tuple[int, ...] | None = None
    data_layout: str = "NCHW8c"
    kernel_layout: str = "OIHW"
    out_layout: str = ""
    out_dtype: str = ""
    rank = 2

    def infer(self, data: Type, weight: Type) -> TensorType:
        depth = self.kernel_shape(tensors(weight)[0])[1]
        if isinstance(depth, int) and depth != 1:
            raise ShapeError(f"a depthwise kernel has one input channel for each output, and this one ({self.kernel_layout}) has {depth}")
        return Conv.infer(self, data, weight)
