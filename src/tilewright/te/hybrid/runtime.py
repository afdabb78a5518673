"""Names of hybrid script for a run in Python: `c = output_tensor((8,), "float32")` is an array of zeros."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

inf: Final = math.inf
ninf: Final = -math.inf


def allocate(shape: Any, dtype: str = "float32", scope: str = "global") -> np.ndarray[Any, Any]:
    """Return an array of zeros; `scope` has no effect."""
    return np.zeros(tuple(int(n) for n in shape), dtype)


def rsqrt(x: Any) -> Any:
    """Return 1 / sqrt(x)."""
    return 1 / np.sqrt(x)


def sigmoid(x: Any) -> Any:
    """Return 1 / (1 + exp(-x))."""
    return 1 / (1 + np.exp(-x))


def popcount(x: Any) -> int:
    """Return the number of ones among the bits of an integer; a negative numpy integer has those of its type."""
    bits = np.asarray(x).dtype.itemsize * 8
    return (int(x) & ((1 << bits) - 1)).bit_count()


def ceil_div(a: Any, b: Any) -> Any:
    """Return the quotient rounded up."""
    return -(-a // b)


HYBRID_GLOBALS: Final[Mapping[str, Any]] = {
    "output_tensor": allocate, "allocate": allocate, "serial": range, "parallel": range, "vectorize": range,
    "unroll": range, "const_range": range,
    "likely": lambda x: x, "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "rsqrt": rsqrt, "tanh": np.tanh,
    "sigmoid": sigmoid, "power": np.power, "floor": np.floor, "ceil": np.ceil, "round": np.rint, "fabs": np.abs,
    "erf": math.erf, "ceil_div": ceil_div, "sin": np.sin, "cos": np.cos, "popcount": popcount, "inf": inf,
    "ninf": ninf,
    **{
        t: np.dtype(t).type for t in (
            "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"
        )},
}
"""The names."""

__all__ = ["HYBRID_GLOBALS", "allocate", "inf", "ninf", "popcount", "rsqrt", "sigmoid"]
