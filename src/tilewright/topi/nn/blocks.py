"""Padding, dilation, and rearrangements between space, depth and batch."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.scalar.expr import EQ, PrimExpr, Var, all_of, cast, compare, const, floordiv, floormod, if_then_else
from tilewright.tir.data_layout import layout as parse_layout
from tilewright.topi import transform as of
from tilewright.topi.blocks import depth_to_space_plan, space_to_depth_plan
from tilewright.topi.layouts import data_axes
from tilewright.topi.resize import Line, resize
from tilewright.topi.shapes import is_multiple, is_too_small, product, text
from tilewright.topi.tag import INJECTIVE, tagged
from tilewright.topi.transform import dims
from tilewright.topi.windows import Ints


def _widths(data: te.Tensor, before: Ints, after: Ints | None) -> list[tuple[int, int]]:
    ends = before if after is None else after
    if len(before) != data.ndim or len(ends) != data.ndim:
        raise ShapeError(
            f"padding {text(tuple(before))} and {text(tuple(ends))} must have one number for each of the {data.ndim} "
            "dimensions"
        )
    return list(zip(before, ends, strict=True))


@tagged("injective,pad")
def pad(
    data: te.Tensor, pad_before: Ints, pad_after: Ints | None = None, pad_value: Any = 0.0, name: str = "PadInput",
    attrs: Any = None
) -> te.Tensor:
    """Pad `data` with `pad_value` before and after each dimension; `pad_after` defaults to `pad_before`.

    `name` and `attrs` are those of the result.
    """
    widths = _widths(data, pad_before, pad_after)
    value = pad_value if isinstance(pad_value, te.Tensor) else cast(data.dtype, pad_value)
    return of.pad(data, widths, "constant", value, name, attrs)


@tagged("injective,pad")
def mirror_pad(
    data: te.Tensor, pad_before: Ints, pad_after: Ints | None = None, mode: str = "SYMMETRIC",
    name: str = "MirrorPadInput"
) -> te.Tensor:
    """Mirror `data` at its edges, with the edge itself repeated (`SYMMETRIC`) or not (`REFLECT`). Raises `ShapeError`
    for an unknown mode, or more elements than the data have.
    """
    widths = _widths(data, pad_before, pad_after)
    if mode not in ("SYMMETRIC", "REFLECT"):
        raise ShapeError(f"mode '{mode}' is not supported; it must be SYMMETRIC or REFLECT")
    edge = int(mode == "SYMMETRIC")
    for n, w in zip(dims(data), widths, strict=True):
        if any(w) and any(is_too_small(n - p, 1 - edge) for p in w):
            raise ShapeError(
                f"a dimension of {n} can be mirrored by at most {n - 1 + edge} elements, not by {max(w)}"
            )

    return of.pad(data, widths, mode.lower(), const(0, data.dtype), name)


@tagged(INJECTIVE)
def dilate(data: te.Tensor, strides: Ints, dilation_value: float = 0.0, name: str = "DilatedInput") -> te.Tensor:
    """Insert `strides[d] - 1` elements of `dilation_value` between neighbours along dimension d."""
    if len(strides) != data.ndim:
        raise ShapeError(f"strides {text(tuple(strides))} need one number for each of the {data.ndim} dimensions")

    def element(*i: Var) -> PrimExpr:
        there = all_of(*(compare(EQ, floormod(v, s), 0) for v, s in zip(i, strides, strict=True) if s != 1))
        value = data(*(floordiv(v, s) if s != 1 else v for v, s in zip(i, strides, strict=True)))
        return if_then_else(there, value, const(dilation_value, data.dtype))

    return te.compute([(n - 1) * s + 1 for n, s in zip(dims(data), strides, strict=True)], element, name=name)


@tagged(INJECTIVE)
def flatten(data: te.Tensor) -> te.Tensor:
    """Flatten all but the first dimension: (n, d1 * d2 * …)."""
    return of.reshape(data, (dims(data)[0], product(dims(data)[1:])), "flatten")


@tagged(INJECTIVE)
def space_to_depth(data: te.Tensor, block_size: int, layout: str = "NCHW") -> te.Tensor:
    """Turn blocks of pixels into channels, with the block as the slower part."""
    return of.regroup(data, *space_to_depth_plan(dims(data), block_size, layout), "space_to_depth")


@tagged(INJECTIVE)
def depth_to_space(data: te.Tensor, block_size: int, layout: str = "NCHW", mode: str = "DCR") -> te.Tensor:
    """Turn channels into blocks of pixels; the block is the slower part of the channel (`DCR`) or the faster one
    (`CRD`)."""
    return of.regroup(data, *depth_to_space_plan(dims(data), block_size, layout, mode), "depth_to_space")


def _counts(numbers: Any) -> list[int]:
    return [int(n) for n in numbers]


@tagged(INJECTIVE)
def space_to_batch_nd(
    data: te.Tensor, block_shape: Ints, pad_before: Ints, pad_after: Ints, pad_value: float = 0.0
) -> te.Tensor:
    """Turn blocks of the padded dimensions after the first into batches, with the block as the slower part."""
    blocks, rest = _counts(block_shape), [0] * (data.ndim - 1 - len(block_shape))
    padded = pad(data, [0, *_counts(pad_before), *rest], [0, *_counts(pad_after), *rest], pad_value)
    n, *sizes = dims(padded)
    m = len(blocks)
    if not all(is_multiple(size, b) for size, b in zip(sizes, blocks, strict=False)):
        raise ShapeError(f"blocks of {text(blocks)} do not divide the padded shape {text(dims(padded))}")
    split = [n, *(v for size, b in zip(sizes, blocks, strict=False) for v in (size // b, b)), *sizes[m:]]
    order = [*(2 + 2 * k for k in range(m)), 0, *(1 + 2 * k for k in range(m)), *range(1 + 2 * m, len(split))]
    shape = [product([n, *blocks]), *(size // b for size, b in zip(sizes, blocks, strict=False)), *sizes[m:]]
    return of.regroup(padded, split, order, shape, "space_to_batch_nd")


@tagged(INJECTIVE)
def batch_to_space_nd(data: te.Tensor, block_shape: Ints, crop_begin_list: Ints, crop_end_list: Ints) -> te.Tensor:
    """Turn batches into blocks of the dimensions after the first, with the block as the slower part, then crop."""
    blocks, (n, *sizes) = _counts(block_shape), dims(data)
    m = len(blocks)
    if not is_multiple(n, product(blocks)):
        raise ShapeError(f"a batch of {n} cannot be divided into blocks of {text(blocks)}")
    split = [*blocks, n // product(blocks), *sizes]
    order = [m, *(v for k in range(m) for v in (m + 1 + k, k)), *range(2 * m + 1, len(split))]
    whole = [n // product(blocks), *(size * b for size, b in zip(sizes, blocks, strict=False)), *sizes[m:]]
    regrouped = of.regroup(data, split, order, whole, "batch_to_space_nd")
    first = [0, *_counts(crop_begin_list), *[0] * (len(sizes) - m)]
    last = [0, *_counts(crop_end_list), *[0] * (len(sizes) - m)]
    kept = [size - a - b for size, a, b in zip(whole, first, last, strict=True)]
    if min(kept) < 1:
        raise ShapeError(f"cropping {text(first)} and {text(last)} from {text(whole)} leaves an empty tensor")
    return of.strided_slice(regrouped, first, [1] * len(first), kept, "cropped")


def _line(size: int, out: int, nearest: bool, mode: str) -> Line:
    """Return the map from positions in an image scaled to the size `out` to positions in the image. As in TVM, the
    scale is that of the sizes, which are whole numbers."""
    step, start = Fraction(size, out), Fraction(0)
    if mode == "align_corners":
        step = Fraction(size - 1, out - 1) if out > 1 else Fraction(0)
    elif not nearest and mode == "half_pixel":
        start = step / 2 - Fraction(1, 2)
    c = step.denominator * start.denominator
    return Line(int(step * c), int(start * c), c)


def _upsampled(
    data: te.Tensor, scales: Sequence[float], layout: str, method: str, mode: str, output_shape: Any
) -> te.Tensor:
    whole = parse_layout(layout)
    plain = whole.plain if layout.startswith(whole.plain) and len(whole) == data.ndim else layout
    spatial = data_axes(plain, len(scales))[2:]
    sizes = [data.extents[d] for d in spatial]
    out = [
        round(n * s) for n, s in zip(sizes, scales, strict=True)
    ] if output_shape is None else [int(n) for n in output_shape]
    names = {"nearest_neighbor": "nearest_neighbor", "bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}
    if method not in names:
        raise ShapeError(f"method '{method}' is not supported; it must be one of {', '.join(names)}")
    lines = [_line(n, o, method == "nearest_neighbor", mode) for n, o in zip(sizes, out, strict=True)]
    return resize(data, spatial, out, lines, names[method], "floor", (-0.5, False), None, data.dtype)


@tagged(INJECTIVE)
def upsampling(
    data: te.Tensor, scale_h: float, scale_w: float, layout: str = "NCHW", method: str = "nearest_neighbor",
    align_corners: bool = False, output_shape: Any = None,
) -> te.Tensor:
    """Scale images by `scale_h` and `scale_w`, with nearest neighbours, "bilinear" or "bicubic" interpolation."""
    return _upsampled(
        data, [scale_h, scale_w], layout, method, "align_corners" if align_corners else "asymmetric", output_shape
    )


@tagged(INJECTIVE)
def upsampling3d(
    data: te.Tensor, scale_d: float, scale_h: float, scale_w: float, layout: str = "NCDHW",
    method: str = "nearest_neighbor", coordinate_transformation_mode: str = "half_pixel", output_shape: Any = None,
) -> te.Tensor:
    """Scale volumes, with nearest neighbours or "trilinear" interpolation; modes half_pixel, align_corners and
    asymmetric."""
    if coordinate_transformation_mode not in ("half_pixel", "align_corners", "asymmetric"):
        raise ShapeError(
            f"coordinate_transformation_mode '{coordinate_transformation_mode}' is not supported; it must be "
            "half_pixel, align_corners or asymmetric"
        )
    return _upsampled(data, [scale_d, scale_h, scale_w], layout, method, coordinate_transformation_mode, output_shape)


__all__ = [
    "batch_to_space_nd", "depth_to_space", "dilate", "flatten", "mirror_pad", "pad", "space_to_batch_nd",
    "space_to_depth", "upsampling", "upsampling3d",
]
