"""The reference in numpy of a graph of operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.base.array_bytes import Array
from tilewright.relay.expr import Expr, Function, Var, var
from tilewright.relay.interpreter import evaluate


def reference(build: Callable[..., Expr], *arrays: Any) -> Any:
    """Return the value of `build(*variables)` for arrays: one array, or a tuple of them."""
    values = [np.asarray(a) for a in arrays]
    variables: list[Var] = [var(f"x{k}", shape=a.shape, dtype=str(a.dtype)) for k, a in enumerate(values)]
    return evaluate(Function(variables, build(*variables)), *values)


def pair(value: int | tuple[int, ...], count: int = 2) -> tuple[int, ...]:
    """Return a number for each axis."""
    return (value,) * count if isinstance(value, int) else tuple(value)


__all__ = ["Array", "pair", "reference"]
