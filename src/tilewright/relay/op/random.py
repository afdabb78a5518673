"""Random numbers from a Threefry generator, whose state is a tensor: equal states give equal numbers."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import DataType, TensorType, TupleType, Type
from tilewright.relay.op.registry import Array, Fusion, Op, attributes, op, tensors
from tilewright.topi import drawing as topi
from tilewright.topi.shapes import product, require_static

STATE = TensorType((topi.STATE,), "uint64")


def _state(key: Type) -> TensorType:
    t = tensors(key)[0]
    if t != STATE:
        raise ShapeError(f"a generator's state must be {STATE!r}, but got {t!r}; make one with "
                         "relay.random.threefry_key(seed)")
    return t


def _hash(key: Array, counter: Array) -> Array:
    """The Threefry hash of `counter` (numbers, 4) under `key` (4,)."""
    whole = np.append(key, np.bitwise_xor.reduce(np.append(key, np.uint64(topi.PARITY))))
    x = counter.astype(np.uint64)
    for step in range(topi.ROUNDS // 4):
        x = x + whole[(step + np.arange(4)) % 5] + np.asarray([0, 0, 0, step], np.uint64)
        for turn in range(4):
            by = np.asarray(topi.ROTATIONS[(step * 4 + turn) % 8], np.uint64)
            low, high = x[:, ::2], x[:, 1::2]
            total = low + high
            mixed = total ^ ((high << by) | (high >> (np.uint64(64) - by)))
            x = np.stack([total[:, 0], mixed[:, 1], total[:, 1], mixed[:, 0]], 1)
    return x


def _next_place(state: Array) -> list[int]:
    place = ((int(state[8]) << 64) | int(state[9])) >> 1
    return [place >> 64, place & topi.FULL]


def _words(state: Array, count: int) -> tuple[Array, Array]:
    """The next state, and `count` random words."""
    at = state.copy()
    if int(state[7]) >= topi.FULL - count:
        if not state[8] and not state[9]:
            at[:4], at[4:] = (_hash(state[:4], np.full((1, 4), topi.FULL, np.uint64))[0],
                              np.asarray([0, 0, 0, 0, 1 << 63, 0], np.uint64))
        else:
            at[4:6], at[6:8], at[8:] = state[4:6] | state[8:], 0, np.asarray(_next_place(state), np.uint64)
    words = _hash(at[:4], at[4:8] + np.arange(count // 4, dtype=np.uint64)[:, None])
    after = at.copy()
    after[6], after[7] = 0, at[7] + np.uint64(count)
    return after, words.reshape(-1)


def _unit(words: Array, dtype: str) -> Array:
    digits = 52 if dtype == "float64" else 23
    return ((words >> np.uint64(64 - digits)) * 2.0**-digits).astype(dtype)


def _drawn(state: Array, count: int) -> tuple[Array, Array]:
    after, words = _words(state, -(-count // 4) * 4)
    return after, words[:count]


@op("random.threefry_generate", kind=Fusion.OPAQUE)
class ThreefryGenerate(Op):
    """The next state of the generator, and random 64-bit words (Salmon et al., 2011)."""

    out_shape: tuple[int, ...]
    """Shape of the random words. They are drawn in blocks of 4; the rest of the last block is skipped."""

    def infer(self, key: Type) -> TupleType:
        """A state, and `out_shape` of uint64."""
        _state(key)
        return TupleType((STATE, TensorType(self.out_shape, "uint64")))

    def reference(self, key: Array) -> tuple[Array, Array]:
        after, words = _drawn(key, prod(self.out_shape))
        return after, words.reshape(self.out_shape)

    def compute(self, key: te.Tensor) -> tuple[te.Tensor, ...]:
        return topi.threefry_generate(key, self.out_shape)


@op("random.threefry_split", kind=Fusion.OPAQUE)
class ThreefrySplit(Op):
    """Two independent states; the old state must not be used again."""

    def infer(self, key: Type) -> TupleType:
        """Two states."""
        return TupleType((_state(key), STATE))

    def reference(self, key: Array) -> tuple[Array, Array]:
        left, right = key.copy(), key.copy()
        if key[8] or key[9]:
            left[8:] = right[8:] = np.asarray(_next_place(key), np.uint64)
            right[4:6] = key[4:6] | key[8:]
            return left, right
        left[:4] = right[:4] = _hash(key[:4], key[None, 4:8])[0]
        left[4:], right[4:] = np.asarray([[0, 0, 0, 0, 1 << 62, 0], [1 << 63, 0, 0, 0, 1 << 62, 0]], np.uint64)
        return left, right

    def compute(self, key: te.Tensor) -> tuple[te.Tensor, ...]:
        return topi.threefry_split(key)


@attributes
class Draw(Op):
    """Base of the distributions with two scalar parameters."""

    out_shape: tuple[int, ...]
    """Shape of the random numbers."""
    out_dtype: str = "float32"
    """Type of the random numbers: "float32" or "float64"."""

    def _drawn(self, *given: Type) -> TupleType:
        key, *scalars = tensors(*given)
        _state(key)
        if self.out_dtype not in ("float32", "float64"):
            raise ShapeError(f"random numbers are float32 or float64, not {self.out_dtype}; cast them afterwards")
        for t in scalars:
            if product(t.shape) != 1 or t.dtype != DataType(self.out_dtype):
                raise ShapeError(f"the limits, mean and scale must be scalars of {self.out_dtype}, and one is {t!r}")
        return TupleType((STATE, TensorType(self.out_shape, self.out_dtype)))


@op("random.uniform", kind=Fusion.OPAQUE)
class Uniform(Draw):
    """The next state of the generator, and numbers distributed uniformly over [low, high)."""

    def infer(self, key: Type, low: Type, high: Type) -> TupleType:
        """A state, and `out_shape` of `out_dtype`; the bounds are scalars of that dtype."""
        return self._drawn(key, low, high)

    def reference(self, key: Array, low: Array, high: Array) -> tuple[Array, Array]:
        after, words = _drawn(key, prod(self.out_shape))
        return after, (_unit(words, self.out_dtype) * (high.reshape(()) - low.reshape(()))
                       + low.reshape(())).reshape(self.out_shape)

    def compute(self, key: te.Tensor, low: te.Tensor, high: te.Tensor) -> tuple[te.Tensor, ...]:
        return topi.uniform(key, low, high, self.out_shape, self.out_dtype)


@op("random.normal", kind=Fusion.OPAQUE)
class Normal(Draw):
    """The next state of the generator, and normally distributed numbers (Box and Muller, 1958)."""

    def infer(self, key: Type, mean: Type, scale: Type) -> TupleType:
        """A state, and `out_shape` of `out_dtype`; mean and scale are scalars of that dtype."""
        return self._drawn(key, mean, scale)

    def reference(self, key: Array, mean: Array, scale: Array) -> tuple[Array, Array]:
        count = prod(self.out_shape)
        after, words = _words(key, -(-count // 4) * 4)
        near, angle = _unit(words.reshape(-1, 2), self.out_dtype).T
        radius = np.sqrt(-2 * np.log(1 - near))
        pairs = np.stack([np.cos(angle * 2 * np.pi), np.sin(angle * 2 * np.pi)], 1) * radius[:, None]
        values = pairs.reshape(-1)[:count] * scale.reshape(()) + mean.reshape(())
        return after, values.reshape(self.out_shape).astype(self.out_dtype)

    def compute(self, key: te.Tensor, mean: te.Tensor, scale: te.Tensor) -> tuple[te.Tensor, ...]:
        return topi.normal(key, mean, scale, self.out_shape, self.out_dtype)


@op("random.multinomial", kind=Fusion.OPAQUE)
class Multinomial(Op):
    """The next state of the generator, and for each row of `probs` (…, classes) the classes drawn with these
    probabilities.
    """

    num_samples: int = 1
    """Number of classes drawn for each row."""

    def infer(self, key: Type, probs: Type) -> TupleType:
        """A state, and (*rows, num_samples) of int32; the shares are floating-point."""
        _state(key)
        shape: Sequence[Any] = require_static(tensors(probs)[0], "probs")
        if not shape or not shape[-1] or not tensors(probs)[0].dtype.is_float:
            raise ShapeError(f"probs must be rows of floating-point probabilities, but they are {probs!r}")
        return TupleType((STATE, TensorType((*shape[:-1], self.num_samples), "int32")))

    def reference(self, key: Array, probs: Array) -> tuple[Array, Array]:
        shape = (*probs.shape[:-1], self.num_samples)
        after, words = _drawn(key, prod(shape))
        reached = np.cumsum(probs, -1)
        wanted = _unit(words, str(probs.dtype)).reshape(shape) * reached[..., -1:]
        return after, (reached[..., None, :-1] <= wanted[..., None]).sum(-1).astype(np.int32)

    def compute(self, key: te.Tensor, probs: te.Tensor) -> tuple[te.Tensor, ...]:
        return topi.multinomial(key, probs, self.num_samples)


def __getattr__(name: str) -> Any:
    """Forward the names of `relay.random`."""
    return getattr(importlib.import_module("tilewright.relay.random"), name)
