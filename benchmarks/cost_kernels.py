"""The kernels that the shipped cost model learns from: operators of networks, in sizes that networks have.

Each is a module of one convolution, product, pool or reduction with what is usually fused behind it. The sizes are
drawn from lists by a fixed seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from tilewright import relay
from tilewright.ir.module import IRModule

Draw = random.Random
_CHANNELS: Final = (16, 24, 32, 40, 48, 64, 96, 112, 128, 160, 192, 256, 320, 384, 512)
_SIDES: Final = (7, 10, 14, 20, 28, 40, 56, 80, 112)


def _constant(shape: tuple[int, ...], dtype: str = "float32") -> Any:
    rng = np.random.default_rng(0)
    return relay.const(
        rng.standard_normal(shape).astype(dtype) if dtype == "float32" else rng.integers(-64, 63, shape).astype(dtype)
    )


def _input(shape: tuple[int, ...], dtype: str = "float32") -> Any:
    return relay.var("x", shape=shape, dtype=dtype)


def _module(x: Any, body: Any) -> IRModule:
    return IRModule.from_expr(relay.Function([x], body))


def _convolution(draw: Draw, kernel: int) -> IRModule:
    """Of at most 400 million multiplications, so that no trial takes long."""
    while True:
        ci, co, side, stride = (
            draw.choice(_CHANNELS), draw.choice(_CHANNELS), draw.choice(_SIDES), draw.choice((1, 1, 2))
        )
        if ci * co * (side // stride) ** 2 * kernel * kernel < 4e8:
            break
    if draw.random() < 0.1:
        ci = 3
    x = _input((1, ci, side, side))
    body = relay.nn.conv2d(
        x, _constant((co, ci, kernel, kernel)), strides=(stride, stride), padding=(kernel // 2, kernel // 2),
        channels=co, kernel_size=(kernel, kernel)
    )
    body = relay.nn.bias_add(body, _constant((co,)))
    return _module(x, relay.nn.relu(body) if draw.random() < 0.7 else body)


def _depthwise(draw: Draw) -> IRModule:
    c, side, kernel, stride = draw.choice(_CHANNELS), draw.choice(_SIDES), draw.choice(
        (3, 3, 5, 7)
    ), draw.choice((1, 1, 2))
    x = _input((1, c, side, side))
    body = relay.nn.conv2d(
        x, _constant((c, 1, kernel, kernel)), strides=(stride, stride), padding=(kernel // 2, kernel // 2), channels=c,
        kernel_size=(kernel, kernel), groups=c,
    )
    return _module(x, relay.clip(relay.nn.bias_add(body, _constant((c,))), 0.0, 6.0))


def _dense(draw: Draw) -> IRModule:
    rows, depth, columns = draw.choice(
        (1, 4, 16, 49, 64, 128, 197, 384)
    ), draw.choice((128, 256, 384, 512, 768, 1024)), draw.choice((64, 128, 256, 384, 512, 768, 1000))
    x = _input((rows, depth))
    body = relay.nn.bias_add(relay.nn.dense(x, _constant((columns, depth))), _constant((columns,)))
    return _module(x, relay.nn.relu(body) if draw.random() < 0.5 else body)


def _batched(draw: Draw) -> IRModule:
    heads, rows, depth, columns = draw.choice((2, 4, 8, 12)), draw.choice(
        (32, 64, 128, 197)
    ), draw.choice((32, 64, 128)), draw.choice((32, 64, 128, 197))
    x, y = _input((heads, rows, depth)), relay.var("y", shape=(heads, columns, depth))
    return IRModule.from_expr(relay.Function([x, y], relay.nn.batch_matmul(x, y)))


def _pool(draw: Draw) -> IRModule:
    c, side, size = draw.choice(_CHANNELS), draw.choice(_SIDES), draw.choice((2, 3))
    x = _input((1, c, side, side))
    made = draw.choice((relay.nn.max_pool2d, relay.nn.avg_pool2d))
    return _module(x, made(x, pool_size=(size, size), strides=(2, 2), padding=(size // 2, size // 2)))


def _rows(draw: Draw) -> IRModule:
    n, width = draw.choice((16, 64, 197, 384, 1024)), draw.choice((64, 128, 197, 256, 384, 768, 1024))
    x = _input((n, width))
    if draw.random() < 0.5:
        return _module(x, relay.nn.softmax(x, axis=-1))
    return _module(x, relay.nn.layer_norm(x, _constant((width,)), _constant((width,))))


def _bytes(draw: Draw) -> IRModule:
    kernel = draw.choice((1, 1, 3))
    while True:
        ci, co, side = draw.choice(_CHANNELS[2:]), draw.choice(_CHANNELS), draw.choice(_SIDES)
        if ci * co * side**2 * kernel * kernel < 4e8:
            break
    x = _input((1, ci, side, side), "uint8")
    body = relay.nn.conv2d(
        x, _constant((co, ci, kernel, kernel), "int8"), padding=(kernel // 2, kernel // 2), channels=co,
        kernel_size=(kernel, kernel), out_dtype="int32",
    )
    return _module(x, body)


FAMILIES: Final[dict[str, tuple[Callable[[Draw], IRModule], int]]] = {
    "conv1x1": (lambda draw: _convolution(draw, 1), 18),
    "conv3x3": (lambda draw: _convolution(draw, 3), 18),
    "conv5x5": (lambda draw: _convolution(draw, 5), 5),
    "depthwise": (_depthwise, 12),
    "dense": (_dense, 12),
    "batched": (_batched, 6),
    "pool": (_pool, 6),
    "rows": (_rows, 8),
    "bytes": (_bytes, 8),
}
"""What makes a module, and how many of them are drawn."""


def modules(seed: int = 0) -> Iterator[tuple[str, IRModule]]:
    """The family and the module of each kernel, families in turns."""
    draws = {name: random.Random(f"{seed} {name}") for name in FAMILIES}
    for k in range(max(count for _, count in FAMILIES.values())):
        for name, (make, count) in FAMILIES.items():
            if k < count:
                yield name, make(draws[name])
