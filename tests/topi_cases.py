"""Calls of `topi`'s functions, with the arrays that they are given and what numpy makes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_random = np.random.default_rng(11)


@dataclass(frozen=True)
class Case:
    """`call` on tensors of the shapes of `inputs` has the values `expected`, one array or several."""

    name: str
    call: Callable[..., Any]
    inputs: tuple[Array, ...]
    expected: tuple[Array, ...]
    tolerance: float = 2e-5


def case(name: str, call: Callable[..., Any], expected: Any, *inputs: Array, tolerance: float = 2e-5) -> Case:
    """`expected` may be a function of the arrays."""
    want = expected(*inputs) if callable(expected) else expected
    several = tuple(want) if isinstance(want, (tuple, list)) else (want,)
    return Case(name, call, inputs, tuple(map(np.asarray, several)), tolerance)


def real(*shape: int, low: float = -2, high: float = 2) -> Array:
    return _random.uniform(low, high, shape).astype("float32")


def whole(*shape: int, low: int = -50, high: int = 50, dtype: str = "int32") -> Array:
    return _random.integers(low, high, shape).astype(dtype)


def truth(*shape: int) -> Array:
    return _random.integers(0, 2, shape).astype(bool)
