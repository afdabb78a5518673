"""The CPU strategies: the algorithm that computes an operator, and the schedule of its kernel.

Each strategy takes an operator, the options of the compilation, and its tensors. Operators without a strategy are
computed by their plain definition, `Op.compute`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright import te
from tilewright.backends.base import Strategies, Strategy
from tilewright.backends.cpu.strategies import attention, conv, products
from tilewright.backends.cpu.strategies.winograd_choice import winograd_setting
from tilewright.relay.op.nn_attention import Attention
from tilewright.relay.op.nn_conv import Conv
from tilewright.relay.op.nn_matmul import BatchMatmul, Dense, Matmul, product_dtype
from tilewright.relay.op.nn_pool import AvgPool, MaxPool
from tilewright.topi import channel_blocks


@dataclass(frozen=True, slots=True)
class ConvOptions:
    """Options of convolutions: `winograd_tiles` selects tiles of Winograd's algorithm: "off", "2x2", "4x4" or "auto".
    """

    winograd_tiles: str

    @staticmethod
    def current() -> ConvOptions:
        """Return the options of the current pass context."""
        return ConvOptions(winograd_setting())


def _dense(op: Dense, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
    return products.dense(data, weight, product_dtype(data.dtype, weight.dtype, op.out_dtype))


def _matmul(op: Matmul, a: te.Tensor, b: te.Tensor) -> te.Tensor:
    return products.matmul(a, b, op.transpose_a, op.transpose_b, product_dtype(a.dtype, b.dtype, op.out_dtype))


def _batch_matmul(op: BatchMatmul, a: te.Tensor, b: te.Tensor) -> te.Tensor:
    return products.batch_matmul(a, b, op.transpose_a, op.transpose_b, product_dtype(a.dtype, b.dtype, op.out_dtype))


def _blocked_conv(op: Conv, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
    return channel_blocks.conv(data, weight, *op.window(data, weight))


def _conv(op: Conv, data: te.Tensor, weight: te.Tensor, options: ConvOptions) -> te.Tensor:
    return conv.conv(data, weight, *op.window(data, weight), options.winograd_tiles)


def _attention(
    op: Attention, query: te.Tensor, key: te.Tensor, value: te.Tensor, mask: te.Tensor | None = None
) -> te.Tensor:
    heads = attention.Heads(op.heads, op.size, op.width, op.starts)
    return attention.attention(query, key, value, mask, heads, op.factor(), op.causal)


def _pool(op: MaxPool | AvgPool, data: te.Tensor) -> te.Tensor:
    return op.pooled(data, True)


def add_strategies(strategies: Strategies) -> None:
    """Register the CPU strategies."""
    strategies.register(Dense, Strategy("register tiles", _dense))
    strategies.register(Matmul, Strategy("register tiles", _matmul))
    strategies.register(BatchMatmul, Strategy("register tiles", _batch_matmul))
    strategies.register(Conv, Strategy("tiles along rows", _conv, options=ConvOptions.current))
    strategies.register(Conv, Strategy("blocks of channels", _blocked_conv, accepts=lambda op, *_: op.blocked))
    strategies.register(MaxPool, Strategy("windows", _pool))
    strategies.register(AvgPool, Strategy("windows", _pool))
    strategies.register(Attention, Strategy("blocks of queries", _attention))
