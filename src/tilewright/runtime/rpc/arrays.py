"""Arrays in messages: dtypes and shapes are in the JSON, elements are byte pieces."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.base.errors import InputError
from tilewright.base.nd import aligned_empty
from tilewright.base.types import DataType


def array_of(dtype: Any, shape: Any, data: bytes) -> np.ndarray[Any, Any]:
    """Copy `data` into an aligned array. Raises `InputError` for a wrong number of bytes before memory is allocated."""
    kind = DataType(dtype)
    is_shape = isinstance(shape, list) and all(isinstance(d, int) and not isinstance(d, bool) and d >= 0 for d in shape)
    if kind.is_object or not is_shape or math.prod(shape) * kind.numpy().itemsize != len(data):
        raise InputError(
            f"an array of {dtype} of shape {shape} does not have the {len(data)} bytes that were sent", code="TW1206")
    array = aligned_empty(shape, kind.numpy())
    array.reshape(-1).view(np.uint8)[:] = np.frombuffer(data, np.uint8)
    return array
