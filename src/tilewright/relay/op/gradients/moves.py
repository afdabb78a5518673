"""Gradients of the operators that move elements: other shapes, slices, joins, lookups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tilewright.relay.expr import Call, Constant, Expr
from tilewright.relay.op.blocks import Dilate, LayoutTransform
from tilewright.relay.op.broadcast import Divide, FloorMod, Multiply, Subtract
from tilewright.relay.op.elementwise import Clip
from tilewright.relay.op.gradients.building import GradientRule, permuted, refuse, reshape_like, unpermuted, zeros_like
from tilewright.relay.op.indexing import ScatterElements, ScatterNd
from tilewright.relay.op.reduction import Sum
from tilewright.relay.op.shaping import ExpandDims, sized
from tilewright.relay.op.transform import Concatenate, Pad, Reverse, StridedSlice
from tilewright.relay.types_of import dtype_of, rank, scalar, shape_of
from tilewright.topi.shapes import axis_of, is_number


def _viewed(e: Call, g: Expr) -> list[Expr | None]:
    return [reshape_like(g, e.args[0]), *[None] * (len(e.args) - 1)]


def _transpose(e: Call, g: Expr) -> list[Expr]:
    return [unpermuted(g, e.op.order(rank(g)))]


def _reverse(e: Call, g: Expr) -> list[Expr]:
    return [Reverse(e.op.axis)(g)]


def _layout_transform(e: Call, g: Expr) -> list[Expr]:
    back = LayoutTransform(e.op.dst_layout, e.op.src_layout)(g)
    if shape_of(back) != shape_of(e.args[0]):
        refuse(e, f"from {e.op.src_layout} to {e.op.dst_layout}, because the blocks are padded; use blocks that divide "
                  "the dimensions")
    return [back]


def _window(x: Expr, axis: int, begin: Any, end: Any) -> Expr:
    return StridedSlice((begin,), (end,), (1,), (axis,))(x)


def _concatenate(e: Call, g: Expr) -> list[Sequence[Expr]]:
    (parts,) = e.args
    axis, start, found = axis_of(e.op.axis, rank(e)), 0, list[Expr]()
    for t in parts.checked_type.fields:  # type: ignore[attr-defined]
        if not is_number(t.shape[axis]):
            refuse(e, f"along axis {axis} of unknown size; give its inputs known sizes there")
        found.append(_window(g, axis, start, start + t.shape[axis]))
        start += t.shape[axis]
    return [found]


def _stack(e: Call, g: Expr) -> list[Sequence[Expr]]:
    (parts,) = e.args
    axis = axis_of(e.op.axis, rank(e))
    return [[reshape_like(_window(g, axis, k, k + 1), parts[k]) for k in range(shape_of(e)[axis])]]


def _split(e: Call, g: Expr) -> list[Expr]:
    return [Concatenate(e.op.axis)(g)]


def _known_shape(e: Call, x: Expr) -> tuple[int, ...]:
    if not x.tensor_type.is_static or x.tensor_type.is_open:
        refuse(e, f"for data of the shape {shape_of(x)}; all its sizes must be known")
    return shape_of(x)


def _strided_slice(e: Call, g: Expr) -> list[Expr]:
    """Put the elements of the slice back in place: reverse, insert zeros between, and pad with zeros."""
    x = e.args[0]
    shape = _known_shape(e, x)
    along = e.op.slices(shape)
    if any(n == 0 for _, n, _ in along):
        return [zeros_like(x)]
    for axis, (_, n, step) in enumerate(along):
        g = Reverse(axis)(g) if step < 0 and n > 1 else g
    steps = [abs(step) if n > 1 else 1 for _, n, step in along]
    g = Dilate(tuple(steps))(g) if any(s > 1 for s in steps) else g
    first = [min(f, f + (n - 1) * step) for f, n, step in along]
    widths = [(f, size - f - d) for f, size, d in zip(first, shape, shape_of(g), strict=True)]
    return [Pad(tuple(widths))(g, scalar(0, g)) if any(map(any, widths)) else g]


def _pad(e: Call, g: Expr) -> list[Expr]:
    x, value = e.args
    if e.op.pad_mode != "constant":
        refuse(e, f"with pad_mode '{e.op.pad_mode}'; only that of constant padding is")
    inside = StridedSlice(tuple(b for b, _ in e.op.pad_width), shape_of(x), slice_mode="size")(g)
    return [inside, reshape_like(Subtract()(Sum()(g), Sum()(inside)), value)]


def _repeat(e: Call, g: Expr) -> list[Expr]:
    x = e.args[0]
    shape, repeats = _known_shape(e, x), e.op.repeats
    if e.op.axis is None:
        return [reshape_like(Sum((1,))(sized((math.prod(shape), repeats))(g)), x)]
    at = axis_of(e.op.axis, len(shape))
    return [Sum((at + 1,))(sized((*shape[: at + 1], repeats, *shape[at + 1 :]))(g))]


def _tile(e: Call, g: Expr) -> list[Expr]:
    x = e.args[0]
    shape, reps = _known_shape(e, x), tuple(e.op.reps)
    ndim = max(len(shape), len(reps))
    sizes, counts = (1,) * (ndim - len(shape)) + shape, (1,) * (ndim - len(reps)) + reps
    pairs = [n for pair in zip(counts, sizes, strict=True) for n in pair]
    return [reshape_like(Sum(tuple(range(0, 2 * ndim, 2)))(sized(tuple(pairs))(g)), x)]


def _arange(e: Call, g: Expr) -> list[Expr | None]:
    """start + k * step: the step is counted k times."""
    start, _, step = e.args
    place = Divide()(Subtract()(e, start), step)
    return [Sum()(g), None, Sum()(Multiply()(g, place))]


def _taken_places(e: Call, indices: Expr, size: int) -> Expr:
    """The indices of `take` within bounds."""
    if e.op.mode == "wrap":
        return FloorMod()(indices, scalar(size, indices))
    return Clip(0, size - 1)(indices)


def _take(e: Call, g: Expr) -> list[Expr | None]:
    x, indices = e.args
    if e.op.axis is None:
        flat = sized((math.prod(_known_shape(e, x)),))(x)
        points = ExpandDims(0)(_taken_places(e, indices, shape_of(flat)[0]))
        return [reshape_like(ScatterNd("add")(zeros_like(flat), points, g), x), None]
    axis = axis_of(e.op.axis, rank(x))
    if e.op.batch_dims:
        refuse(e, f"with batch_dims {e.op.batch_dims}; use gather_nd")
    if not is_number(shape_of(x)[axis]):
        refuse(e, f"along axis {axis} of unknown size; give the data a known size there")
    points = ExpandDims(0)(_taken_places(e, indices, shape_of(x)[axis]))
    order = (axis, *(d for d in range(rank(x)) if d != axis))
    front = (*range(axis, axis + rank(indices)), *range(axis), *range(axis + rank(indices), rank(g)))
    rows = ScatterNd("add")(zeros_like(permuted(x, order)), points, permuted(g, front))
    return [unpermuted(rows, order), None]


def _gather(e: Call, g: Expr) -> list[Expr | None]:
    x, indices = e.args
    return [ScatterElements(e.op.axis, "add")(zeros_like(x), indices, g), None]


def _gather_nd(e: Call, g: Expr) -> list[Expr | None]:
    x, indices = e.args
    batch = e.op.batch_dims
    if batch:
        shape = _known_shape(e, indices)[1:]
        own = Constant(np.indices(shape, dtype_of(indices).numpy())[:batch])
        indices = Concatenate(0)([own, indices])
    return [ScatterNd("add")(zeros_like(x), indices, g), None]


RULES: Final[dict[str, GradientRule]] = {
    **dict.fromkeys(("reshape", "reshape_like", "contrib_reverse_reshape", "squeeze", "expand_dims", "nn.batch_flatten",
                     "dyn.reshape", "dyn.squeeze", "dyn.expand_dims"), _viewed),
    "transpose": _transpose,
    "reverse": _reverse,
    "layout_transform": _layout_transform,
    "concatenate": _concatenate,
    "stack": _stack,
    "split": _split,
    "strided_slice": _strided_slice,
    "nn.pad": _pad,
    "repeat": _repeat,
    "tile": _tile,
    "dyn.arange": _arange,
    "take": _take,
    "gather": _gather,
    "gather_nd": _gather_nd,
}
"""The rules by operator name."""
