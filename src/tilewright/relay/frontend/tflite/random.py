"""Seeded random numbers from the Philox generator, identical to TensorFlow's.

A compiled model is a function, so each call draws the numbers of the first one. A model whose seeds are both zero would
draw different numbers in each run, and is refused.

Source: J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011), Philox4x32-10.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast
from tilewright.relay.frontend.tflite.node import Node, Value, constant
from tilewright.relay.frontend.tflite.registry import converter

Array = np.ndarray[Any, Any]

_ROUNDS: Final = 10
_KEYS: Final = (0x9E3779B9, 0xBB67AE85)
_FACTORS: Final = (0xD2511F53, 0xCD9E8D57)
_WORD: Final = np.uint64(0xFFFFFFFF)


def words(seed: int, seed2: int, count: int) -> Array:
    """The first `count` 32-bit words, four per counter state; the second seed is the counter's upper half."""
    blocks = np.arange(-(-count // 4), dtype=np.uint64)
    counter = [blocks & _WORD, blocks >> np.uint64(32), *(np.full(blocks.shape, seed2 >> s & 0xFFFFFFFF, np.uint64)
        for s in (0, 32))]
    key = [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF]
    for _ in range(_ROUNDS):
        first, second = counter[0] * np.uint64(_FACTORS[0]), counter[2] * np.uint64(_FACTORS[1])
        counter = [
            (second >> np.uint64(32)) ^ counter[1] ^ np.uint64(key[0]), second & _WORD,
            (first >> np.uint64(32)) ^ counter[3] ^ np.uint64(key[1]), first & _WORD,
        ]
        key = [(k + step) & 0xFFFFFFFF for k, step in zip(key, _KEYS, strict=True)]
    return np.stack(counter, axis=1).reshape(-1)[:count].astype(np.uint32)


def _unit(x: Array) -> Array:
    """float32 numbers in [0, 1) from the low 23 bits of words."""
    return ((x & np.uint32(0x7FFFFF)) | np.uint32(127 << 23)).view(np.float32) - np.float32(1)


def _seeds(seed: int, seed2: int, node: Node) -> tuple[int, int]:
    if not seed and not seed2:
        node.refuse("its seeds are both zero, and numbers that change in each run are not supported; give it a seed")
    return seed & (1 << 64) - 1, seed2 & (1 << 64) - 1


def _sizes(shape: Value, node: Node) -> tuple[int, ...]:
    found = node.ints(shape)
    if any(n < 0 for n in found):
        node.refuse(f"its result would have the shape {found}; sizes must not be negative")
    return found


@converter("RANDOM_UNIFORM")
def random_uniform(shape: Value, *, seed: int = 0, seed2: int = 0, node: Node) -> Expr:
    sizes = _sizes(shape, node)
    return Constant(_unit(words(*_seeds(seed, seed2, node), math.prod(sizes))).reshape(sizes))


@converter("RANDOM_STANDARD_NORMAL")
def random_standard_normal(shape: Value, *, seed: int = 0, seed2: int = 0, node: Node) -> Expr:
    """Normal numbers by the Box-Muller method: two from two uniform ones."""
    sizes = _sizes(shape, node)
    count = math.prod(sizes)
    drawn = _unit(words(*_seeds(seed, seed2, node), count + count % 2)).reshape(-1, 2)
    first = np.maximum(drawn[:, 0], np.float32(1e-7))
    angle = (np.float32(2 * math.pi) * drawn[:, 1]).astype(np.float32)
    size = np.sqrt(np.float32(-2) * np.log(first))
    return Constant(np.stack([np.sin(angle) * size, np.cos(angle) * size],
                             axis=1).astype(np.float32).reshape(-1)[:count].reshape(sizes))


@converter("MULTINOMIAL")
def multinomial(logits: Value, samples: Value, *, seed: int = 0, seed2: int = 0, node: Node) -> Expr:
    """Inverse transform sampling: the number of cumulated probabilities that are not above each drawn number."""
    count = node.whole(samples)
    if logits.rank != 2 or count < 0 or not logits.shape[1]:
        node.refuse(f"it draws {count} numbers from data of shape {logits.shape}, but takes (rows, classes); the file "
                    "is damaged: convert it again")
    batch, classes = logits.shape
    drawn = words(*_seeds(seed, seed2, node), 2 * batch * count).astype(np.uint64).reshape(-1, 2)
    mantissa = (drawn[:, 0] & np.uint64(0xFFFFF)) << np.uint64(32) | drawn[:, 1]
    unit = ((np.uint64(1023) << np.uint64(52)) | mantissa).view(np.float64) - 1
    wide = cast(logits.expr, "float64")
    shares = op.exp(op.subtract(wide, op.max(wide, axis=(1,), keepdims=True)))
    sums = op.cumsum(shares, axis=1)
    total = op.take(sums, constant([classes - 1], "int32"), axis=1)
    wanted = op.multiply(Constant(unit.reshape(batch, count)), total)
    below = op.less_equal(op.expand_dims(sums, axis=1), op.expand_dims(wanted, axis=2))
    return cast(op.sum(cast(below, "int32"), axis=(2,)), node.output.dtype)
