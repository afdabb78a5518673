"""Operators that read and write at computed positions: indexing by tensors, gather and scatter, masks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.types import BOOL, FLOAT32, INT64
from tilewright.relay.expr import Constant, Expr, Tuple, TupleGetItem
from tilewright.relay.frontend import shaping
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.products import broadcast_shape
from tilewright.relay.frontend.pytorch.math import truth
from tilewright.relay.frontend.pytorch.node import Node
from tilewright.relay.frontend.pytorch.promotion import tensor
from tilewright.relay.frontend.pytorch.references import spread
from tilewright.relay.frontend.pytorch.registry import converter
from tilewright.relay.frontend.pytorch.transform import diagonal_of, dims_of, movedim
from tilewright.relay.frontend.shaping import axis_of, cast, number, reshape, slice_axis
from tilewright.relay.types_of import dtype_of, rank, scalar, shape_of

_REDUCTIONS: Final = {"sum": "add", "add": "add", "prod": "mul", "multiply": "mul", "amax": "max", "amin": "min",
                      "mean": "add"}


def places_of(x: Expr) -> Expr:
    """The indices of the nonzero elements of `x`, (count, dimensions); the count is known only at run time."""
    return op.argwhere(truth(x), dtype="int64")


def _rows(x: Expr) -> list[Expr]:
    """The columns of `places_of`."""
    found = places_of(x)
    return [op.squeeze(slice_axis(found, 1, k, k + 1), axis=(1,)) for k in range(rank(x))]


@converter("nonzero", "argwhere")
def nonzero(self: Expr) -> Expr:
    return places_of(self)


@converter("nonzero_numpy")
def nonzero_numpy(self: Expr) -> list[Expr]:
    return _rows(self if rank(self) else reshape(self, (1,)))


@converter("masked_select")
def masked_select(self: Expr, mask: Expr) -> Expr:
    whole = broadcast_shape([shape_of(self), shape_of(mask)])
    return _selected(spread(self, whole), spread(truth(mask), whole))


def _selected(x: Expr, mask: Expr) -> Expr:
    """The elements of `x` where the mask over its leading dimensions is true."""
    n = rank(mask)
    flat = reshape(x, (math.prod(shape_of(x)[:n]), *shape_of(x)[n:]))
    return op.take(flat, _rows(reshape(mask, (math.prod(shape_of(mask)),)))[0], axis=0)


@converter("index_select")
def index_select(self: Expr, dim: int, index: Expr, node: Node) -> Expr:
    if not rank(self):
        return self
    return op.take(self, reshape(index, (-1,)) if rank(index) != 1 else index, axis=axis_of(dim, rank(self), node))


@converter("take")
def take(self: Expr, index: Expr) -> Expr:
    size = math.prod(shape_of(self))
    return op.take(reshape(self, (size,)), _from_front(index, size), axis=0)


def _from_front(index: Expr, size: Any) -> Expr:
    """Indices normalized to count from the front."""
    if isinstance(index, Constant) and isinstance(size, int):
        return Constant(np.where(index.value < 0, index.value + size, index.value))
    return op.where(op.less(index, scalar(0, index)), op.add(index, tensor(size, dtype_of(index))), index)


@converter("gather")
def gather(self: Expr, dim: int, index: Expr, node: Node, sparse_grad: bool = False) -> Expr:
    if 0 in shape_of(index):
        return Constant(np.zeros(shape_of(index), dtype_of(self).numpy()))
    if not rank(self) or not rank(index):
        return reshape(op.take(reshape(self, (-1,)), reshape(index, (-1,)), axis=0), shape_of(index))
    return op.gather(*_gathered(self, index, dim, node), axis=axis_of(dim, rank(self), node))


@converter("take_along_dim")
def take_along_dim(self: Expr, indices: Expr, node: Node, dim: int | None = None) -> Expr:
    if dim is None:
        return op.gather(reshape(self, (math.prod(shape_of(self)),)), reshape(indices, (math.prod(shape_of(indices)),)),
                         axis=0)
    axis = axis_of(dim, rank(self), node)
    common = list(broadcast_shape([[1 if k == axis else d for k, d in enumerate(shape_of(x))]
                                   for x in (self, indices)]))
    both = [spread(x, tuple(shape_of(x)[axis] if k == axis else d for k, d in enumerate(common)))
            for x in (self, indices)]
    return op.gather(both[0], both[1], axis=axis)


def _gathered(x: Expr, index: Expr, dim: int, node: Node) -> tuple[Expr, Expr]:
    """Crop the data to the size of the indices except along the axis, since torch allows smaller indices."""
    axis = axis_of(dim, rank(x), node)
    for k, (a, b) in enumerate(zip(shape_of(x), shape_of(index), strict=True)):
        if k != axis and isinstance(a, int) and isinstance(b, int) and a > b:
            x = slice_axis(x, k, 0, b)
    return x, index


# Indexing by tensors


def _plain_indices(self: Expr, indices: Sequence[Expr | None]) -> tuple[list[Expr | None], Expr]:
    """Integer indices, one for each dimension: a mask becomes one index per dimension of it."""
    found: list[Expr | None] = []
    for i in indices:
        if i is not None and dtype_of(i) in (BOOL, "uint8"):
            found += _rows(i)
        else:
            found.append(i if i is None else cast(i, INT64))
    return found, self


@converter("index", "index.Tensor_hacked_twin", "_unsafe_index")
def index(self: Expr, indices: list[Any], node: Node) -> Expr:
    given = [i for i in indices if i is not None]
    if len(given) == 1 and dtype_of(given[0]) in (BOOL, "uint8") and indices[0] is not None:
        return _selected(self, truth(given[0]))
    plain, x = _plain_indices(self, indices)
    axes = [k for k, i in enumerate(plain) if i is not None]
    if not axes:
        return x
    dims = shape_of(x)
    parts = [_from_front(i, dims[k]) for k, i in enumerate(plain) if i is not None]
    if len(axes) == 1:
        return op.take(x, parts[0], axis=axes[0])
    shape = broadcast_shape([shape_of(p) for p in parts])
    together = axes == list(range(axes[0], axes[0] + len(axes)))
    moved = movedim(x, axes, list(range(len(axes))))
    static = all(isinstance(dims[k], int) for k in axes)
    place: Expr | None = None
    for k, part in zip(axes, parts, strict=True):
        place = part if place is None else op.add(op.multiply(place, tensor(dims[k], INT64)), part)
    assert place is not None
    place = (spread(node.settled(place), shape) if shape_of(place) != shape and all(isinstance(d, int) for d in shape)
             else node.settled(place))
    rest = shape_of(moved)[len(axes) :]
    flat = reshape(moved, (math.prod(dims[k] for k in axes) if static else -1, *rest))
    found = op.take(flat, place, axis=0)
    count = rank(place)
    return movedim(found, list(range(count)), list(range(axes[0], axes[0] + count))) if together and axes[0] else found


@converter("index_put", "_unsafe_index_put", "_index_put_impl", "index_put.hacked_twin")
def index_put(self: Expr, indices: list[Any], values: Expr, node: Node, accumulate: bool = False,
              unsafe: bool = False) -> Expr:
    given = [i for i in indices if i is not None]
    if len(given) == 1 and dtype_of(given[0]) in (BOOL, "uint8"):
        return _put_where(self, truth(given[0]), next(k for k, i in enumerate(indices) if i is not None),
                          cast(values, dtype_of(self)), accumulate, node)
    plain, x = _plain_indices(self, indices)
    axes = [k for k, i in enumerate(plain) if i is not None]
    dims = node.static(x, "self")
    parts = [_from_front(i, dims[k]) for k, i in enumerate(plain) if i is not None]
    shape = broadcast_shape([shape_of(p) for p in parts])
    rest = [k for k in range(len(dims)) if k not in axes]
    moved = movedim(x, axes, list(range(len(axes))))
    place: Expr | None = None
    for k, part in zip(axes, parts, strict=True):
        place = part if place is None else op.add(op.multiply(place, tensor(dims[k], INT64)), part)
    assert place is not None
    place = node.settled(place)
    together = axes == list(range(axes[0], axes[0] + len(axes)))
    tail = tuple(dims[k] for k in rest)
    before = axes[0] if together else 0
    whole = (*tail[:before], *shape, *tail[before:])
    new = spread(cast(values, dtype_of(x)), whole)
    new = movedim(new, list(range(before, before + len(shape))), list(range(len(shape)))) if before else new
    count = math.prod(dims[k] for k in axes)
    points = reshape(spread(place, shape), (1, math.prod(shape)))
    flat = op.scatter_nd(reshape(moved, (count, *tail)), points, reshape(new, (math.prod(shape), *tail)), mode="add"
                         if accumulate else "update")
    return movedim(reshape(flat, shape_of(moved)), list(range(len(axes))), axes)


def _put_where(x: Expr, mask: Expr, axis: int, values: Expr, accumulate: bool, node: Node) -> Expr:
    """Write `values` in order where the mask over the dimensions from `axis` on is true; a single value is broadcast.
    """
    dims, covered = node.static(x, "self"), list(range(axis, axis + rank(mask)))
    rest = [d for k, d in enumerate(dims) if k not in covered]
    count = math.prod(shape_of(mask))
    flat = reshape(movedim(x, covered, list(range(len(covered)))), (count, *rest))
    chosen = reshape(mask, (count,))
    if rank(values) == len(rest) + 1 and not (isinstance(shape_of(values)[axis], int) and shape_of(values)[axis] == 1):
        order = op.subtract(op.cumsum(cast(chosen, INT64), axis=0), number(1))
        spare = Constant(np.zeros([1 if k == axis else d for k, d in enumerate((*rest[:axis], 1, *rest[axis:]))],
                                  dtype_of(values).numpy()))
        values = op.take(op.concatenate((values, spare), axis=axis), op.maximum(order, number(0)), axis=axis)
    whole = (*rest[:axis], count, *rest[axis:])
    values = movedim(spread(values, whole), [axis], [0])
    chosen = reshape(chosen, (count, *[1] * len(rest)))
    found = op.where(chosen, op.add(flat, values) if accumulate else values, flat)
    return movedim(reshape(found, (*(dims[k] for k in covered), *rest)), list(range(len(covered))), covered)


# Scatter


@converter("scatter", "scatter.value", "scatter.reduce", "scatter.value_reduce")
def scatter(self: Expr, dim: int, index: Expr, node: Node, src: Any = None, value: Any = None,
            reduce: str = "") -> Expr:
    return _scattered(self, dim, index, src if src is not None else value, _REDUCTIONS.get(reduce, "update"), node)


@converter("scatter_add")
def scatter_add(self: Expr, dim: int, index: Expr, src: Expr, node: Node) -> Expr:
    return _scattered(self, dim, index, src, "add", node)


def _scattered(x: Expr, dim: int, index: Expr, src: Any, how: str, node: Node) -> Expr:
    if not rank(x):
        return reshape(_scattered(reshape(x, (1,)), 0, reshape(index, (-1,)), reshape(tensor(src, dtype_of(x)), (-1,))
                                  if isinstance(src, Expr) else src, how, node), ())
    if 0 in shape_of(index):
        return x
    rows = tensor(src, dtype_of(x))
    if not rank(index):  # one element of a vector
        index, rows = reshape(index, (1,)), reshape(rows, (-1,))
    rows = spread(rows, shape_of(index)) if not rank(rows) else rows
    for k, (a, b) in enumerate(zip(shape_of(rows), shape_of(index), strict=True)):
        if isinstance(a, int) and isinstance(b, int) and a > b:
            rows = slice_axis(rows, k, 0, b)
    return op.scatter_elements(x, index, rows, axis=axis_of(dim, rank(x), node), reduction=how)


@converter("scatter_reduce", "scatter_reduce.two")
def scatter_reduce(self: Expr, dim: int, index: Expr, src: Expr, reduce: str, node: Node,
                   include_self: bool = True) -> Expr:
    how = _REDUCTIONS[reduce]
    x = self
    ones = tensor(1, dtype_of(x))
    if not include_self:
        start = {"add": 0, "mul": 1, "max": _least(x), "min": _most(x)}[how]
        x = _scattered(x, dim, index, start, "update", node)
    found = _scattered(x, dim, index, src, how, node)
    if reduce != "mean":
        return found
    counts = _scattered(spread(ones, shape_of(x)), dim, index, 1, "add", node)
    if not include_self:
        touched = _scattered(spread(ones, shape_of(x)), dim, index, 0, "update", node)
        counts = _scattered(touched, dim, index, 1, "add", node)
    return op.divide(found, counts) if dtype_of(x).is_float else op.floor_divide(found, counts)


def _least(x: Expr) -> Any:
    kind = dtype_of(x)
    return -math.inf if kind.is_float else False if kind == "bool" else np.iinfo(kind.numpy()).min


def _most(x: Expr) -> Any:
    kind = dtype_of(x)
    return math.inf if kind.is_float else True if kind == "bool" else np.iinfo(kind.numpy()).max


@converter("index_add", "index_copy", "index_fill", "index_reduce")
def index_write(self: Expr, dim: int, index: Expr, node: Node, source: Any = None, value: Any = None, alpha: Any = 1,
                reduce: str = "", include_self: bool = True) -> Expr:
    """Add, put or fill whole slices along a dimension."""
    if not rank(self):
        rows = reshape(source, (-1,)) if isinstance(source, Expr) else source
        return reshape(index_write(reshape(self, (1,)), dim, reshape(index, (-1,)), node, rows, value, alpha, reduce,
                                   include_self), ())
    axis = axis_of(dim, rank(self), node)
    dims = node.static(self, "self")
    count = shape_of(index)[0] if rank(index) else 1
    shape = (*dims[:axis], count, *dims[axis + 1 :])
    along = [1] * len(dims)
    along[axis] = count
    places = spread(reshape(index, along), shape)
    rows = spread(tensor(value if source is None else source, dtype_of(self)), shape)
    if not isinstance(alpha, Expr) and alpha != 1:
        rows = op.multiply(rows, tensor(alpha, dtype_of(self)))
    if reduce:
        return scatter_reduce(self, axis, places, rows, reduce, node, include_self)
    return op.scatter_elements(self, places, rows, axis=axis, reduction="add" if node.name.startswith("index_add")
                               else "update")


@converter("masked_scatter")
def masked_scatter(self: Expr, mask: Expr, source: Expr) -> Expr:
    """Write the elements of the source in order where the mask is true."""
    dims = broadcast_shape([shape_of(self), shape_of(mask)])
    self = spread(self, dims)
    where = reshape(spread(truth(mask), dims), (math.prod(dims),))
    order = op.subtract(op.cumsum(cast(where, INT64), axis=0), Constant(np.asarray(1, np.int64)))
    found = op.take(reshape(source, (math.prod(shape_of(source)),)),
                    op.maximum(order, Constant(np.asarray(0, np.int64))), axis=0)
    return reshape(op.where(where, cast(found, dtype_of(self)), reshape(self, (math.prod(dims),))), dims)


@converter("slice_scatter")
def slice_scatter(self: Expr, src: Expr, node: Node, dim: int = 0, start: Any = None, end: Any = None,
                  step: int = 1) -> Expr:
    axis = axis_of(dim, rank(self), node)
    size = node.static(self, "self")[axis]
    begin, stop, _ = slice(start, end, step).indices(size)
    return _written(self, src, axis, np.arange(begin, max(begin, stop), step))


@converter("select_scatter")
def select_scatter(self: Expr, src: Expr, dim: int, index: Any, node: Node) -> Expr:
    axis = axis_of(dim, rank(self), node)
    size = node.static(self, "self")[axis]
    (place,) = dims_of([index], node)
    return _written(self, op.expand_dims(src, axis=axis), axis, np.array([place % size]))


@converter("diagonal_scatter")
def diagonal_scatter(self: Expr, src: Expr, node: Node, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Expr:
    dims = node.static(self, "self")
    count = math.prod(dims)
    places = node.value(diagonal_of(Constant(np.arange(count).reshape(dims)), node, offset, dim1, dim2),
                        "self").reshape(-1)
    flat = op.scatter_elements(reshape(self, (count,)), Constant(places),
                               reshape(cast(src, dtype_of(self)), (places.size,)), axis=0)
    return reshape(flat, dims)


def _written(x: Expr, src: Expr, axis: int, places: np.ndarray[Any, Any]) -> Expr:
    dims = list(shape_of(x))
    dims[axis] = len(places)
    along = [1] * len(dims)
    along[axis] = len(places)
    where = Constant(np.broadcast_to(places.reshape(along), dims).copy().astype(np.int64))
    return op.scatter_elements(x, where, spread(cast(src, dtype_of(x)), tuple(dims)), axis=axis)


@converter("put")
def put(self: Expr, index: Expr, source: Expr, accumulate: bool = False) -> Expr:
    count = math.prod(shape_of(self))
    flat = op.scatter_elements(
        reshape(self, (count,)), reshape(index, (-1,)), reshape(cast(source, dtype_of(self)), (-1,)), axis=0,
        reduction="add" if accumulate else "update")
    return reshape(flat, shape_of(self))


# Counting and finding


@converter("bincount")
def bincount(self: Expr, node: Node, weights: Expr | None = None, minlength: int = 0) -> Expr:
    """Histogram of integers; the number of bins depends on the greatest element, so it is known only at run time."""
    rows: Expr = (Constant(np.ones(shape_of(self), np.int64)) if weights is None else weights
                  if dtype_of(weights) == FLOAT32 else cast(weights, "float64"))
    known = node.known(self)
    least = Constant(np.asarray(minlength, np.int64))
    if known is not None:
        bins: Expr = Constant(np.zeros(max(minlength, int(known.max()) + 1 if known.size else 0),
                                       dtype_of(rows).numpy()))
    elif 0 in shape_of(self):
        bins = op.full(scalar(0, rows), least)
    else:
        greatest = op.add(op.max(cast(self, INT64)), Constant(np.asarray(1, np.int64)))
        bins = op.full(scalar(0, rows), op.reshape(op.maximum(greatest, least), (1,)))
    return op.scatter_elements(bins, cast(self, INT64), rows, axis=0, reduction="add")


@converter("searchsorted", "bucketize")
def searchsorted(
    self: Any, node: Node, sorted_sequence: Expr | None = None, boundaries: Expr | None = None, out_int32: bool = False,
    right: bool = False, side: str | None = None, sorter: Expr | None = None,
) -> Expr:
    rows = sorted_sequence if sorted_sequence is not None else boundaries
    assert rows is not None
    if sorter is not None:
        rows = op.gather(rows, sorter, axis=rank(rows) - 1)
    after = right or side == "right"
    values = tensor(self, dtype_of(rows)) if not isinstance(self, Expr) else self
    return op.searchsorted(rows, cast(values, dtype_of(rows)), right=after, dtype="int32" if out_int32 else "int64")


@converter("isin", "isin.Tensor_Tensor")
def isin(elements: Expr, test_elements: Expr, assume_unique: bool = False, invert: bool = False) -> Expr:
    tests = reshape(test_elements, (*[1] * rank(elements), math.prod(shape_of(test_elements))))
    found = op.any(op.equal(op.expand_dims(elements, axis=rank(elements)), cast(tests, dtype_of(elements))),
                   axis=(rank(elements),))
    return op.logical_not(found) if invert else found


@converter("_unique2", "_unique", "unique_dim")
def unique(self: Expr, node: Node, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False,
           dim: int | None = None) -> tuple[Expr, ...]:
    if node.name == "unique_dim" and dim is not None:
        values, _, inverse, counts = shaping.fields(op.unique_slices(self, axis=axis_of(dim, rank(self), node),
            is_sorted=True), 4)
        return values, inverse, counts
    flat = reshape(self, (math.prod(shape_of(self)),))
    values, _, inverse, count, counts = shaping.fields(op.unique(flat, is_sorted=True, return_counts=True), 5)
    there = op.less(op.arange(start=0, stop=shape_of(flat)[0], step=1, dtype="int64"), cast(count, INT64))
    kept = _rows(there)[0]
    return op.take(values, kept, axis=0), reshape(cast(inverse, INT64), shape_of(self)), cast(op.take(counts, kept,
        axis=0), INT64)


# Order


@converter("sort", "sort.stable", "msort")
def sort(self: Expr, node: Node, dim: int = -1, descending: bool = False, stable: bool | None = None) -> Any:
    if not rank(self):
        return self, Constant(np.zeros((), np.int64))
    if node.name == "msort":
        return op.sort(self, axis=0, is_ascend=True)
    axis = axis_of(dim, rank(self), node)
    found = op.argsort(self, axis=axis, is_ascend=not descending, dtype="int64")
    return op.gather(self, found, axis=axis), found


@converter("argsort", "argsort.stable")
def argsort(self: Expr, node: Node, dim: int = -1, descending: bool = False, stable: bool = False) -> Expr:
    return op.argsort(self, axis=axis_of(dim, rank(self), node), is_ascend=not descending, dtype="int64")


@converter("topk")
def topk(self: Expr, k: Any, node: Node, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Expr, ...]:
    (count,) = dims_of([k], node)
    if not rank(self):
        return self, Constant(np.zeros((), np.int64))
    axis = axis_of(dim, rank(self), node)
    if not count:  # `topk` would take 0 for all
        none = slice_axis(self, axis, 0, 0)
        return none, cast(none, "int64")
    both = op.topk(self, k=count, axis=axis, ret_type="both", is_ascend=not largest, dtype="int64")
    return TupleGetItem(both, 0), TupleGetItem(both, 1)


@converter("kthvalue")
def kth(self: Expr, node: Node, k: int | None = None, dim: int = -1, keepdim: bool = False) -> tuple[Expr, Expr]:
    if not rank(self):
        return self, Constant(np.zeros((), np.int64))
    axis = axis_of(dim, rank(self), node)
    size = node.static(self, "self")[axis]
    place = (size + 1) // 2 - 1 if k is None else k - 1
    order = op.argsort(self, axis=axis, is_ascend=True, dtype="int64")
    where = slice_axis(order, axis, place, place + 1)
    value = op.gather(self, where, axis=axis)
    return (value, where) if keepdim else (op.squeeze(value, axis=(axis,)), op.squeeze(where, axis=(axis,)))


@converter("median.dim", "nanmedian.dim")
def median_along(self: Expr, dim: int, node: Node, keepdim: bool = False) -> tuple[Expr, Expr]:
    """The lower median and its index: `median` gives NaN if there is any, `nanmedian` ignores NaN."""
    if not rank(self):
        return self, Constant(np.zeros((), np.int64))
    if not dtype_of(self).is_float:
        return kth(self, node, None, dim, keepdim)
    axis = axis_of(dim, rank(self), node)
    size = node.static(self, "self")[axis]
    unknown = op.isnan(self)
    order = op.argsort(op.where(unknown, scalar(np.inf, self), self), axis=axis, is_ascend=True, dtype="int64")
    unknowns = op.sum(cast(unknown, INT64), axis=(axis,), keepdims=True)
    zero = scalar(0, unknowns)
    left = (op.subtract(scalar(size, unknowns), unknowns) if node.name == "nanmedian"
            else op.add(zero, scalar(size, unknowns)))
    place = op.floor_divide(op.maximum(op.subtract(left, scalar(1, left)), zero), scalar(2, left))
    shape = tuple(1 if k == axis else d for k, d in enumerate(shape_of(self)))
    where = op.gather(order, spread(place, shape), axis=axis)
    first = cast(op.argmax(cast(unknown, "int8"), axis=(axis,), keepdims=True), INT64)
    no_number = op.equal(left, zero) if node.name == "nanmedian" else op.greater(unknowns, zero)
    where = op.where(no_number, first, where)
    value = op.gather(op.where(unknown, scalar(np.inf, self), self), where, axis=axis)
    value = op.where(no_number, scalar(np.nan, value), value)
    return (value, where) if keepdim else (op.squeeze(value, axis=(axis,)), op.squeeze(where, axis=(axis,)))


@converter("median", "nanmedian")
def median(self: Expr, node: Node) -> Expr:
    return median_along(reshape(self, (math.prod(shape_of(self)),)), 0, node)[0]


@converter("combinations")
def combinations(self: Expr, node: Node, r: int = 2, with_replacement: bool = False) -> Expr:
    import itertools

    pick = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    table = np.array(list(pick(range(node.static(self, "self")[0]), r)), np.int64).reshape(-1, r)
    return op.take(self, Constant(table), axis=0)


@converter("cartesian_prod")
def cartesian_prod(tensors: list[Expr]) -> Expr:
    sizes = [shape_of(t)[0] for t in tensors]
    columns = []
    for k, t in enumerate(tensors):
        along = [1] * len(sizes)
        along[k] = sizes[k]
        columns.append(reshape(spread(reshape(t, along), tuple(sizes)), (math.prod(sizes),)))
    return op.stack(Tuple(tuple(columns)), axis=1) if len(columns) > 1 else columns[0]
