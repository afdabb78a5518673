"""DenseNet: each layer reads the results of all previous layers (Huang et al., 2016)."""

from __future__ import annotations

from tilewright.base.errors import CompileError
from tilewright.relay import nn
from tilewright.relay.expr import Expr, Function
from tilewright.relay.op.elementwise import Relu
from tilewright.relay.testing.layers import (
    Workload,
    batch_norm_infer,
    classified,
    conv2d,
    data_of,
    joined,
    network,
    workload,
)

_SPECS = {121: (64, 32, (6, 12, 24, 16)), 161: (96, 48, (6, 12, 36, 24)), 169: (64, 32, (6, 12, 32, 32)),
          201: (64, 32, (6, 12, 48, 32))}


def _active(data: Expr, name: str) -> Expr:
    return Relu()(batch_norm_infer(data, name=name, epsilon=1e-5))


def get_net(
    densenet_size: int = 121, classes: int = 1000, batch_size: int = 4, image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
) -> Function:
    """Return the network of `densenet_size` layers. Raises `CompileError` for an unknown size."""
    if densenet_size not in _SPECS:
        raise CompileError(f"there is no DenseNet of {densenet_size} layers; take one of {', '.join(map(str, _SPECS))}",
                           code="TW0417")
    channels, growth, blocks = _SPECS[densenet_size]
    x: Expr = conv2d(data_of(batch_size, image_shape, dtype), name="conv1", channels=channels, kernel_size=(7, 7),
                     strides=(2, 2), padding=(3, 3))
    x = nn.max_pool2d(_active(x, "batch1"), pool_size=(3, 3), strides=(2, 2), padding=(1, 1))
    for k, count in enumerate(blocks, 1):
        for i in range(count):
            narrow = conv2d(_active(x, f"block{k}_{i}_bn1"), name=f"block{k}_{i}_conv1", channels=4 * growth,
                            kernel_size=(1, 1))
            new = conv2d(_active(narrow, f"block{k}_{i}_bn2"), name=f"block{k}_{i}_conv2", channels=growth,
                         kernel_size=(3, 3), padding=(1, 1))
            x = joined(x, new)
        channels += count * growth
        if k < len(blocks):
            channels //= 2
            x = conv2d(_active(x, f"transition{k}_bn"), name=f"transition{k}_conv", channels=channels,
                       kernel_size=(1, 1))
            x = nn.avg_pool2d(x, pool_size=(2, 2), strides=(2, 2))
    return network(classified(nn.global_avg_pool2d(_active(x, "batch5")), classes))


def get_workload(
    densenet_size: int = 121, classes: int = 1000, batch_size: int = 4, image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
) -> Workload:
    """Return the module and random weights."""
    return workload(get_net(densenet_size, classes, batch_size, image_shape, dtype))
