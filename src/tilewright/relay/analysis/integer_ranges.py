"""Finds values that are integers of a known range: results of a quantization that rounds and clamps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tilewright.base.types import FLOAT32, INT32
from tilewright.relay.expr import Call, Constant, Expr
from tilewright.relay.op.broadcast import Add
from tilewright.relay.op.elementwise import Cast, Clip, Round

Range = tuple[float, float]
_EXACT: Final = 1 << 24


def unconverted(call: Call) -> Expr | None:
    """Return the value that `call` converts to an integer type and back without a change; else None.

        cast(cast(x, dtype="uint8"), dtype="float32")
          -> x        x a whole number from 0 to 255, of float32; or both of int32
    """
    if not isinstance(call.op, Cast) or call.known_type() is None or call.tensor_type.dtype not in (FLOAT32, INT32):
        return None
    inner = call.args[0]
    if (not isinstance(inner, Call) or not isinstance(inner.op, Cast)
            or inner.tensor_type.dtype.code not in ("int", "uint")):
        return None
    (x,) = inner.args
    if x.tensor_type.dtype is not call.tensor_type.dtype:
        return None
    found = whole_range(x)
    if found is None:
        return None
    held = np.iinfo(inner.tensor_type.dtype.numpy())
    return x if max(held.min, -_EXACT) <= found[0] and found[1] <= min(held.max, _EXACT) else None


def whole_range(x: Expr) -> Range | None:
    """Return the minimum and maximum of a value of whole numbers; None if it need not be whole."""
    if not isinstance(x, Call):
        return None
    rule = _RULES.get(type(x.op))
    return None if rule is None else rule(x)


def _round(call: Call) -> Range | None:
    return -math.inf, math.inf


def _clip(call: Call) -> Range | None:
    low, high = float(call.attrs.a_min), float(call.attrs.a_max)
    found = (-math.inf, math.inf) if call.tensor_type.dtype is INT32 else whole_range(call.args[0])
    if found is None or not (low.is_integer() and high.is_integer()):
        return None
    return max(low, found[0]), min(high, found[1])


def _add(call: Call) -> Range | None:
    x, y = call.args
    found = whole_range(x)
    if (found is None or not isinstance(y, Constant) or not np.all(np.isfinite(y.value))
            or np.any(y.value != np.rint(y.value))):
        return None
    return found[0] + float(y.value.min(initial=0)), found[1] + float(y.value.max(initial=0))


_RULES: Final[dict[Any, Callable[[Call], Range | None]]] = {Round: _round, Clip: _clip, Add: _add}
