"""A multilayer perceptron for small images."""

from __future__ import annotations

from tilewright.relay import nn
from tilewright.relay.expr import Function
from tilewright.relay.testing.layers import Workload, data_of, dense_add_bias, network, workload


def get_net(batch_size: int, num_classes: int = 10, image_shape: tuple[int, ...] = (1, 28, 28),
            dtype: str = "float32") -> Function:
    """Return the network with hidden layers of 128 and 64 units."""
    x = nn.batch_flatten(data_of(batch_size, image_shape, dtype))
    for k, units in enumerate((128, 64), 1):
        x = nn.relu(dense_add_bias(x, units=units, name=f"fc{k}"))
    return network(nn.softmax(dense_add_bias(x, units=num_classes, name="fc3")))


def get_workload(batch_size: int, num_classes: int = 10, image_shape: tuple[int, ...] = (1, 28, 28),
                 dtype: str = "float32") -> Workload:
    """Return the module and random weights."""
    return workload(get_net(batch_size, num_classes, image_shape, dtype))
