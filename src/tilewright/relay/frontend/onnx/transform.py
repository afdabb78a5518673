"""Operators that move, select and create elements: reshape, slice, gather, pad, expand, one-hot, …"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.base.limits import MOST_BYTES
from tilewright.base.types import OpenSize
from tilewright.relay.expr import Constant, Expr, const
from tilewright.relay.frontend.core.index_checks import from_front, inside, tuples_from_front
from tilewright.relay.frontend.core.node import NotKnownError
from tilewright.relay.frontend.onnx.node import Node
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import axis_of, cast, fields, pad, reshape, same_size, slice_axis, transpose
from tilewright.relay.op.selection import places_of
from tilewright.relay.types_of import dtype_of, rank, scalar, shape_of
from tilewright.scalar.arith.noted_sizes import is_noted
from tilewright.scalar.arith.open_sizes import takes_open
from tilewright.scalar.expr import PrimExpr, UnknownDim
from tilewright.topi.shapes import (
    at_least,
    at_most,
    differ,
    is_copied,
    is_dynamic,
    is_multiple,
    must_differ,
    same,
    unequal,
)


@converter("Reshape")
def reshape_by_attribute(data: Expr, *, shape: tuple[int, ...] = ()) -> Expr:
    return reshape(data, _copied_zeros(data, shape))


@converter("Reshape", since=5)
def reshape_to(data: Expr, shape: Expr, *, allowzero: int = 0, node: Node) -> Expr:
    dims = tuple(node.dims(shape, "shape").flat)
    return reshape(data, dims if allowzero else _copied_zeros(data, dims))


def _copied_zeros(data: Expr, dims: Sequence[Any]) -> tuple[Any, ...]:
    """The shape with each 0 replaced by the input's dimension at that position. Symbolic sizes must not be 0 there."""
    old = shape_of(data)
    return tuple(old[k] if is_copied(d, old, k) else d for k, d in enumerate(dims))


@converter("Flatten", takes_unknown=True)
def flatten(x: Expr, *, axis: int = 1, node: Node) -> Expr:
    dims = shape_of(x)
    if not -len(dims) <= axis <= len(dims):
        node.refuse(f"attribute 'axis' is {axis}, but its input has {len(dims)} dimensions")
    axis = axis + len(dims) if axis < 0 else axis
    if any(isinstance(d, UnknownDim) for d in dims):
        return _without_ones(x, dims, axis)
    front, back = dims[:axis], dims[axis:]
    if all(isinstance(d, int) for d in back):
        return reshape(x, (-1 if not all(isinstance(d, int) for d in front) else math.prod(front), math.prod(back)))
    return reshape(x, (math.prod(front), -1) if all(isinstance(d, int) for d in front)
                   else (_product(front), _product(back)))


def _without_ones(x: Expr, dims: Sequence[Any], axis: int) -> Expr:
    """`x` as a matrix if it has exactly two sizes other than 1, on either side of `axis`; else raises `NotKnownError`.
    """
    ones = [k for k, d in enumerate(dims) if not isinstance(d, UnknownDim) and d == 1]
    left = [k for k in range(len(dims)) if k not in ones]
    if len(dims) == 2 and axis == 1:
        return x
    if len(left) != 2 or not left[0] < axis <= left[1]:
        raise NotKnownError("the sizes of its input are known only at run time")
    return op.squeeze(x, axis=ones)


def _product(dims: Sequence[Any]) -> Any:
    total: Any = 1
    for d in dims:
        total = total * d
    return total


@converter("Transpose")
def transpose_axes(data: Expr, *, perm: tuple[int, ...] | None = None) -> Expr:
    return transpose(data, perm if perm is not None else tuple(reversed(range(rank(data)))))


@converter("Squeeze")
def squeeze_by_attribute(data: Expr, *, axes: tuple[int, ...] | None = None, node: Node) -> Expr:
    dims = shape_of(data)
    if axes is None:
        gone = {k for k, d in enumerate(node.static(data, "data")) if d == 1}
    else:
        gone = {axis_of(a, len(dims), node) for a in axes}
    for k in gone:
        if differ(dims[k], 1):
            node.refuse(f"dimension {k} of the input, of shape {dims}, is not 1 and cannot be squeezed")
    if not gone:
        return data
    if isinstance(data, Constant):
        return reshape(data, tuple(d for k, d in enumerate(dims) if k not in gone))
    return op.squeeze(data, axis=tuple(sorted(gone)))


