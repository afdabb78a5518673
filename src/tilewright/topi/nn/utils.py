"""TVM's `topi.nn.utils`: padding of windows in every form that TVM's functions take it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.base.errors import ShapeError

__all__ = ["get_pad_tuple", "get_pad_tuple1d", "get_pad_tuple3d", "get_pad_tuple_generic", "infer_pad"]

Padding = int | str | Sequence[int]


def get_pad_tuple(padding: Padding, kernel: Sequence[Any]) -> tuple[Any, ...]:
    """Return (top, left, bottom, right) for `padding` of an image: an integer, 2 or 4 integers, "VALID" or "SAME",
    which adds as many elements as the kernel has, less one. Raises `ShapeError` for other paddings."""
    return get_pad_tuple_generic(padding, kernel, 2)


def get_pad_tuple1d(padding: Padding, kernel: Sequence[Any]) -> tuple[Any, ...]:
    """Return (left, right)."""
    return get_pad_tuple_generic(padding, kernel, 1)


def get_pad_tuple3d(padding: Padding, kernel: Sequence[Any]) -> tuple[Any, ...]:
    """Return (front, top, left, back, bottom, right)."""
    return get_pad_tuple_generic(padding, kernel, 3)


def get_pad_tuple_generic(padding: Padding, kernel: Sequence[Any], rank: int | None = None) -> tuple[Any, ...]:
    """Return the padding before each axis, then after each."""
    axes = len(kernel) if rank is None else rank
    if isinstance(padding, str):
        if padding not in ("VALID", "SAME"):
            raise ShapeError(f"unknown padding '{padding}'; it is 'VALID', 'SAME' or integers")
        total = [k - 1 if padding == "SAME" else 0 for k in kernel[:axes]]
    elif not isinstance(padding, Sequence):
        total = [2 * padding] * axes
    elif len(padding) == 2 * axes:
        return tuple(padding)
    elif len(padding) == axes:
        total = [2 * p for p in padding]
    else:
        raise ShapeError(f"padding {tuple(padding)} has {len(padding)} numbers; {axes} axes need {axes} or {2 * axes}")
    before = [(t + 1) // 2 for t in total]
    return (*before, *(t - b for t, b in zip(total, before, strict=True)))


def infer_pad(data: Any, data_pad: Any) -> tuple[Any, Any]:
    """Return the padding of height and width that made `data_pad` of `data`, both NCHW; zeros without it."""
    if data_pad is None:
        return 0, 0
    return tuple((data_pad.shape[k] - data.shape[k]) // 2 for k in (2, 3))
