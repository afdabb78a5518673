"""The generator of DCGAN: transposed convolutions that turn random numbers into images (Radford et al., 2015)."""

from __future__ import annotations

from tilewright.base.errors import CompileError
from tilewright.relay import nn
from tilewright.relay.expr import Expr, Function
from tilewright.relay.op.elementwise import Tanh
from tilewright.relay.op.shaping import Reshape
from tilewright.relay.testing.layers import (
    Workload,
    batch_norm_infer,
    conv2d_transpose,
    data_of,
    dense_add_bias,
    network,
    workload,
)


def get_net(batch_size: int, random_len: int = 100, oshape: tuple[int, ...] = (3, 64, 64), ngf: int = 128,
            dtype: str = "float32") -> Function:
    """Return the network that turns `random_len` numbers into an image of `oshape`, 64x64. Raises `CompileError` for
    another size."""
    if oshape[1:] != (64, 64):
        raise CompileError(f"the generator produces images of 64x64, not {oshape[1]}x{oshape[2]}",
                           code="TW0417")
    x: Expr = dense_add_bias(data_of(batch_size, (random_len,), dtype), units=4 * 4 * ngf * 8, name="fc")
    x = nn.relu(Reshape((-1, ngf * 8, 4, 4))(x))
    for k, channels in enumerate((ngf * 4, ngf * 2, ngf, oshape[0]), 1):
        x = conv2d_transpose(x, name=f"g{k}", channels=channels, kernel_size=(4, 4), strides=(2, 2), padding=(1, 1))
        x = nn.relu(batch_norm_infer(x, name=f"g{k}_bn")) if k < 4 else Tanh()(x)
    return network(x)


def get_workload(batch_size: int, oshape: tuple[int, ...] = (3, 64, 64), ngf: int = 128, random_len: int = 100,
                 dtype: str = "float32") -> Workload:
    """Return the module and random weights."""
    return workload(get_net(batch_size, random_len, oshape, ngf, dtype))