@converter("Squeeze", since=13)
def squeeze(data: Expr, axes: Expr | None = None, *, node: Node) -> Expr:
    return squeeze_by_attribute(data, axes=None if axes is None else node.ints(axes, "axes"), node=node)


@converter("Unsqueeze")
def unsqueeze_by_attribute(data: Expr, *, axes: tuple[int, ...], node: Node) -> Expr:
    total = rank(data) + len(axes)
    places = sorted(axis_of(a, total, node) for a in axes)
    if len(set(places)) != len(places):
        node.refuse(f"axes {tuple(axes)} name a dimension twice")
    if isinstance(data, Constant):
        return reshape(data, np.expand_dims(data.value, tuple(places)).shape)
    for place in places:
        data = op.expand_dims(data, axis=place)
    return data


@converter("Unsqueeze", since=13)
def unsqueeze(data: Expr, axes: Expr, *, node: Node) -> Expr:
    return unsqueeze_by_attribute(data, axes=node.ints(axes, "axes"), node=node)


@converter("Concat")
def concat_first(*inputs: Expr, axis: int = 1) -> Expr:
    return concat(*inputs, axis=axis)


@converter("Concat", since=4)
def concat(*inputs: Expr, axis: int) -> Expr:
    return inputs[0] if len(inputs) == 1 else op.concatenate(inputs, axis=axis)


@converter("Split")
def split_first(data: Expr, sizes: Expr | None = None, *, axis: int = 0, split: tuple[int, ...] | None = None,
                node: Node) -> tuple[Expr, ...]:
    return _split(data, split if sizes is None else node.sizes(sizes, "split"), len(node.outputs), axis, node, True)


@converter("Split", since=2)
def split_by_sizes(data: Expr, *, axis: int = 0, split: tuple[int, ...] | None = None, node: Node) -> tuple[Expr, ...]:
    return _split(data, split, len(node.outputs), axis, node, True)


@converter("Split", since=13)
def split_by_input(data: Expr, split: Expr | None = None, *, axis: int = 0, node: Node) -> tuple[Expr, ...]:
    return _split(data, None if split is None else node.sizes(split, "split"), len(node.outputs), axis, node, True)


@converter("Split", since=18)
def split(data: Expr, split: Expr | None = None, *, axis: int = 0, num_outputs: int | None = None,
          node: Node) -> tuple[Expr, ...]:
    if num_outputs not in (None, len(node.outputs)):
        node.refuse(f"num_outputs is {num_outputs}, but it has {len(node.outputs)} outputs")
    return _split(data, None if split is None else node.sizes(split, "split"), len(node.outputs), axis, node)


