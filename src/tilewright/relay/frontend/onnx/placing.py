"""Operators that scatter elements to given positions, and deformable convolution."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilewright.base.types import INT64, OpenSize
from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.core.node import Array
from tilewright.relay.frontend.onnx.node import Node
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import axis_of, cast, pad, reshape, size_value, slice_axis, steps_to, transpose
from tilewright.relay.types_of import dtype_of, scalar, shape_of
from tilewright.topi.shapes import differ, is_at_most, is_multiple


@converter("MaxUnpool", since=9)
def max_unpool(
    x: Expr, i: Expr, output_shape: Expr | None = None, *, kernel_shape: tuple[int, ...],
    pads: tuple[int, ...] | None = None, strides: tuple[int, ...] | None = None, node: Node,
) -> Expr:
    """Place values at their indices in the flattened output, with zeros elsewhere; `output_shape` may add zeros."""
    dims, n = node.static(x, "X"), len(kernel_shape)
    edges, steps = pads or (0,) * 2 * n, strides or (1,) * n
    sizes = [(d - 1) * s - edges[k] - edges[k + n] + w
             for k, (d, s, w) in enumerate(zip(dims[2:], steps, kernel_shape, strict=True))]
    shape = (*dims[:2], *sizes)
    zeros = op.full(scalar(0, x), shape=(math.prod(shape),), dtype=dtype_of(x))
    placed = op.scatter_elements(zeros, reshape(cast(i, INT64), (-1,)), reshape(x, (-1,)), axis=0, reduction="update")
    result = reshape(placed, shape)
    if output_shape is None:
        return result
    wanted = node.ints(output_shape, "output_shape")
    if len(wanted) != len(shape) or any(w < d for w, d in zip(wanted, shape, strict=True)):
        node.refuse(f"output_shape is {wanted}; it must be at least {shape}, the shape that the pooling implies")
    return pad(result, [(0, w - d) for w, d in zip(wanted, shape, strict=True)])


@converter("Col2Im", since=18)
def col2im(
    x: Expr, image_shape: Expr, block_shape: Expr, *, dilations: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None, strides: tuple[int, ...] | None = None, node: Node,
) -> Expr:
    """Sum the columns (batch, channels * block, positions) into the image positions of their elements."""
    image, block = node.ints(image_shape, "image_shape"), node.ints(block_shape, "block_shape")
    n, (batch, rows, positions) = len(image), node.static(x, "input")
    apart, edges, steps = dilations or (1,) * n, pads or (0,) * 2 * n, strides or (1,) * n
    if not len(block) == len(apart) == len(steps) == n or len(edges) != 2 * n or min((*image, *block)) < 1:
        node.refuse(f"image_shape is {image} and block_shape {block}; these, dilations and strides need one number (1 "
                    "or more) for each dimension, and pads two")
    padded = [size + edges[k] + edges[k + n] for k, size in enumerate(image)]
    counts = [(p - d * (b - 1) - 1) // s + 1 for p, d, b, s in zip(padded, apart, block, steps, strict=True)]
    if not is_multiple(rows, math.prod(block)) or differ(math.prod(counts), positions):
        node.refuse(f"its input has {rows} rows and {positions} columns; blocks of {block} in an image of {image} need "
                    f"a multiple of {math.prod(block)} rows and {math.prod(counts)} columns")
    node.check_table(batch * rows, *counts)
    channels, size = rows // math.prod(block), math.prod(padded)
    flat = reshape(x, (batch * channels, math.prod(block) * positions))
    where = _places(padded, block, counts, steps, apart)
    index: Expr
    if isinstance(batch * channels, OpenSize):
        index = op.broadcast_to(Constant(where.reshape(1, -1)), shape=(batch * channels, where.size))
    else:
        index = Constant(np.ascontiguousarray(np.broadcast_to(where, (batch * channels, where.size))))
    zeros = op.full(scalar(0, x), shape=(batch * channels, size), dtype=dtype_of(x))
    result = reshape(op.scatter_elements(zeros, index, flat, axis=1, reduction="add"), (batch, channels, *padded))
    if not any(edges):
        return result
    begin = (0, 0, *edges[:n])
    return op.strided_slice(result, begin=begin, end=(batch, channels,
        *(b + s for b, s in zip(edges[:n], image, strict=True))), strides=(1,) * (n + 2))


def _places(padded: Sequence[int], block: Sequence[int], counts: Sequence[int], steps: Sequence[int],
            apart: Sequence[int]) -> Array:
    """Flat index in the padded image of each element of each block: block elements first, then blocks."""
    grid = np.indices((*block, *counts)).reshape(2 * len(block), -1)
    where = [a * inside + s * at for a, s, inside, at in zip(apart, steps, grid[: len(block)], grid[len(block) :],
        strict=True)]
    return np.asarray(np.ravel_multi_index(where, tuple(padded)), np.int64)


@converter("TensorScatter", since=24)
def tensor_scatter(past_cache: Expr, update: Expr, write_indices: Expr | None = None, *, axis: int = -2,
                   mode: str = "linear", node: Node) -> Expr:
    """Write the update into each sample's cache from its index on; it wraps at the end if `mode` is circular."""
    if mode not in ("linear", "circular"):
        node.refuse(f"mode is {mode!r}; it must be linear or circular")
    cache, new = node.static(past_cache, "past_cache"), node.static(update, "update")
    if len(cache) != len(new):
        node.refuse(f"past_cache has {len(cache)} dimensions and update {len(new)}; both must have the same number")
    if write_indices is not None and any(map(differ, node.static(write_indices, "write_indices"), cache[:1])):
        node.refuse(f"write_indices has the shape {shape_of(write_indices)}; it must have one index for each of "
                    f"{cache[0] if cache else 0} samples")
    along = axis_of(axis, len(cache), node)
    if (along == 0 or any(differ(a, b) for k, (a, b) in enumerate(zip(cache, new, strict=True)) if k != along)
            or not is_at_most(new[along], cache[along])):
        node.refuse(f"the update of shape {new} does not fit in the cache of shape {cache} along axis {along}")
    if not isinstance(new[along], OpenSize):
        node.check_table(new[along])
    steps = reshape(steps_to(new[along]), [new[along] if k == along else 1 for k in range(len(new))])
    first = Constant(np.zeros(1, np.int64)) if write_indices is None else cast(write_indices, INT64)
    places = op.add(reshape(first, (-1, *[1] * (len(new) - 1))), steps)
    if mode == "circular":
        places = op.floor_mod(places, size_value(cache[along], places))
    return op.scatter_elements(past_cache, op.broadcast_to(places, shape=new), update, axis=along, reduction="update")


