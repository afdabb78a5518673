"""The CPU strategies: the algorithm that computes an operator, and the schedule of its kernel.

Each strategy takes an operator, the options of its kernel, and its tensors. Operators that are not listed here are
computed by their plain definition, `Op.compute`.
"""

from __future__ import annotations

from functools import partial

from tilewright import te
from tilewright.backends.base import Strategies, Strategy
from tilewright.backends.cpu.strategies import attention, conv, conv_transpose, pool, products
from tilewright.backends.kernel_options import KernelOptions
from tilewright.relay.op.nn_attention import Attention
from tilewright.relay.op.nn_conv import Conv, ConvTranspose, ordered
from tilewright.relay.op.nn_matmul import BatchMatmul, Dense, Matmul, product_dtype
from tilewright.relay.op.nn_pool import AvgPool, MaxPool
from tilewright.topi.layouts import channels_last


def _dense(op: Dense, options: KernelOptions, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
    return products.dense(data, weight, product_dtype(data.dtype, weight.dtype, op.out_dtype), options)


def _matmul(op: Matmul, options: KernelOptions, a: te.Tensor, b: te.Tensor) -> te.Tensor:
    dtype = product_dtype(a.dtype, b.dtype, op.out_dtype)
    return products.matmul(a, b, op.transpose_a, op.transpose_b, dtype, options)


def _batch_matmul(op: BatchMatmul, options: KernelOptions, a: te.Tensor, b: te.Tensor) -> te.Tensor:
    dtype = product_dtype(a.dtype, b.dtype, op.out_dtype)
    return products.batch_matmul(a, b, op.transpose_a, op.transpose_b, dtype, options)


def _conv(op: Conv, options: KernelOptions, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
    return conv.conv(data, weight, *op.window(data, weight), options)


def _without_overlap(op: ConvTranspose, options: KernelOptions, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
    dtype = product_dtype(data.dtype, weight.dtype, op.out_dtype)
    return conv_transpose.without_overlap(data, weight, op.axes()[1], dtype, options)


def _is_without_overlap(op: ConvTranspose, options: KernelOptions, data: te.Tensor, weight: te.Tensor) -> bool:
    """Whether channels are last, and each pixel makes a block of the result that no other pixel reaches."""
    last, out = channels_last(op.rank), op.out_layout or op.data_layout
    kernel = ordered(weight.extents, op.axes()[1])[2:]
    before, after = op.padding[: op.rank], op.padding[op.rank :]
    whole = not any(before) and tuple(after) == tuple(op.output_padding)
    plain = op.groups == 1 and all(d == 1 for d in op.dilation) and op.data_layout == out == last
    return plain and whole and tuple(op.strides) == kernel


def _attention(
    op: Attention, options: KernelOptions, query: te.Tensor, key: te.Tensor, value: te.Tensor,
    mask: te.Tensor | None = None, first: te.Tensor | None = None, last: te.Tensor | None = None,
) -> te.Tensor:
    heads = attention.Heads(op.heads, op.size, op.width, op.starts)
    ends = None if first is None or last is None else (first, last)
    return attention.attention(query, key, value, mask, ends, heads, op.factor(), op.causal, options)


def _max_pool(op: MaxPool, options: KernelOptions, data: te.Tensor) -> te.Tensor:
    return op.pooled(data, partial(pool.max_pool, options=options))


def _avg_pool(op: AvgPool, options: KernelOptions, data: te.Tensor) -> te.Tensor:
    return op.pooled(data, partial(pool.avg_pool, options=options))


def add_strategies(strategies: Strategies) -> None:
    """Register the CPU strategies."""
    strategies.register(Dense, Strategy("register tiles", _dense))
    strategies.register(Matmul, Strategy("register tiles", _matmul))
    strategies.register(BatchMatmul, Strategy("register tiles", _batch_matmul))
    strategies.register(Conv, Strategy("tiles along rows", _conv, accepts=lambda op, *_: not op.blocked))
    strategies.register(ConvTranspose, Strategy("blocks of pixels", _without_overlap, accepts=_is_without_overlap))
    strategies.register(MaxPool, Strategy("windows", _max_pool))
    strategies.register(AvgPool, Strategy("windows", _avg_pool))
    strategies.register(Attention, Strategy("blocks of queries", _attention))
