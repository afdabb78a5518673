"""Convolutions by Winograd's algorithm with symbolic heights and widths, in blocks of a constant number of tiles.

    for block of tiles (parallel):
        for tile: for vector of channels: { columns = …; spectrum[all points] = … }
        for point: product = spectrum @ U                       the register tiles of a matrix product
        for tile: for vector of channels: { partial = …; out = epilogue(…) }

The last block ends with the last tile; only whole register tiles of its product are computed.

Where few tiles and large weights are usual, the panels are outside the products, and threads share them:

    for block of tiles: {
        for tile (parallel): for vector of channels: { columns = …; spectrum[all points] = … }
        for panel of output channels (parallel): {
            for point: product = spectrum @ U
            for tile: for vector of channels: { partial = …; out = epilogue(…) } } }
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.backends.cpu.strategies.schedules.kernel import CpuSchedule, KernelBlocks
from tilewright.backends.cpu.strategies.schedules.tile import accumulate, prefetch_panels
from tilewright.backends.cpu.strategies.schedules.winograd import loops_by_name, schedule_outputs
from tilewright.backends.cpu.strategies.tiles import Tile
from tilewright.base.errors import ScheduleError
from tilewright.scalar.expr import LT, PrimExpr, Var, add, as_expr, compare, mul
from tilewright.te.tensor import Tensor
from tilewright.tir.transform.partition_loops import WHOLE


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OpenWinogradSchedule(CpuSchedule):
    """Schedule of `out[n, y, x, o]` from `partial`, the anchor; the other stages are `columns`, `spectrum`, `sums` and
    `product`.

    A tile has `m` outputs a side. There are `count` tiles, in blocks of `block` tiles; `images` are the number, heights
    and widths of the outputs.
    """

    columns: Tensor
    spectrum: Tensor
    sums: Tensor
    product: Tensor
    m: int
    block: int
    count: int
    tile: Tile
    images: tuple[int, ...]
    unroll: int = 1
    by_panel: bool = False
    """Whether the panels are outside the products."""

    def apply(self, k: KernelBlocks) -> None:
        s = k.schedule
        (n, y, x, o), _ = s.axes(k.output)
        if any(as_expr(s.extent(v)) is not as_expr(size) for v, size in zip((n, y, x), self.images, strict=True)):
            raise ScheduleError(
                f"'{k.anchor.name}' has a dynamic height or width, but stores its result in another layout than it is "
                "computed in")
        t, p = s.split(y, [None, self.m])
        u, q = s.split(x, [None, self.m])
        panel, vector, lane = s.split(o, [None, self.tile.vectors if self.by_panel else 1, self.tile.lanes])
        s.reorder(n, t, u, panel, vector, p, q, lane)
        block, inside = s.split(s.fuse(n, t, u), [None, self.block])
        if self.by_panel:
            s.reorder(block, panel, inside)
        s.annotate(inside, WHOLE, True)
        s.annotate(block, WHOLE, True)
        s.unroll(q)
        s.vectorize(lane)
        schedule_outputs(k, vector)
        _products(k, self, panel if self.by_panel else block, block)
        tiles = _inputs(k, self, block)
        if not k.is_shared:
            return
        for loop in [tiles, panel] if self.by_panel else [block]:
            s.parallel(loop)

    def is_tile(self, block: Var, inside: PrimExpr) -> PrimExpr:
        """Return the condition that there is a tile of this number in a block."""
        return compare(LT, add(mul(block, self.block), inside), as_expr(self.count))


def _products(k: KernelBlocks, plan: OpenWinogradSchedule, at: Var, tiles: Var) -> None:
    """Schedule one matrix product for each point, and each block of `tiles`."""
    s, name, tile = k.schedule, k.name(plan.product), plan.tile
    loops = loops_by_name(s.compute_at(name, at))
    outer, inner = s.split(loops["g"], [None, tile.rows])
    panel, vector, lane = s.split(loops["o"], [None, tile.vectors, tile.lanes])
    s.reorder(loops["xi"], panel, outer, inner, vector, lane)
    sums = k.name(plan.sums)
    depth = accumulate(k, sums, outer, tile, depth_unroll=plan.unroll)
    for block in (name, sums):
        s.where(block, plan.is_tile(tiles, mul(outer, tile.rows)))
    if s.extent(outer) > 1:
        prefetch_panels(k, plan.sums.op, panel, depth)
    for v in (inner, vector):
        s.unroll(v)
    s.vectorize(lane)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WeightsSchedule(CpuSchedule):
    """Schedule of the transform of all weights, by `half`: one input channel and one vector of columns at a time."""

    half: Tensor
    tile: Tile
    points: int

    def apply(self, k: KernelBlocks) -> None:
        s = k.schedule
        loops = loops_by_name(s.loops(k.output))
        i, j = s.split(loops["xi"], [None, self.points])
        vector, lane = s.split(loops["o"], [None, self.tile.lanes])
        s.reorder(loops["panel"], loops["k"], vector, i, j, lane)
        if k.is_shared:
            rows = s.fuse(loops["panel"], loops["k"])
            s.parallel(rows, grain=max(1, s.extent(rows) // k.machine.core.pieces))
        _half(k, k.name(self.half), vector, (i, j), lane)


def _half(k: KernelBlocks, half: str, vector: Var, points: tuple[Var, Var], lane: Var) -> None:
    """Compute one step of a transform at a vector of the other one, and unroll both."""
    s = k.schedule
    s.set_scope(half, "local")
    inner = loops_by_name(s.compute_at(half, vector))
    s.reorder(inner["s"], inner["i"], inner["o"])
    for v in (*points, inner["s"], inner["i"]):
        s.unroll(v)
    for v in (lane, inner["o"]):
        s.vectorize(v)


def _inputs(k: KernelBlocks, plan: OpenWinogradSchedule, at: Var) -> Var:
    """Schedule the transform of the input, one tile and one vector of channels at a time; return the loop over tiles.
    """
    s = k.schedule
    lanes = min(k.machine.lanes(), plan.tile.lanes)
    spectrum = k.name(plan.spectrum)
    loops = loops_by_name(s.compute_at(spectrum, at))
    vector, lane = s.split(loops["c"], [None, lanes])
    s.reorder(loops["g"], vector, loops["i"], loops["j"], lane)
    s.where(spectrum, plan.is_tile(at, loops["g"]))
    s.unroll(loops["j"])
    s.vectorize(lane)
    inner = loops_by_name(s.compute_at(k.name(plan.columns), vector))
    s.where(k.name(plan.columns), plan.is_tile(at, loops["g"]))
    s.reorder(inner["s"], inner["i"], inner["c"])
    s.unroll(inner["i"])
    s.vectorize(inner["c"])
    s.annotate(loops["g"], WHOLE, True)
    return loops["g"]
