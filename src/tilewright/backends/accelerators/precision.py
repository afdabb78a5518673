"""Accelerators' names of dtypes."""

from __future__ import annotations

from typing import Final

from tilewright.base.errors import TargetError
from tilewright.base.types import DataType

PRECISIONS: Final = {
    "int8": "INT8", "int16": "INT16", "int32": "INT32", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32",
    "float16": "FP16", "float32": "FP32",
}


def precision_of(dtype: str | DataType) -> str:
    """Return the name of a dtype of one lane, `float16` -> `FP16`; raises `TargetError` for unsupported dtypes."""
    known = DataType(dtype)
    found = PRECISIONS.get(str(known))
    if found is None:
        why = f"it has {known.lanes} lanes" if known.lanes != 1 else f"the types are {', '.join(PRECISIONS)}"
        raise TargetError(f"Unsupported type: {known}; {why}", code="TW0506")
    return found
