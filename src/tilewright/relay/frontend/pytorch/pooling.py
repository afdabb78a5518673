"""Pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.types import INT64
from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend import shaping
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.pytorch.nn import on_axes
from tilewright.relay.frontend.pytorch.node import Node
from tilewright.relay.frontend.pytorch.registry import converter
from tilewright.relay.frontend.pytorch.transform import dims_of
from tilewright.relay.frontend.shaping import cast, reshape, slice_axis
from tilewright.relay.types_of import dtype_of, rank, scalar, shape_of

_LAYOUTS: Final = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
_MAX: Final = {1: op.nn.max_pool1d, 2: op.nn.max_pool2d, 3: op.nn.max_pool3d}
_AVERAGE: Final = {1: op.nn.avg_pool1d, 2: op.nn.avg_pool2d, 3: op.nn.avg_pool3d}
_ADAPTIVE: Final = {
    "avg": {1: op.nn.adaptive_avg_pool1d, 2: op.nn.adaptive_avg_pool2d, 3: op.nn.adaptive_avg_pool3d},
    "max": {1: op.nn.adaptive_max_pool1d, 2: op.nn.adaptive_max_pool2d, 3: op.nn.adaptive_max_pool3d},
}


def _batched(x: Expr, n: int) -> tuple[Expr, bool]:
    """Add a batch dimension if `x` has none; return whether it had none."""
    return (reshape(x, (1, *shape_of(x))), True) if rank(x) == n + 1 else (x, False)


def _without(x: Expr, single: bool) -> Expr:
    return reshape(x, shape_of(x)[1:]) if single else x


def _dimensions(name: str) -> int:
    return int(name[name.index("pool") + 4])


@converter("max_pool1d", "max_pool2d", "max_pool3d", "quantized_max_pool2d", "mkldnn_max_pool2d")
def max_pool(self: Expr, kernel_size: Any, node: Node, stride: Any = (), padding: Any = 0, dilation: Any = 1,
             ceil_mode: bool = False) -> Expr:
    n = _dimensions(node.name)
    x, single = _batched(self, n)
    kernel, pads, apart = on_axes(kernel_size, n), on_axes(padding, n), on_axes(dilation, n)
    steps = on_axes(stride, n) if stride not in ((), [], None) else kernel
    extra = _ceiled(x, kernel, steps, pads, apart, ceil_mode)
    y = _MAX[n](x, pool_size=kernel, strides=steps, padding=(*pads, *(p + e for p, e in zip(pads, extra, strict=True))),
                dilation=apart, layout=_LAYOUTS[n])
    return _without(y, single)


def _ceiled(x: Expr, kernel: Sequence[int], steps: Sequence[int], pads: Sequence[int], apart: Sequence[int],
            ceil_mode: bool) -> list[int]:
    """Padding after each dimension for the last window in ceil mode; torch drops windows that start in the padding."""
    extra = []
    for size, k, s, p, d in zip(shape_of(x)[2:], kernel, steps, pads, apart, strict=True):
        if not ceil_mode or not isinstance(size, int):
            extra.append(0)
            continue
        span = size + 2 * p - d * (k - 1) - 1
        count = -(-span // s) + 1
        if (count - 1) * s >= size + p:
            count -= 1
        extra.append(max(0, (count - 1) * s + d * (k - 1) + 1 - size - 2 * p))
    return extra


@converter("max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices")
def max_pool_with_indices(self: Expr, kernel_size: Any, node: Node, stride: Any = (), padding: Any = 0,
                          dilation: Any = 1, ceil_mode: bool = False) -> tuple[Expr, Expr]:
    """Maxima and their indices in a plane of the input, found by searching each window."""
    n = _dimensions(node.name)
    values = max_pool(self, kernel_size, node, stride, padding, dilation, ceil_mode)
    x, single = _batched(self, n)
    kernel, pads, apart = on_axes(kernel_size, n), on_axes(padding, n), on_axes(dilation, n)
    steps = on_axes(stride, n) if stride not in ((), [], None) else kernel
    sizes, found = node.static(x, "self")[2:], shape_of(values)[-n:]
    places, inside = np.zeros((1,) * (2 * n), np.int64), np.ones((1,) * (2 * n), bool)
    for axis, (size, k, s, p, d, count) in enumerate(zip(sizes, kernel, steps, pads, apart, found, strict=True)):
        along = np.arange(count)[:, None] * s - p + np.arange(k) * d
        shape = [1] * (2 * n)
        shape[axis], shape[n + axis] = along.shape
        along = along.reshape(shape)
        inside = inside & (along >= 0) & (along < size)
        places = places * size + np.clip(along, 0, size - 1)
    flat_places = np.broadcast_to(places, inside.shape).reshape(math.prod(found), math.prod(kernel))
    flat = reshape(x, (*shape_of(x)[:2], math.prod(sizes)))
    windows = op.take(flat, Constant(flat_places.copy()), axis=2)
    lowest = scalar(-np.inf if dtype_of(x).is_float else np.iinfo(dtype_of(x).numpy()).min, x)
    windows = op.where(Constant(inside.reshape(flat_places.shape)), windows, lowest)
    which = cast(op.argmax(windows, axis=(3,)), INT64)
    chosen = op.add(op.multiply(Constant(np.arange(math.prod(found)) * math.prod(kernel)), scalar(1, which)), which)
    indices = reshape(op.take(Constant(flat_places.reshape(-1).astype(np.int64)), chosen, axis=0),
                      (*shape_of(x)[:2], *found))
    return values, _without(indices, single)


@converter("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(
    self: Expr, kernel_size: Any, node: Node, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Expr:
    n = _dimensions(node.name)
    x, single = _batched(self, n)
    kernel, pads = on_axes(kernel_size, n), on_axes(padding, n)
    steps = on_axes(stride, n) if stride not in ((), [], None) else kernel
    extra = _ceiled(x, kernel, steps, pads, (1,) * n, ceil_mode)
    more = (*pads, *(p + e for p, e in zip(pads, extra, strict=True)))
    build, layout = _AVERAGE[n], _LAYOUTS[n]
    if divisor_override is not None:
        kind = dtype_of(x)
        y = build(x if kind.is_float else cast(x, "float64"), pool_size=kernel, strides=steps, padding=more,
                  layout=layout, count_include_pad=True)
        y = op.multiply(y, scalar(math.prod(kernel) / divisor_override, y))
        return _without(y if kind.is_float else cast(op.trunc(y), kind), single)
    if count_include_pad and any(extra):  # count the padding, but not what ceil_mode adds
        y = build(shaping.pad(x, [(0, 0), (0, 0), *((p, p) for p in pads)]), pool_size=kernel, strides=steps,
                  padding=(*[0] * n, *extra), layout=layout,
                  count_include_pad=False)
    else:
        y = build(x, pool_size=kernel, strides=steps, padding=more, layout=layout, count_include_pad=count_include_pad)
    return _without(y, single)


@converter("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "_adaptive_avg_pool2d",
           "_adaptive_avg_pool3d")
def adaptive_avg_pool(self: Expr, output_size: Any, node: Node) -> Expr:
    return _adaptive(self, output_size, "avg", _dimensions(node.name), node)


@converter("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(self: Expr, output_size: Any, node: Node) -> tuple[Expr, Expr]:
    n = _dimensions(node.name)
    sizes = node.static(self, "self")[-n:]
    wanted = [s if o is None else o for s, o in zip(sizes, on_axes(output_size, n), strict=True)]
    values = _adaptive(self, wanted, "max", n, node)
    return values, _adaptive_places(self, sizes, wanted, n)


def _adaptive(x: Expr, output_size: Any, what: str, n: int, node: Node) -> Expr:
    whole, single = _batched(x, n)
    wanted = tuple(s if o is None else o for s, o in zip(shape_of(whole)[2:], dims_of(on_axes(output_size, n), node),
        strict=True))
    return _without(_ADAPTIVE[what][n](whole, output_size=wanted, layout=_LAYOUTS[n]), single)


def _adaptive_places(x: Expr, sizes: Sequence[int], wanted: Sequence[int], n: int) -> Expr:
    """The index in a plane of the input of the maximum of each window."""
    bounds = [[(o * s // w, -(-(o + 1) * s // w)) for o in range(w)] for s, w in zip(sizes, wanted, strict=True)]
    most = math.prod(max(b - a for a, b in axis) for axis in bounds)
    rows: list[list[int]] = []
    for window in np.ndindex(*wanted):
        places = np.zeros(1, np.int64)
        for axis, k in enumerate(window):
            places = (places[:, None] * sizes[axis] + np.arange(*bounds[axis][k])).reshape(-1)
        rows.append([*places, *[places[0]] * (most - places.size)])
    table = np.array(rows, np.int64)
    lead = shape_of(x)[: rank(x) - n]
    flat = reshape(x, (*lead, math.prod(sizes)))
    which = cast(op.argmax(op.take(flat, Constant(table), axis=len(lead)), axis=(len(lead) + 1,)), INT64)
    chosen = op.add(Constant(np.arange(len(rows)) * most), which)
    return reshape(op.take(Constant(table.reshape(-1)), chosen, axis=0), (*lead, *wanted))


@converter("fractional_max_pool2d", "fractional_max_pool3d")
def fractional_max_pool(self: Expr, kernel_size: Any, output_size: Any, random_samples: Expr,
                        node: Node) -> tuple[Expr, Expr]:
    """Maxima of equal-sized windows and their indices; the samples in [0, 1) determine where windows start."""
    n = _dimensions(node.name)
    shape = node.static(self, "self")
    lead, sizes = shape[:-n], shape[-n:]
    kernel, wanted, planes = on_axes(kernel_size, n), on_axes(output_size, n), math.prod(lead)
    samples = cast(reshape(random_samples, (planes, n)), "float64")
    place: Expr = Constant(np.zeros((planes, *[1] * (2 * n)), np.int64))
    for k, (size, count, width) in enumerate(zip(sizes, wanted, kernel, strict=True)):
        which = n - 1 - k if n == 2 else k  # the first sample is for the columns of an image
        begins = _window_starts(slice_axis(samples, 1, which, which + 1), size, count, width)
        inside = op.add(reshape(begins, (planes, count, 1)), Constant(np.arange(width)))
        axes = [planes, *(count if i == k else 1 for i in range(n)), *(width if i == k else 1 for i in range(n))]
        place = op.add(op.multiply(place, shaping.number(size)), reshape(inside, axes))
    place = reshape(place, (planes, math.prod(wanted), math.prod(kernel)))
    flat = reshape(self, (planes, math.prod(sizes)))
    windows = reshape(op.gather(flat, reshape(place, (planes, -1)), axis=1), shape_of(place))
    best = op.argmax(windows, axis=(2,), keepdims=True)
    found = (op.gather(windows, cast(best, INT64), axis=2), op.gather(place, cast(best, INT64), axis=2))
    values, places = (reshape(f, (*lead, *wanted)) for f in found)
    return values, places


def _window_starts(sample: Expr, size: int, count: int, width: int) -> Expr:
    """The starts of `count` windows of `width` elements for a sample (planes, 1); the last window ends at `size`."""
    last = Constant(np.full((shape_of(sample)[0], 1), size - width, np.int64))
    if count == 1:
        return last
    step = Constant(np.asarray((size - width) / (count - 1)))
    moved = op.add(sample, Constant(np.arange(count - 1, dtype=np.float64)))
    begins = op.subtract(op.floor(op.multiply(moved, step)), op.floor(op.multiply(sample, step)))
    return op.concatenate((cast(begins, INT64), last), axis=1)


@converter("lp_pool1d", "lp_pool2d")
def lp_pool(input: Expr, norm_type: float, kernel_size: Any, node: Node, stride: Any = (),
            ceil_mode: bool = False) -> Expr:
    n = _dimensions(node.name)
    raised = op.power(op.abs(input), scalar(norm_type, input))
    mean = avg_pool(raised, kernel_size, node.renamed(f"avg_pool{n}d"), stride, 0, ceil_mode)
    return op.power(op.multiply(mean, scalar(math.prod(on_axes(kernel_size, n)), mean)), scalar(1 / norm_type, mean))
