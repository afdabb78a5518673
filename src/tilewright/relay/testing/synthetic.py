"""A small network with a product, a convolution and a softmax, for tests of builds."""

from __future__ import annotations

from tilewright.relay import nn
from tilewright.relay.expr import Expr, Function, var
from tilewright.relay.op.elementwise import Relu
from tilewright.relay.op.nn_norm import Softmax
from tilewright.relay.op.shaping import Reshape, ReshapeLike
from tilewright.relay.testing.layers import Workload, network, workload

__all__ = ["get_net", "get_workload"]


def get_net(input_shape: tuple[int, ...] = (1, 3, 24, 12), dtype: str = "float32", wtype: str | None = None
            ) -> Function:
    """Return relu(dense(data) + softmax(conv2d(data))) with images of shape `input_shape`, channels first.

    `wtype` is the type of the weights, by default `dtype`.
    """
    _, channels, _, width = input_shape
    weights = wtype or dtype
    data = var("data", shape=input_shape, dtype=dtype)
    rows = nn.dense(Reshape(newshape=(-1, width))(data), var("dense_weight", shape=(width, width), dtype=weights))
    conv = nn.conv2d(
        data, var("conv_weight", shape=(channels, channels, 3, 3), dtype=weights), channels=channels,
        kernel_size=(3, 3), padding=(1, 1))
    total: Expr = ReshapeLike()(Relu()(rows), data) + Softmax()(conv)
    return network(Relu()(total))


def get_workload(input_shape: tuple[int, ...] = (1, 3, 24, 12), dtype: str = "float32", wtype: str | None = None
                 ) -> Workload:
    """Return the module and random weights."""
    return workload(get_net(input_shape, dtype, wtype))
