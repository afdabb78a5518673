"""Antialiased resizing: each resized axis is multiplied by a matrix of filter weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np

from tilewright.base.types import FLOAT32, OpenSize
from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.onnx.node import Node
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast, reshape, size_value, steps_to, transpose
from tilewright.relay.types_of import dtype_of, shape_of
from tilewright.topi.shapes import require_at_least

Array = np.ndarray[Any, Any]

_ONE: Final = Constant(np.asarray(1, np.float64))
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
    wanted = ([s if isinstance(s, OpenSize) else int(s) for s in sizes] if sizes is not None
              else [_scaled(d, s) for d, s in zip(dims, scales or (), strict=True)])
    if not all(dims) or not all(wanted):
        node.refuse(f"antialias=1 cannot resize {tuple(dims)} to {tuple(wanted)}; each size must be 1 or more")
    for size in (*dims, *wanted):
        require_at_least(size, 1)
    result = x if dtype_of(x).is_float else cast(x, FLOAT32)
    for axis, (size, out) in enumerate(zip(dims, wanted, strict=True)):
        factor = scales[axis] if scales is not None else None
        if size == out and (factor is None or factor == 1):
            continue
        how = _Filter(size, out, factor, mode, transformation, cubic_alpha, exclude_outside)
        if isinstance(size, OpenSize) or isinstance(out, OpenSize):
            weights = cast(how.symbolic_weights(), dtype_of(result))
        else:
            node.check_table(out, size)
            weights = Constant(how.weights().astype(dtype_of(result).numpy()))
        result = _along(result, weights, axis)
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


def scaled_size(size: int, scale: float) -> int:
    """Return the size of a resized axis: the product is rounded to float32, as in ONNX Runtime, so that 0.45 * 20 is
    9."""
    return math.floor(np.float32(size) * np.float32(scale))


def _scaled(size: int, scale: float) -> int:
    """Return the size of the result; for a symbolic size with the scale as an exact quotient."""
    if not isinstance(size, OpenSize):
        return scaled_size(size, scale)
    exact = Fraction(scale).limit_denominator(1 << 14)
    return size * exact.numerator // exact.denominator


@dataclass(frozen=True)
class _Filter:
    """The filter of one axis from `size` to `out` elements; `factor` is their quotient if it is None."""

    size: int
    out: int
    factor: float | None
    mode: str
    transformation: str
    cubic_alpha: float
    exclude_outside: bool

    def weights(self) -> Array:
        """Return the weights (out, size) of the inputs for each output; taps outside count for the edge or are
        excluded."""
        factor = self.out / self.size if self.factor is None else self.factor
        shrink, reach = min(factor, 1.0), _REACH[self.mode]
        first = math.floor(-reach / shrink) + 1
        taps = np.arange(first, 2 - first)
        weights = np.zeros((self.out, self.size))
        for row in range(self.out):
            at = _place(row, self.size, self.out, factor, self.transformation)
            before = math.ceil(at) - 1
            far = np.abs(taps - (at - before)) * shrink
            share = np.clip(1 - far, 0, 1) if self.mode == "linear" else _cubic(far, self.cubic_alpha)
            where = before + taps
            if self.exclude_outside:
                share = np.where((where >= 0) & (where < self.size), share, 0)
            np.add.at(weights[row], np.clip(where, 0, self.size - 1), share / share.sum())
        return weights

    def symbolic_weights(self) -> Expr:
        """Return the weights for symbolic sizes, computed in each call in float64: those of more columns than the
        input has, whose outer ones are added to the edges or left out."""
        size, out = size_value(self.size, _ONE), size_value(self.out, _ONE)
        factor = op.divide(out, size) if self.factor is None else _number(self.factor)
        shrink, reach = op.minimum(factor, _ONE), _REACH[self.mode]
        room: Any = (reach * (self.size // self.out + 1) if self.factor is None
                     else math.ceil(reach / min(self.factor, 1.0))) + 2
        at = op.expand_dims(self._places(size, out, factor), axis=1)
        columns = op.expand_dims(op.subtract(_counted(self.size + 2 * room), size_value(room, _ONE)), axis=0)
        far = op.multiply(op.abs(op.subtract(columns, at)), shrink)
        share = op.maximum(op.subtract(_ONE, far), _number(0)) if self.mode == "linear" else self._cubic(far)
        before, within, after = (
            op.strided_slice(share, begin=(a,), end=(b,), strides=(1,), axes=(1,))
            for a, b in ((0, room), (room, room + self.size), (room + self.size, 2 * room + self.size)))
        if not self.exclude_outside:
            column = op.expand_dims(_counted(self.size), axis=0)
            for part, edge in ((before, _number(0)), (after, op.subtract(size, _ONE))):
                outer = op.sum(part, axis=(1,), keepdims=True)
                within = op.add(within, op.where(op.equal(column, edge), outer, _number(0)))
        return op.divide(within, op.sum(within, axis=(1,), keepdims=True))

    def _places(self, size: Expr, out: Expr, factor: Expr) -> Expr:
        """Return the input coordinates of all elements of the result."""
        rows = _counted(self.out)
        if self.transformation == "align_corners":
            last = op.maximum(op.subtract(out, _ONE), _ONE)
            return op.divide(op.multiply(rows, op.subtract(size, _ONE)), last)
        if self.transformation == "asymmetric":
            return op.divide(rows, factor)
        half = _number(0.5)
        places = op.subtract(op.divide(op.add(rows, half), factor), half)
        if self.transformation == "half_pixel_symmetric":
            part = op.divide(out, op.multiply(factor, size))
            return op.add(places, op.multiply(op.multiply(size, half), op.subtract(_ONE, part)))
        if self.transformation == "pytorch_half_pixel":
            return op.where(op.equal(out, _ONE), _number(0), places)
        return places

    def _cubic(self, x: Expr) -> Expr:
        a = self.cubic_alpha
        near, far = (_polynomial(x, c) for c in ((a + 2, -(a + 3), 0, 1), (a, -5 * a, 8 * a, -4 * a)))
        return op.where(op.less_equal(x, _ONE), near, op.where(op.less(x, _number(2)), far, _number(0)))


def _number(x: float) -> Expr:
    return Constant(np.asarray(x, np.float64))


def _counted(count: int) -> Expr:
    """Return the numbers from 0 up to but without `count`."""
    return steps_to(count, "float64")


def _polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    """Return the polynomial of `x` with these coefficients, the highest first."""
    result = _number(coefficients[0])
    for c in coefficients[1:]:
        result = op.add(op.multiply(result, x), _number(c))
    return result


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
