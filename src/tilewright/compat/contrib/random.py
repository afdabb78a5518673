"""TVM's `tvm.contrib.random`: stages that draw random numbers with numpy.

    A = random.uniform(0, 1, size=(m, n))           float32, drawn anew at each call
    random.seed(7)

Stages call registered functions, `tvm.contrib.random.uniform` and others. Programs that are loaded from a file need
this module to be imported. Each thread has a generator; `seed` sets that of the thread that calls it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tilewright import te, tir
from tilewright.base.errors import OptionError
from tilewright.base.global_functions import register_func
from tilewright.base.types import DataType
from tilewright.te.tensor import Tensor

__all__ = ["normal", "randint", "seed", "uniform"]


class _Generators(threading.local):
    """The generator of each thread."""

    def __init__(self) -> None:
        self.current = np.random.default_rng()


_GENERATORS: Final = _Generators()


def seed(value: int) -> None:
    """Let the generator of this thread begin anew with the given seed."""
    _GENERATORS.current = np.random.default_rng(value)


def randint(low: int, high: int, size: Sequence[Any], dtype: str = "int32") -> Tensor:
    """Return integers of `low` up to, but without, `high`. Raises `OptionError` if `dtype` is not int32 or there are no
    such integers."""
    if dtype != "int32":
        raise OptionError(f"randint draws int32 numbers, not {dtype}; cast them", code="TW0210")
    if low >= high:
        raise OptionError(f"randint has no numbers from {low} to {high - 1}; give a higher `high`", code="TW0210")
    return _stage("randint", size, dtype, int(low), int(high))


def uniform(low: float, high: float, size: Sequence[Any]) -> Tensor:
    """Return float32 numbers, uniform between `low` and `high`."""
    return _stage("uniform", size, "float32", float(low), float(high))


def normal(loc: float, scale: float, size: Sequence[Any]) -> Tensor:
    """Return float32 numbers of a normal distribution with mean `loc` and standard deviation `scale`."""
    return _stage("normal", size, "float32", float(loc), float(scale))


def _stage(function: str, size: Sequence[Any], dtype: str, *options: Any) -> Tensor:
    """Return a stage without inputs that calls a registered function with the options and the result."""
    result: Tensor = te.extern(
        size, [], lambda _, outs: tir.call_packed(f"tvm.contrib.random.{function}", *options, outs[0]), dtype=dtype)
    return result


@register_func("tvm.contrib.random.randint")
def _randint(low: int, high: int, out: Any) -> None:
    out.copyfrom(_GENERATORS.current.integers(low, high, out.shape, np.int32))


@register_func("tvm.contrib.random.uniform")
def _uniform(low: float, high: float, out: Any) -> None:
    out.copyfrom(_GENERATORS.current.uniform(low, high, out.shape))


@register_func("tvm.contrib.random.normal")
def _normal(loc: float, scale: float, out: Any) -> None:
    out.copyfrom(_GENERATORS.current.normal(loc, scale, out.shape))


@register_func("tvm.contrib.random.random_fill_for_measure")
@register_func("tvm.contrib.random.random_fill")
def _random_fill(out: Any) -> None:
    """Fill an array with numbers that are not zero and whose products do not overflow: 1 to 10 for floats, 1 to 7 for
    integers, true for bool."""
    generator, dtype = _GENERATORS.current, DataType(out.dtype)
    if dtype.is_float:
        out.copyfrom(generator.uniform(1, 10, out.shape))
    else:
        out.copyfrom(generator.integers(1, 2 if dtype.code == "bool" else 8, out.shape))
