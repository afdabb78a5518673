"""Winograd's algorithm for images whose heights and widths are known when the kernel runs.

The tiles of all images are numbered, `g = (n*rows + t)*tiles + u`, and computed in blocks of a constant number of them,
so that one code serves all sizes; `padded` are the images with their padding, extended for whole tiles:

    columns[g, i, s, c] = sum over r of Bt[i, r] * padded[n, t*m + r, u*m + s, c]
    spectrum[i, j, g, c] = sum over s of Bt[j, s] * columns[g, i, s, c]
    product[i*a + j, g, o] = sum over c of spectrum[i, j, g, c] * U[i*a + j, c, o]
    partial[g, p, j, o] = sum over i of At[p, i] * product[i*a + j, g, o]
    out[n, t*m + p, u*m + q, o] = sum over j of At[q, j] * partial[g, p, j, o]

The matrices and the packed weights are those of `winograd.py`. Small images are faster with small tiles, and large
images with large tiles: where both matter, the kernel has code for both, and compares their estimated times. The
weights are stored once, packed for small tiles. Those for large tiles are computed from the recovered taps at the first
call that needs them, and kept.

Those of weights that are packed for the direct algorithm, because the usual image is small, are computed and kept in
the same way, where an image is large enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from tilewright import te
from tilewright.backends.cpu.strategies.products import flatten, unflatten, unroll
from tilewright.backends.cpu.strategies.schedules.kernel import Alternatives
from tilewright.backends.cpu.strategies.schedules.open_winograd import OpenWinogradSchedule, WeightsSchedule
from tilewright.backends.cpu.strategies.winograd import by_pairs, by_parity, pack
from tilewright.backends.cpu.strategies.winograd_choice import OpenCut
from tilewright.backends.kernel_options import KernelOptions
from tilewright.scalar.expr import PrimExpr, Var, add, all_of, const, floordiv, floormod, if_then_else, mul, sub
from tilewright.topi.winograd import TAPS, chosen, matrices

LARGE_TILES: Final = "large tiles"
"""The algorithm of `KernelOptions.alternative` with tiles of 4x4 and weights that are packed for tiles of 2x2."""
Taps = Callable[[Var, int, int, Var, Var], PrimExpr]
"""Maps a panel, the tap, an input channel and a column of the panel to the weight."""


def convolution(
    data: te.Tensor, weight: te.Tensor, kernel: tuple[int, ...], found: Sequence[OpenCut],
    options: KernelOptions,
) -> te.Tensor:
    """Return the convolution of `data` NHWC with constant weights, whose axes `kernel` are O, I, H, W, as a tensor
    NHWC, by the first of the found cuts, or the second one for large images."""
    first, *larger = found
    packed = pack(weight, kernel, first.image, first.tile)
    faster = tuple(({"alternative": LARGE_TILES}, large.is_faster(first, options.machine)) for large in larger)
    if options.alternative != LARGE_TILES:
        return _convolution(data, packed, first, options, faster)
    taps = _recovered(packed, first.image.points)
    return with_kept_weights(data, taps, packed.extents[1], larger[0], options)


def with_kept_weights(
    data: te.Tensor, taps: Taps, panels: int, found: OpenCut, options: KernelOptions, *, by_panel: bool = False
) -> te.Tensor:
    """Return the convolution of `data` NHWC with the weights `taps(panel, r, s, k, column)` of `panels` panels, whose
    transform the program keeps."""
    return _convolution(data, _kept(taps, panels, found), found, options, by_panel=by_panel)


def _recovered(packed: te.Tensor, points: int) -> Taps:
    """Return the taps of weights that are packed for tiles of 2x2.

    With G = [-1 0 0; 1/2 1/2 1/2; 1/2 -1/2 1/2; 0 0 1], the taps of G w are -(G w)[0], (G w)[1] - (G w)[2], (G w)[3].
    """
    def tap(panel: Var, r: int, s: int, k: Var, column: Var) -> PrimExpr:
        def along(i: int) -> PrimExpr:
            return _tap(s, [packed(i * points + j, panel, k, column) for j in range(points)])

        return _tap(r, [along(i) for i in range(points)])

    return tap


def _tap(number: int, values: Sequence[PrimExpr]) -> PrimExpr:
    """Return a tap of weights from their `values` at the points 0, 1, -1 and infinity."""
    return (mul(const(-1.0, "float32"), values[0]), sub(values[1], values[2]), values[3])[number]


def _kept(taps: Taps, panels: int, found: OpenCut) -> te.Tensor:
    """Return the transformed weights `[i*a + j, panel, k, column]` of a cut, which the program keeps."""
    z, columns = found.image, found.tile.columns
    rows = matrices(z.m).weights
    half = _half(taps, panels, found)

    def along(xi: Var, panel: Var, k: Var, column: Var) -> PrimExpr:
        column_of = [half(panel, k, floordiv(xi, z.points), s, column) for s in range(TAPS)]
        return chosen(floormod(xi, z.points), [by_parity(r, column_of) for r in rows])

    sums = TAPS * z.points * (TAPS + z.points)
    schedule = WeightsSchedule(half=half, tile=found.tile, points=z.points, flops=2 * sums * z.part_depth * z.channels)
    return te.compute(
        (z.points**2, panels, z.part_depth, columns), along, name="kept", kept=True, schedule=schedule, inline=False,
        axis_names=("xi", "panel", "k", "o"))


def _half(taps: Taps, panels: int, found: OpenCut) -> te.Tensor:
    """Return the weights with the transform of the columns of taps applied."""
    z, columns = found.image, found.tile.columns

    def down(panel: Var, k: Var, i: Var, s: Var, column: Var) -> PrimExpr:
        at = [[taps(panel, r, t, k, column) for r in range(TAPS)] for t in range(TAPS)]
        rows = matrices(z.m).weights
        return chosen(s, [chosen(i, [by_parity(r, column_of) for r in rows]) for column_of in at])

    return te.compute(
        (panels, z.part_depth, z.points, TAPS, columns), down, name="half", inline=False,
        axis_names=("panel", "k", "i", "s", "o"))


def _convolution(
    data: te.Tensor, packed: te.Tensor, found: OpenCut, options: KernelOptions, faster: Alternatives = (), *,
    by_panel: bool = False,
) -> te.Tensor:
    z, tile, block = found.image, found.tile, found.block
    images = (z.batch, z.rows, z.tiles)
    count = math.prod(images)
    covered = -(-count // block) * block
    image = _padded(data, found)
    transforms = matrices(z.m)

    def down(g: Var, i: Var, s: Var, c: Var) -> PrimExpr:
        n, t, u = unflatten(g, images)
        taps = [image(n, t * z.m + r, u * z.m + s, c) for r in range(z.points)]
        return chosen(i, [by_parity(r, taps) for r in transforms.inputs])

    def along(i: Var, j: Var, g: Var, c: Var) -> PrimExpr:
        return chosen(j, [by_parity(r, [columns(g, i, s, c) for s in range(z.points)]) for r in transforms.inputs])

    columns = te.compute(
        (covered, z.points, z.points, z.depth), down, name="columns", inline=False, axis_names=("g", "i", "s", "c"))
    spectrum = te.compute(
        (z.points, z.points, covered, z.depth), along, name="spectrum", inline=False, axis_names=("i", "j", "g", "c"))
    sums = _sums(spectrum, packed, found, covered)
    product = te.compute(sums.extents, sums, name="product", inline=False, axis_names=("xi", "g", "o"))

    def downwards(g: Var, p: Var, j: Var, o: Var) -> PrimExpr:
        column = [product(add(j, i * z.points), g, o) for i in range(z.points)]
        return chosen(p, [by_pairs(r, column) for r in transforms.outputs])

    schedule = OpenWinogradSchedule(
        columns=columns, spectrum=spectrum, sums=sums, product=product, m=z.m, block=block, count=count,
        tile=tile, images=(z.batch, *z.out), unroll=unroll(z.part_depth, options), faster=faster,
        by_panel=by_panel,
        flops=2 * z.points**2 * count * z.part_depth * z.channels)
    partial = te.compute(
        (covered, z.m, z.points, sums.extents[-1]), downwards, name="partial", schedule=schedule, inline=False,
        axis_names=("g", "p", "j", "o"))

    def result(n: Var, y: Var, x: Var, o: Var) -> PrimExpr:
        g = flatten((n, floordiv(y, z.m), floordiv(x, z.m)), images)
        row = [partial(g, floormod(y, z.m), j, o) for j in range(z.points)]
        return chosen(floormod(x, z.m), [by_pairs(r, row) for r in transforms.outputs])

    return te.compute((z.batch, *z.out, z.channels), result, name="conv_out")


def _padded(data: te.Tensor, found: OpenCut) -> te.Tensor:
    """Return the images with the padding, extended for whole tiles; an element tests whether it is in an image."""
    z = found.image
    top, left = z.padding[:2]

    def element(n: Var, y: Var, x: Var, c: Var) -> PrimExpr:
        inside = all_of(
            *([y >= top] if top else []), y < top + z.height, *([x >= left] if left else []), x < left + z.width)
        return if_then_else(inside, data(n, y - top, x - left, c), const(0, data.dtype))

    shape = (z.batch, z.rows * z.m + TAPS - 1, z.tiles * z.m + TAPS - 1, z.depth)
    return te.compute(shape, element, name="padded")


def _sums(spectrum: te.Tensor, packed: te.Tensor, found: OpenCut, covered: int) -> te.Tensor:
    z, columns = found.image, found.tile.columns
    k = te.reduce_axis((0, z.part_depth), "k")

    def term(xi: Var, g: Var, o: Var) -> PrimExpr:
        panel = floordiv(o, columns)
        c = k.var if z.parts == 1 else add(mul(floordiv(panel, z.part_channels // columns), z.part_depth), k.var)
        x = spectrum(floordiv(xi, z.points), floormod(xi, z.points), g, c)
        return te.sum(x * packed(xi, panel, k.var, floormod(o, columns)), axis=k)

    width = -(-z.channels // columns) * columns
    return te.compute((z.points**2, covered, width), term, name="sums", axis_names=("xi", "g", "o"))
