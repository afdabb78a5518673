"""3x3 convolutions of the slices of a volume, summed over the taps in depth, by Winograd's algorithm
(`backends/cpu/strategies/winograd.py`).

The transforms are those of the slices; the products of an output slice are summed between them:

    columns[n, g, e, b, t, i, x, c]     = sum over r of Bt[i, r] * data[n, z, y*m + r - top, x - left, c]
    spectrum[i, j, n, g, e, b, t, u, c] = sum over s of Bt[j, s] * columns[n, g, e, b, t, i, u*m + s, c]
    product[i*a + j, n, g, f, b, tile, o] =
        sum over v, c of spectrum[i, j, n, g, f + v, b, tile, c] * U[i*a + j, v, c, o]
    partial[n, d, y, u, p, j, o]        = sum over i of At[p, i] * product[i*a + j, n, g, f, b, tile, o]
    out[n, d, y, u*m + q, o]            = sum over j of At[q, j] * partial[n, d, y, u, p, j, o]

Output slices are counted in groups, `d = g*span + f`, which share the transformed input slices `z = g*span + e -
front`; rows of tiles in blocks, as for images. A tap in depth that falls in the padding is not multiplied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tilewright import te
from tilewright.backends.cpu.strategies.products import unroll
from tilewright.backends.cpu.strategies.schedules.winograd import WinogradSchedule
from tilewright.backends.cpu.strategies.tiles import Tile, register_tile
from tilewright.backends.cpu.strategies.winograd import (
    by_pairs,
    transformed_rows,
    transformed_tiles,
    transformed_weight,
    transformed_weights,
)
from tilewright.backends.cpu.strategies.winograd_choice import VolumeCut
from tilewright.backends.kernel_options import KernelOptions
from tilewright.scalar.expr import PrimExpr, Value, Var, add, all_of, const, floordiv, floormod, if_then_else, mul
from tilewright.topi.layouts import placed
from tilewright.topi.winograd import TAPS, chosen, matrices

Array = np.ndarray[Any, Any]
_SLABS: Final = ("n", "g", "e")


def volume_convolution(
    data: te.Tensor, weight: te.Tensor, kernel: tuple[int, ...], v: VolumeCut, options: KernelOptions
) -> te.Tensor:
    """Return the convolution of `data` NDHWC with constant weights, whose axes `kernel` are O, I, D, H, W, as a tensor
    NDHWC."""
    z = v.image
    blocks, inside = z.rows // z.block, z.block * z.tiles
    tile = register_tile(inside, z.channels, v.taps * z.depth, options)
    lead = z.batch, v.groups, v.span + v.taps - 1

    def slab(outer: Sequence[Var]) -> tuple[Sequence[Value], PrimExpr]:
        n, g, e = outer
        return (n, g * v.span + e - v.front), _on_volume(v, g, e)

    columns = transformed_rows(data, z, lead, _SLABS, slab)
    spectrum = transformed_tiles(columns, z, lead, _SLABS)
    packed = _pack(weight, kernel, v, tile)
    width = -(-z.channels // tile.columns) * tile.columns
    step = unroll(z.depth, options)
    taps = te.reduce_axis((0, v.taps), "kd")
    outer, inner = te.reduce_axis((0, z.depth // step), "k"), te.reduce_axis((0, step), "k_in")

    def term(xi: Var, n: Var, g: Var, f: Var, b: Var, at: Var, o: Var) -> PrimExpr:
        k, e = outer.var * step + inner.var, f + taps.var
        x = spectrum(
            floordiv(xi, z.points), floormod(xi, z.points), n, g, e, b, floordiv(at, z.tiles), floormod(at, z.tiles), k
        )
        w = packed(xi, floordiv(o, tile.columns), taps.var, k, floormod(o, tile.columns))
        return te.sum(if_then_else(_on_volume(v, g, e), x * w, const(0, data.dtype)), axis=[taps, outer, inner])

    shape, names = (
        z.points**2, z.batch, v.groups, v.span, blocks, inside, width
    ), ("xi", "n", "g", "f", "b", "tile", "o")
    acc = te.compute(shape, term, name="sums", axis_names=names)
    product = te.compute(shape, acc, name="product", inline=False, axis_names=names)
    rows = matrices(z.m).outputs

    def downwards(n: Var, d: Var, t: Var, u: Var, p: Var, j: Var, o: Var) -> PrimExpr:
        at, slab = add(mul(floormod(t, z.block), z.tiles), u), (
            n, floordiv(d, v.span), floormod(d, v.span), floordiv(t, z.block)
        )
        column = [product(add(j, i * z.points), *slab, at, o) for i in range(z.points)]
        return chosen(p, [by_pairs(r, column) for r in rows])

    schedule = WinogradSchedule(
        columns=columns, spectrum=spectrum, sums=acc, product=product, m=z.m, rows=z.block, blocks=blocks, tile=tile,
        groups=v.groups, shared=True,
        flops=2 * z.points**2 * z.batch * v.slices * v.taps * blocks * inside * z.depth * z.channels,
    )
    partial = te.compute(
        (z.batch, v.out_slices, z.rows, z.tiles, z.m, z.points, width), downwards, name="partial", schedule=schedule,
        inline=False, axis_names=("n", "d", "t", "u", "p", "j", "o"),
    )

    def result(n: Var, d: Var, y: Var, x: Var, o: Var) -> PrimExpr:
        row = [partial(n, d, floordiv(y, z.m), floordiv(x, z.m), floormod(y, z.m), j, o) for j in range(z.points)]
        return chosen(floormod(x, z.m), [by_pairs(r, row) for r in rows])

    return te.compute((z.batch, v.out_slices, *z.out, z.channels), result, name="conv_out")


def _on_volume(v: VolumeCut, g: PrimExpr, e: PrimExpr) -> PrimExpr:
    """Return whether slice `e` of group `g` is inside the volume, not padding."""
    at = g * v.span + e
    return all_of(*([at >= v.front] if v.front else []), *([at < v.front + v.slices] if v.back else []))


def _pack(weight: te.Tensor, kernel: tuple[int, ...], v: VolumeCut, tile: Tile) -> te.Tensor:
    """Return the transformed weights as panels `[i*a + j, panel, tap in depth, k, column]`."""
    z = v.image
    panels = -(-z.channels // tile.columns)
    o_axis, k_axis, d_axis, *image = kernel

    def on_arrays(w: Array) -> Array:
        ordered = w.transpose(*image, o_axis, d_axis, k_axis).reshape(TAPS, TAPS, z.channels, v.taps * z.depth)
        return transformed_weights(ordered, z.m, panels, tile.columns).reshape(
            z.points**2, panels, v.taps, z.depth, tile.columns
        )

    def element(xi: Var, panel: Var, tap: Var, k: Var, column: Var) -> PrimExpr:
        o = panel * tile.columns + column

        def at(r: int, s: int) -> PrimExpr:
            return weight(*placed(kernel, (o, k, tap, r, s)))

        return if_then_else(o < z.channels, transformed_weight(z, xi, at), const(0, "float32"))

    return te.compute((z.points**2, panels, v.taps, z.depth, tile.columns), element, name="packed", prepack=on_arrays)
