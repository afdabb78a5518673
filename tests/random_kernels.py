"""Random kernels: one heavy operator with random sizes and attributes, and what may be fused behind it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright import relay
from tilewright.relay import nn
from tilewright.relay.expr import Constant, Expr, Function, Var, const, var

Array = np.ndarray[Any, Any]


@dataclass
class Kernel:
    """A function of `arrays`; weights are constants or parameters, by chance."""

    function: Function
    arrays: list[Array]


class Maker:
    """Makes one kernel from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.params: list[Var] = []
        self.arrays: list[Array] = []
        self.constant_weights = self.random.random() < 0.75

    def make(self, what: Callable[[Maker], Expr]) -> Kernel:
        body = what(self)
        return Kernel(Function(tuple(self.params), body), self.arrays)

    def size(self, most: int) -> int:
        return self.random.randint(1, most)

    def pick(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def array(self, shape: tuple[int, ...], dtype: str = "float32") -> Array:
        if dtype == "float32":
            return self.numbers.standard_normal(shape, np.float32)
        return self.numbers.integers(-50 if dtype == "int8" else 0, 50, shape).astype(dtype)

    def input(self, *shape: int, dtype: str = "float32") -> Var:
        v = var(f"x{len(self.params)}", shape=shape, dtype=dtype)
        self.params.append(v)
        self.arrays.append(self.array(shape, dtype))
        return v

    def weight(self, *shape: int, dtype: str = "float32") -> Expr:
        return Constant(self.array(shape, dtype)) if self.constant_weights else self.input(*shape, dtype=dtype)

    def bias(self, x: Expr, axis: int) -> Expr:
        shape = x.tensor_type.shape
        return relay.add(x, self.weight(*(d if k == axis % len(shape) else 1 for k, d in enumerate(shape))))

    def epilogue(self, x: Expr, axis: int) -> Expr:
        """Nothing, or some of what networks have behind a product, in a random order; `axis` is that of the
        channels."""
        steps: list[Callable[[Expr], Expr]] = [
            lambda x: self.bias(x, axis),
            nn.relu,
            lambda x: relay.add(x, self.input(*x.tensor_type.shape)),
            lambda x: relay.clip(x, -1.0, 3.0),
            lambda x: relay.multiply(x, relay.sigmoid(x)),
            lambda x: relay.multiply(
                x,
                self.weight(*(x.tensor_type.shape[axis] if k == axis else 1 for k in range(len(x.tensor_type.shape))))
            ),
        ]
        for step in self.random.sample(steps, self.random.randrange(4)):
            x = step(x)
        return x


def convolution(m: Maker) -> Expr:
    """Any 2-d convolution: NCHW or NHWC, dense, grouped or depthwise with a multiplier."""
    kernel, strides, dilation = (m.size(4), m.size(4)), (m.size(3), m.size(3)), (m.pick(1, 1, 2), m.pick(1, 1, 2))
    padding = tuple(
        m.random.randrange(3) for _ in range(4)
    ) if m.random.random() < 0.5 else (m.random.randrange(3),) * 4
    height, width = ((k - 1) * d + 1 + m.random.randrange(14) for k, d in zip(kernel, dilation, strict=True))
    kind = m.pick("dense", "dense", "dense", "grouped", "depthwise")
    groups = 1 if kind == "dense" else m.pick(2, 3, 4) if kind == "grouped" else m.size(40)
    each = 1 if kind == "depthwise" else m.size(20)
    made = groups * (m.pick(1, 1, 2, 3) if kind == "depthwise" else m.size(40) if kind == "dense" else m.size(9))
    batch, channels = m.size(3), groups * each
    common = {
        "strides": strides, "padding": padding, "dilation": dilation, "groups": groups, "channels": made,
        "kernel_size": kernel
    }
    if m.random.random() < 0.7:
        y = nn.conv2d(m.input(batch, channels, height, width), m.weight(made, each, *kernel), **common)
        return m.epilogue(y, 1)
    layout = m.pick("HWIO", "OHWI")
    shape = (*kernel, each, made) if layout == "HWIO" else (made, *kernel, each)
    y = nn.conv2d(
        m.input(batch, height, width, channels), m.weight(*shape), data_layout="NHWC", kernel_layout=layout, **common
    )
    return m.epilogue(y, 3)


def pointwise(m: Maker) -> Expr:
    """A convolution with a kernel of one element: a matrix product."""
    batch, channels, made = m.size(3), m.size(70), m.size(70)
    strides = m.pick((1, 1), (1, 1), (2, 2))
    y = nn.conv2d(
        m.input(batch, channels, m.size(15), m.size(15)), m.weight(made, channels, 1, 1), strides=strides,
        kernel_size=(1, 1), channels=made
    )
    return m.epilogue(y, 1)


def integer_convolution(m: Maker) -> Expr:
    """Bytes in, 32 bits out: exact."""
    channels, made, data = m.size(12), m.size(20), m.pick("int8", "uint8")
    x = m.input(m.size(2), channels, 2 + m.size(8), 2 + m.size(8), dtype=data)
    return nn.conv2d(
        x, m.weight(made, channels, 3, 3, dtype="int8"), padding=(1, 1), kernel_size=(3, 3), channels=made,
        out_dtype="int32"
    )


def transposed(m: Maker) -> Expr:
    """A transposed convolution."""
    channels, made, kernel, strides = m.size(9), m.size(20), (m.size(4), m.size(4)), (m.size(3), m.size(3))
    extra = tuple(m.random.randrange(s) for s in strides)
    padding = tuple(m.random.randrange((k + 1) // 2) for k in kernel)
    x = m.input(m.size(2), channels, 2 + m.size(7), 2 + m.size(7))
    y = nn.conv2d_transpose(
        x, m.weight(channels, made, *kernel), strides=strides, padding=padding, output_padding=extra,
        kernel_size=kernel, channels=made
    )
    return m.epilogue(y, 1)


def conv1d(m: Maker) -> Expr:
    """A convolution over sequences."""
    channels, made, kernel = m.size(12), m.size(20), m.size(5)
    x = m.input(m.size(3), channels, kernel + m.size(20))
    y = nn.conv1d(
        x, m.weight(made, channels, kernel), strides=m.size(2), padding=(m.random.randrange(2),) * 2,
        kernel_size=kernel, channels=made
    )
    return m.epilogue(y, 1)


def dense(m: Maker) -> Expr:
    """A matrix product with odd sizes and a weight."""
    rows, depth, columns = m.pick(1, m.size(40)), m.size(130), m.size(90)
    if m.random.random() < 0.5:
        return m.epilogue(nn.dense(m.input(rows, depth), m.weight(columns, depth)), 1)
    return m.epilogue(nn.dense(m.input(m.size(3), rows, depth), m.weight(columns, depth)), 2)


def matmul(m: Maker) -> Expr:
    """A matrix product, either side transposed."""
    rows, depth, columns, a, b = m.size(40), m.size(60), m.size(60), m.pick(False, True), m.pick(False, True)
    x, w = m.input(*((depth, rows) if a else (rows, depth))), m.weight(*((columns, depth) if b else (depth, columns)))
    return m.epilogue(nn.matmul(x, w, transpose_a=a, transpose_b=b), 1)


def batch_matmul(m: Maker) -> Expr:
    """Products of pairs of matrices; one side may be one matrix for all."""
    batch, rows, depth, columns = m.size(5), m.size(30), m.size(40), m.size(40)
    a, b = m.pick(False, True), m.pick(False, True)
    left, right = m.pick((batch, batch), (batch, batch), (batch, 1), (1, batch))
    x, w = m.input(left, *((depth, rows) if a else (rows, depth))), m.input(
        right, *((columns, depth) if b else (depth, columns))
    )
    return m.epilogue(nn.batch_matmul(x, w, transpose_a=a, transpose_b=b), 2)


def pool(m: Maker) -> Expr:
    """Pooling, rounding either way."""
    size, strides, dilation = (m.size(4), m.size(4)), (m.size(3), m.size(3)), m.pick((1, 1), (1, 1), (2, 1))
    padding = tuple(m.random.randrange(s) // 2 for s in (*size, *size))
    height, width = ((s - 1) * d + 1 + m.random.randrange(12) for s, d in zip(size, dilation, strict=True))
    layout = m.pick("NCHW", "NCHW", "NHWC")
    x = m.input(m.size(2), *((m.size(20), height, width) if layout == "NCHW" else (height, width, m.size(20))))
    options = {
        "strides": strides, "dilation": dilation, "padding": padding, "layout": layout, "ceil_mode": m.pick(False, True)
    }
    y = nn.max_pool2d(x, size, **options) if m.random.random() < 0.5 else nn.avg_pool2d(
        x, size, count_include_pad=m.pick(False, True), **options
    )
    return m.epilogue(y, 1 if layout == "NCHW" else 3)


def window(m: Maker) -> Expr:
    """A small window down many channels, of images large enough for rows and tiles without an edge; or so many channels
    that they crowd the cache."""
    kernel, strides = (m.pick(1, 3, 3, 5, 7), m.pick(2, 3, 3, 5)), (m.pick(1, 1, 2, 3), m.pick(1, 1, 2, 3))
    dilation, padding = (m.pick(1, 1, 2), m.pick(1, 1, 1, 3)), tuple(m.random.randrange(k) for k in (*kernel, *kernel))
    channels = m.pick(m.size(70), m.size(70), 128, 512, 1024)
    height, width = ((k - 1) * d + m.size(30 if channels <= 128 else 9) for k, d in zip(kernel, dilation, strict=True))
    batch = m.pick(1, 1, 2)
    x = m.input(batch, height, width, channels)
    what = m.pick("depthwise", "depthwise", "max", "mean")
    if what == "depthwise":
        options = {
            "strides": strides, "padding": padding, "dilation": dilation, "groups": channels, "channels": channels,
            "kernel_size": kernel
        }
        y = nn.conv2d(x, m.weight(*kernel, channels, 1), data_layout="NHWC", kernel_layout="HWOI", **options)
    else:
        padding = tuple(min(p, k // 2) for p, k in zip(padding, (*kernel, *kernel), strict=True))
        pooling = nn.max_pool2d if what == "max" else nn.avg_pool2d
        y = pooling(x, kernel, strides=strides, dilation=dilation, padding=padding, layout="NHWC")
    return m.epilogue(y, 3)


def shape_of(m: Maker, most: int = 4, elements: int = 3000) -> tuple[int, ...]:
    """A random shape."""
    shape: list[int] = []
    for _ in range(m.size(most)):
        shape.append(m.size(max(1, min(37, elements // int(np.prod(shape, dtype=int))))))
    return tuple(m.random.sample(shape, len(shape)))


def normalise(m: Maker) -> Expr:
    """Softmax and the norms, over each axis."""
    shape = shape_of(m)
    axis = m.random.randrange(-len(shape), len(shape))
    x = m.input(*shape)
    kind = m.pick("softmax", "log_softmax", "layer_norm", "l2")
    if kind == "layer_norm":
        return nn.relu(nn.layer_norm(x, m.weight(shape[axis]), m.weight(shape[axis]), axis=axis))
    if kind == "l2":
        return nn.l2_normalize(x, 1e-3, (axis,))
    y = nn.softmax(x, axis=axis) if kind == "softmax" else nn.log_softmax(x, axis=axis)
    return relay.multiply(y, const(np.float32(2)))


def reduction(m: Maker) -> Expr:
    """A reduction over any set of axes, with something before and behind it."""
    shape = shape_of(m)
    axes = m.random.sample(range(len(shape)), m.size(len(shape)))
    x = m.input(*shape)
    made = m.pick(relay.sum, relay.mean, relay.max, relay.min, relay.argmax, relay.argmin)
    if made in (relay.argmax, relay.argmin):
        place: Expr = made(x, axis=axes[:1], keepdims=m.pick(False, True))
        return place
    y = made(relay.multiply(x, x) if m.random.random() < 0.4 else x, axis=axes, keepdims=m.pick(False, True))
    return nn.relu(y) if m.random.random() < 0.4 else y


def movement(m: Maker) -> Expr:
    """Elements change places: transposes, parts, sums of parts, borders."""
    shape = shape_of(m)
    x: Expr = m.input(*shape)
    for _ in range(m.size(3)):
        shape = x.tensor_type.shape
        axis = m.random.randrange(len(shape))
        match m.random.randrange(6):
            case 0:
                x = relay.transpose(x, axes=m.random.sample(range(len(shape)), len(shape)))
            case 1:
                more = m.input(*(m.size(5) if k == axis else d for k, d in enumerate(shape)))
                x = relay.concatenate((x, nn.relu(x), more), axis=axis)
            case 2:
                begin = m.random.randrange(shape[axis])
                x = relay.strided_slice(
                    x, (begin,), (m.random.randint(begin + 1, shape[axis]),), (m.pick(1, 2),), (axis,)
                )
            case 3:
                x = nn.pad(x, [(m.random.randrange(3), m.random.randrange(3)) for _ in shape])
            case 4:
                x = relay.reshape(x, newshape=(-1, shape[-1])) if len(shape) > 1 else relay.expand_dims(x, axis=0)
            case _:
                parts = m.random.randint(1, shape[axis])
                x = relay.split(
                    x, sorted(m.random.sample(range(1, shape[axis]), parts - 1)), axis=axis
                )[m.random.randrange(parts)]
    return relay.add(x, const(np.float32(1))) if m.random.random() < 0.5 else x


KINDS: dict[str, tuple[Callable[[Maker], Expr], int]] = {
    "convolution": (convolution, 60), "pointwise": (pointwise, 20), "integer_convolution": (integer_convolution, 8),
    "transposed": (transposed, 12),
    "conv1d": (conv1d, 8), "dense": (dense, 16), "matmul": (matmul, 12), "batch_matmul": (batch_matmul, 16),
    "pool": (pool, 20), "window": (window, 50),
    "normalise": (normalise, 24), "reduction": (reduction, 30), "movement": (movement, 30),
}
"""Each kind, and how many of it are tried."""