def _split(data: Expr, sizes: Sequence[int] | None, count: int, axis: int, node: Node, equal: bool = False
           ) -> tuple[Expr, ...]:
    """Return `count` parts of these sizes, by default as many elements in each as possible; of a symbolic size all
    parts have `equal` sizes if that is required."""
    if not rank(data):
        node.refuse("its input is a scalar, which has no axis to split")
    axis = axis_of(axis, rank(data), node)
    length = shape_of(data)[axis]
    if sizes is None:
        if not isinstance(length, int):
            length = node.static(data, "input")[axis]
        if equal and isinstance(length, OpenSize):
            is_multiple(length, count)
        step = -(-length // count)
        ends = [at_most(k * step, length) for k in range(1, count)]
    else:
        if isinstance(length, int) and differ(sum(sizes), length):
            node.refuse(f"the parts {tuple(sizes)} do not add up to {length}, the size of dimension {axis}")
        elif not isinstance(length, int) and takes_open():
            _require_sum(length, sizes)
        count, ends = len(sizes), [*itertools.accumulate(sizes[:-1])]
    return (data,) if count == 1 else fields(op.split(data, indices_or_sections=tuple(ends), axis=axis), count)


def _require_sum(length: Any, sizes: Sequence[Any]) -> None:
    """Raise `UnequalSizesError` for parts of known sizes of a symbolic dimension, which they determine."""
    if all(isinstance(n, int) for n in sizes):
        must_differ(length, sum(sizes), f"the parts {tuple(sizes)} must add up to the symbolic size {length}; give it "
                    f"the size {sum(sizes)}")


@converter("Slice")
def slice_by_attribute(data: Expr, *, starts: tuple[int, ...], ends: tuple[int, ...],
                       axes: tuple[int, ...] | None = None, node: Node) -> Expr:
    return _slice(data, starts, ends, axes, None, node)


@converter("Slice", since=10)
def slice_(data: Expr, starts: Expr, ends: Expr, axes: Expr | None = None, steps: Expr | None = None, *,
           node: Node) -> Expr:
    axis_values = None if axes is None else node.ints(axes, "axes")
    step_values = None if steps is None else node.ints(steps, "steps")
    return _slice(data, _bounds(data, starts, "starts", axis_values, node), _bounds(data, ends, "ends", axis_values,
        node), axis_values, step_values, node)


def _bounds(data: Expr, x: Expr, name: str, axes: Sequence[int] | None, node: Node) -> tuple[Any, ...]:
    """Slice bounds: an end equal to the symbolic size is the end; other bounds may be symbolic, too."""
    value = node.dims(x, name)
    if value.dtype != object:
        return tuple(int(v) for v in value.flat)
    dims, result = shape_of(data), []
    for k, bound in enumerate(value.flat):
        size = dims[axes[k] if axes is not None else k]
        if bound is size and name == "ends":
            result.append(1 << 62)
        else:
            is_plain = isinstance(bound, (int, np.integer)) and not isinstance(bound, OpenSize) and not is_noted(bound)
            result.append(int(bound) if is_plain else bound)
    return tuple(result)


def _slice(
    data: Expr, starts: Sequence[Any], ends: Sequence[Any], axes: Sequence[int] | None, steps: Sequence[int] | None,
    node: Node,
) -> Expr:
    dims = shape_of(data)
    axes = range(len(starts)) if axes is None else [axis_of(a, len(dims), node) for a in axes]
    steps = [1] * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps):
        node.refuse(f"starts, ends, axes and steps must have the same length, but their lengths are {len(starts)}, "
                    f"{len(ends)}, {len(axes)} and {len(steps)}")
    if len({*axes}) != len(axes):
        node.refuse(f"axes {tuple(axes)} name a dimension twice")
    parts = []
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step == 0:
            node.refuse(f"the step of dimension {axis} is 0")
        part = _slice_part(start, end, step, dims[axis], axis, data, node)
        if part is not None:
            parts.append((*part, axis))
    if not parts:
        return data
    begin, end_, stride, axis_ = zip(*parts, strict=True)
    return op.strided_slice(data, begin=begin, end=end_, strides=stride, axes=axis_)


def _slice_part(start: Any, end: Any, step: int, size: Any, axis: int, data: Expr,
                node: Node) -> tuple[Any, Any, int] | None:
    """Begin, end and stride of a slice of one dimension, or None if it keeps the whole dimension."""
    if not isinstance(start, int) or not isinstance(end, int):
        if step == 1 and all(not isinstance(bound, int) or bound >= 0 for bound in (start, end)):
            return start, min(end, (1 << 31) - 1) if isinstance(end, int) else end, step
        node.refuse(f"the slice [{start}:{end}:{step}] of dimension {axis} must have bounds that are known at compile "
                    "time; give the shapes of the inputs")
    if not isinstance(size, int) or is_noted(size):
        if start == 0 and end >= 1 << 31 and step == 1:
            return None
        if step > 0 and start >= 0 and end >= 0:
            return start, min(end, (1 << 31) - 1), step
        size = node.static(data, "data")[axis]
    if isinstance(size, OpenSize) and step > 0:
        return start + size if start < 0 else start, end + size if end < 0 else min(end, (1 << 31) - 1), step
    first, last = _clamped(start, end, step, size)
    if (first, last, step) == (0, size, 1):
        return None
    if step < 0 and last < 0:  # a negative end would count from the end
        last = -size - 1
    return first, last, step


