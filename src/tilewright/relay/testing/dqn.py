"""The network of deep Q-learning, from four frames of a game to the value of each action (Mnih et al., 2015)."""

from __future__ import annotations

from tilewright.relay import nn
from tilewright.relay.expr import Expr, Function, var
from tilewright.relay.testing.layers import Workload, conv2d, data_of, dense_add_bias, network, workload


def get_net(batch_size: int, num_actions: int = 18, image_shape: tuple[int, ...] = (4, 84, 84),
            dtype: str = "float32") -> Function:
    """Return the network of three convolutions and two dense layers."""
    x: Expr = data_of(batch_size, image_shape, dtype)
    for k, (channels, kernel, stride) in enumerate(((32, 8, 4), (64, 4, 2), (64, 3, 1)), 1):
        made = conv2d(x, name=f"conv{k}", channels=channels, kernel_size=kernel, strides=stride)
        x = nn.relu(nn.bias_add(made, var(f"conv{k}_bias", shape=(channels,), dtype=dtype)))
    x = nn.relu(dense_add_bias(nn.batch_flatten(x), units=512, name="dense1"))
    return network(dense_add_bias(x, units=num_actions, name="dense2"))


def get_workload(batch_size: int, num_actions: int = 18, image_shape: tuple[int, ...] = (4, 84, 84),
                 dtype: str = "float32") -> Workload:
    """Return the module and random weights."""
    return workload(get_net(batch_size, num_actions, image_shape, dtype))
