"""Conversion of array elements to bytes and back, for hashes, texts and files.

Numbers are stored as little-endian memory, strings as a JSON list in UTF-8. Other Python objects have no byte form.
Native code reads the packed form of strings in `string_tensors`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.base.errors import CompileError
from tilewright.base.json_reading import read_json
from tilewright.base.types import DataType

Array = np.ndarray[Any, Any]


def to_bytes(array: Array) -> bytes:
    """Return the elements in row-major order. Raises `CompileError` for objects other than strings."""
    if array.dtype != object:
        return (array.astype(array.dtype.newbyteorder("<")) if array.dtype.byteorder == ">" else array).tobytes()
    wrong = next((type(v).__name__ for v in array.flat if not isinstance(v, str)), None)
    if wrong is not None:
        raise CompileError(
            f"a constant holds objects of type {wrong}, which cannot be written as text; remove such values from the "
            "module",
            code="TW0407")
    return json.dumps(
        array.reshape(-1).tolist(), ensure_ascii=False, separators=(",", ":")
    ).encode("utf-8", "surrogatepass")


def from_bytes(raw: bytes, dtype: DataType, shape: Sequence[int]) -> Array:
    """Return the array that `to_bytes` encoded. Raises `ValueError` if the bytes do not have this dtype and shape."""
    if not dtype.is_object:
        return np.frombuffer(raw, dtype.numpy()).reshape(tuple(shape))
    values = read_json(raw.decode("utf-8", "surrogatepass"))
    if not isinstance(values, list) or len(values) != math.prod(shape) or not all(isinstance(v, str) for v in values):
        raise ValueError(f"the data do not contain {math.prod(shape)} strings")
    return of_strings(values, shape)


def of_strings(values: Sequence[str], shape: Sequence[int]) -> Array:
    """Return an array of strings."""
    array = np.empty(len(values), object)
    array[:] = values
    return array.reshape(tuple(shape))
