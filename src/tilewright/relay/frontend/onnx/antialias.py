"""Antialiased resizing: each resized axis is multiplied by a matrix of filter weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.types import FLOAT32
from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.onnx.node import Node
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast, dtype_of, reshape, shape_of, transpose

Array = np.ndarray[Any, Any]

_REACH: Final = {"linear": 1, "cubic": 2}
_MODES: Final = ("half_pixel", "half_pixel_symmetric", "align_corners", "asymmetric", "pytorch_half_pixel")


def resize_antialiased(
    x: Expr, scales: Sequence[float] | None, sizes: Sequence[int] | None, mode: str, transformation: str,
    cubic_alpha: float, exclude_outside: bool, node: Node,
) -> Expr:
    """Resize the axes of `x` whose size or scale changes, one after another, in float32."""
    dims = node.static(x, "X")
    if mode not in _REACH or transformation not in _MODES:
        node.refuse(f"antialias=1 with mode {mode!r} and {transformation!r} is not supported; mode must be linear or "
                    f"cubic, and the coordinates one of {', '.join(_MODES)}")
    wanted = ([int(s) for s in sizes] if sizes is not None
              else [math.floor(d * s) for d, s in zip(dims, scales or (), strict=True)])
    if not all(dims) or not all(wanted):
        node.refuse(f"antialias=1 cannot resize {tuple(dims)} to {tuple(wanted)}; each size must be 1 or more")
    factors = [w / d for w, d in zip(wanted, dims, strict=True)] if scales is None else list(scales)
    result = x if dtype_of(x).is_float else cast(x, FLOAT32)
    for axis, (size, out, factor) in enumerate(zip(dims, wanted, factors, strict=True)):
        if factor != 1 or size != out:
            node.check_table(out, size)
            weights = _weights(size, out, factor, mode, transformation, cubic_alpha, exclude_outside)
            result = _along(result, Constant(weights.astype(dtype_of(result).numpy())), axis)
    if dtype_of(x).is_integer:
        low, high = np.iinfo(dtype_of(x).numpy()).min, np.iinfo(dtype_of(x).numpy()).max
        result = op.clip(op.round(result), a_min=float(low), a_max=float(high))
    return cast(result, dtype_of(x))


def _along(x: Expr, weights: Expr, axis: int) -> Expr:
    """Multiply a matrix (out, in) with the vectors along an axis."""
    dims = list(shape_of(x))
    order = [*(k for k in range(len(dims)) if k != axis), axis]
    rows = reshape(transpose(x, order), (-1, dims[axis]))
    product = op.nn.dense(rows, weights, units=shape_of(weights)[0])
    back = reshape(product, (*(dims[k] for k in order[:-1]), shape_of(weights)[0]))
    return transpose(back, [order.index(k) for k in range(len(dims))])


def _weights(size: int, out: int, factor: float, mode: str, transformation: str, cubic_alpha: float,
             exclude_outside: bool) -> Array:
    """Weights (out, size) of the inputs for each output; taps outside count for the edge or are excluded."""
    shrink, reach = min(factor, 1.0), _REACH[mode]
    first = math.floor(-reach / shrink) + 1
    taps = np.arange(first, 2 - first)
    weights = np.zeros((out, size))
    for row in range(out):
        at = _place(row, size, out, factor, transformation)
        before = math.ceil(at) - 1
        far = np.abs(taps - (at - before)) * shrink
        share = np.clip(1 - far, 0, 1) if mode == "linear" else _cubic(far, cubic_alpha)
        where = before + taps
        if exclude_outside:
            share = np.where((where >= 0) & (where < size), share, 0)
        np.add.at(weights[row], np.clip(where, 0, size - 1), share / share.sum())
    return weights


def _cubic(x: Array, a: float) -> Array:
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    return np.where(x <= 1, near, np.where(x < 2, ((a * x - 5 * a) * x + 8 * a) * x - 4 * a, 0))


def _place(row: int, size: int, out: int, factor: float, transformation: str) -> float:
    """Input coordinate of the element `row` of the result."""
    if transformation == "align_corners":
        return 0.0 if out == 1 else row * (size - 1) / (out - 1)
    if transformation == "asymmetric":
        return row / factor
    if transformation == "pytorch_half_pixel" and out == 1:
        return 0.0
    moved = size / 2 * (1 - out / (factor * size)) if transformation == "half_pixel_symmetric" else 0.0
    return moved + (row + 0.5) / factor - 0.5
