"""Residual networks with activation before the convolutions (He et al., 2016, "Identity Mappings in Deep Residual
Networks")."""

from __future__ import annotations

from tilewright.base.errors import CompileError
from tilewright.relay import nn
from tilewright.relay.expr import Expr, Function
from tilewright.relay.op.elementwise import Relu
from tilewright.relay.testing.layers import Workload, batch_norm_infer, classified, conv2d, data_of, network, workload

_UNITS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3),
          200: (3, 24, 36, 3), 269: (3, 30, 48, 8)}


class _Images:
    """The layers for one data layout."""

    def __init__(self, layout: str) -> None:
        if layout not in ("NCHW", "NHWC"):
            raise CompileError(f"the layout must be NCHW or NHWC, not {layout!r}", code="TW0417")
        self.layout, self.axis = layout, layout.index("C")
        self.kernel_layout = "OIHW" if layout == "NCHW" else "HWIO"

    def conv(self, data: Expr, name: str, channels: int, kernel: int, stride: int = 1) -> Expr:
        return conv2d(
            data, name=name, channels=channels, kernel_size=(kernel, kernel), strides=(stride, stride),
            padding=(kernel // 2, kernel // 2),
            data_layout=self.layout, kernel_layout=self.kernel_layout)

    def active(self, data: Expr, name: str) -> Expr:
        return Relu()(batch_norm_infer(data, name=name, axis=self.axis, epsilon=2e-5))


def residual_unit(
    data: Expr, num_filter: int, stride: int, dim_match: bool, name: str, bottle_neck: bool = True,
    data_layout: str = "NCHW",
) -> Expr:
    """Return two or, with `bottle_neck`, three convolutions and a shortcut; without `dim_match` the shortcut is a 1x1
    convolution.
    """
    images = _Images(data_layout)
    first = images.active(data, f"{name}_bn1")
    convs = [(num_filter // 4, 1, 1), (num_filter // 4, 3, stride),
             (num_filter, 1, 1)] if bottle_neck else [(num_filter, 3, stride), (num_filter, 3, 1)]
    x = first
    for k, (channels, kernel, step) in enumerate(convs, 1):
        x = images.conv(x if k == 1 else images.active(x, f"{name}_bn{k}"), f"{name}_conv{k}", channels, kernel, step)
    return x + (data if dim_match else images.conv(first, f"{name}_sc", num_filter, 1, stride))


def get_net(
    batch_size: int, num_classes: int = 1000, num_layers: int = 18, image_shape: tuple[int, ...] = (3, 224, 224),
    layout: str = "NCHW", dtype: str = "float32",
) -> Function:
    """Return the network of `num_layers` layers. Images of up to 32 pixels get the network for CIFAR, of 6n + 2 or 9n +
    2 layers.

    `image_shape` is in the order of `layout`, without the batch. Raises `CompileError` for an unknown number of layers.
    """
    images = _Images(layout)
    x: Expr = batch_norm_infer(data_of(batch_size, image_shape, dtype), name="bn_data", axis=images.axis, epsilon=2e-5,
                               scale=False)
    if image_shape[layout.index("H") - 1] <= 32:
        bottle_neck = num_layers >= 164 and (num_layers - 2) % 9 == 0
        count, rest = divmod(num_layers - 2, 9 if bottle_neck else 6)
        units: tuple[int, ...] = (count,) * 3
        filters: tuple[int, ...] = (64, 128, 256) if bottle_neck else (16, 32, 64)
        if rest or count < 1:
            raise CompileError(f"ResNet has no variant of {num_layers} layers for small images; use 6n + 2, "
                               "such as 20 or 56", code="TW0417")
        x = images.conv(x, "conv0", 16, 3)
    else:
        if num_layers not in _UNITS:
            raise CompileError(f"ResNet has no variant of {num_layers} layers; "
                               f"choose from {', '.join(map(str, _UNITS))}", code="TW0417")
        bottle_neck, units = num_layers >= 50, _UNITS[num_layers]
        filters = (256, 512, 1024, 2048) if bottle_neck else (64, 128, 256, 512)
        x = images.active(images.conv(x, "conv0", 64, 7, 2), "bn0")
        x = nn.max_pool2d(x, pool_size=(3, 3), strides=(2, 2), padding=(1, 1), layout=layout)
    for stage, (count, channels) in enumerate(zip(units, filters, strict=True), 1):
        for unit in range(1, count + 1):
            x = residual_unit(x, channels, 2 if unit == 1 < stage else 1, unit > 1, f"stage{stage}_unit{unit}",
                              bottle_neck, layout)
    return network(classified(nn.global_avg_pool2d(images.active(x, "bn1"), layout=layout), num_classes))


def get_workload(
    batch_size: int = 1, num_classes: int = 1000, num_layers: int = 18, image_shape: tuple[int, ...] = (3, 224, 224),
    layout: str = "NCHW",
    dtype: str = "float32",
) -> Workload:
    """Return the module and random weights."""
    return workload(get_net(batch_size, num_classes, num_layers, image_shape, layout, dtype))
