"""VGG: stacks of 3x3 convolutions (Simonyan and Zisserman, 2014)."""

from __future__ import annotations

from tilewright.base.errors import CompileError
from tilewright.relay import nn
from tilewright.relay.expr import Expr, Function, var
from tilewright.relay.testing.layers import (
    Workload,
    batch_norm_infer,
    conv2d,
    data_of,
    dense_add_bias,
    network,
    workload,
)

_CONVS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


def get_net(
    batch_size: int, image_shape: tuple[int, ...], num_classes: int, dtype: str, num_layers: int = 11,
    batch_norm: bool = False,
) -> Function:
    """Return the network of `num_layers` layers. Raises `CompileError` for an unknown number of layers."""
    if num_layers not in _CONVS:
        raise CompileError(f"there is no VGG of {num_layers} layers; take one of {', '.join(map(str, _CONVS))}",
                           code="TW0417")
    x: Expr = data_of(batch_size, image_shape, dtype)
    for stage, (count, channels) in enumerate(zip(_CONVS[num_layers], (64, 128, 256, 512, 512), strict=True), 1):
        for k in range(1, count + 1):
            name = f"conv{stage}_{k}"
            x = nn.bias_add(conv2d(x, name=name, channels=channels, kernel_size=3, padding=1),
                            var(f"{name}_bias", shape=(channels,), dtype=dtype))
            x = nn.relu(batch_norm_infer(x, name=f"bn{stage}_{k}") if batch_norm else x)
        x = nn.max_pool2d(x, pool_size=(2, 2), strides=(2, 2))
    x = nn.batch_flatten(x)
    for name in ("fc6", "fc7"):
        x = nn.dropout(nn.relu(dense_add_bias(x, units=4096, name=name)), rate=0.5)
    return network(nn.softmax(dense_add_bias(x, units=num_classes, name="fc8")))


def get_workload(
    batch_size: int, num_classes: int = 1000, image_shape: tuple[int, ...] = (3, 224, 224), dtype: str = "float32",
    num_layers: int = 11, batch_norm: bool = False,
) -> Workload:
    """Return the module and random weights."""
    return workload(get_net(batch_size, image_shape, num_classes, dtype, num_layers, batch_norm))
