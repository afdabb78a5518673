"""TVM's immutable containers, `Array` and `Map`, and the function `convert`, which creates them.

Nodes hold plain tuples and dictionaries; these containers are for scripts written for TVM.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.base.containers import Array, Map
from tilewright.scalar import expr as scalar

__all__ = ["Array", "Map", "convert"]


def convert(value: Any) -> Any:
    """Convert a sequence to an `Array`, a mapping to a `Map` and a number to a constant; other values are unchanged.

    A number of numpy keeps its type; one of Python is int32, int64 if it needs 64 bits, float32 or bool.
    """
    if isinstance(value, (np.bool_, np.integer, np.floating)):
        return scalar.as_expr(value)
    if isinstance(value, bool):
        return scalar.IntImm("bool", int(value))
    if isinstance(value, int):
        return scalar.IntImm("int32" if abs(value) < 1 << 31 else "int64", value)
    if isinstance(value, float):
        return scalar.FloatImm("float32", value)
    if isinstance(value, (list, tuple)):
        return Array(convert(v) for v in value)
    return Map({k: convert(v) for k, v in value.items()}) if isinstance(value, Mapping) else value
