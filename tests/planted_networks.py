"""Small networks that mistakes are planted for: each has what the passes and kernels with the mistakes work on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

import tilewright as tvm
from tilewright import relay
from tilewright.driver.diagnosis.case import Case


def _weights(random: np.random.Generator, *shape: int) -> Any:
    return relay.const(random.uniform(-0.5, 0.5, shape).astype("float32"))


def image(random: np.random.Generator) -> tuple[list[Any], Any]:
    """Convolutions with scales, biases and padding, pools, and a product."""
    x = relay.var("x", shape=(1, 3, 12, 12))
    scale, shift = _weights(random, 8), _weights(random, 8)
    y: relay.Expr = relay.nn.conv2d(x, _weights(random, 8, 3, 3, 3), kernel_size=(3, 3), channels=8, padding=(1, 1))
    y = relay.nn.batch_norm(y, scale, shift, shift, relay.const(random.uniform(0.5, 1, 8).astype("float32")))[0]
    y = relay.nn.relu(y)
    y = relay.nn.conv2d(
        relay.nn.pad(y, ((0, 0), (0, 0), (1, 2), (1, 1))), _weights(random, 8, 8, 3, 3), kernel_size=(3, 3), channels=8
    )
    y = relay.nn.relu(relay.nn.bias_add(y, _weights(random, 8)))
    pooled = relay.nn.max_pool2d(y, (3, 3), (2, 2), padding=(1, 1))
    mean = relay.nn.avg_pool2d(y, (3, 3), (2, 2), padding=(1, 1))
    y = relay.concatenate([pooled, mean], axis=1)
    y = relay.nn.dense(relay.nn.batch_flatten(y), _weights(random, 10, 16 * 7 * 6), units=10)
    return [x], relay.sigmoid(relay.nn.bias_add(y, _weights(random, 10)))


def elementwise(random: np.random.Generator) -> tuple[list[Any], Any]:
    """Arithmetic, moves, conversions, and constants that are known while compiling."""
    x, z = relay.var("x", shape=(5, 37)), relay.var("z", shape=(5, 37))
    half = relay.add(relay.const(np.float32(0.25)), relay.const(np.float32(0.5)))
    y = relay.multiply(relay.subtract(x, z), relay.const(np.float32(1.5)))
    y = relay.maximum(relay.tanh(y), relay.multiply(relay.exp(z), half))
    turned = relay.transpose(relay.transpose(relay.reshape(y, (5, 1, 37)), (2, 0, 1)), (1, 2, 0))
    y = relay.add(relay.reshape(turned, (5, 37)), relay.sum(x, axis=1, keepdims=True))
    y = relay.divide(y, relay.const(np.float32(4)))
    whole = relay.cast(relay.round(relay.multiply(y, relay.const(np.float32(10)))), "int32")
    parts = relay.split(y, 37, axis=1)
    picked = relay.add(
        relay.divide(parts[3], relay.add(relay.abs(parts[5]), relay.const(np.float32(1)))),
        relay.log(relay.add(relay.abs(parts[30]), half))
    )
    counts = relay.floor_divide(whole, relay.const(np.int32(3)))
    taken = relay.take(y, relay.const(np.array([4, 0, 2], "int64")), axis=0)
    return [x, z], relay.Tuple([y, counts, picked, relay.cumsum(taken, axis=1), relay.argmax(y, axis=1)])


def sequence(random: np.random.Generator) -> tuple[list[Any], Any]:
    """A layer of attention, with a norm, residuals, and a gate that is computed twice."""
    x = relay.var("x", shape=(1, 6, 16))
    n = relay.nn.layer_norm(x, _weights(random, 16), _weights(random, 16))

    def heads() -> Any:
        rows = relay.nn.dense(relay.reshape(n, (6, 16)), _weights(random, 16, 16), units=16)
        return relay.transpose(relay.reshape(relay.nn.bias_add(rows, _weights(random, 16)), (6, 2, 8)), (1, 0, 2))

    q, k, v = heads(), heads(), heads()
    scores = relay.nn.softmax(relay.multiply(relay.nn.batch_matmul(q, k), relay.const(np.float32(2.5))))
    mixed = relay.nn.batch_matmul(scores, v, transpose_b=False)
    y = relay.reshape(relay.transpose(mixed, (1, 0, 2)), (1, 6, 16))
    y = relay.add(y, x)
    y = relay.multiply(relay.sum(y, axis=1, keepdims=True), relay.add(y, relay.sum(y, axis=2, keepdims=True)))
    wide = relay.nn.dense(relay.reshape(y, (6, 16)), _weights(random, 23, 16), units=23)
    return [x], relay.add(relay.reshape(wide, (1, 6, 23)), relay.reshape(_weights(random, 23), (1, 1, 23)))


def quantized(random: np.random.Generator) -> tuple[list[Any], Any]:
    """A quantized convolution and what brings its sums back to bytes."""
    x = relay.var("x", shape=(1, 8, 9, 9))
    zero, byte = relay.const(np.int32(0)), relay.const(np.int32(12))
    one, small = relay.const(np.float32(0.01)), relay.const(np.float32(0.004))
    q = relay.qnn.op.quantize(x, one, byte, out_dtype="uint8")
    w = relay.const(random.integers(-100, 100, (16, 8, 3, 3)).astype("int8"))
    y = relay.qnn.op.conv2d(q, w, byte, zero, one, small, kernel_size=(3, 3), channels=16, padding=(1, 1))
    y = relay.nn.bias_add(y, relay.const(random.integers(-900, 900, 16).astype("int32")))
    y = relay.qnn.op.requantize(
        y, relay.const(np.float32(0.00004)), zero, relay.const(np.float32(0.02)), byte, out_dtype="uint8"
    )
    return [x], relay.nn.max_pool2d(
        relay.nn.relu(relay.qnn.op.dequantize(y, relay.const(np.float32(0.02)), byte)), (2, 2), (2, 2)
    )


NETWORKS: Final[
    dict[str, Callable[[np.random.Generator], tuple[list[Any], Any]]]
] = {f.__name__: f for f in (image, elementwise, sequence, quantized)}


def network(name: str) -> Case:
    """A network with its inputs."""
    random = np.random.default_rng(7)
    params, body = NETWORKS[name](random)
    module = tvm.transform.Sequential([relay.transform.InferType()])(
        tvm.IRModule.from_expr(relay.Function(params, body))
    )
    return Case(
        module, tuple(random.uniform(-1, 1, p.checked_type.shape).astype("float32") for p in module["main"].params)
    )
