"""3x3 convolutions by Winograd's algorithm.

F(m x m, 3x3) computes a tile of m x m outputs with (m + 2)^2 instead of 9 m^2 products per pair of channels:

    columns[n, b, t, i, x, c] = sum over r of Bt[i, r] * data[n, y*m + r - top, x - left, c]     (along columns)
    spectrum[i, j, n, b, t, u, c] = sum over s of Bt[j, s] * columns[n, b, t, i, u*m + s, c]     (along rows)
    product[i*a + j, n, b, tile, o] = sum over c of spectrum[i, j, n, b, tile, c] * U[i*a + j, c, o]     (a = m + 2)
    partial[n, y, u, p, j, o] = sum over i of At[p, i] * product[i*a + j, n, b, tile, o]
    out[n, t*m + p, u*m + q, o] = sum over j of At[q, j] * partial[n, t, u, p, j, o]

Rows of tiles are counted in blocks: `y` is the row `t` of the block `b`, and `tile = t*tiles + u` counts inside one.
The points are 0, 1, -1 and infinity for tiles of 2x2, and 0, 3/4, -3/4, 3/2, -3/2 and infinity for 4x4. They determine
the matrices (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2015; Alam et al., "Winograd
convolution for deep neural networks: efficient point selection", 2022, on points and rounding); the weights are
transformed in double precision at compile time. The algorithm has larger rounding errors: the relative error of a layer
is about 2e-7 for tiles of 2x2 and 6e-7 for 4x4. Data and weights of bfloat16 are widened before they are transformed,
because fewer products in float32 take less time than all products in pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Final

import numpy as np

from tilewright import te
from tilewright.backends.cpu.strategies.products import unroll
from tilewright.backends.cpu.strategies.schedules.winograd import WinogradSchedule
from tilewright.backends.cpu.strategies.tiles import Tile, register_tile
from tilewright.backends.cpu.strategies.winograd_choice import Cut
from tilewright.backends.kernel_options import KernelOptions
from tilewright.scalar.expr import (
    EQ,
    PrimExpr,
    Value,
    Var,
    add,
    all_of,
    cast,
    compare,
    const,
    floordiv,
    floormod,
    if_then_else,
    mul,
    sub,
)
from tilewright.scalar.intrinsics import fma
from tilewright.topi.layouts import placed
from tilewright.topi.winograd import TAPS, Row, chosen, matrices

Array = np.ndarray[Any, Any]
_STRIP: Final = 2048


def convolution(
    data: te.Tensor, weight: te.Tensor, kernel: tuple[int, ...], z: Cut, options: KernelOptions
) -> te.Tensor:
    """Return the convolution of `data` NHWC with constant weights, whose axes `kernel` are O, I, H, W, as a tensor
    NHWC."""
    tile = register_tile(
        z.block * z.tiles, z.part_channels, z.part_depth, options, names=("winograd_tile_y", "winograd_tile_x")
    )
    if z.parts > 1 and z.part_channels % tile.columns:
        tile = Tile(tile.rows, 1, tile.lanes)
    columns = transformed_rows(data, z, (z.batch,), ("n",), lambda outer: (outer, all_of()))
    spectrum = transformed_tiles(columns, z, (z.batch,), ("n",))
    packed = pack(weight, kernel, z, tile)
    blocks, inside = z.rows // z.block, z.block * z.tiles
    width = -(-z.channels // tile.columns) * tile.columns
    k = te.reduce_axis((0, z.part_depth), "k")

    def term(xi: Var, n: Var, b: Var, at: Var, o: Var) -> PrimExpr:
        c = k.var if z.parts == 1 else add(
            mul(floordiv(floordiv(o, tile.columns), z.part_channels // tile.columns), z.part_depth), k.var
        )
        x = spectrum(
            floordiv(xi, z.points), floormod(xi, z.points), n, b, floordiv(at, z.tiles), floormod(at, z.tiles), c
        )
        return te.sum(x * packed(xi, floordiv(o, tile.columns), k.var, floormod(o, tile.columns)), axis=k)

    shape, names = (z.points**2, z.batch, blocks, inside, width), ("xi", "n", "b", "tile", "o")
    acc = te.compute(shape, term, name="sums", axis_names=names)
    product = te.compute(shape, acc, name="product", inline=False, axis_names=names)
    rows = matrices(z.m).outputs

    def downwards(n: Var, t: Var, u: Var, p: Var, j: Var, o: Var) -> PrimExpr:
        at = add(mul(floormod(t, z.block), z.tiles), u)
        column = [product(add(j, i * z.points), n, floordiv(t, z.block), at, o) for i in range(z.points)]
        return chosen(p, [by_pairs(r, column) for r in rows])

    schedule = WinogradSchedule(
        columns=columns, spectrum=spectrum, sums=acc, product=product, m=z.m, rows=z.block, blocks=blocks, tile=tile,
        unroll=unroll(z.part_depth, options),
        flops=2 * z.points**2 * z.batch * blocks * inside * z.part_depth * z.channels,
    )
    partial = te.compute(
        (z.batch, z.rows, z.tiles, z.m, z.points, width), downwards, name="partial", schedule=schedule, inline=False,
        axis_names=("n", "t", "u", "p", "j", "o"),
    )

    def result(n: Var, y: Var, x: Var, o: Var) -> PrimExpr:
        row = [partial(n, floordiv(y, z.m), floordiv(x, z.m), floormod(y, z.m), j, o) for j in range(z.points)]
        return chosen(floormod(x, z.m), [by_pairs(r, row) for r in rows])

    return te.compute((z.batch, *z.out, z.channels), result, name="conv_out")


At = Callable[[Sequence[Var]], tuple[Sequence[Value], PrimExpr]]
"""Maps the axes before the blocks of rows to the first indices of the data, and the condition that they are inside."""


def transformed_rows(data: te.Tensor, z: Cut, lead: Sequence[int], names: Sequence[str], at: At) -> te.Tensor:
    """Return the rows of tiles with the column transform applied; `lead` and `names` are the sizes and names of the
    axes before the blocks of rows."""
    width = z.tiles * z.m + TAPS - 1
    transform = matrices(z.m).inputs
    top, left = z.padding[:2]

    def element(*axes: Var) -> PrimExpr:
        *outer, b, t, i, x, c = axes
        where, exists = at(outer)
        taps, first = [], (b * z.block + t) * z.m
        for r in range(z.points):
            y = first + (r - top)
            inside = all_of(
                *([y >= 0] if r < top else []), *([y < z.height] if (z.rows - 1) * z.m + r - top >= z.height else [])
            )
            taps.append(if_then_else(inside, cast("float32", data(*where, y, x - left, c)), const(0, "float32")))
        along = *([x >= left] if left else []), *([x < left + z.width] if width > left + z.width else [])
        value = chosen(i, [by_parity(r, taps) for r in transform])
        return if_then_else(all_of(exists, *along), value, const(0, "float32"))

    shape = (*lead, z.rows // z.block, z.block, z.points, width, z.depth)
    return te.compute(shape, element, name="columns", inline=False, axis_names=(*names, "b", "t", "i", "x", "c"))


def transformed_tiles(columns: te.Tensor, z: Cut, lead: Sequence[int], names: Sequence[str]) -> te.Tensor:
    """Return the tiles of `transformed_rows`, transformed along the rows."""
    transform = matrices(z.m).inputs

    def element(i: Var, j: Var, *axes: Var) -> PrimExpr:
        *outer, u, c = axes
        taps = [columns(*outer, i, u * z.m + s, c) for s in range(z.points)]
        return chosen(j, [by_parity(r, taps) for r in transform])

    shape = (z.points, z.points, *lead, z.rows // z.block, z.block, z.tiles, z.depth)
    return te.compute(shape, element, name="spectrum", inline=False, axis_names=("i", "j", *names, "b", "t", "u", "c"))


def transformed_weight(z: Cut, xi: Var, at: Callable[[int, int], PrimExpr]) -> PrimExpr:
    """Return the transformed weight at the point `xi`, where `at(r, s)` is the weight of a tap."""
    g, value = matrices(z.m).weights, const(0, "float32")
    for r in range(TAPS):
        for s in range(TAPS):
            down = chosen(floordiv(xi, z.points), [const(float(row[r]), "float32") for row in g])
            along = chosen(floormod(xi, z.points), [const(float(row[s]), "float32") for row in g])
            value = add(value, mul(mul(down, along), cast("float32", at(r, s))))
    return value


def pack(weight: te.Tensor, kernel: tuple[int, ...], z: Cut, tile: Tile, name: str = "packed") -> te.Tensor:
    """Return the transformed weights as panels `[i*a + j, panel, k, column]`."""
    panels = -(-z.channels // tile.columns)
    depth, channels = z.depth // z.groups, z.channels // z.groups

    def on_arrays(w: Array) -> Array:
        return transformed_weights(
            _between_zeros(w.transpose(kernel[2], kernel[3], kernel[0], kernel[1]), z), z.m, panels, tile.columns
        )

    def element(xi: Var, panel: Var, k: Var, column: Var) -> PrimExpr:
        o = panel * tile.columns + column

        def at(r: int, s: int) -> PrimExpr:
            return weight(*placed(kernel, (o, floormod(k, depth), r, s)))

        value = transformed_weight(z, xi, at)
        own = compare(EQ, floordiv(k, depth), floordiv(floormod(o, z.part_channels), channels))
        return if_then_else(all_of(o < z.channels, own), value, const(0, "float32"))

    return te.compute((z.points**2, panels, z.part_depth, tile.columns), element, name=name, prepack=on_arrays)


def _between_zeros(w: Array, z: Cut) -> Array:
    """Return weights `[r, s, o, k]` of groups, each with zeros for the other groups of its part."""
    if z.parts == z.groups:
        return w
    together, depth = z.groups // z.parts, z.depth // z.groups
    result = np.zeros((*w.shape[:2], z.parts, together, z.channels // z.groups, together, depth), w.dtype)
    for g in range(together):
        result[:, :, :, g, :, g] = w.reshape(*w.shape[:2], z.parts, together, -1, depth)[:, :, :, g]
    return result.reshape(*w.shape[:3], together * depth)


def transformed_weights(w: Array, m: int, panels: int, columns: int) -> Array:
    """Return the transformed weights `[r, s, o, k]` as panels `[i*a + j, panel, k, column]`, zero-padded."""
    g = np.asarray(matrices(m).weights, np.float64)
    both = np.einsum("ir,js->ijrs", g, g).reshape(len(g) ** 2, TAPS * TAPS)
    *_, channels, depth = w.shape
    taps = np.zeros((TAPS, TAPS, panels * columns, depth), np.float32)
    taps[:, :, :channels] = w
    flat = taps.reshape(TAPS * TAPS, panels, columns, depth).transpose(0, 1, 3, 2).reshape(TAPS * TAPS, -1)
    result = np.empty((len(both), flat.shape[1]), np.float32)
    for start in range(0, flat.shape[1], _STRIP):  # intermediate values stay in the cache
        strip = slice(start, start + _STRIP)
        result[:, strip] = both @ flat[:, strip]
    return result.reshape(len(both), panels, depth, columns)


def by_parity(row: Row, terms: Sequence[PrimExpr]) -> PrimExpr:
    """Return `sum of row[k] * terms[k]` as even terms plus or minus odd ones, which the points p and -p share."""
    halves = [_scaled(row[first::2], terms[first::2]) for first in (0, 1)]
    return _sum([h for h in halves if h is not None])


def by_pairs(row: Row, terms: Sequence[PrimExpr]) -> PrimExpr:
    """Return the same sum with terms 1 and 2, 3 and 4, … joined first, whose coefficients differ only by sign."""
    parts = [
        _scaled(row[k : k + 2] if k else row[:1], terms[k : k + 2] if k else terms[:1])
        for k in (0, *range(1, len(row), 2))
    ]
    return _sum([p for p in parts if p is not None])


Scaled = tuple[Fraction, PrimExpr]


def _scaled(row: Sequence[Fraction], terms: Sequence[PrimExpr]) -> Scaled | None:
    """Return a sum as a factor and a sum whose last coefficient is 1, the same for proportional rows."""
    used = [(k, t) for k, t in zip(row, terms, strict=True) if k]
    if not used:
        return None
    factor = used[-1][0]
    return factor, _sum([(k / factor, t) for k, t in used])


def _sum(parts: Sequence[Scaled]) -> PrimExpr:
    """Return `sum of k * t`, beginning with a term of factor 1 if there is one."""
    first = max(parts, key=lambda part: part[0] == 1)
    k, total = first
    total = total if k == 1 else mul(const(float(k), total.dtype), total)
    for part in parts:
        if part is first:
            continue
        k, t = part
        total = add(total, t) if k == 1 else sub(total, t) if k == -1 else fma(const(float(k), t.dtype), t, total)
    return total