def _clamped(start: int, end: int, step: int, size: int) -> tuple[int, int]:
    """First and end index of a slice, -1 for before the first element; a backward slice starts inside the tensor."""
    if step > 0:
        first, last, _ = slice(start, end, step).indices(size)
        return first, last
    start, end = (e + size if e < 0 else e for e in (start, end))
    return min(max(start, 0), size - 1), min(max(end, -1), size - 1)


@converter("Gather")
def gather(data: Expr, indices: Expr, *, axis: int = 0, node: Node) -> Expr:
    axis = axis_of(axis, rank(data), node)
    value = node.known(indices)
    if (value is None or value.dtype == object) and is_noted(shape_of(data)[axis]):
        return op.take(data, indices, axis=axis, mode="wrap")  # correct for every size
    return op.take(data, _from_front(indices, data, axis, node), axis=axis)


@converter("GatherElements")
def gather_elements(data: Expr, indices: Expr, *, axis: int = 0, node: Node) -> Expr:
    axis = axis_of(axis, rank(data), node)
    return op.gather(data, _from_front(indices, data, axis, node), axis=axis)


def _from_front(indices: Expr, data: Expr, axis: int, node: Node) -> Expr:
    """Indices into a dimension of `data`, normalized to count from the front."""
    value = node.known(indices)
    known = indices if value is None or value.dtype == object else Constant(value, indices.span)
    return from_front(known, data, axis, node)


def _index_tuples_first(indices: Expr, data: Expr, first: int, node: Node) -> Expr:
    """Move index tuples from the last dimension (ONNX) to the first (Relay). They index the dimensions of `data` from
    `first` on."""
    value = node.known(indices)
    count, n = shape_of(indices)[-1], rank(indices)
    known = indices if value is None or value.dtype == object else Constant(value, indices.span)
    if isinstance(count, int) and first + count <= rank(data):
        known = tuples_from_front(known, data, range(first, first + count), node)
    return transpose(known, (n - 1, *range(n - 1)))


@converter("GatherND")
def gather_nd(data: Expr, indices: Expr, *, batch_dims: int = 0, node: Node) -> Expr:
    return op.gather_nd(data, _index_tuples_first(indices, data, batch_dims, node), batch_dims=batch_dims)


_REDUCTIONS = {"none": "update", "update": "update", "add": "add", "mul": "mul", "min": "min", "max": "max"}
"""Reductions of scatters by their names in ONNX; older exporters wrote `update` for `none`."""


@converter("Scatter", "ScatterElements")
def scatter_elements(data: Expr, indices: Expr, updates: Expr, *, axis: int = 0, reduction: str = "none",
                     node: Node) -> Expr:
    if reduction not in _REDUCTIONS:
        node.refuse(f"reduction is {reduction!r}; it must be one of {', '.join(_REDUCTIONS)}")
    axis = axis_of(axis, rank(data), node)
    return op.scatter_elements(data, _from_front(indices, data, axis, node), updates, axis=axis,
                               reduction=_REDUCTIONS[reduction])


@converter("ScatterND")
def scatter_nd(data: Expr, indices: Expr, updates: Expr, *, reduction: str = "none", node: Node) -> Expr:
    if reduction not in _REDUCTIONS:
        node.refuse(f"reduction is {reduction!r}; it must be one of {', '.join(_REDUCTIONS)}")
    return op.scatter_nd(data, _index_tuples_first(indices, data, 0, node), updates, mode=_REDUCTIONS[reduction])


@converter("Expand")
def expand(x: Expr, shape: Expr, *, node: Node) -> Expr:
    wanted = tuple(node.dims(shape, "shape").flat)
    dims = shape_of(x)
    padded = (1,) * (len(wanted) - len(dims)) + tuple(dims)
    wanted = (1,) * (len(padded) - len(wanted)) + tuple(int(d) if isinstance(d, np.integer) else d for d in wanted)
    result = tuple(map(_expanded, padded, wanted))
    return x if len(result) == len(dims) and all(map(same_size, result, dims)) else op.broadcast_to(x, shape=result)


