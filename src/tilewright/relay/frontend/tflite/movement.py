"""Operators that move elements: shapes, slices, pads, copies."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilewright.relay.expr import Constant, Expr, Tuple
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import axis_of, cast, fields, pad, reshape, transpose
from tilewright.relay.frontend.tflite.model import Tensor
from tilewright.relay.frontend.tflite.node import Node, Value, constant, is_quantized, scale_of, zero_point_of
from tilewright.relay.frontend.tflite.registry import converter
from tilewright.relay.frontend.tflite.rescale import activate
from tilewright.relay.frontend.tflite.rounding import rounded_away


@converter("RESHAPE")
def reshape_to(x: Value, shape: Value | None = None, *, new_shape: tuple[int, ...] = (), node: Node) -> Expr:
    wanted = node.ints(shape) if shape is not None and shape.rank == 1 else tuple(new_shape)
    if shape is not None and shape.rank != 1 and not wanted:
        wanted = node.ints(shape)
    if shape is None and wanted == (0,):
        wanted = ()  # old converters write scalars like this
    parts = x.shape[x.dimensions :]
    count = math.prod(x.shape) // math.prod(parts)
    known = math.prod(d for d in wanted if d != -1)
    if (sum(d == -1 for d in wanted) > 1 or any(d < -1 for d in wanted)
            or (-1 in wanted and (count % max(known, 1) or not known)) or (-1 not in wanted and known != count)):
        node.refuse(f"{count} elements do not fit the shape {wanted}")
    return reshape(x.expr, [*(count // known if d == -1 else d for d in wanted), *parts])


@converter("SQUEEZE")
def squeeze(x: Value, *, squeeze_dims: tuple[int, ...] = (), node: Node) -> Expr:
    gone = [axis_of(a, x.dimensions, node) for a in squeeze_dims] or [k for k, d in enumerate(x.shape[: x.dimensions])
        if d == 1]
    if any(x.shape[a] != 1 for a in gone):
        node.refuse(f"dimensions {squeeze_dims} of its input of shape {x.shape} cannot be squeezed, because not all "
                    "are 1")
    return reshape(x.expr, [d for k, d in enumerate(x.shape) if k not in gone])


@converter("EXPAND_DIMS")
def expand_dims(x: Value, axis: Value, *, node: Node) -> Expr:
    place = axis_of(node.whole(axis), x.dimensions + 1, node)
    return reshape(x.expr, (*x.shape[:place], 1, *x.shape[place:]))


@converter("TRANSPOSE")
def transpose_by(x: Value, perm: Value, *, node: Node) -> Expr:
    axes = tuple(axis_of(a, x.dimensions, node) for a in node.ints(perm))
    if sorted(axes) != list(range(x.dimensions)):
        node.refuse(f"its permutation {axes} is not a permutation of {x.dimensions} dimensions")
    return transpose(x.expr, (*axes, *range(x.dimensions, x.rank)))


@converter("CONCATENATION")
def concatenation(*values: Value, axis: int = 0, fused_activation_function: int = 0, node: Node) -> Expr:
    if not values:
        node.refuse("it has no inputs")
    along = axis_of(axis, values[0].dimensions, node)
    t = node.output
    parts = [in_scale_of(v, t) if v.dtype == "uint8" and v.is_quantized else v.expr for v in values]
    found: Expr = op.concatenate(Tuple(tuple(parts)), axis=along) if len(parts) > 1 else parts[0]
    return activate(found, fused_activation_function, node) if fused_activation_function else found


def in_scale_of(v: Value, t: Tensor) -> Expr:
    """Requantize `v` to the scale of another tensor, in float32."""
    if not is_quantized(t) or (v.scale == scale_of(t) and v.zero_point == zero_point_of(t)):
        return v.expr
    ratio = np.float32(v.scale) * (np.float32(1) / np.float32(scale_of(t)))
    bias = -np.float32(v.zero_point) * ratio
    real = op.add(op.multiply(cast(v.expr, "float32"), constant(ratio, "float32")), constant(bias, "float32"))
    whole = op.add(cast(rounded_away(real), "int32"), constant(zero_point_of(t), "int32"))
    low, high = np.iinfo(t.dtype).min, np.iinfo(t.dtype).max
    return cast(op.clip(whole, a_min=int(low), a_max=int(high)), t.dtype)


@converter("PACK")
def pack(*values: Value, axis: int = 0, node: Node) -> Expr:
    if not values:
        node.refuse("it has no inputs")
    place = axis_of(axis, values[0].dimensions + 1, node)
    shape = values[0].shape
    parts = tuple(reshape(v.expr, (*shape[:place], 1, *shape[place:])) for v in values)
    return op.concatenate(Tuple(parts), axis=place) if len(parts) > 1 else parts[0]


def _dimension(axis: int, x: Value, node: Node) -> int:
    """The dimension to split, counted from the front."""
    if not x.dimensions:
        node.refuse("its input is a scalar, which cannot be split; the file is damaged: convert it again")
    return axis_of(axis, x.dimensions, node)


@converter("UNPACK")
def unpack(x: Value, *, axis: int = 0, node: Node) -> tuple[Expr, ...]:
    place = _dimension(axis, x, node)
    count = x.shape[place]
    rest = [d for k, d in enumerate(x.shape) if k != place]
    if count == 1:
        return (reshape(x.expr, rest),)
    return tuple(reshape(part, rest) for part in fields(op.split(x.expr, indices_or_sections=count, axis=place),
        count)) if count else ()


@converter("SPLIT")
def split(axis: Value, x: Value, *, num_splits: int = 0, node: Node) -> tuple[Expr, ...]:
    along = _dimension(node.whole(axis), x, node)
    if num_splits < 1 or x.shape[along] % num_splits:
        node.refuse(f"dimension {along} of its input has {x.shape[along]} elements, which cannot be split into "
                    f"{num_splits} equal parts")
    if num_splits == 1:
        return (x.expr,)
    return fields(op.split(x.expr, indices_or_sections=num_splits, axis=along), num_splits)


@converter("SPLIT_V")
def split_v(x: Value, sizes: Value, axis: Value, *, num_splits: int = 0, node: Node) -> tuple[Expr, ...]:
    along = _dimension(node.whole(axis), x, node)
    parts = list(node.ints(sizes))
    if parts.count(-1) == 1:
        parts[parts.index(-1)] = x.shape[along] - sum(p for p in parts if p != -1)
    if any(p < 0 for p in parts) or sum(parts) != x.shape[along]:
        node.refuse(f"dimension {along} of its input has {x.shape[along]} elements, which cannot be split into parts "
                    f"of {node.ints(sizes)}")
    if len(parts) == 1:
        return (x.expr,)
    places = tuple(int(p) for p in np.cumsum(parts)[:-1])
    return fields(op.split(x.expr, indices_or_sections=places, axis=along), len(parts))


@converter("SLICE")
def slice_of(x: Value, begin: Value, size: Value, *, node: Node) -> Expr:
    first, counts = node.ints(begin), node.ints(size)
    sizes = x.shape[: x.dimensions]
    if len(first) != len(sizes) or len(counts) != len(sizes):
        node.refuse(f"it begins at {first} and has the size {counts}, but its input has {len(sizes)} dimensions")
    ends = [b + n if n >= 0 else d for b, n, d in zip(first, counts, sizes, strict=True)]
    if any(b < 0 or e > d or b > e for b, e, d in zip(first, ends, sizes, strict=True)):
        node.refuse(f"the part from {first} of size {counts} is outside its input of shape {x.shape}")
    return op.strided_slice(x.expr, begin=first, end=tuple(ends), strides=(1,) * len(sizes)) if sizes else x.expr


@converter("STRIDED_SLICE")
def strided_slice(
    x: Value, begin: Value, end: Value, strides: Value, *, begin_mask: int = 0, end_mask: int = 0,
    ellipsis_mask: int = 0, new_axis_mask: int = 0, shrink_axis_mask: int = 0, offset: bool = False, node: Node,
) -> Expr:
    first, last, steps = node.ints(begin), node.ints(end), node.ints(strides)
    if not len(first) == len(last) == len(steps):
        node.refuse(f"its begin, end and strides have {len(first)}, {len(last)} and {len(steps)} elements")
    begins: list[int] = []
    ends: list[int] = []
    jumps: list[int] = []
    shape: list[int] = []
    dim = 0
    kept = sum(not (new_axis_mask >> k & 1 or ellipsis_mask >> k & 1) for k in range(len(first)))
    for k, (b, e, s) in enumerate(zip(first, last, steps, strict=True)):
        if ellipsis_mask >> k & 1:
            for _ in range(x.rank - kept):
                begins, ends, jumps, shape = [*begins, 0], [*ends, x.shape[dim]], [*jumps, 1], [*shape, x.shape[dim]]
                dim += 1
            continue
        if new_axis_mask >> k & 1:
            shape.append(1)
            continue
        if dim >= x.rank or s == 0:
            node.refuse(f"it slices {kept} dimensions with strides {steps}, but its input has {x.rank}")
        size, shrinks = x.shape[dim], bool(shrink_axis_mask >> k & 1)
        if shrinks:
            at = (b % size if -size <= b < size
                  else node.refuse(f"element {b} of dimension {dim} is outside its input of shape {x.shape}"))
            here = slice(at, at + 1, 1)
        else:
            till = e + b if offset else e
            here = slice(None if begin_mask >> k & 1 else b, None if end_mask >> k & 1 else till, s)
        r = range(size)[here]
        begins, ends, jumps = [*begins, r.start], [*ends, r.stop], [*jumps, r.step]
        if not shrinks:
            shape.append(len(r))
        dim += 1
    shape += x.shape[dim:]
    counts = [len(range(b, e, s)) for b, e, s in zip(begins, ends, jumps, strict=True)]
    if any(n == 0 for n in counts):
        return op.zeros(shape=tuple(shape), dtype=x.dtype)
    whole = all(b == 0 and s == 1 and e == d for b, e, s, d in zip(begins, ends, jumps, x.shape, strict=False))
    taken = x.expr if whole else _taken(x.expr, begins, counts, jumps)
    return reshape(taken, shape)


def _taken(x: Expr, begins: Sequence[int], counts: Sequence[int], steps: Sequence[int]) -> Expr:
    """Slices whose steps may be negative: those dimensions are reversed first."""
    shape = x.tensor_type.shape
    begins, steps = list(begins), list(steps)
    for k, s in enumerate(steps):
        if s < 0:
            x = op.reverse(x, axis=k)
            begins[k], steps[k] = shape[k] - 1 - begins[k], -s
    ends = [b + (n - 1) * s + 1 for b, n, s in zip(begins, counts, steps, strict=True)]
    axes = tuple(range(len(begins)))
    return op.strided_slice(x, begin=tuple(begins), end=tuple(ends), strides=tuple(steps), axes=axes)


@converter("PAD")
def pad_zero(x: Value, paddings: Value, *, node: Node) -> Expr:
    return _padded(x, paddings, constant(x.zero_point, "float32") if x.is_quantized else constant(0, x.dtype), node)


@converter("PADV2")
def pad_value(x: Value, paddings: Value, value: Value, *, node: Node) -> Expr:
    return _padded(x, paddings, reshape(value.expr, ()), node)


def _widths(x: Value, paddings: Value, node: Node) -> list[tuple[int, int]]:
    widths = node.value(paddings)
    if widths.dtype.kind not in "iu":
        node.refuse(f"its paddings are of type {paddings.dtype}, but must be integers; the file is damaged: convert it "
                    "again")
    if widths.shape != (x.rank, 2) or (widths < 0).any():
        node.refuse(f"its paddings are {widths.tolist()}, but its input has {x.rank} dimensions")
    return [(int(a), int(b)) for a, b in widths]


def _padded(x: Value, paddings: Value, fill: Expr, node: Node) -> Expr:
    return pad(x.expr, _widths(x, paddings, node), fill)


@converter("MIRROR_PAD")
def mirror_pad(x: Value, paddings: Value, *, mode: int = 0, node: Node) -> Expr:
    widths = _widths(x, paddings, node)
    most = [d - (mode == 0) for d in x.shape]
    if any(max(w) > m for w, m in zip(widths, most, strict=True)):
        node.refuse(f"its paddings {widths} are too wide to mirror its input of shape {x.shape}")
    found = x.expr
    for axis, ((before, after), size) in enumerate(zip(widths, x.shape, strict=True)):
        edge = int(mode == 0)  # 1 if the element at the edge is excluded
        ends = (np.arange(before - 1, -1, -1) + edge, np.arange(size - 1, size - 1 - after, -1) - edge)
        first, last = (op.take(found, Constant(places.astype(np.int32)), axis=axis, mode="fast") if len(places)
                       else None for places in ends)
        parts = tuple(part for part in (first, found, last) if part is not None)
        found = op.concatenate(Tuple(parts), axis=axis) if len(parts) > 1 else found
    return found


@converter("TILE")
def tile(x: Value, multiples: Value, *, node: Node) -> Expr:
    counts = node.ints(multiples)
    if len(counts) != x.rank or any(n < 0 for n in counts):
        node.refuse(f"its multiples are {counts}, but its input has {x.rank} dimensions")
    if 0 in counts:
        return op.zeros(shape=tuple(d * n for d, n in zip(x.shape, counts, strict=True)), dtype=x.dtype)
    return op.tile(x.expr, reps=counts) if counts else x.expr


@converter("BROADCAST_TO")
def broadcast_to(x: Value, shape: Value, *, node: Node) -> Expr:
    return op.broadcast_to(x.expr, shape=node.ints(shape))


@converter("BROADCAST_ARGS")
def broadcast_args(a: Value, b: Value, *, node: Node) -> Expr:
    try:
        found = np.broadcast_shapes(node.ints(a), node.ints(b))
    except ValueError:
        node.refuse(f"shapes {node.ints(a)} and {node.ints(b)} cannot be broadcast together")
    return Constant(np.asarray(found, a.dtype))


@converter("FILL")
def fill(dims: Value, value: Value, *, node: Node) -> Expr:
    shape = node.ints(dims)
    if any(d < 0 for d in shape):
        node.refuse(f"it makes a tensor of shape {shape}, which is not a valid shape")
    return op.broadcast_to(reshape(value.expr, ()), shape=shape)


@converter("ZEROS_LIKE")
def zeros_like(x: Value) -> Expr:
    return op.zeros(shape=x.shape, dtype=x.dtype)


@converter("SHAPE")
def shape_of(x: Value, *, out_type: int = 0, node: Node) -> Expr:
    return cast(Constant(np.asarray(x.shape[: x.dimensions], np.int64)), node.output.dtype)


@converter("DENSIFY")
def densify(x: Value) -> Expr:
    """Return the tensor: sparse weights are made dense while they are read."""
    return x.expr


@converter("RANK")
def rank_of(x: Value) -> Expr:
    return constant(x.dimensions, "int32")


@converter("RANGE")
def range_of(start: Value, limit: Value, delta: Value, *, node: Node) -> Expr:
    first, last, step = (node.value(v).reshape(-1)[0] for v in (start, limit, delta))
    if step == 0 or (step > 0 and first > last) or (step < 0 and first < last):
        node.refuse(f"it counts from {first} to {last} by {step}, which never reaches the end")
    kind = np.dtype(node.output.dtype)
    if kind.kind == "f":
        count = math.ceil(abs((last - first) / step))
        values = np.asarray(first, kind) + np.arange(count).astype(kind) * np.asarray(step, kind)
        return Constant(values.astype(kind))
    return Constant(np.arange(int(first), int(last), int(step), dtype=kind))


@converter("REVERSE_V2")
def reverse(x: Value, axis: Value, *, node: Node) -> Expr:
    found = x.expr
    for a in node.ints(axis):
        found = op.reverse(found, axis=axis_of(a, x.dimensions, node))
    return found


@converter("REVERSE_SEQUENCE")
def reverse_sequence(x: Value, lengths: Value, *, seq_dim: int = 0, batch_dim: int = 0, node: Node) -> Expr:
    return op.reverse_sequence(x.expr, lengths.expr, seq_axis=seq_dim, batch_axis=batch_dim)


@converter("DEPTH_TO_SPACE")
def depth_to_space(x: Value, *, block_size: int = 0, node: Node) -> Expr:
    n, h, w, c = _image(x, node)
    b = block_size
    if b < 1 or c % (b * b):
        node.refuse(f"its {c} channels cannot be divided into blocks of {b} by {b}")
    parts = reshape(x.expr, (n, h, w, b, b, c // (b * b)))
    return reshape(transpose(parts, (0, 1, 3, 2, 4, 5)), (n, h * b, w * b, c // (b * b)))


@converter("SPACE_TO_DEPTH")
def space_to_depth(x: Value, *, block_size: int = 0, node: Node) -> Expr:
    n, h, w, c = _image(x, node)
    b = block_size
    if b < 1 or h % b or w % b:
        node.refuse(f"its input of {h} by {w} cannot be divided into blocks of {b} by {b}")
    parts = reshape(x.expr, (n, h // b, b, w // b, b, c))
    return reshape(transpose(parts, (0, 1, 3, 2, 4, 5)), (n, h // b, w // b, b * b * c))


def _image(x: Value, node: Node) -> tuple[int, int, int, int]:
    if x.rank != 4:
        node.refuse(f"its input has {x.rank} dimensions, but must have 4")
    n, h, w, c = x.shape
    return n, h, w, c


@converter("BATCH_TO_SPACE_ND")
def batch_to_space_nd(x: Value, block: Value, crops: Value, *, node: Node) -> Expr:
    sizes, cut = node.ints(block), node.value(crops)
    m = len(sizes)
    if cut.shape != (m, 2) or x.rank < m + 1 or x.shape[0] % max(math.prod(sizes), 1) or any(b < 1 for b in sizes):
        node.refuse(f"its blocks {sizes} and crops {cut.tolist()} do not fit its input of shape {x.shape}")
    batch, space, rest = x.shape[0] // math.prod(sizes), x.shape[1 : m + 1], x.shape[m + 1 :]
    parts = reshape(x.expr, (*sizes, batch, *space, *rest))
    order = [m, *(a for k in range(m) for a in (m + 1 + k, k)), *range(2 * m + 1, 2 * m + 1 + len(rest))]
    whole = reshape(transpose(parts, order), (batch, *(d * b for d, b in zip(space, sizes, strict=True)), *rest))
    ends = [d * b - int(c[1]) for d, b, c in zip(space, sizes, cut, strict=True)]
    if not cut.any():
        return whole
    return op.strided_slice(whole, begin=tuple(int(c[0]) for c in cut), end=tuple(ends), strides=(1,) * m,
                            axes=tuple(range(1, m + 1)))


@converter("SPACE_TO_BATCH_ND")
def space_to_batch_nd(x: Value, block: Value, paddings: Value, *, node: Node) -> Expr:
    sizes, widths = node.ints(block), node.value(paddings)
    m = len(sizes)
    if widths.shape != (m, 2) or x.rank < m + 1 or any(b < 1 for b in sizes):
        node.refuse(f"its blocks {sizes} and paddings {widths.tolist()} do not fit its input of shape {x.shape}")
    around = [(0, 0), *((int(a), int(b)) for a, b in widths), *[(0, 0)] * (x.rank - m - 1)]
    padded = pad(x.expr, around, constant(x.zero_point if x.is_quantized else 0, x.dtype))
    batch, rest = x.shape[0], x.shape[m + 1 :]
    space = [d + int(a) + int(b) for d, (a, b) in zip(x.shape[1 : m + 1], widths, strict=True)]
    if any(d % b for d, b in zip(space, sizes, strict=True)):
        node.refuse(f"its padded input of {space} cannot be divided into blocks of {sizes}")
    parts = reshape(padded, (batch, *(e for d, b in zip(space, sizes, strict=True) for e in (d // b, b)), *rest))
    order = [*range(2, 2 * m + 1, 2), 0, *range(1, 2 * m + 1, 2), *range(2 * m + 1, 2 * m + 1 + len(rest))]
    return reshape(transpose(parts, order),
                   (batch * math.prod(sizes), *(d // b for d, b in zip(space, sizes, strict=True)), *rest))
