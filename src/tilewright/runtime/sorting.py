"""The registered functions `tvm.contrib.sort.*`, which programs call with `tir.call_packed`: sorts by numpy.

    tir.call_packed("tvm.contrib.sort.argsort", data, out, axis, is_ascend)

All sorts are stable, in both directions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.base.global_functions import register_func

__all__ = ["argsort", "argsort_nms", "sort"]


def _order(data: np.ndarray[Any, Any], axis: int, is_ascend: bool) -> np.ndarray[Any, Any]:
    """Return the indices that sort an array along an axis."""
    if is_ascend:
        return np.argsort(data, axis, kind="stable")
    backward = np.argsort(np.flip(data, axis), axis, kind="stable")
    order: np.ndarray[Any, Any] = data.shape[axis] - 1 - np.flip(backward, axis)
    return order


@register_func("tvm.contrib.sort.argsort")
def argsort(data: Any, out: Any, axis: int, is_ascend: bool) -> None:
    """Write the indices that sort `data` along an axis into `out`, of the same shape."""
    out.copyfrom(_order(data.numpy(), axis, is_ascend))


@register_func("tvm.contrib.sort.sort")
def sort(data: Any, out: Any, axis: int, is_ascend: bool) -> None:
    """Write `data`, sorted along an axis, into `out`, of the same shape and dtype."""
    values = data.numpy()
    out.copyfrom(np.take_along_axis(values, _order(values, axis, is_ascend), axis))


@register_func("tvm.contrib.sort.argsort_nms")
def argsort_nms(data: Any, sort_num: Any, out: Any, axis: int, is_ascend: bool) -> None:
    """As `argsort`, but only for the first elements of each row: `sort_num`, whose shape lacks the axis, has their
    numbers. The indices of the other elements are their places."""
    rows = np.moveaxis(data.numpy(), axis, -1)
    counts = sort_num.numpy()
    found = np.broadcast_to(np.arange(rows.shape[-1]), rows.shape).copy()
    for place in np.ndindex(*counts.shape):
        first = slice(0, max(0, int(counts[place])))
        found[place][first] = _order(rows[place][first], 0, is_ascend)
    out.copyfrom(np.moveaxis(found, -1, axis))
