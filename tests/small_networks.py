"""Small networks of several kinds, for tests that compile many of them at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import tilewright as tvm
from tilewright import relay
from tilewright.relay.expr import Expr


def _weights(seed: int, *shape: int) -> Expr:
    return relay.const((np.random.default_rng(seed).standard_normal(shape) * 0.1).astype(np.float32))


def _conv(seed: int) -> tvm.IRModule:
    x = relay.var("x", shape=(1, 3, 8 + seed % 5, 8))
    y = relay.nn.relu(relay.nn.conv2d(x, _weights(seed, 4 + seed % 4, 3, 3, 3), padding=(1, 1)))
    return tvm.IRModule.from_expr(relay.Function([x], relay.nn.global_avg_pool2d(y)))


def _mlp(seed: int) -> tvm.IRModule:
    x = relay.var("x", shape=(1 + seed % 3, 16))
    y = relay.nn.relu(relay.nn.dense(x, _weights(seed, 24, 16)))
    return tvm.IRModule.from_expr(relay.Function([x], relay.nn.softmax(relay.nn.dense(y, _weights(seed, 10, 24)))))


def _attention(seed: int) -> tvm.IRModule:
    x = relay.var("x", shape=(1, 4 + seed % 4, 8))
    scores = relay.nn.softmax(relay.nn.batch_matmul(x, x) * relay.const(0.35))
    return tvm.IRModule.from_expr(relay.Function([x], relay.nn.batch_matmul(scores, relay.transpose(x, (0, 2, 1)))))


def _int8(seed: int) -> tvm.IRModule:
    x = relay.var("x", shape=(1, 8 + seed % 4))
    scale, zero = relay.const(0.05), relay.const(0)
    y = relay.qnn.op.quantize(x, scale, zero, out_dtype="int8")
    return tvm.IRModule.from_expr(relay.Function([x], relay.qnn.op.dequantize(y, scale, zero)))


def _branches(seed: int) -> tvm.IRModule:
    return relay.parse(
        f'#[version = "0.0.5"]\ndef @main(%c: bool, %x: Tensor[({4 + seed % 5}), float32]) {{ if (%c) {{ tanh(%x) }} '
        f'else {{ add(%x, %x) }} }}'
    )


def _gather(seed: int) -> tvm.IRModule:
    x = relay.var("x", shape=(16 + seed % 3,))
    found = relay.take(_weights(seed, 64), relay.cast(x, "int64"), mode="clip")
    return tvm.IRModule.from_expr(relay.Function([x], relay.where(relay.greater(x, found), found, x)))


KINDS: tuple[Callable[[int], tvm.IRModule], ...] = (_conv, _mlp, _attention, _int8, _branches, _gather)
"""Makers of small networks by a seed, which decides sizes and weights."""
