"""Lookup tables with numbers or strings as keys; numeric tables become native code."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import Refusing, number
from tilewright.relay.types_of import dtype_of

Array = np.ndarray[Any, Any]


def looked_up(x: Expr, keys: Array, values: Array, default: Any, node: Refusing) -> Expr:
    """The value at the key equal to each element of `x`: for equal keys the last value, for a missing key `default`."""
    if len(keys) != len(values):
        node.refuse(f"{len(keys)} keys and {len(values)} values are given; give one value for each key")
    if (dtype_of(x) == "string") != (keys.dtype == object):
        node.refuse(f"its keys are {'strings' if keys.dtype == object else 'numbers'}, but its input is {dtype_of(x)}")
    whole = np.empty(len(values) + 1, values.dtype)
    whole[:-1], whole[-1] = values, default
    return op.take(Constant(whole), _places(x, keys), axis=0, mode="clip")


def _places(x: Expr, keys: Array) -> Expr:
    """The index of each element among the keys; their number for a missing key."""
    if keys.dtype == object:
        return op.string_index(x, Constant(keys))
    typed = keys.astype(dtype_of(x).numpy())
    same = np.flatnonzero(typed == keys)
    order = same[np.argsort(typed[same], kind="stable")]
    order = order[np.append(typed[order][1:] != typed[order][:-1], True)[: len(order)]]
    none = number(len(keys))
    if not len(order):
        return op.full_like(op.cast(x, dtype="int64"), none)
    at = op.searchsorted(Constant(typed[order]), x, dtype="int64")
    key, place = (op.take(Constant(values), at, axis=0, mode="clip")
                  for values in (typed[order], order.astype(np.int64)))
    found = op.where(op.equal(key, x), place, none)
    nan = np.flatnonzero(np.isnan(keys))
    return op.where(op.isnan(x), number(nan[-1]), found) if len(nan) and dtype_of(x).is_float else found
