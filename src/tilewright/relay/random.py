"""Random numbers as functions: `key, x = relay.random.uniform(key, (2, 3))`, with a state from `threefry_key(seed)`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.relay.expr import Call, Constant, const
from tilewright.relay.op.random import Normal, ThreefryGenerate, Uniform
from tilewright.relay.op.registry import operator_names, public_function


def threefry_key(seed: int) -> Constant:
    """Return a generator's state made from a 64-bit seed."""
    return Constant(np.asarray([0, 0, 0, seed & ((1 << 64) - 1), 0, 0, 0, 0, 1 << 63, 0], np.uint64))


def threefry_generate(key: Any, shape: Sequence[int]) -> Call:
    """Return the next state, and random words of `shape`."""
    return ThreefryGenerate(tuple(shape))(key)


def uniform(key: Any, shape: Sequence[int], dtype: str = "float32", low: Any = 0.0, high: Any = 1.0) -> Call:
    """Return the next state, and numbers distributed uniformly over [low, high)."""
    return Uniform(tuple(shape), dtype)(key, _scalar(low, dtype), _scalar(high, dtype))


def normal(key: Any, shape: Sequence[int], dtype: str = "float32", mean: Any = 0.0, scale: Any = 1.0) -> Call:
    """Return the next state, and normally distributed numbers."""
    return Normal(tuple(shape), dtype)(key, _scalar(mean, dtype), _scalar(scale, dtype))


def _scalar(value: Any, dtype: str) -> Any:
    return const(value, dtype) if isinstance(value, (int, float)) else value


def __getattr__(name: str) -> Callable[..., Call]:
    return public_function("random." + name, __name__)


def __dir__() -> list[str]:
    return sorted({*operator_names("random."), "threefry_key"})
