"""SqueezeNet: 1x1 convolutions followed by 1x1 and 3x3 ones (Iandola et al., 2016)."""

from __future__ import annotations

from tilewright.base.errors import CompileError
from tilewright.relay import nn
from tilewright.relay.expr import Expr, Function, var
from tilewright.relay.op.elementwise import Relu
from tilewright.relay.testing.layers import Workload, conv2d, data_of, joined, network, workload

_FIRE = {
    "1.0": (96, 7, ((16, 64), (16, 64), (32, 128), None, (32, 128), (48, 192), (48, 192), (64, 256), None, (64, 256))),
    "1.1": (64, 3, ((16, 64), (16, 64), None, (32, 128), (32, 128), None, (48, 192), (48, 192), (64, 256), (64, 256))),
}


def _conv(data: Expr, name: str, channels: int, kernel: int, stride: int = 1, padding: int = 0) -> Expr:
    made = conv2d(data, name=name, channels=channels, kernel_size=kernel, strides=stride, padding=padding)
    return Relu()(nn.bias_add(made, var(f"{name}_bias", shape=(channels,), dtype=data.tensor_type.dtype)))


def get_net(batch_size: int, image_shape: tuple[int, ...], num_classes: int, version: str, dtype: str) -> Function:
    """Return the network of version "1.0" or "1.1". Raises `CompileError` for another version."""
    if version not in _FIRE:
        raise CompileError(f"there is no SqueezeNet {version!r}; take 1.0 or 1.1", code="TW0417")
    first, kernel, blocks = _FIRE[version]
    x = _conv(data_of(batch_size, image_shape, dtype), "conv1", first, kernel, 2)
    x = nn.max_pool2d(x, pool_size=(3, 3), strides=(2, 2))
    for k, block in enumerate(blocks):
        if block is None:
            x = nn.max_pool2d(x, pool_size=(3, 3), strides=(2, 2))
            continue
        squeezed = _conv(x, f"fire{k}_squeeze", block[0], 1)
        x = joined(_conv(squeezed, f"fire{k}_1x1", block[1], 1), _conv(squeezed, f"fire{k}_3x3", block[1], 3, 1, 1))
    x = nn.global_avg_pool2d(_conv(nn.dropout(x), "conv10", num_classes, 1))
    return network(nn.softmax(nn.batch_flatten(x)))


def get_workload(
    batch_size: int = 1, num_classes: int = 1000, version: str = "1.0", image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
) -> Workload:
    """Return the module and random weights."""
    return workload(get_net(batch_size, image_shape, num_classes, version, dtype))
