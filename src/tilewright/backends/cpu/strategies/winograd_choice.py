"""Winograd's algorithm for 3x3 convolutions of images and of the slices of volumes: where it is worth it.

F(m x m, 3x3) needs (m + 2)^2 products for m^2 outputs instead of 9 m^2. It adds transforms, and weights that grow by (m
+ 2)^2 / 9 and are read from memory. The costs of both algorithms are estimated in cycles.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tilewright import te
from tilewright.backends.cpu.strategies.dots import ONE, Dot, dot_of
from tilewright.backends.cpu.strategies.tiles import OPEN_ROWS, Tile, cycles_in_tiles, product_cycles, register_tile
from tilewright.backends.kernel_options import KernelOptions
from tilewright.backends.machine import Machine
from tilewright.base.types import DataType, OpenSize
from tilewright.scalar.expr import LT, PrimExpr, as_expr, compare
from tilewright.te.tensor import PlaceholderOp
from tilewright.topi.winograd import TAPS

_SIZES: Final = (2, 4)
_FACTORS: Final = ("float32", "bfloat16")
"""Types of factors. Products are float32, and for bfloat16 the direct algorithm takes half as many steps."""
_FEWEST_CHANNELS: Final = 4
_USUAL_SIDE: Final = 56 * 64
"""Height of an image times its number of channels: networks begin with 64 channels at a quarter of 224 pixels."""
_MOST_OPEN_TILES: Final = 96
"""Number of tiles in a block of an image of symbolic size."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A 3x3 convolution of stride 1 in NHWC, cut into tiles of m x m, in blocks of `block` rows of tiles.

    A convolution of several groups is computed in `parts`, each a product of whole groups with zeros between them.
    """

    batch: int
    height: int
    width: int
    depth: int
    channels: int
    padding: tuple[int, int, int, int]
    m: int
    block: int = 1
    groups: int = 1
    parts: int = 1

    @property
    def part_depth(self) -> int:
        return self.depth // self.parts

    @property
    def part_channels(self) -> int:
        return self.channels // self.parts

    @property
    def out(self) -> tuple[int, int]:
        top, left, bottom, right = self.padding
        return self.height + top + bottom - TAPS + 1, self.width + left + right - TAPS + 1

    @property
    def points(self) -> int:
        """Number of points along one side of a tile of inputs."""
        return self.m + TAPS - 1

    @property
    def rows(self) -> int:
        """Number of rows of tiles in an image."""
        return -(-self.out[0] // self.m)

    @property
    def tiles(self) -> int:
        """Number of tiles in a row."""
        return -(-self.out[1] // self.m)

    def cycles(self, machine: Machine) -> float:
        """Return the estimated cycles: products, transforms, weights read for each block, and cache misses of a block.
        """
        squared, blocks = self.points**2, self.batch * self.rows // self.block
        products = squared * blocks * self.parts * product_cycles(
            self.block * self.tiles, self.part_channels, self.part_depth, machine
        )
        vectors = -(-self.depth // machine.lanes()) + -(-self.channels // machine.lanes())
        transforms = squared * self.batch * self.rows * self.tiles * vectors * self.points
        weights, between = 4 * squared * self.part_depth * self.channels, 4 * squared * self.block * self.tiles * (
            self.depth + self.channels
        )
        core = machine.core
        again = 0.0 if weights <= machine.l2_bytes * 3 // 4 else core.weight_cycles(weights)
        spilled = blocks * between * core.spilled_byte_cycles if between > machine.l2_bytes else 0.0
        return products + transforms + weights * (core.memory_byte_cycles + (blocks - 1) * again) + spilled

    def direct_cycles(self, machine: Machine, steps: int = TAPS * TAPS, dot: Dot = ONE) -> float:
        """Return the cycles of the direct algorithm, which skips taps in the padding; `steps` steps of `dot` per
        output."""
        height, width = self.out
        top, left, bottom, right = self.padding
        inside = _inside(height, top, bottom) * _inside(width, left, right)
        depth = self.depth // self.groups // dot.width
        products = self.batch * height * inside * self.groups * product_cycles(
            width, self.channels // self.groups, steps * depth, machine
        )
        return products + 4 * steps * depth * self.channels * machine.core.memory_byte_cycles


@dataclass(frozen=True, slots=True)
class VolumeCut:
    """A convolution of volumes NDHWC whose slices are cut as `image` describes; `span` output slices are computed
    together."""

    image: Cut
    slices: int
    taps: int
    front: int
    back: int
    span: int

    @property
    def out_slices(self) -> int:
        return self.slices + self.front + self.back - self.taps + 1

    @property
    def groups(self) -> int:
        return self.out_slices // self.span

    def cycles(self, machine: Machine) -> float:
        """Return the estimated cycles; a group of slices also transforms the surrounding ones."""
        z = self.image
        squared, pieces = z.points**2, z.batch * self.groups * (z.rows // z.block)
        inside = z.block * z.tiles
        products = squared * pieces * self.span * self._share() * product_cycles(
            inside, z.channels, self.taps * z.depth, machine
        )
        read = min(self.span + self.taps - 1, self.slices)
        vectors = read * -(-z.depth // machine.lanes()) + self.span * -(-z.channels // machine.lanes())
        transforms = squared * pieces * inside * vectors * z.points
        weights, between = 4 * squared * self.taps * z.depth * z.channels, 4 * squared * inside * (
            read * z.depth + self.span * z.channels
        )
        core = machine.core
        again = core.weight_cycles(weights)
        spilled = pieces * between * core.streamed_byte_cycles if between > machine.l2_bytes else 0.0
        return products + transforms + weights * (core.memory_byte_cycles + (pieces - 1) * again) + spilled

    def direct_cycles(self, machine: Machine) -> float:
        return self.out_slices * self._share() * self.image.direct_cycles(machine, self.taps * TAPS * TAPS)

    def _share(self) -> float:
        """The fraction of the taps in depth that fall on the volume."""
        return _inside(self.out_slices, self.front, self.back, self.taps)


def _inside(size: int, before: int, after: int, taps: int = TAPS) -> float:
    """Return the fraction of the taps along one dimension that fall on the image."""
    return 1 - (before * (before + 1) + after * (after + 1)) / 2 / (taps * size)


def cut(
    data: te.Tensor, weight: te.Tensor, depth: int, channels: int, ksize: Sequence[int], strides: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], out_dtype: DataType, options: KernelOptions, groups: int = 1,
) -> Cut | None:
    """Return the cut of this convolution of `data` NHWC for Winograd's algorithm; None if the direct algorithm is
    faster."""
    setting = _setting(data, weight, depth, channels, ksize, strides, padding, dilation, out_dtype, options)
    if setting == "off":
        return None
    n, height, width, _ = data.extents
    top, left, bottom, right = padding
    machine = options.machine
    parts = _parts(groups, depth // groups, channels // groups, machine)
    batch = 1 if isinstance(n, OpenSize) else n  # what pays for large batches alone stores several times the weights
    whole = Cut(batch, height, width, depth, channels, (top, left, bottom, right), _SIZES[0], 1, groups, parts)
    if min(whole.out) < 2 * max(_SIZES) - 1 or not parts:
        return None
    best = {m: min(_blocks(whole, m), key=lambda c: c.cycles(machine)) for m in _SIZES}
    if setting != "auto":
        return replace(best[int(setting[0])], batch=n)
    small, large = (best[m] for m in _SIZES)
    found = large if large.cycles(machine) < machine.core.larger_tile_gain * small.cycles(machine) else small
    direct = whole.direct_cycles(machine, dot=dot_of(data.dtype, weight.dtype, out_dtype, depth // groups, options))
    chosen = _decided(whole, found if found.cycles(machine) < machine.core.winograd_gain * direct else None, options)
    return None if chosen is None else replace(chosen, batch=n)


@dataclass(frozen=True, slots=True)
class OpenCut:
    """A convolution of symbolic height or width, cut into tiles, whose products have `tile` and are computed for
    `block` tiles of the image at a time."""

    image: Cut
    block: int
    tile: Tile

    def is_faster(self, other: OpenCut, machine: Machine) -> PrimExpr:
        """Return the condition on the sizes that these tiles take less time than other ones."""
        return compare(LT, as_expr(self._cycles(machine)), as_expr(other._cycles(machine)))

    def beats_direct(self, machine: Machine) -> PrimExpr:
        """Return the condition on the sizes that these tiles take less time than the direct algorithm, with the same
        register tiles."""
        z, rows = self.image, self.tile.rows
        height, width = z.out
        each = product_cycles(rows, z.channels, TAPS * TAPS * z.depth, machine)
        direct = z.batch * height * -(-width // rows) * round(machine.core.winograd_gain * each)
        return compare(LT, as_expr(self._cycles(machine)), as_expr(direct))

    def pays(self, machine: Machine) -> bool:
        """Whether these tiles take less time than the direct algorithm for very many tiles."""
        z = self.image
        direct = product_cycles(self.tile.rows, z.channels, TAPS * TAPS * z.depth, machine) / self.tile.rows
        return self.output_cycles(machine) < machine.core.winograd_gain * direct

    def _cycles(self, machine: Machine) -> int:
        """Return the estimated cycles, which are symbolic."""
        z, rows = self.image, self.tile.rows
        count = z.batch * z.rows * z.tiles
        computed = -(-count // rows) * rows
        weights = 4 * z.points**2 * z.part_depth * z.channels
        return computed * round(self.tile_cycles(machine)) + round(weights * machine.core.memory_byte_cycles)

    def tile_cycles(self, machine: Machine) -> float:
        """Return the estimated cycles of one tile among many."""
        z = self.image
        squared = z.points**2
        products = squared * z.parts * cycles_in_tiles(
            self.tile, self.block, z.part_channels, z.part_depth, machine)
        vectors = -(-z.depth // machine.lanes()) + -(-z.channels // machine.lanes())
        weights, between = 4 * squared * z.part_depth * z.channels, 4 * squared * (
            z.depth + z.channels)
        core = machine.core
        again = 0.0 if weights <= machine.l2_bytes * 3 // 4 else core.weight_cycles(weights)
        spilled = between * core.spilled_byte_cycles if self.block * between > machine.l2_bytes else 0.0
        return (products + again * weights) / self.block + squared * vectors * z.points + spilled

    def output_cycles(self, machine: Machine) -> float:
        """Return the estimated cycles of an output of an image of very many tiles."""
        return self.tile_cycles(machine) / self.image.m**2


def open_cuts(
    data: te.Tensor, weight: te.Tensor, depth: int, channels: int, ksize: Sequence[int], strides: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], out_dtype: DataType, options: KernelOptions, groups: int = 1,
) -> list[OpenCut]:
    """Return the cuts of a convolution of `data` NHWC with symbolic height or width: small tiles, and large ones, whose
    weights are made from the packed ones of the small tiles, where they save enough time for large images. Empty where
    the direct algorithm is faster.

    Networks halve images and double channels: the usual image is smaller the more channels it has.
    """
    setting = _setting(data, weight, depth, channels, ksize, strides, padding, dilation, out_dtype, options)
    parts = _parts(groups, depth // groups, channels // groups, options.machine)
    if setting == "off" or not parts:
        return []
    n, height, width, _ = data.extents
    top, left, bottom, right = padding
    whole = Cut(n, height, width, depth, channels, (top, left, bottom, right), _SIZES[0], 1, groups, parts)
    if setting != "auto":
        return [_open_cut(replace(whole, m=int(setting[0])), options)]
    if not _pays_usually(whole, options.machine):
        return []
    small = _open_cut(whole, options)
    large = _larger(small, options)
    return [small] if large is None else [small, large]


def larger_cut(
    data: te.Tensor, weight: te.Tensor, depth: int, channels: int, ksize: Sequence[int], strides: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], out_dtype: DataType, options: KernelOptions, tile: Tile,
) -> OpenCut | None:
    """Return the cut of a convolution of `data` NHWC with symbolic height or width for the images that are larger than
    the usual one, if it pays for them; the weights are packed for the direct algorithm with this register tile."""
    setting = _setting(data, weight, depth, channels, ksize, strides, padding, dilation, out_dtype, options)
    machine, m = options.machine, _SIZES[0]
    if setting == "off" or data.dtype != DataType("float32"):
        return None
    n, height, width, _ = data.extents
    top, left, bottom, right = padding
    z = Cut(n, height, width, depth, channels, (top, left, bottom, right), m)
    if 4 * TAPS * TAPS * depth * channels <= machine.l2_bytes:
        return None  # with few channels, the transforms of the image decide, and large images have the same
    ways = [OpenCut(z, tile.rows * k, tile) for k in range(1, _MOST_OPEN_TILES // tile.rows + 1)]
    found = min(ways, key=lambda way: way.tile_cycles(machine))
    return found if options.alternative or found.pays(machine) else None


def _open_cut(z: Cut, options: KernelOptions) -> OpenCut:
    """Return the cut with the best number of tiles in a block."""
    tile = register_tile(OPEN_ROWS, z.part_channels, z.part_depth, options)
    if z.parts > 1 and z.part_channels % tile.columns:
        tile = Tile(tile.rows, 1, tile.lanes)
    ways = [OpenCut(z, tile.rows * k, tile) for k in range(1, _MOST_OPEN_TILES // tile.rows + 1)]
    return min(ways, key=lambda way: way.tile_cycles(options.machine))


def _larger(small: OpenCut, options: KernelOptions) -> OpenCut | None:
    """Return the cut into large tiles whose weights are made from the packed ones of small tiles; None if the
    third-level cache does not hold them, or if they save too little time for large images."""
    machine, z = options.machine, replace(small.image, m=_SIZES[-1])
    if 4 * z.points**2 * z.part_depth * z.channels > machine.core.l3_bytes:
        return None
    rows = small.tile.rows
    ways = [OpenCut(z, rows * k, small.tile) for k in range(1, _MOST_OPEN_TILES // rows + 1)]
    found = min(ways, key=lambda way: way.tile_cycles(machine))
    gain = found.output_cycles(machine) / small.output_cycles(machine)
    return found if gain < machine.core.larger_tile_gain else None


def _pays_usually(z: Cut, machine: Machine) -> bool:
    """Whether tiles pay for an image of the usual size for its channels."""
    side = max(1, round(_USUAL_SIDE / (z.depth * z.channels) ** 0.5))
    usual = replace(z, batch=1, height=side, width=side)
    least = min(c.cycles(machine) for m in _SIZES for c in _blocks(usual, m))
    return least <= machine.core.winograd_gain * usual.direct_cycles(machine)


def _decided(whole: Cut, found: Cut | None, options: KernelOptions) -> Cut | None:
    """Return the choice of the cost model, or a decision that overrides it: the algorithm, and the rows of tiles in a
    block."""
    default = ("direct", 0) if found is None else (f"winograd_{found.m}x{found.m}", found.block)
    ways = {(f"winograd_{m}x{m}", c.block): c for m in _SIZES for c in _blocks(whole, m)}
    chosen = options.decide(
        ("algorithm", "winograd_rows"), default, lambda: [("direct", 0), *ways], selects="algorithm"
    )
    return ways.get((str(chosen[0]), int(chosen[1])))


def _parts(groups: int, depth: int, channels: int, machine: Machine) -> int:
    """Return the number of products for groups of `depth` and `channels`, each with enough groups to fill vectors; 0 if
    impossible."""
    if groups == 1:
        return 1
    lanes = machine.lanes()
    together = next((g for g in range(1, groups + 1) if groups % g == 0 and g * channels % lanes == 0), 0)
    return groups // together if together and together * depth >= _FEWEST_CHANNELS else 0


def volume_cut(
    data: te.Tensor, weight: te.Tensor, depth: int, channels: int, ksize: Sequence[int], strides: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], out_dtype: DataType, options: KernelOptions,
) -> VolumeCut | None:
    """Return the cut for `data` NDHWC, with any number of taps in depth."""
    n, slices, height, width, _ = data.extents
    (taps, *plane), (front, top, left, back, bottom, right) = ksize, padding
    sides = (top, left, bottom, right)
    setting = _setting(data, weight, depth, channels, plane, strides, sides, dilation, out_dtype, options)
    whole = Cut(n, height, width, depth, channels, sides, _SIZES[0])
    if (
        setting == "off" or max(front, back) >= taps or min(whole.out) < 2 * max(_SIZES) - 1
        or slices + front + back < taps
    ):
        return None
    machine = options.machine
    groups = slices + front + back - taps + 1
    ways = [
        VolumeCut(b, slices, taps, front, back, span)
        for m in _SIZES if setting in ("auto", f"{m}x{m}") for b in _blocks(whole, m) for span in range(1, groups + 1)
        if groups % span == 0
    ]
    found = min(ways, key=lambda v: v.cycles(machine))
    return (
        found if setting != "auto" or found.cycles(machine) < machine.core.winograd_gain * found.direct_cycles(machine)
        else None
    )


def _setting(
    data: te.Tensor, weight: te.Tensor, depth: int, channels: int, ksize: Sequence[int], strides: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], out_dtype: DataType, options: KernelOptions,
) -> str:
    """Return the tiles that `options` ask for, or "off" where the algorithm does not apply."""
    known = isinstance(weight.op, PlaceholderOp) and weight.op.constant
    plain = list(ksize) == [TAPS, TAPS] and all(
        v == 1 for v in (*strides, *dilation)
    ) and all(p < TAPS for p in padding)
    floats = data.dtype == weight.dtype and str(data.dtype) in _FACTORS and out_dtype == DataType("float32")
    if not (known and plain and floats) or min(depth, channels) < _FEWEST_CHANNELS:
        return "off"
    return options.winograd_tiles


def _blocks(c: Cut, m: int) -> Iterator[Cut]:
    """Yield the cuts with equal blocks of rows of tiles."""
    rows = -(-c.out[0] // m)
    return (replace(c, m=m, block=b) for b in range(1, rows + 1) if rows % b == 0)
