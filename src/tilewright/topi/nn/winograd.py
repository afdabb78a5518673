"""Winograd's algorithm for 3x3 convolutions in stages, and pre-transformed kernels.

`topi.nn.conv2d` uses it automatically if it is faster and the kernel is constant; these functions are for scripts that
request it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import DataType
from tilewright.scalar.expr import PrimExpr, Value, Var, add, all_of, cast, const, floordiv, floormod, if_then_else, mul
from tilewright.topi.layouts import placed
from tilewright.topi.nn.convolution import require_plain_layout
from tilewright.topi.shapes import text
from tilewright.topi.tag import tagged
from tilewright.topi.windows import Ints, Padding, padding_of, per_dimension
from tilewright.topi.winograd import TAPS, Row, chosen, matrices

_TILE = 4


def _combined(rows: Sequence[Row], index: PrimExpr, terms: Sequence[PrimExpr]) -> PrimExpr:
    """Return `sum over k of rows[index][k] * terms[k]`."""
    sums = []
    for row in rows:
        total: Value = 0.0
        for k, t in zip(row, terms, strict=True):
            total = add(total, mul(const(float(k), t.dtype), t)) if k else total
        sums.append(cast(terms[0].dtype, total))
    return chosen(index, sums)


def _transform(kernel: te.Tensor, element: Any, shape: Sequence[Any], tile_size: int, dimensions: int) -> te.Tensor:
    """Return `out[p…, rest…]`: the taps `element(tap…, rest…)` transformed along the last `dimensions` spatial
    dimensions."""
    if not 1 <= tile_size <= _TILE:
        raise ShapeError(f"tile_size {tile_size} is not supported; it must be from 1 to {_TILE}")
    g = matrices(tile_size).weights
    points = tile_size + TAPS - 1

    def body(*i: Var) -> PrimExpr:
        where, rest = i[:dimensions], i[dimensions:]

        def along(d: int, taps: tuple[int, ...]) -> PrimExpr:
            if d == dimensions:
                value: PrimExpr = element(*taps, *rest)
                return value
            return _combined(g, where[d], [along(d + 1, (*taps, t)) for t in range(TAPS)])

        return along(0, ())

    return te.compute((*(points,) * dimensions, *shape), body, name="kernel_pack")


def _require_taps(kernel: te.Tensor, taps: Ints) -> None:
    if any(t != TAPS for t in taps):
        raise ShapeError(
            f"Winograd's algorithm supports only kernels of 3 taps, but this one has the shape {text(kernel.extents)}; "
            "use topi.nn.conv2d"
        )


@tagged("conv2d_winograd_weight_transform")
def conv2d_winograd_weight_transform(kernel: te.Tensor, tile_size: int) -> te.Tensor:
    """Transform a kernel (out, in, 3, 3) for tiles of tile_size x tile_size outputs: (tile_size + 2, tile_size + 2,
    out, in)."""
    _require_taps(kernel, kernel.extents[2:])
    return _transform(kernel, lambda y, x, o, c: kernel(o, c, y, x), kernel.shape[:2], tile_size, 2)


@tagged("conv3d_winograd_weight_transform")
def conv3d_winograd_weight_transform(kernel: te.Tensor, tile_size: int) -> te.Tensor:
    """Transform a kernel (out, in, depth, 3, 3): to (p, p, p, out, in) for depth 3, else to (depth, p, p, out, in)."""
    out, depth_in, depth, *taps = kernel.extents
    _require_taps(kernel, taps)
    if depth == TAPS:
        return _transform(kernel, lambda z, y, x, o, c: kernel(o, c, z, y, x), (out, depth_in), tile_size, 3)
    flat = _transform(kernel, lambda y, x, z, o, c: kernel(o, c, z, y, x), (depth, out, depth_in), tile_size, 2)
    points = tile_size + TAPS - 1
    return te.compute(
        (depth, points, points, out, depth_in), lambda z, y, x, o, c: flat(y, x, z, o, c), name="kernel_pack"
    )


class _Tiles:
    """The tiles of a convolution of stride 1 over `data`, whose axes `place` are batch, height, width and channel."""

    def __init__(self, data: te.Tensor, place: Ints, strides: Any, padding: Padding, dilation: Any, m: int) -> None:
        self.data, self.place, self.m, self.points = data, place, m, m + TAPS - 1
        if any(v != 1 for what in (strides, dilation) for v in per_dimension(what, 2, "strides and dilation")):
            raise ShapeError(
                f"Winograd's algorithm supports only strides and dilation of 1, not {strides} and {dilation}; use "
                "topi.nn.conv2d"
            )
        self.batch, self.height, self.width, self.depth = (data.extents[d] for d in place)
        self.top, self.left, bottom, right = padding_of(padding, (TAPS, TAPS))
        self.out = self.height + self.top + bottom - TAPS + 1, self.width + self.left + right - TAPS + 1
        self.rows, self.columns = -(-self.out[0] // m), -(-self.out[1] // m)
        self.count = self.batch * self.rows * self.columns

    def input(self, p: PrimExpr, i: int, j: int, c: Value) -> PrimExpr:
        """Return element (i, j) of tile p of the padded data."""
        x = mul(floormod(p, self.columns), self.m) + (j - self.left)
        row = floordiv(p, self.columns)
        y = mul(floormod(row, self.rows), self.m) + (i - self.top)
        where = placed(self.place, (floordiv(row, self.rows), y, x, c))
        inside = all_of(y >= 0, y < self.height, x >= 0, x < self.width)
        return if_then_else(inside, self.data(*where), const(0, self.data.dtype))


def _convolved(t: _Tiles, weight: Any, channels: int, out_dtype: DataType) -> te.Tensor:
    """Return the result (batch, height, width, channels) for transformed weights `weight(i, j, channel, depth)`."""
    z = matrices(t.m)
    span = range(t.points)
    rows = te.compute(
        (t.points, t.points, t.count, t.depth),
        lambda i, j, p, c: _combined(z.inputs, i, [chosen(j, [t.input(p, a, b, c) for b in span]) for a in span]),
        name="input_rows", inline=False,
    )
    data_pack = te.compute(
        rows.shape, lambda i, j, p, c: _combined(z.inputs, j, [rows(i, b, p, c) for b in span]), name="data_pack",
        inline=False
    )
    c = te.reduce_axis((0, t.depth), "ci")
    bgemm = te.compute(
        (t.points, t.points, t.count, channels),
        lambda i, j, p, o: te.sum(cast(out_dtype, data_pack(i, j, p, c)) * cast(out_dtype, weight(i, j, o, c)), axis=c),
        name="bgemm",
    )
    half = te.compute(
        (t.m, t.points, t.count, channels),
        lambda y, j, p, o: _combined(z.outputs, y, [bgemm(i, j, p, o) for i in span]), name="inverse_rows",
        inline=False,
    )

    def result(n: Var, y: Var, x: Var, o: Var) -> PrimExpr:
        p = add(mul(add(mul(n, t.rows), floordiv(y, t.m)), t.columns), floordiv(x, t.m))
        return _combined(z.outputs, floormod(x, t.m), [half(floormod(y, t.m), j, p, o) for j in span])

    return te.compute((t.batch, *t.out, channels), result, name="conv2d_winograd")


def _tile_of(weight: te.Tensor) -> int:
    points = weight.extents[0]
    if points != weight.extents[1] or not TAPS <= points <= _TILE + TAPS - 1:
        raise ShapeError(
            f"a kernel {text(weight.extents)} was not transformed for tiles of up to {_TILE}; call "
            "conv2d_winograd_weight_transform"
        )
    return points - TAPS + 1


@tagged("conv2d_winograd_nhwc")
def conv2d_winograd_nhwc(
    data: te.Tensor, weight: te.Tensor, strides: int | Ints, padding: Padding, dilation: int | Ints,
    out_dtype: str | None, pre_computed: bool = False, auto_scheduler_rewritten_layout: str = "",
    meta_schedule_original_shape: Any = None,
) -> te.Tensor:
    """Convolve data NHWC with a kernel HWIO, or with (p, p, out, in) if `pre_computed`."""
    require_plain_layout(auto_scheduler_rewritten_layout, meta_schedule_original_shape)
    dtype = DataType(out_dtype or data.dtype)
    packed = weight
    if not pre_computed:
        _require_taps(weight, weight.extents[:2])
        packed = _transform(weight, lambda y, x, o, c: weight(y, x, c, o), (weight.shape[3], weight.shape[2]), _TILE, 2)
    t = _Tiles(data, (0, 1, 2, 3), strides, padding, dilation, _tile_of(packed))
    return _convolved(t, packed, packed.extents[2], dtype)


def conv2d_winograd_nhwc_without_weight_transform(
    data: te.Tensor, weight: te.Tensor, strides: int | Ints, padding: Padding, dilation: int | Ints,
    out_dtype: str | None, auto_scheduler_rewritten_layout: str = "", meta_schedule_original_shape: Any = None,
) -> te.Tensor:
    """Convolve data NHWC with a transformed kernel (p, p, out, in)."""
    return conv2d_winograd_nhwc(
        data, weight, strides, padding, dilation, out_dtype, True, auto_scheduler_rewritten_layout,
        meta_schedule_original_shape
    )


@tagged("conv2d_winograd_nchw")
def conv2d_winograd_nchw(
    data: te.Tensor, weight: te.Tensor, strides: int | Ints, padding: Padding, dilation: int | Ints,
    out_dtype: str | None, pre_computed: bool = False, auto_scheduler_rewritten_layout: str = "",
    meta_schedule_original_shape: Any = None,
) -> te.Tensor:
    """Convolve data NCHW with a kernel OIHW, or with (p, p, in, out) if `pre_computed`."""
    require_plain_layout(auto_scheduler_rewritten_layout, meta_schedule_original_shape)
    dtype = DataType(out_dtype or data.dtype)
    packed = weight if pre_computed else conv2d_winograd_weight_transform(weight, _TILE)
    t = _Tiles(data, (0, 2, 3, 1), strides, padding, dilation, _tile_of(packed))
    if pre_computed:
        last = _convolved(t, lambda i, j, o, c: packed(i, j, c, o), packed.extents[3], dtype)
    else:
        last = _convolved(t, packed, packed.extents[2], dtype)
    n, height, width, channels = last.shape
    return te.compute((n, channels, height, width), lambda b, c, y, x: last(b, y, x, c), name="conv2d_winograd_nchw")


def conv2d_winograd_nchw_without_weight_transform(
    data: te.Tensor, weight: te.Tensor, strides: int | Ints, padding: Padding, dilation: int | Ints,
    out_dtype: str | None, auto_scheduler_rewritten_layout: str = "", meta_schedule_original_shape: Any = None,
) -> te.Tensor:
    """Convolve data NCHW with a transformed kernel (p, p, in, out)."""
    return conv2d_winograd_nchw(
        data, weight, strides, padding, dilation, out_dtype, True, auto_scheduler_rewritten_layout,
        meta_schedule_original_shape
    )


@tagged("conv2d_gemm_weight_transform")
def conv2d_gemm_weight_transform(kernel: te.Tensor, tile_N: int, tile_K: int) -> te.Tensor:
    """Return a kernel HWIO as a matrix (height * width * in, out), transposed in blocks: (out / tile_N, rows / tile_K,
    tile_N, tile_K), padded with zeros."""
    height, width, depth, columns = kernel.extents
    rows = height * width * depth

    def element(block: Var, panel: Var, n: Var, k: Var) -> PrimExpr:
        column, row = block * tile_N + n, panel * tile_K + k
        value = kernel(
            floordiv(row, width * depth), floormod(floordiv(row, depth), width), floormod(row, depth), column
        )
        return if_then_else(all_of(row < rows, column < columns), value, const(0, kernel.dtype))

    return te.compute((-(-columns // tile_N), -(-rows // tile_K), tile_N, tile_K), element, name="weight_block_reshape")


__all__ = [
    "conv2d_gemm_weight_transform", "conv2d_winograd_nchw", "conv2d_winograd_nchw_without_weight_transform",
    "conv2d_winograd_nhwc",
    "conv2d_winograd_nhwc_without_weight_transform", "conv2d_winograd_weight_transform",
    "conv3d_winograd_weight_transform",
]