@converter("DeformConv", since=19)
def deform_conv(
    x: Expr, w: Expr, offset: Expr, b: Expr | None = None, mask: Expr | None = None, *,
    dilations: tuple[int, ...] | None = None, group: int = 1, kernel_shape: tuple[int, ...] | None = None,
    offset_group: int = 1, pads: tuple[int, ...] | None = None, strides: tuple[int, ...] | None = None, node: Node,
) -> Expr:
    """Deformable convolution: the image sampled at taps offset by `offset` and scaled by `mask`, times weights."""
    dims = node.static(x, "X")
    if len(dims) != 4:
        node.refuse(f"an input of {len(dims)} dimensions is not supported; it must have 4")
    n, channels, height, width = dims
    _check_deform(x, w, offset, b, mask, node, group=group, offset_group=offset_group, kernel_shape=kernel_shape,
                  pads=pads, strides=strides, dilations=dilations)
    units, (kh, kw), (rows, columns) = node.static(w, "W")[0], kernel_shape or node.static(w,
        "W")[2:], node.static(offset, "offset")[2:]
    (top, left, *_), (down, right), (far_y, far_x) = pads or (0,) * 4, strides or (1, 1), dilations or (1, 1)
    taps, points = kh * kw, kh * kw * rows
    moved = transpose(reshape(offset, (n * offset_group, taps, 2, rows, columns)), (0, 2, 1, 3, 4))
    if any(isinstance(d, OpenSize) for d in (height, width, kh, kw, rows, columns)):
        spread = _dynamic_points(moved, (height, width), ((kh, far_y), (kw, far_x)), ((down, top), (right, left)))
    else:
        node.check_table(taps, rows, columns)
        ys = (np.repeat(np.arange(kh) * far_y, kw)[:, None, None] + (np.arange(rows) * down - top)[:, None]) + np.zeros(
            (1, 1, columns))
        xs = (np.tile(np.arange(kw) * far_x, kh)[:, None, None] + (np.arange(columns) * right - left)) + np.zeros(
            (1, rows, 1))
        kind = dtype_of(x).numpy()
        at = op.add(moved, Constant(np.stack([ys, xs])[None].astype(kind)))
        # From pixels to [-1, 1] between the outer edges, x first.
        scale, size = np.array([2 / height, 2 / width]).reshape(1, 2, 1, 1, 1), np.array([height, width]).reshape(
            1, 2, 1, 1, 1)
        spread = op.add(op.multiply(at, Constant(scale.astype(kind))), Constant((1 / size - 1).astype(kind)))
    grid = reshape(op.reverse(spread, axis=1), (n * offset_group, 2, points, columns))
    image = reshape(x, (n * offset_group, channels // offset_group, height, width))
    sampled = op.image.grid_sample(image, grid, method="bilinear", layout="NCHW", padding_mode="zeros",
                                   align_corners=False)
    if mask is not None:
        sampled = op.multiply(sampled, reshape(mask, (n * offset_group, 1, points, columns)))
    depth = channels // group * taps
    left_side = reshape(op.broadcast_to(reshape(w, (1, group, units // group, depth)),
                                        shape=(n, group, units // group, depth)), (n * group, units // group, depth))
    product = op.nn.batch_matmul(left_side, reshape(sampled, (n * group, depth, rows * columns)), transpose_a=False,
                                 transpose_b=False)
    result = reshape(product, (n, units, rows, columns))
    return result if b is None else op.add(result, reshape(b, (shape_of(b)[0], 1, 1)))


def _dynamic_points(
    moved: Expr, image: Sequence[int], taps: Sequence[tuple[int, int]], places: Sequence[tuple[int, int]]
) -> Expr:
    """Return the points in [-1, 1] of all taps, y first: (batch, 2, taps, rows, columns). `taps` are the counts and
    distances of taps, `places` the strides and paddings, for both axes. They are float64, so that pixels keep their
    places."""
    _, _, _, *out = shape_of(moved)
    found = []
    for k, (size, (_, apart), (stride, before)) in enumerate(zip(image, taps, places, strict=True)):
        of_tap = reshape(steps_to(taps[k][0]), [taps[k][0] if d == k else 1 for d in range(2)])
        of_tap = reshape(op.broadcast_to(of_tap, shape=(taps[0][0], taps[1][0])), (taps[0][0] * taps[1][0], 1, 1))
        place = reshape(steps_to(out[k]), [out[d] if d == k else 1 for d in range(2)])
        at = op.add(op.multiply(of_tap, scalar(apart, of_tap)), op.subtract(
            op.multiply(place, scalar(stride, place)), scalar(before, place)))
        at = op.add(cast(op.squeeze(slice_axis(moved, 1, k, k + 1), axis=(1,)), "float64"), cast(at, "float64"))
        twice = op.add(op.multiply(at, scalar(2, at)), scalar(1, at))
        found.append(op.subtract(op.divide(twice, size_value(size, at)), scalar(1, at)))
    return op.concatenate([op.expand_dims(p, axis=1) for p in found], axis=1)


def _check_deform(
    x: Expr, w: Expr, offset: Expr, b: Expr | None, mask: Expr | None, node: Node, *, group: int, offset_group: int,
    **given: tuple[int, ...] | None,
) -> None:
    """Refuse a `DeformConv` with inconsistent shapes and attributes."""
    for name, numbers in given.items():
        count, least = (4, 0) if name == "pads" else (2, 1)
        if numbers is not None and (len(numbers) != count or min(numbers) < least):
            node.refuse(f"{name} is {numbers}; it must be {count} numbers of {least} or more")
    (n, channels, height, width), weights = node.static(x, "X"), node.static(w, "W")
    if min(group, offset_group) < 1 or not is_multiple(channels, group) or not is_multiple(channels, offset_group):
        node.refuse(f"group is {group} and offset_group {offset_group}; each must be 1 or more and divide the "
                    f"{channels} channels of X")
    if (len(weights) != 4 or differ(weights[1], channels // group) or not is_multiple(weights[0], group)
            or any(map(differ, weights[2:], given["kernel_shape"] or weights[2:]))):
        node.refuse(f"W has the shape {weights}; it must be (a multiple of {group}, {channels // group}, the height "
                    "and the width of the kernel)")
    far, steps, edges = given["dilations"] or (1, 1), given["strides"] or (1, 1), given["pads"] or (0,) * 4
    image = [(size + edges[k] + edges[k + 2] - (weights[2 + k] - 1) * far[k] - 1) // steps[k] + 1
             for k, size in enumerate((height, width))]
    taps = weights[2] * weights[3]
    wanted = {"offset": (offset, (n, offset_group * taps * 2, *image)),
              "mask": (mask, (n, offset_group * taps, *image)), "B": (b, weights[:1])}
    for name, (value, shape) in wanted.items():
        found = shape if value is None else node.static(value, name)
        if len(found) != len(shape) or any(map(differ, found, shape)):
            node.refuse(f"{name} has the shape {found}; with its X, W and attributes it must be "
                        f"{shape}")
