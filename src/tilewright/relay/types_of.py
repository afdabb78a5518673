"""Facts about the type of an expression, for code that builds graphs: shape, rank, data type, and constants like it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.base.types import DataType
from tilewright.relay.expr import Constant, Expr


def shape_of(x: Expr) -> tuple[Any, ...]:
    """Return the dimensions of a tensor."""
    return x.tensor_type.shape


def rank(x: Expr) -> int:
    """Return the number of dimensions of a tensor."""
    return x.tensor_type.ndim


def dtype_of(x: Expr) -> DataType:
    """Return the data type of a tensor's elements."""
    return x.tensor_type.dtype


def scalar(value: Any, like: Expr) -> Constant:
    """Return a scalar constant with the element type of `like`."""
    return Constant(np.asarray(value, dtype_of(like).numpy()))