def _expanded(size: Any, wanted: Any) -> Any:
    """The size of a dimension that is repeated if it is 1. Raises `UnequalSizesError` for two sizes of which one is
    dynamic, because only some sizes are repeated."""
    if isinstance(size, UnknownDim) or isinstance(wanted, UnknownDim) or same(size, wanted) or same(wanted, 1):
        return size
    if not (isinstance(size, PrimExpr) or is_dynamic(size)) and size == 1:
        return wanted
    if takes_open() and (is_dynamic(size) or is_dynamic(wanted)):
        raise unequal(size, wanted, f"the sizes {size} and {wanted} must be equal")
    return size


@converter("Tile")
def tile_along_axis(x: Expr, tiles: Expr, axis: Expr, *, node: Node) -> Expr:
    reps = [1] * rank(x)
    reps[node.scalar(axis, "axis")] = node.scalar(tiles, "tiles")
    return op.tile(x, reps=tuple(reps))


@converter("Tile", since=6)
def tile(x: Expr, repeats: Expr, *, node: Node) -> Expr:
    reps = node.sizes(repeats, "repeats")
    if len(reps) != rank(x):
        node.refuse(f"input 'repeats' has {len(reps)} numbers, but its data has {rank(x)} dimensions; give one for "
                    "each")
    return x if all(r == 1 for r in reps) else op.tile(x, reps=reps)


@converter("Pad")
def pad_by_attribute(data: Expr, *, pads: tuple[int, ...] | None = None, paddings: tuple[int, ...] | None = None,
                     mode: str = "constant", value: float = 0.0, node: Node) -> Expr:
    given = pads if pads is not None else paddings
    if given is None:
        node.refuse("attribute 'pads' is missing")
    return _pad(data, given, None, mode, scalar(value, data), node)


@converter("Pad", since=11)
def pad_by_inputs(data: Expr, pads: Expr, constant_value: Expr | None = None, axes: Expr | None = None, *,
                  mode: str = "constant", node: Node) -> Expr:
    where = None if axes is None else node.ints(axes, "axes")
    fill = scalar(0, data) if constant_value is None else reshape(constant_value, ())
    return _pad(data, node.sizes(pads, "pads"), where, mode, fill, node)


def _pad(data: Expr, pads: Sequence[int], axes: Sequence[int] | None, mode: str, value: Expr, node: Node) -> Expr:
    ndim = rank(data)
    places = range(ndim) if axes is None else [axis_of(a, ndim, node) for a in axes]
    if len(pads) != 2 * len(places):
        node.refuse(f"pads has {len(pads)} numbers; {2 * len(places)} are needed, before and after each of "
                    f"{len(places)} dimensions")
    widths = [(0, 0)] * ndim
    for k, axis in enumerate(places):
        widths[axis] = (pads[k], pads[k + len(places)])
    cut = [(at_least(-a, 0), at_least(-b, 0)) for a, b in widths]
    widths = [(at_least(a, 0), at_least(b, 0)) for a, b in widths]
    if mode == "constant" and any((a or b) and a + b > node.static(data, "data")[axis]
                                  for axis, (a, b) in enumerate(cut)):
        return _cropped(pad(data, widths, value), cut, node)  # negative pads crop
    data = _cropped(data, cut, node)
    if mode == "wrap":
        return _wrapped(data, widths, node)
    if mode not in ("constant", "reflect", "edge"):
        node.refuse(f"mode is {mode!r}; it must be constant, reflect, edge or wrap")
    return pad(data, widths, value, mode)


def _cropped(data: Expr, widths: Sequence[tuple[int, int]], node: Node) -> Expr:
    """`data` without `widths[k]` elements before and after dimension k; refuses to remove more than all elements."""
    for axis, (before, after) in enumerate(widths):
        if before or after:
            size = node.static(data, "data")[axis]
            if before + after > size:
                node.refuse(f"pads of {-before} and {-after} for dimension {axis} remove more than its {size} "
                            f"elements; remove at most {size}")
            data = slice_axis(data, axis, before, size - after)
    return data


