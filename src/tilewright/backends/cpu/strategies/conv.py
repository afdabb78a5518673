"""Direct convolutions of one to three spatial dimensions, in the layout of their data.

The accumulators are `acc[n, o…, group, oc]` with the output channels padded to whole panels. Weights are packed as
`[group, panel, k…, ic, k_last, column]`, so that one step of a micro-kernel reads one row of columns. The taps along a
row are unrolled steps that share their inputs. If that leaves too few registers for the sums, they are a loop outside
the input channels, `[group, panel, k…, k_last, ic, column]`. A tap in the padding is a guarded step, which the loop
passes turn into loop bounds and edge variants without run-time cost. With very many taps, they stay a loop over a
padded copy of the image. A step multiplies one value of the depth, or several at once
(`backends/cpu/strategies/dots.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from tilewright import te
from tilewright.backends.cpu.strategies import open_winograd, planes, winograd
from tilewright.backends.cpu.strategies.dots import FOURS, ONE, ROWS, Dot, along_rows, dot_of
from tilewright.backends.cpu.strategies.products import flatten, matmul_rows, unflatten, unroll
from tilewright.backends.cpu.strategies.schedules import open_images, open_rows
from tilewright.backends.cpu.strategies.schedules.kernel import Alternatives
from tilewright.backends.cpu.strategies.schedules.open_rows import Heights, balanced_pixels, cheapest_widths
from tilewright.backends.cpu.strategies.schedules.tile import ConvSchedule, MatmulSchedule, writes_out_taps
from tilewright.backends.cpu.strategies.schedules.window import (
    FEW_TAPS,
    WindowSchedule,
    crowds,
    fits_with_channels,
    outputs_together,
    unrolls,
)
from tilewright.backends.cpu.strategies.tiles import Tile, cycles_in_tiles, product_cycles
from tilewright.backends.cpu.strategies.winograd_choice import cut, larger_cut, open_cuts, volume_cut
from tilewright.backends.cpu.strategies.winograd_volume import volume_convolution
from tilewright.backends.kernel_options import KernelOptions
from tilewright.base.types import INT32, DataType, OpenSize
from tilewright.scalar.expr import (
    LE,
    LT,
    PrimExpr,
    Value,
    Var,
    all_of,
    as_expr,
    cast,
    compare,
    const,
    floordiv,
    floormod,
    if_then_else,
    maximum,
    mul,
)
from tilewright.scalar.intrinsics import dot4, reinterpret
from tilewright.tir.stmt import IterVar
from tilewright.topi.layouts import axes_of_layout, placed
from tilewright.topi.windows import Ints, Window

_MOST_SHARED: Final = 32
"""Taps along a row that are written out to share their inputs in registers."""


def kernel_order(layout: str) -> tuple[int, ...]:
    """Return the axes of output channels, input channels and spatial dimensions in a kernel layout: `HWIO` -> (3, 2, 0,
    1)."""
    return (layout.index("O"), layout.index("I"), *(layout.index(c) for c in "DHW" if c in layout))


def conv(
    data: te.Tensor, weight: te.Tensor, strides: Ints, padding: Ints, dilation: Ints, groups: int, data_layout: str,
    kernel_layout: str, out_layout: str, out_dtype: DataType, options: KernelOptions,
) -> te.Tensor:
    """Return a convolution by the fastest algorithm for the machine of `options`.

    `padding` is before… then after…, one for each spatial dimension; layouts are such as NHWC and HWIO.
    """
    place, kernel = axes_of_layout(data_layout), kernel_order(kernel_layout)
    shape, wshape = data.extents, weight.extents
    channels, ksize = wshape[kernel[0]], [wshape[d] for d in kernel[2:]]
    depth = wshape[kernel[1]]
    if groups == shape[place[-1]] and depth == 1 and groups > 1:
        return depthwise(
            data, weight, strides, padding, dilation, data_layout, kernel_layout, out_layout, out_dtype, options
        )
    if dot_of(data.dtype, weight.dtype, out_dtype, FOURS.width, options) is FOURS and along_rows(
        data_layout, depth, ksize, padding, dilation, groups
    ):
        words = Geometry(data, place, (ksize[0], ksize[1] // FOURS.width), strides, padding, (dilation[0], FOURS.width))
        words.out[-1] = (words.sizes[-1] - ksize[1]) // strides[1] + 1
        return _direct(
            words, weight, kernel, 1, channels, FOURS.width * depth, ROWS[data_layout], axes_of_layout(out_layout),
            out_dtype, options
        )
    if planes.applies(data, weight, depth, data_layout, ksize, dilation, groups, options):
        return planes.convolution(
            data, weight, kernel, strides, padding, dilation, axes_of_layout(out_layout), out_dtype, options
        )
    plain = all(k == 1 for k in ksize) and all(s == 1 for s in strides) and not any(padding) and groups == 1
    if plain and data_layout == out_layout and place[-1] == len(shape) - 1:
        return _pointwise(data, weight, kernel, out_dtype, options)
    dot = dot_of(data.dtype, weight.dtype, out_dtype, depth, options, contiguous=place[-1] == len(shape) - 1)
    is_open = any(isinstance(shape[d], OpenSize) for d in place[1:-1])
    if not is_open and dot is not FOURS and data_layout == out_layout == "NHWC":
        found = cut(
            data, weight, groups * depth, channels, ksize, strides, padding, dilation, out_dtype, options, groups
        )
        if found is not None:
            return winograd.convolution(data, weight, kernel, found, options)
    if is_open and dot is not FOURS and data_layout == out_layout == "NHWC" and (
        options.alternative in ("", open_winograd.LARGE_TILES)
    ):
        opened = open_cuts(
            data, weight, groups * depth, channels, ksize, strides, padding, dilation, out_dtype, options, groups)
        if opened:
            return open_winograd.convolution(data, weight, kernel, opened, options)
    if not is_open and groups == 1 and data.dtype == DataType("float32") and data_layout == out_layout == "NDHWC":
        volume = volume_cut(data, weight, depth, channels, ksize, strides, padding, dilation, out_dtype, options)
        if volume is not None:
            return volume_convolution(data, weight, kernel, volume, options)
    geometry = Geometry(data, place, ksize, strides, padding, dilation)
    if is_open and all(
        k == 1 for k in ksize
    ) and groups == 1 and not any(padding) and data_layout == out_layout and place[-1] == len(shape) - 1:
        return _pointwise(_every(geometry), weight, kernel, out_dtype, options)
    return _direct(
        geometry, weight, kernel, groups, channels // groups, depth, dot, axes_of_layout(out_layout), out_dtype, options
    )


class Geometry(Window):
    """The sliding window of a convolution or pool over one tensor, whose axes `place` are batch, spatial dimensions and
    channels."""

    def __init__(
        self, data: te.Tensor, place: tuple[int, ...], ksize: Ints, strides: Ints, padding: Ints, dilation: Ints
    ) -> None:
        super().__init__([data.extents[d] for d in place[1:-1]], ksize, strides, padding, dilation)
        self.data, self.place, self.batch = data, place, data.extents[place[0]]
        self.wide = self.out
        """Number of computed outputs: whole tiles of them along a row."""
        self.is_copy = False
        """Whether the data is the padded copy of an image."""

    def at(
        self, n: Value, point: Sequence[PrimExpr], taps: Sequence[IterVar | PrimExpr], channel: Value
    ) -> tuple[PrimExpr, PrimExpr]:
        """The input element under a tap, and the condition that it is not padding."""
        place, inside = self.under(point, taps)
        return self.data(*placed(self.place, (n, *place, channel))), inside

    def spread(self, outputs: int, outside: PrimExpr, padded: int | None = None) -> Geometry:
        """Return the same window over a copy of the image that includes the padding of the last `padded` dimensions,
        by default of all, with the value `outside`: no tap is tested in them.

        The rows of the copy are extended for whole tiles of `outputs` outputs.
        """
        wide = [*self.out[:-1], -(-self.out[-1] // outputs) * outputs]
        kept = 0 if padded is None else len(wide) - padded
        sizes = [*self.sizes[:kept], *(
            (o - 1) * s + (k - 1) * d + 1 for o, s, k, d in [
                *zip(wide, self.strides, self.ksize, self.dilation, strict=True)][kept:])]
        before = [0] * kept + self.before[kept:]

        def element(*i: Var) -> PrimExpr:
            where: list[Any] = list(i)
            inside: PrimExpr = all_of()
            for k in range(kept, len(sizes)):
                at = where[self.place[1 + k]]
                inside = all_of(inside, *([at >= before[k]] if before[k] else []), at < before[k] + self.sizes[k])
                where[self.place[1 + k]] = at - before[k]
            return if_then_else(inside, self.data(*where), outside)

        shape = placed(self.place, (self.batch, *sizes, self.data.extents[self.place[-1]]))
        copy = te.compute(shape, element, name="padded", inline=False)
        rest = [0] * (len(sizes) - kept)
        made = Geometry(
            copy, self.place, self.ksize, self.strides, [*self.before[:kept], *rest, *self.after[:kept], *rest],
            self.dilation)
        made.out, made.wide, made.is_copy = self.out, wide, True
        made.tested = [True] * kept + [False] * len(rest)
        return made

    @property
    def padded(self) -> te.Tensor | None:
        """Return the copy of an image after `spread`, else None."""
        return self.data if self.is_copy else None

    def heights(self, most: int) -> Heights:
        """Return the tile widths for which code is generated; empty for an image of static size."""
        if not self.is_open:
            return ()
        if self.is_copy:
            return cheapest_widths(self.out[-1], most, lambda width: width + 1)
        return balanced_pixels(self.out[-1], most)


def _direct(
    g: Geometry, weight: te.Tensor, kernel: tuple[int, ...], groups: int, channels: int, depth: int, dot: Dot,
    out_place: tuple[int, ...], out_dtype: DataType, options: KernelOptions,
) -> te.Tensor:
    deep, dtype = depth // dot.width, dot.accumulator(out_dtype)
    steps = deep * math.prod(g.ksize)
    many = g.ksize[-1] > _MOST_SHARED
    # the next output's words along a row begin at other elements
    taps_of_row = 1 if many or dot in ROWS.values() else g.ksize[-1]
    step = unroll(deep, options)
    tile, shared = open_rows.tile_along(
        g.out[-1], channels, steps, g.strides[-1], taps_of_row, options, together=taps_of_row > 1 and step == deep
    )
    image = g
    if g.is_open or (not shared and any((*g.before, *g.after)) and not writes_out_taps(g.ksize[-1], step, tile)):
        g = g.spread(tile.rows, const(0, g.data.dtype), padded=1 if g.is_open else None)
    columns = tile.columns
    panels = -(-channels // columns)
    packed = _pack(weight, kernel, groups, channels, deep, g.ksize, panels, columns, dot, shared)
    faster: Alternatives = ()
    if image.is_open and image.place == out_place == (0, 1, 2, 3) and groups == 1 and dot is ONE:
        large = larger_cut(
            image.data, weight, depth, channels, g.ksize, g.strides, (*image.before, *image.after), g.dilation,
            out_dtype, options, tile)
        if options.alternative == "winograd" and large is not None:
            return open_winograd.with_kept_weights(
                image.data, lambda p, r, s, k, c: packed(0, p, r, *((k, s) if shared else (s, k)), c), panels, large,
                options, by_panel=True)
        if options.alternative == "gathered":
            return _gathered(image, packed, channels, tile, shared, out_dtype, options)
        faster = () if large is None else (({"alternative": "winograd"}, large.beats_direct(options.machine)),)
        faster = (*faster, *_small_images(image, channels, depth, tile, options))
    taps = g.taps()
    rc = te.reduce_axis((0, deep), "ic")
    order = [*taps[:-1], rc, taps[-1]] if shared else [*taps, rc]

    def term(n: Var, *rest: Var) -> PrimExpr:
        point, group, c = rest[:-2], rest[-2], rest[-1]
        w = packed(group, floordiv(c, columns), *(axis.var for axis in order), floormod(c, columns))
        _, inside = g.at(n, point, taps, 0)
        product = dot.product(
            lambda d: g.at(n, point, taps, group * depth + d if groups > 1 else d)[0], rc.var, w, dtype
        )
        return te.sum(if_then_else(inside, product, cast(dtype, 0)), axis=order)

    flops = 2 * g.batch * math.prod(g.out) * channels * groups * steps
    acc = te.compute(
        (g.batch, *g.wide, groups, panels * columns), term, name="conv", axis_names=axis_names(len(g.out), "g", "oc"),
        schedule=ConvSchedule(
            tile=tile, shared=shared, unroll=step, groups=groups, channels=groups * channels, flops=flops,
            exact=dtype.is_integer,
            padded=g.padded, heights=cheapest_widths(
                g.out[-1], tile.rows, lambda width: _cycles(replace(tile, rows=width), steps, options),
            ) if g.is_open else (),
            in_bands=g.place[-1] == len(g.out) + 1 and open_images.copies_bands(
                g.ksize, g.strides, g.dilation, groups, panels),
            left_bytes=math.prod(g.data.extents) * g.data.dtype.itemsize,
            channels_last=out_place, faster=faster,
        ),
    )

    def result(*i: Var) -> PrimExpr:
        n, *point, c = (i[d] for d in out_place)
        return cast(
            out_dtype,
            acc(n, *point, floordiv(c, channels), floormod(c, channels)) if groups > 1 else acc(n, *point, 0, c)
        )

    return te.compute(placed(out_place, (g.batch, *g.out, groups * channels)), result, name="conv_out")


def _cycles(tile: Tile, steps: int, options: KernelOptions) -> float:
    return cycles_in_tiles(tile, tile.rows, tile.columns, steps, options.machine)


def _gathered(
    g: Geometry, packed: te.Tensor, channels: int, tile: Tile, shared: bool, out_dtype: DataType,
    options: KernelOptions,
) -> te.Tensor:
    """Return the convolution as a product of the gathered inputs of each output with the packed weights: register tiles
    cross the ends of rows and images."""
    lead, depth, columns = (g.batch, *g.out), g.data.extents[-1], tile.columns
    rows = math.prod(lead)

    def element(m: Var, *rest: Var) -> PrimExpr:
        *taps, c = rest
        n, *point = unflatten(m, lead)
        x, inside = g.at(n, point, taps, c)
        return if_then_else(inside, x, const(0, x.dtype))

    gathered = te.compute((rows, *g.ksize, depth), element, name="gathered", inline=False)
    taps, rc = g.taps(), te.reduce_axis((0, depth), "ic")
    order = [*taps[:-1], rc, taps[-1]] if shared else [*taps, rc]

    def term(m: Var, o: Var) -> PrimExpr:
        w = packed(0, floordiv(o, columns), *(axis.var for axis in order), floormod(o, columns))
        return te.sum(gathered(m, *(t.var for t in taps), rc.var) * w, axis=order)

    panels, steps = packed.extents[1], depth * math.prod(g.ksize)
    acc = te.compute(
        (rows, panels * columns), term, name="conv", axis_names=("m", "oc"),
        schedule=MatmulSchedule(
            tile=tile, shared=shared, unroll=unroll(depth, options), gathered=gathered,
            flops=2 * rows * channels * steps,
            left_bytes=rows * steps * g.data.dtype.itemsize, right_bytes=steps * channels * g.data.dtype.itemsize))
    return te.compute(
        (*lead, channels), lambda *i: cast(out_dtype, acc(flatten(i[:-1], lead), i[-1])), name="conv_out")


def _small_images(g: Geometry, channels: int, depth: int, tile: Tile, options: KernelOptions) -> Alternatives:
    """Return the heights of tiles of a product of gathered inputs, with the conditions under which it takes less time
    than tiles along the rows of the image.

    Each row of tiles reads all weights again, and short rows do not fill tiles. That costs time where the weights
    exceed the second-level cache.
    """
    machine, core, most = options.machine, options.machine.core, tile.rows
    steps = depth * math.prod(g.ksize)
    nbytes, row = g.data.dtype.itemsize * steps * channels, g.data.dtype.itemsize * steps
    if nbytes <= machine.l2_bytes or most < 4:
        return ()
    half = -(-most * 5 // 8)
    whole = product_cycles(most, channels, steps, machine)
    pixel = max(0.0, whole - product_cycles(half, channels, steps, machine)) / (most - half)
    each, weights = round(whole - pixel * most), round(nbytes * core.weight_cycles(nbytes))
    copy = round(steps / machine.lanes() * (core.store_cycles + 1 / core.loads))
    height, width = g.out
    rows, lines, bands = g.batch * height * width, g.batch * height, g.batch * -(-height // open_images.BAND)
    direct = as_expr(lines * -(-width // most) * each + bands * weights) + as_expr(lines) * maximum(
        as_expr(width), half) * round(pixel)
    product = -(-rows // most) * each + rows * (round(pixel) + copy) + weights
    smaller = all_of(compare(LT, as_expr(product), direct), compare(LE, as_expr(rows * row), machine.l2_bytes))
    return tuple(
        ({"alternative": "gathered", "tile_height": tallest}, all_of(smaller, condition))
        for tallest, condition in open_rows.overlapping(rows, most))


def axis_names(spatial: int, *last: str) -> list[str]:
    return ["n", *("od", "oh", "ow")[3 - spatial :], *last]


def _pack(
    weight: te.Tensor, kernel: tuple[int, ...], groups: int, channels: int, deep: int, ksize: list[int], panels: int,
    columns: int, dot: Dot, shared: bool
) -> te.Tensor:
    def on_arrays(w: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        padded = dot.array(w.transpose(kernel), 1).reshape(groups, channels, deep, *ksize)
        if channels != panels * columns:
            exact, padded = padded, np.zeros((groups, panels * columns, deep, *ksize), padded.dtype)
            padded[:, :channels] = exact
        split = padded.reshape(groups, panels, columns, deep, *ksize)
        n = len(ksize)
        return split.transpose(
            0, 1, *range(4, 3 + n), 3, 3 + n, 2
        ) if shared else split.transpose(0, 1, *range(4, 4 + n), 3, 2)

    def element(group: Var, panel: Var, *rest: Var) -> PrimExpr:
        *steps, column = rest
        *outer, ic, last = steps if shared else (*steps[:-2], steps[-1], steps[-2])
        c = panel * columns + column

        def at(*inside: Value) -> PrimExpr:
            return weight(*placed(kernel, (group * channels + c, *inside)))

        if dot in ROWS.values():
            word = dot.element(lambda k: at(ic, *outer, mul(last, dot.width) + k), const(0, "int64"))
        else:
            word = dot.element(lambda depth: at(depth, *outer, last), ic)
        return if_then_else(c < channels, word, dot.zero(weight.dtype))

    shape = (groups, panels, *ksize[:-1], *((deep, ksize[-1]) if shared else (ksize[-1], deep)), columns)
    return te.compute(shape, element, name="packed", prepack=on_arrays)


def _pointwise(
    data: te.Tensor, weight: te.Tensor, kernel: tuple[int, ...], out_dtype: DataType, options: KernelOptions
) -> te.Tensor:
    """Return a 1x1 convolution of channels-last data, as a product of all its pixels with the weights."""
    wshape = weight.extents
    columns, depth = wshape[kernel[0]], wshape[kernel[1]]

    def element(n: PrimExpr, k: PrimExpr) -> PrimExpr:
        return weight(*placed(kernel, (n, k, *(0,) * (len(kernel) - 2))))

    def matrix(w: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return w.transpose(kernel).reshape(columns, depth)

    return matmul_rows(
        data, weight, element, matrix, columns, depth, out_dtype, options, name="conv", heights=balanced_pixels
    )


def _every(g: Geometry) -> te.Tensor:
    """Return the pixels that a window of one pixel sees, as an image."""
    shape = placed(g.place, (g.batch, *g.out, g.data.extents[g.place[-1]]))

    def element(*i: Var) -> PrimExpr:
        n, *point, c = (i[d] for d in g.place)
        return g.at(n, point, [as_expr(0)] * len(point), c)[0]

    return te.compute(shape, element, name="every")


def depthwise(
    data: te.Tensor, weight: te.Tensor, strides: Ints, padding: Ints, dilation: Ints, data_layout: str,
    kernel_layout: str, out_layout: str, out_dtype: DataType, options: KernelOptions,
) -> te.Tensor:
    """Return a depthwise convolution; `weight` has one input channel and `multiplier` outputs for each."""
    place, kernel, out_place = axes_of_layout(data_layout), kernel_order(kernel_layout), axes_of_layout(out_layout)
    wshape, inputs = weight.extents, data.extents[place[-1]]
    ksize = [wshape[d] for d in kernel[2:]]
    channels = wshape[kernel[0]]
    multiplier = channels // inputs
    weights = math.prod(ksize) if math.prod(ksize) > FEW_TAPS else 0
    g = windows_of(Geometry(data, place, ksize, strides, padding, dilation), const(0, data.dtype), weights, options)
    taps = g.taps()

    def on_arrays(w: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.ascontiguousarray(w.transpose(*kernel[2:], kernel[0], kernel[1]).reshape(*ksize, channels))

    def element(*i: Value) -> PrimExpr:
        return weight(*placed(kernel, (i[-1], 0, *i[:-1])))

    if ksize[0] > 1 and strides[-1] == 1 and not options.machine.scalar and dot_of(
        data.dtype, weight.dtype, out_dtype, FOURS.width, options
    ) is FOURS:
        return window(
            g, channels, _words_down(g, element, on_arrays, channels, multiplier), out_place, options, name="depthwise"
        )
    packed = te.compute((*ksize, channels), element, name="packed", prepack=on_arrays)

    def term(n: Var, *rest: Var) -> PrimExpr:
        *point, c = rest
        x, inside = g.at(n, point, taps, floordiv(c, multiplier))
        w = packed(*(t.var for t in taps), c)
        return te.sum(if_then_else(inside, cast(out_dtype, x) * cast(out_dtype, w), cast(out_dtype, 0)), axis=taps)

    return window(g, channels, term, out_place, options, name="depthwise")


def _words_down(
    g: Geometry, element: Callable[..., PrimExpr], on_arrays: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]],
    channels: int, multiplier: int
) -> Callable[..., PrimExpr]:
    """Return the term of a depthwise convolution of bytes: the taps along the first dimension are multiplied four at
    once.

    The word of a column of taps is built once for all outputs of a row that read it; for outputs two apart, that costs
    more than it saves. `element(tap…, channel)` is the weight, and `on_arrays` converts the array to `[tap…, channel]`.
    """
    height, across = g.ksize[0], g.taps()[1:]
    steps = -(-height // FOURS.width)
    down = te.reduce_axis((0, steps), "kh")

    def words(w: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        ordered = on_arrays(w)
        filled = np.zeros((steps * FOURS.width, *ordered.shape[1:]), ordered.dtype)
        filled[:height] = ordered
        return FOURS.array(filled, 0)

    def packed_word(step: Var, *rest: Var) -> PrimExpr:
        return FOURS.element(
            lambda tap: if_then_else(as_expr(tap) < height, element(tap, *rest), const(0, "int8")), step
        )

    packed = te.compute((steps, *g.ksize[1:], channels), packed_word, name="packed", prepack=words)

    def term(n: Var, *rest: Var) -> PrimExpr:
        *point, c = rest

        def byte(tap: Value) -> PrimExpr:
            x, inside = g.at(n, point, [as_expr(tap), *across], floordiv(c, multiplier))
            return if_then_else(all_of(as_expr(tap) < height, inside), x, const(0, "uint8"))

        word = reinterpret(FOURS.element(byte, down.var), dtype="uint32")
        return te.sum(
            dot4(word, packed(down.var, *(t.var for t in across), c), const(0, INT32), dtype=INT32),
            axis=[down, *across]
        )

    return term


def windows_of(g: Geometry, outside: PrimExpr, weights: int, options: KernelOptions) -> Geometry:
    """Return the geometry for `window`: for a dynamic image whose channels crowd the cache, a padded copy with the
    value `outside`, unless a tile with all channels and `weights` pixels of weights fits."""
    together = outputs_together(g.out[-1], math.prod(g.ksize), g.strides[-1], options)
    if not _crowds(g, options) or _fits(g, weights, options):
        return g
    # the bounds of a loop over the rows of a window leave out those in the padding
    return g.spread(together, outside, padded=None if unrolls(g.ksize, together) else 1)


def _crowds(g: Geometry, options: KernelOptions) -> bool:
    """Return whether the pixels of a dynamic image compete for the same cache lines."""
    return g.is_open and crowds(_pixel(g), g.ksize, g.strides[-1], options.machine)


def _fits(g: Geometry, weights: int, options: KernelOptions) -> bool:
    """Return whether a tile with all channels fits the first-level cache."""
    together = outputs_together(g.out[-1], math.prod(g.ksize), g.strides[-1], replace(options, tile_height=0))
    return fits_with_channels(_pixel(g), g.ksize, g.strides[-1], together, weights, options.machine)


def _pixel(g: Geometry) -> int:
    nbytes: int = g.data.extents[g.place[-1]] * g.data.dtype.itemsize
    return nbytes


def window(
    g: Geometry, channels: int, term: Any, out_place: tuple[int, ...], options: KernelOptions, name: str,
    finish: Any = None,
) -> te.Tensor:
    """Return a reduction over the taps of a window, channel by channel; `finish(acc, point)` computes its result."""
    taps, stride = math.prod(g.ksize), g.strides[-1]
    acc = te.compute(
        (g.batch, *g.wide, channels), term, name=name, axis_names=axis_names(len(g.out), "c"),
        schedule=WindowSchedule(
            flops=2 * g.batch * math.prod(g.out) * channels * taps, channels_last=out_place, stride=stride, taps=taps,
            padded=g.padded, heights=g.heights(outputs_together(g.out[-1], taps, stride, options)),
            channels_inside=not g.is_copy and _crowds(g, options),
        ),
    )

    def result(*i: Var) -> PrimExpr:
        n, *point, c = (i[d] for d in out_place)
        value: PrimExpr = acc(n, *point, c) if finish is None else finish(acc(n, *point, c), point)
        return value

    return te.compute(placed(out_place, (g.batch, *g.out, channels)), result, name=f"{name}_out")
