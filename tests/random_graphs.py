"""Random relay graphs: elementwise, broadcasting, movement, reduction, image operators and products, with shared
values."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from tilewright import relay
from tilewright.relay.expr import Expr, Function, Tuple, TupleGetItem, const, var

SHAPE = (1, 4, 6, 8)


class Graph:
    """One graph as it grows; `values` are what the next call may read."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.params = (var("x", shape=SHAPE), var("y", shape=SHAPE))
        self.values: list[Expr] = list(self.params)

    def function(self, length: int) -> Function:
        steps = [
            self.unary, self.binary, self.bias, self.scale, self.transpose, self.reshape, self.concatenate, self.reduce,
            self.split,
                 self.convolution, self.convolution, self.pool, self.product, self.gate]
        for _ in range(length):
            value = self.random.choice(steps)(self.random.choice(self.values[-5:]))
            if value is not None and value.tensor_type.size <= 4000:
                self.values.append(value)
        results = (*self.random.sample(self.values, 2), self.values[-1])
        return Function(self.params, Tuple(results))

    def weights(self, *shape: int) -> relay.Constant:
        return const((self.numbers.standard_normal(shape) / 3).astype("float32"))

    def unary(self, a: Expr) -> Expr:
        return self.random.choice([relay.nn.relu, relay.tanh, relay.sigmoid, relay.abs, relay.negative])(a)

    def binary(self, a: Expr) -> Expr:
        other = self.random.choice([v for v in self.values if v.known_type() == a.known_type()])
        return self.random.choice([relay.add, relay.multiply, relay.subtract, relay.maximum])(a, other)

    def bias(self, a: Expr) -> Expr:
        shape = [d if self.random.random() < 0.5 else 1 for d in a.tensor_type.shape]
        return self.random.choice([relay.add, relay.multiply])(
            a, self.weights(*shape[self.random.randrange(len(shape)) :])
        )

    def scale(self, a: Expr) -> Expr:
        return self.random.choice([relay.multiply, relay.divide])(a, const(self.random.choice([1.0, 2.0, 3.0])))

    def transpose(self, a: Expr) -> Expr:
        axes = list(range(a.tensor_type.ndim))
        self.random.shuffle(axes)
        return relay.transpose(a, axes=axes)

    def reshape(self, a: Expr) -> Expr:
        shape = list(a.tensor_type.shape)
        if len(shape) > 2 and self.random.random() < 0.5:
            at = self.random.randrange(len(shape) - 1)
            return relay.reshape(a, newshape=(*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :]))
        if len(shape) < 5 and self.random.random() < 0.3:
            return relay.expand_dims(a, axis=self.random.randrange(len(shape) + 1))
        self.random.shuffle(shape)
        return relay.reshape(a, newshape=shape)

    def concatenate(self, a: Expr) -> Expr:
        return relay.concatenate((a, relay.nn.relu(a)), axis=self.random.randrange(a.tensor_type.ndim))

    def reduce(self, a: Expr) -> Expr:
        return relay.sum(a, axis=[self.random.randrange(a.tensor_type.ndim)], keepdims=True)

    def split(self, a: Expr) -> Expr | None:
        axis = self.random.randrange(a.tensor_type.ndim)
        if a.tensor_type.shape[axis] % 2:
            return None
        parts = relay.split(a, indices_or_sections=2, axis=axis)
        return relay.add(TupleGetItem(parts, 0), TupleGetItem(parts, 1))

    def convolution(self, a: Expr) -> Expr | None:
        if a.tensor_type.ndim != 4 or min(a.tensor_type.shape[2:]) < 2:
            return None
        channels = a.tensor_type.shape[1]
        if self.random.random() < 0.3:
            return relay.nn.conv2d(
                a, self.weights(channels, 1, 3, 3), kernel_size=(3, 3), channels=channels, groups=channels,
                padding=(1, 1)
            )
        made = self.random.choice([channels, 4])
        if self.random.random() < 0.3:
            a = relay.nn.pad(a, ((0, 0), (0, 0), (1, 1), (1, 1)))
            return relay.nn.conv2d(a, self.weights(made, channels, 3, 3), kernel_size=(3, 3), channels=made)
        return relay.nn.conv2d(a, self.weights(made, channels, 1, 1), kernel_size=(1, 1), channels=made)

    def pool(self, a: Expr) -> Expr | None:
        if a.tensor_type.ndim != 4:
            return None
        if self.random.random() < 0.5:
            return relay.nn.global_avg_pool2d(a)
        return relay.nn.max_pool2d(a, pool_size=(3, 3), strides=(1, 1), padding=(1, 1))

    def product(self, a: Expr) -> Expr:
        shape = a.tensor_type.shape
        flat = relay.reshape(a, newshape=(-1, shape[-1]))
        return relay.reshape(relay.nn.dense(flat, self.weights(shape[-1], shape[-1])), newshape=shape)

    def gate(self, a: Expr) -> Expr:
        return relay.multiply(a, relay.sigmoid(a))


def inputs(seed: int = 0) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(SHAPE).astype("float32") for _ in range(2)]
