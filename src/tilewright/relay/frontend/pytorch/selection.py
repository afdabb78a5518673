"""Operators that select and count elements, and operators on the bits of floats."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.types import BOOL, INT64
from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.pytorch.indexing import places_of, scatter_reduce
from tilewright.relay.frontend.pytorch.math import multiply, power, truth
from tilewright.relay.frontend.pytorch.node import Node
from tilewright.relay.frontend.pytorch.promotion import floating, promoted
from tilewright.relay.frontend.pytorch.reduce import vector_norm
from tilewright.relay.frontend.pytorch.registry import converter
from tilewright.relay.frontend.pytorch.transform import dims_of
from tilewright.relay.frontend.shaping import axis_of, cast, fields, number, reshape, slice_axis
from tilewright.relay.types_of import dtype_of, rank, scalar, shape_of

# Extremes and counts along a dimension


@converter("cummax", "cummin")
def running_extreme(self: Expr, dim: int, node: Node) -> tuple[Expr, Expr]:
    if not rank(self):
        return self, number(0)
    x = cast(self, "uint8") if dtype_of(self) is BOOL else self
    values, places = fields(
        (op.cummax if node.name == "cummax" else op.cummin)(x, axis=axis_of(dim, rank(self), node)), 2)
    return cast(values, dtype_of(self)), places


@converter("mode")
def mode(self: Expr, node: Node, dim: int = -1, keepdim: bool = False) -> tuple[Expr, Expr]:
    """The most frequent element along a dimension, the least of equally frequent ones, and its last index."""
    if not rank(self):
        return self, number(0)
    axis, last = axis_of(dim, rank(self), node), rank(self) - 1
    order = [*(k for k in range(rank(self)) if k != axis), axis]
    x = op.transpose(cast(self, "uint8") if dtype_of(self) is BOOL else self, axes=order)
    places = op.argsort(x, axis=last, is_ascend=True, dtype="int64")
    rows = op.gather(x, places, axis=last)
    after = op.searchsorted(rows, rows, right=True, dtype="int64")
    counts = op.subtract(after, op.searchsorted(rows, rows, right=False, dtype="int64"))
    most = cast(op.argmax(counts, axis=(last,), keepdims=True), INT64)
    end = op.subtract(op.gather(after, most, axis=last), number(1))
    found = op.gather(rows, most, axis=last), op.gather(places, end, axis=last)
    back = [order.index(k) for k in range(rank(self))]
    values, where = (op.transpose(f, axes=back) if keepdim else op.squeeze(f, axis=(last,)) for f in found)
    return cast(values, dtype_of(self)), where


@converter("unique_consecutive")
def unique_consecutive(
    self: Expr, node: Node, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[Expr, Expr, Expr]:
    """The first of each run of equal elements or slices; their number is known only at run time."""
    shape = node.static(self, "self")
    x, axis = (
        (reshape(self, (math.prod(shape),)), 0) if dim is None or not shape else (self, axis_of(dim, len(shape), node))
    )
    n, others = shape_of(x)[axis], tuple(k for k in range(rank(x)) if k != axis)
    if n < 2:
        ones = Constant(np.ones(n, np.int64))
        return x, Constant(np.zeros(shape if dim is None else n, np.int64)), ones
    differ = op.not_equal(slice_axis(x, axis, 1, n), slice_axis(x, axis, 0, n - 1))
    starts = op.concatenate((Constant(np.ones(1, bool)), op.any(differ, axis=others) if others else differ), axis=0)
    kept = op.squeeze(places_of(starts), axis=(1,))
    inverse = op.subtract(op.cumsum(cast(starts, INT64), axis=0), number(1))
    # The length of a run is the number of times its index occurs among the run indices, which are sorted.
    counts = op.subtract(op.searchsorted(inverse, op.take(inverse, kept, axis=0), right=True, dtype="int64"), kept)
    return op.take(x, kept, axis=axis), reshape(inverse, shape) if dim is None else inverse, counts


@converter("nonzero_static")
def nonzero_static(self: Expr, size: Any, node: Node, fill_value: int = -1) -> Expr:
    """The indices of the first `size` nonzero elements, padded with `fill_value`."""
    (count,), shape = dims_of([size], node), node.static(self, "self")
    total = math.prod(shape)
    if not total or not count or not shape:
        whole = np.full((count, len(shape)), fill_value, np.int64)
        return Constant(whole)
    is_there = reshape(truth(self), (total,))
    order = op.argsort(cast(op.logical_not(is_there), "int32"), axis=0, is_ascend=True, dtype="int64")
    first = slice_axis(order, 0, 0, min(count, total))
    columns = op.take(Constant(np.stack(np.unravel_index(np.arange(total), shape), 1).astype(np.int64)), first, axis=0)
    enough = op.less(Constant(np.arange(min(count, total))[:, None]), op.sum(cast(is_there, INT64), axis=(0,)))
    found = op.where(enough, columns, number(fill_value))
    return found if count <= total else op.nn.pad(found, number(fill_value), pad_width=((0, count - total), (0, 0)))


# Histograms


def _counted(places: Expr, bins: int, weights: Expr) -> Expr:
    """Sum the weights by bin; index `bins` is discarded."""
    zeros = Constant(np.zeros(bins + 1, dtype_of(weights).numpy()))
    return slice_axis(op.scatter_elements(zeros, places, weights, axis=0, reduction="add"), 0, 0, bins)


def _bounds(x: Expr, low: float, high: float, apart: float) -> tuple[Expr, Expr]:
    """The bounds of a histogram: those of the data if both are 0; equal bounds are moved apart by `apart` each."""
    if low != high:
        return scalar(low, x), scalar(high, x)
    if not shape_of(x)[0] or low != 0:
        least: Expr = scalar(low, x)
        most: Expr = scalar(high, x)
    else:
        least, most = op.min(x, axis=(0,)), op.max(x, axis=(0,))
    equal, step = op.equal(least, most), scalar(apart, x)
    return op.where(equal, op.subtract(least, step), least), op.where(equal, op.add(most, step), most)


@converter("histc")
def histc(self: Expr, node: Node, bins: int = 100, min: float = 0, max: float = 0) -> Expr:
    x = reshape(floating(self, node), (math.prod(node.static(self, "self")),))
    if not shape_of(x)[0]:
        return Constant(np.zeros(bins, dtype_of(x).numpy()))
    low, high = _bounds(x, float(min), float(max), 1.0)
    place = op.divide(op.multiply(op.subtract(x, low), scalar(bins, x)), op.subtract(high, low))
    inside = op.logical_and(op.greater_equal(x, low), op.less_equal(x, high))
    held = op.minimum(cast(op.floor(op.where(inside, place, scalar(0, x))), INT64), number(bins - 1))
    return cast(_counted(op.where(inside, held, number(bins)), bins, op.ones_like(x)), dtype_of(self))


def _histogram(columns: Sequence[Expr], edges: Sequence[Expr], weight: Expr | None, is_density: bool) -> Expr:
    """Weighted counts of points, given by their coordinates, between adjacent `edges`; the last bin is closed."""
    shape = tuple(shape_of(e)[0] - 1 for e in edges)
    x, bins = columns[0], math.prod(shape)
    weights = op.ones_like(x) if weight is None else reshape(weight, shape_of(x))
    place: Expr = number(0)
    inside: Expr = Constant(np.ones((), bool))
    for column, edge, count in zip(columns, edges, shape, strict=True):
        last = slice_axis(edge, 0, count, count + 1)
        after = op.searchsorted(edge, column, right=True, dtype="int64")
        own = op.where(op.equal(column, last), number(count - 1), op.subtract(after, number(1)))
        place = op.add(op.multiply(place, number(count)), own)
        between = op.logical_and(op.greater_equal(column, slice_axis(edge, 0, 0, 1)), op.less_equal(column, last))
        inside = op.logical_and(inside, between)
    found = reshape(_counted(op.where(inside, place, number(bins)), bins, weights), shape)
    if not is_density:
        return found
    volume: Expr = op.sum(found, axis=tuple(range(len(shape))))
    for k, (edge, count) in enumerate(zip(edges, shape, strict=True)):
        widths = op.subtract(slice_axis(edge, 0, 1, count + 1), slice_axis(edge, 0, 0, count))
        volume = op.multiply(volume, reshape(widths, (count, *[1] * (len(shape) - 1 - k))))
    return op.divide(found, volume)


@converter("histogram")
def histogram(
    self: Expr, node: Node, bins: Any = 100, range: list[float] | None = None, weight: Expr | None = None,
    density: bool = False,
) -> tuple[Expr, Expr]:
    x = reshape(self, (math.prod(node.static(self, "self")),))
    if isinstance(bins, Expr):
        return _histogram([x], [bins], weight, density), bins
    edges = _edges(x, bins, range)
    return _histogram([x], [edges], weight, density), edges


@converter("histogramdd")
def histogramdd(
    self: Expr, bins: Any, node: Node, range: list[float] | None = None, weight: Expr | None = None,
    density: bool = False,
) -> tuple[Expr, list[Expr]]:
    """A histogram of points (…, dimensions), with bins or edges for each dimension."""
    shape = node.static(self, "self")
    points = reshape(self, (math.prod(shape[:-1]), shape[-1]))
    each = list(bins) if isinstance(bins, (list, tuple)) else [bins] * shape[-1]
    columns = [op.squeeze(slice_axis(points, 1, k, k + 1), axis=(1,)) for k, _ in enumerate(each)]
    edges = [
        b if isinstance(b, Expr) else _edges(x, b, None if range is None else range[2 * k : 2 * k + 2])
        for k, (x, b) in enumerate(zip(columns, each, strict=True))]
    return _histogram(columns, edges, weight, density), edges


def _edges(x: Expr, bins: int, bounds: list[float] | None) -> Expr:
    """The edges of `bins` bins of equal width, between `bounds` or the extremes of the elements."""
    low, high = (0.0, 0.0) if bounds is None else bounds
    if bounds is None and not shape_of(x)[0]:
        low, high = 0.0, 1.0
    least, most = _bounds(x, low, high, 0.5)
    return _spaced(least, most, bins)


def _spaced(low: Expr, high: Expr, count: int) -> Expr:
    """`count` + 1 equally spaced numbers, each computed from the nearer end as in torch.linspace."""
    k = np.arange(count + 1)
    kind = dtype_of(low).numpy()
    step = op.divide(op.subtract(high, low), scalar(count, low))
    upward = op.add(low, op.multiply(step, Constant(k.astype(kind))))
    downward = op.subtract(high, op.multiply(step, Constant((count - k).astype(kind))))
    return op.where(Constant(k < (count + 1) // 2), upward, downward)


# Pairs and segments


@converter("pdist", "_pdist_forward")
def pdist(self: Expr, node: Node, p: float = 2.0) -> Expr:
    """The distances between all pairs of rows."""
    n, width = node.static(self, "self")
    first, second = np.triu_indices(n, 1)
    if not len(first) or not width:
        return Constant(np.zeros(len(first), dtype_of(self).numpy()))
    a, b = (op.take(self, Constant(k.astype(np.int64)), axis=0) for k in (first, second))
    return vector_norm(op.subtract(a, b), node, p, None, [-1])


_SEGMENTS: Final = {
    "sum": ("sum", 0.0),
    "mean": ("sum", 0.0),
    "prod": ("prod", 1.0),
    "max": ("amax", -math.inf),
    "min": ("amin", math.inf),
}


@converter("segment_reduce")
def segment_reduce(
    data: Expr, reduce: str, node: Node, lengths: Expr | None = None, indices: Expr | None = None,
    offsets: Expr | None = None, axis: int = 0, unsafe: bool = False, initial: Any = None,
) -> Expr:
    """Reduce consecutive slices along a dimension; `lengths` or `offsets` delimit the segments."""
    where = lengths if lengths is not None else offsets
    if where is None or indices is not None:
        node.refuse("neither 'lengths' nor 'offsets' is given, or 'indices' is; give 'lengths' or 'offsets' alone")
    along, shape = axis_of(axis, rank(data), node), node.static(data, "data")
    lead, n = shape[:along], shape[along]
    rows, batch = shape_of(where)[-1], math.prod(lead)
    flat = cast(reshape(where, (batch, rows)), INT64)
    ends = op.cumsum(flat, axis=1) if lengths is not None else slice_axis(flat, 1, 1, rows)
    count = rows if lengths is not None else rows - 1
    steps = Constant(np.broadcast_to(np.arange(n), (batch, n)).astype(np.int64))
    segment = op.searchsorted(ends, steps, right=True, dtype="int64")
    values = reshape(data, (batch, n, math.prod(shape[along + 1 :])))
    how, neutral = _SEGMENTS[reduce]
    start = neutral if initial is None else float(initial)
    places = op.broadcast_to(op.expand_dims(segment, axis=2), shape=shape_of(values))
    width = shape_of(values)[2]
    begun = Constant(np.full((batch, count + 1, width), start, dtype_of(data).numpy()))
    found = slice_axis(scatter_reduce(begun, 1, places, values, how, node), 1, 0, count)
    if reduce == "mean":
        found = _means(found, ends, initial)
    return reshape(found, (*lead, count, *shape[along + 1 :]))


def _means(sums: Expr, ends: Expr, initial: Any) -> Expr:
    """Sums of segments divided by their lengths; an empty segment is the initial value, or NaN."""
    count = shape_of(ends)[1]
    zeros = Constant(np.zeros((shape_of(ends)[0], 1), np.int64))
    starts = op.concatenate((zeros, slice_axis(ends, 1, 0, count - 1)), axis=1) if count > 1 else zeros
    lengths = op.expand_dims(cast(op.subtract(ends, starts), dtype_of(sums)), axis=2)
    empty = op.equal(lengths, scalar(0, sums))
    return op.where(empty, scalar(math.nan if initial is None else float(initial), sums), op.divide(sums, lengths))


# Copies of views, and gradients of pooling


@converter("as_strided_scatter")
def as_strided_scatter(
    self: Expr, src: Expr, size: list[int], stride: list[int], node: Node, storage_offset: int | None = None
) -> Expr:
    shape, places = node.static(self, "self"), np.asarray(storage_offset or 0)
    for count, step in zip(size, stride, strict=True):
        places = places[..., None] + np.arange(count) * step
    if not places.size:
        return self
    flat = op.scatter_elements(
        reshape(self, (math.prod(shape),)), Constant(places.reshape(-1).astype(np.int64)), reshape(src, (places.size,)),
        axis=0)
    return reshape(flat, shape)


@converter("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward")
def max_pool_backward(
    grad_output: Expr, self: Expr, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool,
    indices: Expr, node: Node,
) -> Expr:
    """Add each gradient to the element that was the maximum of its window."""
    n = 2 if "2d" in node.name else 3
    shape = node.static(self, "self")
    lead, size = math.prod(shape[:-n]), math.prod(shape[-n:])
    windows = math.prod(shape_of(grad_output)[-n:])
    zeros = Constant(np.zeros((lead, size), dtype_of(self).numpy()))
    found = op.scatter_elements(
        zeros, cast(reshape(indices, (lead, windows)), INT64), reshape(grad_output, (lead, windows)), axis=1,
        reduction="add")
    return reshape(found, shape)


# Divisors


@converter("gcd")
def gcd(self: Any, other: Any, node: Node) -> Expr:
    return op.gcd(*promoted(self, other, node=node))


@converter("lcm")
def lcm(self: Any, other: Any, node: Node) -> Expr:
    """The product divided by the greatest common divisor; 0 if a number is 0."""
    a, b = promoted(self, other, node=node)
    divisor, zero = op.gcd(a, b), scalar(0, a)
    size = op.abs(op.multiply(op.trunc_divide(a, op.where(op.equal(divisor, zero), scalar(1, a), divisor)), b))
    return op.where(op.equal(divisor, zero), zero, size)


# Bits of floating-point numbers

_FORMATS: Final = {"float16": ("int16", 10, 15), "float32": ("int32", 23, 127), "float64": ("int64", 52, 1023)}
"""The integer type of the same width, the number of fraction bits, and the exponent bias."""


def _bits(x: Expr, node: Node) -> Expr:
    kind = str(dtype_of(x))
    if kind not in _FORMATS:
        node.refuse(f"an input of type {kind} is not supported; cast it to float32")
    return op.reinterpret(x, dtype=_FORMATS[kind][0])


def _sign_bit(x: Expr, node: Node) -> Expr:
    """Whether the sign bit is set, also for zero and NaN."""
    if not dtype_of(x).is_float:
        return op.less(x, scalar(0, x)) if dtype_of(x).is_integer else op.zeros_like(x)
    bits = _bits(x, node)
    return op.less(bits, scalar(0, bits))


@converter("signbit")
def signbit(self: Expr, node: Node) -> Expr:
    return _sign_bit(self, node)


@converter("copysign")
def copysign(self: Any, other: Any, node: Node) -> Expr:
    x, y = (floating(v, node) for v in promoted(self, other, node=node))
    return op.where(_sign_bit(y, node), op.negative(op.abs(x)), op.abs(x))


@converter("nextafter")
def nextafter(self: Expr, other: Expr, node: Node) -> Expr:
    """The next number after x toward y: its bits incremented away from zero, or decremented toward it."""
    x, y = promoted(self, other, node=node)
    bits, zero = _bits(x, node), scalar(0, x)
    one, least = scalar(1, bits), np.finfo(dtype_of(x).numpy()).smallest_subnormal
    outward = op.equal(op.greater(y, x), op.greater(x, zero))
    moved = op.reinterpret(op.where(outward, op.add(bits, one), op.subtract(bits, one)), dtype=dtype_of(x))
    from_zero = op.where(op.greater(y, zero), scalar(least, x), scalar(-least, x))
    found = op.where(op.equal(x, y), y, op.where(op.equal(x, zero), from_zero, moved))
    return op.where(op.isnan(x), x, op.where(op.isnan(y), y, found))


@converter("frexp")
def frexp(self: Expr, node: Node) -> tuple[Expr, Expr]:
    """The mantissa in [1/2, 1) and the exponent, by replacing the exponent bits."""
    _bits(self, node)
    integer, digits, bias = _FORMATS[str(dtype_of(self))]
    smallest = scalar(float(np.finfo(dtype_of(self).numpy()).tiny), self)
    subnormal = op.less(op.abs(self), smallest)
    x = op.where(subnormal, op.multiply(self, scalar(2.0**digits, self)), self)
    bits = op.reinterpret(x, dtype=integer)
    mask = ((1 << (dtype_of(self).bits - 1 - digits)) - 1) << digits
    exponent = op.right_shift(op.bitwise_and(bits, scalar(mask, bits)), scalar(digits, bits))
    mantissa = op.reinterpret(
        op.bitwise_or(op.bitwise_and(bits, scalar(~mask, bits)), scalar((bias - 1) << digits, bits)),
        dtype=dtype_of(self))
    power_of_two = op.subtract(
        cast(exponent, "int32"), op.where(subnormal, number(bias - 1 + digits, "int32"), number(bias - 1, "int32")))
    plain = op.logical_and(op.isfinite(self), op.not_equal(self, scalar(0, self)))
    return op.where(plain, mantissa, self), op.where(plain, power_of_two, number(0, "int32"))


@converter("ldexp")
def ldexp(self: Expr, other: Expr, node: Node) -> Expr:
    return multiply(self, power(2.0, other, node), node)
