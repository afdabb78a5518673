"""Operators that move elements: shapes, slices, concatenations."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.relay.expr import Constant, Expr, Tuple
from tilewright.relay.frontend import shaping
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.products import broadcast_shape
from tilewright.relay.frontend.pytorch.node import Node
from tilewright.relay.frontend.pytorch.promotion import result_type, tensor
from tilewright.relay.frontend.pytorch.references import spread
from tilewright.relay.frontend.pytorch.registry import converter
from tilewright.relay.frontend.shaping import axis_of, cast, slice_axis, transpose
from tilewright.relay.types_of import dtype_of, rank, scalar, shape_of
from tilewright.scalar.expr import PrimExpr, as_expr, maximum, minimum

_END = 2**62


def dims_of(sizes: Sequence[Any], node: Node) -> list[Any]:
    """Sizes as ints or symbols, given numbers and one-element tensors."""
    return [int(node.value(d, "size").reshape(-1)[0]) if isinstance(d, Expr) else d for d in sizes]


# Sizes


@converter("size", "sym_size", "shape")
def size(self: Expr, dim: int | None = None) -> Any:
    dims = list(shape_of(self))
    return dims if dim is None else dims[dim]


def _register_fact(names: tuple[str, ...], fact: Callable[[Expr], Any]) -> None:
    @converter(*names)
    def tell(self: Expr) -> Any:
        return fact(self)


_register_fact(("dim",), rank)
_register_fact(("numel", "sym_numel"), lambda x: math.prod(shape_of(x)))
_register_fact(("len",), lambda x: shape_of(x)[0])
_register_fact(("is_floating_point",), lambda x: dtype_of(x).is_float)
_register_fact(("is_complex",), lambda x: False)


@converter("item", "_local_scalar_dense", "Int", "Float", "Bool", "IntImplicit", "FloatImplicit", "ScalarImplicit")
def item(node: Node, self: Expr | None = None, a: Expr | None = None) -> Any:
    x = self if self is not None else a
    assert x is not None
    kind = {"Int": "int64", "Float": "float32", "Bool": "bool", "IntImplicit": "int64"}.get(node.name)
    known = node.known(node.settled(x))
    if known is not None and known.dtype != object:
        number = known.reshape(-1)[0].item()
        return {"int64": int, "float32": float, "bool": bool}.get(kind or "", lambda v: v)(number)
    one = shaping.reshape(x, ())
    if kind is None and dtype_of(one).is_integer:
        kind = "int64"
    return (one if kind is None else op.not_equal(one, scalar(0, one)) if kind == "bool" and dtype_of(one) != "bool"
            else cast(one, kind))


# Shapes


@converter("view", "view_copy", "reshape", "_unsafe_view", "_reshape_alias", "reshape.shape")
def reshape(self: Expr, node: Node, size: Any = None, shape: Any = None) -> Expr:
    return shaping.reshape(self, _completed(shape_of(self), dims_of(shape if size is None else size, node)))


@converter("view.dtype")
def view_as_type(self: Expr, dtype: Any, node: Node) -> Expr:
    from tilewright.relay.frontend.pytorch.promotion import dtype_named

    kind = dtype_named(dtype, node)
    if kind.bits != dtype_of(self).bits:
        node.refuse(f"it reinterprets {dtype_of(self)} as {kind}; only types of the same width are supported")
    return op.reinterpret(self, dtype=kind)


def _completed(old: Sequence[Any], new: Sequence[Any]) -> list[Any]:
    """The sizes with -1 replaced, if it can be computed."""
    if all(isinstance(d, int) for d in old) and any(isinstance(d, int) and d == -1 for d in new):
        rest = math.prod(d for d in new if d != -1)
        if isinstance(rest, int) and rest:
            return [math.prod(old) // rest if isinstance(d, int) and d == -1 else d for d in new]
    return list(new)


@converter("view_as", "reshape_as")
def view_as(self: Expr, other: Expr) -> Expr:
    return shaping.reshape(self, shape_of(other))


@converter("flatten")
def flatten(self: Expr, node: Node, start_dim: int = 0, end_dim: int = -1) -> Expr:
    dims = shape_of(self)
    if not dims:
        return shaping.reshape(self, (1,))
    first, last = axis_of(start_dim, len(dims), node), axis_of(end_dim, len(dims), node)
    return self if first == last else shaping.reshape(self, (*dims[:first], math.prod(dims[first : last + 1]),
        *dims[last + 1 :]))


@converter("unflatten")
def unflatten(self: Expr, dim: int, sizes: Any, node: Node) -> Expr:
    dims = shape_of(self)
    axis = axis_of(dim, len(dims), node)
    return shaping.reshape(self, (*dims[:axis], *_completed(dims[axis : axis + 1], dims_of(sizes, node)),
                                  *dims[axis + 1 :]))


@converter("squeeze", "squeeze_copy")
def squeeze(self: Expr, node: Node, dim: Any = None) -> Expr:
    dims = shape_of(self)
    chosen = range(len(dims)) if dim is None else [axis_of(d, len(dims), node)
                                                   for d in (dim if isinstance(dim, list) else [dim])]
    left = [d for k, d in enumerate(dims) if not (k in chosen and isinstance(d, int) and d == 1)]
    return self if len(left) == len(dims) else shaping.reshape(self, left)


@converter("unsqueeze", "unsqueeze_copy")
def unsqueeze(self: Expr, dim: int) -> Expr:
    dims = list(shape_of(self))
    dims.insert(dim % (len(dims) + 1), 1)
    return shaping.reshape(self, dims)


@converter("permute", "permute_copy")
def permute(self: Expr, dims: Any) -> Expr:
    return transpose(self, [d % rank(self) for d in dims])


@converter("transpose", "transpose_copy", "swapaxes", "swapdims")
def swap(self: Expr, node: Node, dim0: int | None = None, dim1: int | None = None, axis0: int | None = None,
         axis1: int | None = None) -> Expr:
    if not rank(self):
        return self
    order = list(range(rank(self)))
    a, b = (axis_of(d, len(order), node) for d in ((dim0, dim1) if dim0 is not None and dim1 is not None
                                                   else (axis0 or 0, axis1 or 0)))
    order[a], order[b] = order[b], order[a]
    return transpose(self, order)


@converter("t", "t_copy", "numpy_T", "T", "mT", "adjoint", "matrix_H", "mH")
def turned(self: Expr, node: Node) -> Expr:
    order = list(range(rank(self)))
    return transpose(self, [*order[:-2], *order[-2:][::-1]] if node.name in ("mT", "adjoint", "mH", "matrix_H")
                     else order[::-1])


@converter("movedim", "moveaxis")
def movedim(self: Expr, source: Any, destination: Any) -> Expr:
    sources, places = ([d % rank(self) for d in (v if isinstance(v, list) else [v])] for v in (source, destination))
    order = [k for k in range(rank(self)) if k not in sources]
    for place, moved in sorted(zip(places, sources, strict=True)):
        order.insert(place, moved)
    return transpose(self, order)


@converter("expand", "broadcast_to", "expand_copy")
def expand(self: Expr, size: Any, node: Node, implicit: bool = False) -> Expr:
    dims, wanted = shape_of(self), dims_of(size, node)
    lead = len(wanted) - len(dims)
    kept = [dims[k - lead] if isinstance(d, int) and d == -1 and k >= lead else d for k, d in enumerate(wanted)]
    return spread(self, tuple(kept))


@converter("expand_as")
def expand_as(self: Expr, other: Expr) -> Expr:
    return spread(self, shape_of(other))


@converter("broadcast_tensors")
def broadcast_tensors(tensors: list[Expr]) -> list[Expr]:
    whole = broadcast_shape([shape_of(t) for t in tensors])
    return [spread(t, whole) for t in tensors]


@converter("meshgrid")
def meshgrid(tensors: list[Expr], indexing: str = "ij") -> list[Expr]:
    order = [1, 0, *range(2, len(tensors))] if indexing == "xy" and len(tensors) > 1 else list(range(len(tensors)))
    sizes = [shape_of(tensors[k])[0] if rank(tensors[k]) else 1 for k in order]
    made = []
    for k, t in enumerate(tensors):
        along = [1] * len(tensors)
        along[order.index(k)] = sizes[order.index(k)]
        made.append(spread(shaping.reshape(t, along), tuple(sizes)))
    return made


@converter("contiguous", "detach", "alias", "clone", "lift_fresh", "lift_fresh_copy", "lift", "detach_copy", "positive",
           "resolve_conj", "resolve_neg", "requires_grad_",
           "cpu", "alias_copy")
def same(self: Expr | None = None, input: Expr | None = None) -> Any:
    return self if self is not None else input


@converter("copy")
def copy(self: Expr, src: Expr) -> Expr:
    return spread(cast(src, dtype_of(self)), shape_of(self))


# Parts


@converter("slice", "slice_copy")
def slice_of(self: Expr, node: Node, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> Expr:
    axis = axis_of(dim, rank(self), node)
    whole = shape_of(self)[axis]
    if any(isinstance(v, Expr) and node.known(node.settled(v)) is None for v in (start, end)):
        return _slice_computed(self, axis, start, end, step)
    start, end = (dims_of([v], node)[0] if v is not None else None for v in (start, end))
    if isinstance(whole, int):
        if not all(v is None or isinstance(v, int) for v in (start, end, step)):
            node.refuse("its bounds are symbolic, but the dimension that it slices is not; give the shapes of the "
                        "inputs when importing")
        begin, stop, _ = slice(start, end, step).indices(whole)
        stop = max(begin, stop)
    else:
        begin, stop = start or 0, end
        if stop is None or (isinstance(stop, int) and stop >= _END):
            stop = whole
        begin, stop = (whole + v if isinstance(v, int) and v < 0 else v for v in (begin, stop))
        if not isinstance(begin, PrimExpr) and begin == 0 and stop is whole and step == 1:
            return self
        return _slice_symbolic(self, axis, begin, minimum(whole, stop) if isinstance(stop, int) else stop, step, node)
    if (begin, stop, step) == (0, whole, 1):
        return self
    return op.strided_slice(self, begin=(begin,), end=(stop,), strides=(step,), axes=(axis,))


def _slice_computed(x: Expr, axis: int, start: Any, end: Any, step: int) -> Expr:
    """A slice whose bounds are computed at run time."""
    size = tensor(shape_of(x)[axis], "int64")
    zero = Constant(np.asarray(0, np.int64))

    def bound(v: Any, otherwise: Expr) -> Expr:
        at = otherwise if v is None else tensor(min(v, _END) if isinstance(v, int) else v, "int64")
        return op.minimum(op.maximum(op.where(op.less(at, zero), op.add(at, size), at), zero), size)

    first = bound(start, zero)
    last = op.maximum(bound(end, size), first)
    before = [tensor(d, "int64") for d in shape_of(x)[:axis]]
    begins = op.stack(Tuple((*[zero] * axis, first)), axis=0)
    ends = op.stack(Tuple((*before, last)), axis=0)
    return op.dyn.strided_slice(x, begins, ends, Constant(np.asarray([*[1] * axis, step], np.int64)))


def _slice_symbolic(x: Expr, axis: int, begin: Any, end: Any, step: Any, node: Node) -> Expr:
    """A slice whose bounds are expressions of symbolic sizes."""
    if not isinstance(step, int):
        node.refuse("its step is computed from symbolic sizes; make it a number")
    count = maximum(as_expr(end) - begin + step - 1, as_expr(0)) // step
    places = op.cumsum(op.ones(shape=(count,), dtype="int64"), axis=0, exclusive=True)
    if step != 1:
        places = op.multiply(places, scalar(step, places))
    return op.take(x, places if isinstance(begin, int) and begin == 0 else op.add(places, tensor(begin, "int64")),
                   axis=axis)


@converter("narrow", "narrow_copy")
def narrow(self: Expr, dim: int, start: Any, length: Any, node: Node) -> Expr:
    axis = axis_of(dim, rank(self), node)
    if isinstance(start, Expr) and node.known(node.settled(start)) is None:
        (count,) = dims_of([length], node)
        size, first = scalar(shape_of(self)[axis], start), shaping.reshape(start, (1,))
        first = op.where(op.less(first, scalar(0, first)), op.add(first, size), first)
        return op.take(self, op.add(first, Constant(np.arange(count, dtype=dtype_of(first).numpy()))), axis=axis)
    (begin, count) = dims_of([start, length], node)
    begin = begin + shape_of(self)[axis] if begin < 0 else begin
    return slice_axis(self, axis, begin, begin + count)


@converter("select", "select_copy")
def select(self: Expr, dim: int, index: Any, node: Node) -> Expr:
    axis = axis_of(dim, rank(self), node)
    size = shape_of(self)[axis]
    if isinstance(index, Expr):
        known = node.known(node.settled(index))
        if known is None:
            return op.take(self, op.where(op.less(index, scalar(0, index)),
                                          op.add(index, tensor(size, dtype_of(index))), index), axis=axis)
        index = int(known.reshape(-1)[0])
    if isinstance(size, int) and isinstance(index, int):
        if not -size <= index < size:
            node.refuse(f"index {index} is outside dimension {axis} of size {size}; give input shapes that the model "
                        "accepts")
        index %= size
        return op.squeeze(slice_axis(self, axis, index, index + 1), axis=(axis,))
    return op.take(self, tensor(index + size if isinstance(index, int) and index < 0 else index, "int64"), axis=axis)


@converter("split", "split_copy", "unsafe_split")
def split(self: Expr, node: Node, split_size: Any = None, dim: int = 0, split_sizes: Any = None) -> list[Expr]:
    if isinstance(split_size, list) or split_sizes is not None:
        return split_with_sizes(self, split_sizes if split_sizes is not None else split_size, node, dim)
    axis = axis_of(dim, rank(self), node)
    whole = node.static(self, "self")[axis]
    return _cut(self, axis, [*range(split_size, whole, split_size)])


@converter("split_with_sizes", "split_with_sizes_copy")
def split_with_sizes(self: Expr, split_sizes: Any, node: Node, dim: int = 0) -> list[Expr]:
    axis = axis_of(dim, rank(self), node)
    return _cut(self, axis, [sum(split_sizes[: k + 1]) for k in range(len(split_sizes) - 1)])


def _cut(x: Expr, axis: int, places: Sequence[int]) -> list[Expr]:
    if not places:
        return [x]
    bounds = [0, *places, shape_of(x)[axis]]
    if any(b <= a for a, b in itertools.pairwise(bounds) if isinstance(b, int)):
        return [slice_axis(x, axis, a, b) for a, b in itertools.pairwise(bounds)]
    parts = op.split(x, indices_or_sections=tuple(places), axis=axis)
    return list(shaping.fields(parts, len(places) + 1))


@converter("chunk", "unsafe_chunk")
def chunk(self: Expr, chunks: int, node: Node, dim: int = 0) -> list[Expr]:
    axis = axis_of(dim, rank(self), node)
    whole = node.static(self, "self")[axis]
    each = -(-whole // chunks)
    return _cut(self, axis, [*range(each, whole, each)]) if each else [self] * chunks


@converter("tensor_split")
def tensor_split(self: Expr, node: Node, sections: Any = None, indices: Any = None,
                 tensor_indices_or_sections: Expr | None = None, dim: int = 0) -> list[Expr]:
    axis = axis_of(dim, rank(self), node)
    whole = node.static(self, "self")[axis]
    if tensor_indices_or_sections is not None:
        found = node.value(tensor_indices_or_sections, "tensor_indices_or_sections")
        sections, indices = (int(found), None) if found.ndim == 0 else (None, found.tolist())
    if indices is None:
        each, more = divmod(whole, sections)
        indices = [(k + 1) * each + min(k + 1, more) for k in range(sections - 1)]
    return _cut(self, axis, [slice(0, k).indices(whole)[1] for k in indices])


@converter("hsplit", "vsplit", "dsplit")
def named_split(self: Expr, node: Node, sections: Any = None, indices: Any = None) -> list[Expr]:
    axis = {"h": min(1, rank(self) - 1), "v": 0, "d": 2}[node.name[0]]
    return tensor_split(self, node, sections, indices, None, axis)


@converter("unbind", "unbind_copy")
def unbind(self: Expr, node: Node, dim: int = 0) -> list[Expr]:
    axis = axis_of(dim, rank(self), node)
    dims = node.static(self, "self")
    if dims[axis] == 1:
        return [op.squeeze(self, axis=(axis,))]
    parts = op.split(self, indices_or_sections=dims[axis], axis=axis)
    return [op.squeeze(p, axis=(axis,)) for p in shaping.fields(parts, dims[axis])]


@converter("diagonal", "diagonal_copy", "linalg_diagonal")
def diagonal_of(self: Expr, node: Node, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Expr:
    n = rank(self)
    a, b = axis_of(dim1, n, node), axis_of(dim2, n, node)
    x = transpose(self, [*(k for k in range(n) if k not in (a, b)), a, b])
    rows, columns = node.static(x, "self")[-2:]
    count = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    first = max(-offset, 0) * columns + max(offset, 0)
    flat = shaping.reshape(x, (*shape_of(x)[:-2], rows * columns))
    return op.take(flat, Constant(first + np.arange(count) * (columns + 1)), axis=n - 2)


@converter("diag")
def diag(self: Expr, node: Node, diagonal: int = 0) -> Expr:
    return diag_embed(self, node, diagonal) if rank(self) == 1 else diagonal_of(self, node, diagonal)


@converter("diag_embed")
def diag_embed(self: Expr, node: Node, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Expr:
    count = node.static(self, "self")[-1]
    side, n = count + abs(offset), rank(self) + 1
    places = np.full((side, side), count)
    index = np.arange(count)
    places[index + max(-offset, 0), index + max(offset, 0)] = index
    padded = shaping.pad(self, [(0, 0)] * (n - 2) + [(0, 1)], scalar(0, self))
    x = op.take(padded, Constant(places), axis=n - 2)
    return movedim(x, [n - 2, n - 1], [dim1 % n, dim2 % n])


@converter("unfold", "unfold_copy")
def unfold(self: Expr, dimension: int, size: int, step: int, node: Node) -> Expr:
    """Sliding windows along a dimension, as a new last dimension."""
    if not rank(self):
        return slice_axis(shaping.reshape(self, (1,)), 0, 0, size)
    axis = axis_of(dimension, rank(self), node)
    count = (node.static(self, "self")[axis] - size) // step + 1
    found = op.take(self, Constant(np.arange(count)[:, None] * step + np.arange(size)), axis=axis)
    return transpose(found, [*(k for k in range(rank(found)) if k != axis + 1), axis + 1])


@converter("as_strided", "as_strided_copy")
def as_strided(self: Expr, size: Any, stride: Any, node: Node, storage_offset: int | None = None) -> Expr:
    """The elements of a contiguous tensor, viewed with other strides."""
    whole = math.prod(node.static(self, "self"))
    places = np.full(tuple(size), storage_offset or 0)
    for k, (n, s) in enumerate(zip(size, stride, strict=True)):
        places = places + (np.arange(n) * s).reshape([-1 if k == j else 1 for j in range(len(size))])
    return op.take(shaping.reshape(self, (whole,)), Constant(places), axis=0)


# Joining


@converter("cat", "concat", "concatenate")
def cat(tensors: list[Expr], node: Node, dim: int = 0) -> Expr:
    given = [t for t in tensors if shape_of(t) != (0,)] or tensors[:1]
    kind = result_type(tensors, node.default_dtype)
    cast_ones = [cast(t, kind) for t in given]
    axis = axis_of(dim, rank(given[0]), node)
    return op.concatenate(Tuple(tuple(cast_ones)), axis=axis) if len(cast_ones) > 1 else cast_ones[0]


@converter("stack")
def stack(tensors: list[Expr], node: Node, dim: int = 0) -> Expr:
    kind = result_type(tensors, node.default_dtype)
    axis = axis_of(dim, rank(tensors[0]) + 1, node)
    return op.stack(Tuple(tuple(cast(t, kind) for t in tensors)), axis=axis)


@converter("hstack", "vstack", "dstack", "column_stack")
def named_stack(tensors: list[Expr], node: Node) -> Expr:
    axis = {"h": 1, "v": 0, "d": 2, "c": 1}[node.name[0]]
    parts = []
    for t in tensors:
        dims = shape_of(t)
        if node.name == "hstack":
            parts.append(shaping.reshape(t, (1,)) if not dims else t)
        elif node.name == "column_stack":
            parts.append(t if len(dims) > 1 else shaping.reshape(t, (*dims, 1) if dims else (1, 1)))
        elif node.name == "vstack":
            parts.append(t if len(dims) > 1 else shaping.reshape(t, (1, *dims) if dims else (1, 1)))
        else:
            parts.append(t if len(dims) > 2
                         else shaping.reshape(t, {0: (1, 1, 1), 1: (1, *dims, 1), 2: (*dims, 1)}[len(dims)]))
    return cat(parts, node, 0 if node.name == "hstack" and rank(parts[0]) == 1 else axis)


@converter("repeat")
def repeat(self: Expr, repeats: Any, node: Node) -> Expr:
    times = dims_of(repeats, node)
    lead = len(times) - rank(self)
    x = shaping.reshape(self, (*[1] * lead, *shape_of(self))) if lead else self
    return _tiled(x, times)


@converter("tile")
def tile(self: Expr, dims: Any, node: Node) -> Expr:
    times = dims_of(dims, node)
    return repeat(self, [*[1] * (rank(self) - len(times)), *times], node)


def _tiled(x: Expr, times: Sequence[Any]) -> Expr:
    if all(isinstance(n, int) and n == 1 for n in times):
        return x
    dims = shape_of(x)
    if all(isinstance(d, int) and d == 1 for d, n in zip(dims, times, strict=True)
           if not (isinstance(n, int) and n == 1)):
        return spread(x, tuple(n if isinstance(d, int) and d == 1 else d for d, n in zip(dims, times, strict=True)))
    return op.tile(x, reps=tuple(times))


@converter("repeat_interleave.self_int", "repeat_interleave.self_Tensor", "repeat_interleave.Tensor")
def repeat_interleave(repeats: Any, node: Node, self: Expr | None = None, dim: int | None = None,
                      output_size: int | None = None) -> Expr:
    x = op.arange(start=0, stop=shape_of(repeats)[0], step=1, dtype="int64") if self is None else self
    if dim is None:
        x, dim = shaping.reshape(x, (math.prod(shape_of(x)),)), 0
    axis = axis_of(dim, rank(x), node)
    if isinstance(repeats, Expr):
        known = node.known(node.settled(repeats))
        if known is None or known.dtype == object:
            return op.take(x, _repeated(repeats, node.static(x, "self")[axis], output_size, node), axis=axis)
        counts = known.reshape(-1)
        if counts.size != 1:
            return op.take(x, Constant(np.repeat(np.arange(counts.size), counts)), axis=axis)
        repeats = int(counts[0])
    return op.repeat(x, repeats=repeats, axis=axis)


def _repeated(repeats: Expr, size: int, total: int | None, node: Node) -> Expr:
    """Repeat each number below `size` by the computed `repeats`; `total` is the length of the result if it is known."""
    if not size:
        return shaping.number(np.zeros(0))
    ends = op.cumsum(cast(spread(shaping.reshape(repeats, (-1,)), (size,)), "int64"), axis=0)
    count: Any = total if isinstance(total, int) else op.squeeze(slice_axis(ends, 0, size - 1, size), axis=(0,))
    steps = op.arange(start=shaping.number(0), stop=count if isinstance(count, Expr) else shaping.number(count),
                      step=shaping.number(1), dtype="int64")
    return op.searchsorted(ends, node.settled(steps), right=True, dtype="int64")


@converter("resize", "resize_as")
def resize(self: Expr, node: Node, size: Any = None, the_template: Expr | None = None) -> Expr:
    """The first elements in another shape. A larger shape is refused, since torch leaves the new elements undefined."""
    dims = dims_of(size, node) if the_template is None else list(shape_of(the_template))
    have, wanted = math.prod(node.static(self, "self")), math.prod(dims)
    if wanted > have:
        node.refuse(f"it makes {wanted} elements from {have}, but PyTorch does not define the new ones; use "
                    "torch.nn.functional.pad")
    flat = shaping.reshape(self, (have,))
    return shaping.reshape(flat if wanted == have else slice_axis(flat, 0, 0, wanted), tuple(dims))


@converter("ravel")
def ravel(self: Expr) -> Expr:
    return shaping.reshape(self, (-1,))


@converter("flip")
def flip(self: Expr, dims: Any, node: Node) -> Expr:
    x = self
    for d in dims:
        x = op.reverse(x, axis=axis_of(d, rank(x), node))
    return x


@converter("fliplr", "flipud")
def named_flip(self: Expr, node: Node) -> Expr:
    return op.reverse(self, axis=1 if node.name == "fliplr" else 0)


@converter("rot90")
def rot90(self: Expr, node: Node, k: int = 1, dims: Any = (0, 1)) -> Expr:
    a, b = (axis_of(d, rank(self), node) for d in dims)
    order = list(range(rank(self)))
    order[a], order[b] = order[b], order[a]
    if k % 4 == 1:
        return op.reverse(transpose(self, order), axis=a)
    if k % 4 == 2:
        return op.reverse(op.reverse(self, axis=a), axis=b)
    return op.reverse(transpose(self, order), axis=b) if k % 4 else self


@converter("roll")
def roll(self: Expr, shifts: Any, node: Node, dims: Any = ()) -> Expr:
    steps, axes = ([*v] if isinstance(v, (list, tuple)) else [v] for v in (shifts, dims))
    if not axes:
        flat = shaping.reshape(self, (math.prod(shape_of(self)),))
        return shaping.reshape(roll(flat, steps, node, [0]), shape_of(self))
    x = self
    for step, d in zip(steps, axes, strict=True):
        axis = axis_of(d, rank(x), node)
        size = shape_of(x)[axis]
        if not isinstance(size, int):
            node.static(x, "self")
        by = step % size if size else 0
        if by:
            x = op.concatenate(Tuple((slice_axis(x, axis, size - by, size), slice_axis(x, axis, 0, size - by))),
                               axis=axis)
    return x


@converter("pixel_shuffle")
def pixel_shuffle(self: Expr, upscale_factor: int) -> Expr:
    r = upscale_factor
    *lead, c, h, w = shape_of(self)
    x = shaping.reshape(self, (*lead, c // (r * r), r, r, h, w))
    n = len(lead)
    return shaping.reshape(transpose(x, [*range(n), n, n + 3, n + 1, n + 4, n + 2]),
                           (*lead, c // (r * r), h * r, w * r))


@converter("pixel_unshuffle")
def pixel_unshuffle(self: Expr, downscale_factor: int) -> Expr:
    r = downscale_factor
    *lead, c, h, w = shape_of(self)
    x = shaping.reshape(self, (*lead, c, h // r, r, w // r, r))
    n = len(lead)
    return shaping.reshape(transpose(x, [*range(n), n, n + 2, n + 4, n + 1, n + 3]), (*lead, c * r * r, h // r, w // r))


@converter("channel_shuffle", "native_channel_shuffle")
def channel_shuffle(self: Expr, groups: int) -> Expr:
    n, c, *rest = shape_of(self)
    x = shaping.reshape(self, (n, groups, c // groups, *rest))
    return shaping.reshape(transpose(x, [0, 2, 1, *range(3, 3 + len(rest))]), (n, c, *rest))


@converter("tril", "triu")
def triangle(self: Expr, node: Node, diagonal: int = 0) -> Expr:
    return op.trilu(self, Constant(np.asarray(diagonal, np.int64)), upper=node.name == "triu")