def _wrapped(data: Expr, widths: Sequence[tuple[int, int]], node: Node) -> Expr:
    """Circular padding, as a gather along each padded dimension; by at most its elements if the size is dynamic."""
    for axis, (before, after) in enumerate(widths):
        if before or after:
            size = node.static(data, "data")[axis]
            if isinstance(size, OpenSize):
                first = (slice_axis(data, axis, size - before, size),) if before else ()
                last = (slice_axis(data, axis, 0, after),) if after else ()
                data = op.concatenate((*first, data, *last), axis=axis)
                continue
            node.check_table(size + before + after)
            data = op.take(data, Constant(np.arange(-before, size + after, dtype=np.int64) % size), axis=axis)
    return data


@converter("DepthToSpace")
def depth_to_space(x: Expr, *, blocksize: int, mode: str = "DCR") -> Expr:
    return op.nn.depth_to_space(x, block_size=blocksize, layout="NCHW", mode=mode)


@converter("SpaceToDepth")
def space_to_depth(x: Expr, *, blocksize: int, mode: str = "DCR", node: Node) -> Expr:
    if mode == "DCR":
        return op.nn.space_to_depth(x, block_size=blocksize, layout="NCHW")
    if mode != "CRD":
        node.refuse(f"mode is {mode!r}; it must be 'DCR' or 'CRD'")
    n, c, h, w = node.static(x, "input")
    blocks = reshape(x, (n, c, h // blocksize, blocksize, w // blocksize, blocksize))
    return reshape(transpose(blocks, (0, 1, 3, 5, 2, 4)), (n, c * blocksize**2, h // blocksize, w // blocksize))


@converter("Where")
def where(condition: Expr, x: Expr, y: Expr) -> Expr:
    return op.where(condition, x, y)


def _classes(depth: Expr, values: Expr, node: Node) -> tuple[int, Expr, Expr]:
    """The number of classes, and the values for off and on; refuses an invalid depth, and other than two values."""
    count = node.scalar(depth, "depth")
    if not 0 <= count <= MOST_BYTES:
        node.refuse(f"depth is {count}; it must be from 0 to {MOST_BYTES}")
    shape = shape_of(values)
    if len(shape) != 1 or must_differ(shape[0], 2, "values must be two numbers"):
        node.refuse(f"values must be two numbers, for off and on, but its shape is {shape}")
    off, on = (reshape(slice_axis(values, 0, k, k + 1), ()) if not isinstance(values, Constant)
               else Constant(values.value[k]) for k in (0, 1))
    return int(count), off, on


@converter("OneHot")
def one_hot(indices: Expr, depth: Expr, values: Expr, *, axis: int = -1, node: Node) -> Expr:
    count, off, on = _classes(depth, values, node)
    indices = op.floor_mod(cast(indices, "int64"), const(count, "int64"))
    return op.one_hot(indices, on, off, depth=count, axis=axis, dtype=dtype_of(values))


@converter("OneHot", since=11)
def one_hot_in_range(indices: Expr, depth: Expr, values: Expr, *, axis: int = -1, node: Node) -> Expr:
    """One-hot with indices in [-depth, depth - 1]; others give a row of "off" values."""
    count, off, on = _classes(depth, values, node)
    indices = cast(indices, "int64")
    indices = op.where(op.less(indices, scalar(0, indices)), op.add(indices, scalar(count, indices)), indices)
    return op.one_hot(indices, on, off, depth=count, axis=axis, dtype=dtype_of(values))


@converter("Trilu")
@converter("Trilu", domain="com.microsoft")
def trilu(x: Expr, k: Expr | None = None, *, upper: int = 1, node: Node) -> Expr:
    return op.trilu(x, const(int(node.scalar(k, "k", 0)), "int64"), upper=bool(upper))


@converter("CumSum")
def cumsum(x: Expr, axis: Expr, *, exclusive: int = 0, reverse: int = 0, node: Node) -> Expr:
    return _scan(op.cumsum, x, axis, exclusive, reverse, node)


@converter("CumProd")
def cumprod(x: Expr, axis: Expr, *, exclusive: int = 0, reverse: int = 0, node: Node) -> Expr:
    return _scan(op.cumprod, x, axis, exclusive, reverse, node)


def _scan(scan: Callable[..., Expr], x: Expr, axis: Expr, exclusive: int, reverse: int, node: Node) -> Expr:
    along = axis_of(int(node.scalar(axis, "axis")), rank(x), node)
    if reverse:
        x = op.reverse(x, axis=along)
    total = scan(x, axis=along, dtype=dtype_of(x), exclusive=bool(exclusive))
    return op.reverse(total, axis=along) if reverse else total


@converter("Compress")
def compress(x: Expr, condition: Expr, *, axis: int | None = None, node: Node) -> Expr:
    along = 0 if axis is None else axis_of(axis, rank(x), node)
    flat = reshape(x, (-1,)) if axis is None else x
    size, chosen = shape_of(flat)[along], reshape(condition, (-1,))
    if isinstance(size, int):
        if not size:
            return flat
        chosen = op.strided_slice(chosen, (0,), (size,))  # a condition beyond the end is ignored
    kept = places_of(chosen)
    return op.take(flat, kept, axis=along)


@converter("TopK")
def topk_by_attribute(x: Expr, *, k: int, axis: int = -1) -> tuple[Expr, ...]:
    return fields(op.topk(x, k=k, axis=axis, ret_type="both", is_ascend=False, dtype="int64"), 2)


@converter("TopK", since=10)
def topk(x: Expr, k: Expr, *, axis: int = -1, largest: int = 1, sorted: int = 1, node: Node) -> tuple[Expr, ...]:
    given = node.dims(k, "K")
    if given.size != 1:
        node.refuse(f"input 'K' must be one number, but its shape is {given.shape}")
    count = given.reshape(-1)[0]
    if isinstance(count, (PrimExpr, OpenSize)):
        return fields(op.topk(x, k=count, axis=axis, ret_type="both", is_ascend=not largest, dtype="int64"), 2)
    count = int(count)
    if count < 0:
        node.refuse(f"K (the number of results) is {count}; it must not be negative")
    if not count:  # `topk` would take 0 for all
        none = slice_axis(x, axis_of(axis, rank(x), node), 0, 0)
        return none, cast(none, "int64")
    return fields(op.topk(x, k=count, axis=axis, ret_type="both", is_ascend=not largest, dtype="int64"), 2)


@converter("ReverseSequence")
def reverse_sequence(x: Expr, sequence_lens: Expr, *, batch_axis: int = 1, time_axis: int = 0, node: Node) -> Expr:
    """Reverse the first n elements of each sequence of length n; the elements after them stay."""
    if node.known(sequence_lens) is None and takes_open():
        sizes = node.static(x, "input")
        batch_axis, time_axis = axis_of(batch_axis, len(sizes), node), axis_of(time_axis, len(sizes), node)
        return op.reverse_sequence(
            x, inside(sequence_lens, (sizes[time_axis] + 1,), node), seq_axis=time_axis, batch_axis=batch_axis)
    dims, lengths = node.static(x, "input"), node.ints(sequence_lens, "sequence_lens")
    batch_axis, time_axis = axis_of(batch_axis, len(dims), node), axis_of(time_axis, len(dims), node)
    if batch_axis == time_axis or len(lengths) != dims[batch_axis]:
        node.refuse(f"{len(lengths)} lengths are given for an input of shape {dims}; give one for each element of axis "
                    f"{batch_axis}, which must not be time_axis")
    if wrong := [n for n in lengths if not 0 <= n <= dims[time_axis]]:
        node.refuse(f"sequence_lens has {wrong[0]}, but the sequences have {dims[time_axis]} elements")
    node.check_table(*dims)
    if not all(dims):
        return x
    t = np.arange(dims[time_axis])
    source = np.stack([np.where(t < n, n - 1 - t, t) for n in lengths])
    source = source.T if time_axis < batch_axis else source
    shape = [d if k in (batch_axis, time_axis) else 1 for k, d in enumerate(dims)]
    return op.gather(x, Constant(np.ascontiguousarray(np.broadcast_to(source.reshape(shape), dims))), axis=time_axis)
