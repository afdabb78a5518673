"""MobileNet: alternating depthwise and 1x1 convolutions (Howard et al., 2017)."""

from __future__ import annotations

from typing import Any

from tilewright.relay import nn
from tilewright.relay.expr import Expr, Function
from tilewright.relay.testing.layers import Workload, classified, conv_bn_relu, data_of, network, workload

_BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))


def get_net(batch_size: int, num_classes: int = 1000, image_shape: tuple[int, ...] = (3, 224, 224),
            dtype: str = "float32", layout: str = "NCHW") -> Function:
    """Return the network of full width; `image_shape` has the axes of `layout` without the batch."""
    channels_first = layout == "NCHW"
    plain: dict[str, Any] = {"data_layout": layout, "kernel_layout": "OIHW" if channels_first else "HWIO"}
    x: Expr = conv_bn_relu(data_of(batch_size, image_shape, dtype), "conv_block_1", 32, 3, strides=2, padding=1,
                           **plain)
    channels = 32
    for k, (out, stride) in enumerate(_BLOCKS, 1):
        depthwise = {**plain, "kernel_layout": "OIHW" if channels_first else "HWOI"}
        x = conv_bn_relu(x, f"separable_conv_block_{k}_depthwise", channels, 3, strides=stride, padding=1,
                         groups=channels, **depthwise)
        x = conv_bn_relu(x, f"separable_conv_block_{k}_pointwise", out, 1, **plain)
        channels = out
    return network(classified(nn.global_avg_pool2d(x, layout=layout), num_classes, "fc"))


def get_workload(
    batch_size: int = 1, num_classes: int = 1000, image_shape: tuple[int, ...] = (3, 224, 224), dtype: str = "float32",
    layout: str = "NCHW",
) -> Workload:
    """Return the module and random weights."""
    return workload(get_net(batch_size, num_classes, image_shape, dtype, layout))
