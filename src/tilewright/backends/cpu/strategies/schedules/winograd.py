"""Convolutions by Winograd's algorithm, in blocks of rows of tiles, so that intermediate values stay in the cache.

    for image, block of rows (parallel):
        for row: for vector of channels: { columns = …; for tile: spectrum[all points] = … }
        for point: product = spectrum @ U                       the register tiles of a matrix product
        for row: for tile: for vector of channels: { partial = …; out = epilogue(…) }

Volumes add a loop over groups of output slices around the blocks, and in each stage a loop over the slices of the
group; their products are sums over the taps along the depth.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.backends.cpu.strategies.schedules.kernel import CpuSchedule, KernelBlocks
from tilewright.backends.cpu.strategies.schedules.tile import accumulate, prefetch_panels
from tilewright.backends.cpu.strategies.tiles import Tile
from tilewright.scalar.expr import Var
from tilewright.te.tensor import Tensor
from tilewright.tir.stmt import ALIGNED
from tilewright.tir.transform.partition_loops import WHOLE

_ENOUGH = 8
_SAME_SETS = 1024
"""Distance of rows, in bytes, at which the rows of a tile fall into the same sets of the first-level cache and evict
each other."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WinogradSchedule(CpuSchedule):
    """Schedule of a convolution by Winograd's algorithm: `out[n, y, x, o]` or, for a volume, `out[n, d, y, x, o]` from
    `partial`, the anchor.

    The other stages are `columns`, `spectrum`, `sums` and `product`. A tile has `m` outputs a side; there are `blocks`
    blocks of `rows` rows of tiles and, for a volume, `groups` groups of output slices. `shared` marks sums that have
    their unrolled steps as an axis.
    """

    columns: Tensor
    spectrum: Tensor
    sums: Tensor
    product: Tensor
    m: int
    rows: int
    blocks: int
    tile: Tile
    unroll: int = 1
    groups: int = 1
    shared: bool = False

    def apply(self, k: KernelBlocks) -> None:
        s = k.schedule
        (n, *depth, y, x, o), _ = s.axes(k.output)
        group: list[Var] = []
        piece: list[Var] = []
        for d in depth:
            outside, inside = s.split(d, [self.groups, None])
            group, piece = [outside], [inside]
        block, row, p = s.split(y, [self.blocks, self.rows, self.m])
        u, q = s.split(x, [None, self.m])
        vector, lane = s.split(o, [None, self.tile.lanes])
        s.reorder(n, *group, block, *piece, row, u, vector, p, q, lane)
        outer = s.fuse(n, *group, block)
        for v in (outer, *piece, row):
            s.annotate(v, WHOLE, True)
        s.unroll(q)
        s.vectorize(lane)
        schedule_outputs(k, vector)
        xi = _products(k, self, outer)
        inputs = _inputs(k, self, outer)
        if not k.is_shared:
            return
        if s.extent(outer) >= _ENOUGH or (self.rows == 1 and not piece):
            s.parallel(outer)
        else:
            for loops in (inputs, [xi], [*piece, row] if piece else [row, u]):
                s.parallel(s.fuse(*loops))


def loops_by_name(loops: list[Var]) -> dict[str, Var]:
    """Return loops by the names of their variables."""
    return {v.name: v for v in loops}


def schedule_outputs(k: KernelBlocks, at: Var) -> None:
    """Schedule the column transform of the products of one tile and one vector of channels."""
    s, name = k.schedule, k.acc
    loops = loops_by_name(s.compute_at(name, at))
    s.reorder(loops["j"], loops["p"])
    s.unroll(loops["p"])
    s.vectorize(loops["o"])


def _products(k: KernelBlocks, plan: WinogradSchedule, at: Var) -> Var:
    """Schedule one matrix product for each point, and for each slice of a volume."""
    s, name, tile = k.schedule, k.name(plan.product), plan.tile
    loops = loops_by_name(s.compute_at(name, at))
    outer, inner = s.split(loops["tile"], [None, tile.rows])
    panel, vector, lane = s.split(loops["o"], [None, tile.vectors, tile.lanes])
    slices = [loops["f"]] if "f" in loops else []
    s.reorder(loops["xi"], panel, *slices, outer, inner, vector, lane)
    depth = accumulate(k, k.name(plan.sums), outer, tile, depth_unroll=plan.unroll, shared=plan.shared)
    if s.extent(outer) > 1:
        prefetch_panels(k, plan.sums.op, panel, depth)
    for v in (inner, vector):
        s.unroll(v)
    s.vectorize(lane)
    return loops["xi"]


def _inputs(k: KernelBlocks, plan: WinogradSchedule, at: Var) -> list[Var]:
    """Schedule the transform of the input: a row of tiles and one vector of channels at a time; return these loops."""
    s = k.schedule
    lanes = min(k.machine.lanes(), plan.tile.lanes)
    spectrum = k.name(plan.spectrum)
    if plan.spectrum.extents[-1] * plan.spectrum.dtype.itemsize % _SAME_SETS == 0:
        s.annotate(spectrum, ALIGNED, ((0, len(plan.spectrum.extents) - 2, plan.spectrum.extents[-1], lanes),))
    loops = loops_by_name(s.compute_at(spectrum, at))
    vector, lane = s.split(loops["c"], [None, lanes])
    rows = [loops[v] for v in ("e", "t") if v in loops]
    s.reorder(*rows, vector, loops["u"], loops["i"], loops["j"], lane)
    s.unroll(loops["j"])
    s.vectorize(lane)
    inner = loops_by_name(s.compute_at(k.name(plan.columns), vector))
    s.reorder(inner["x"], inner["i"], inner["c"])
    s.unroll(inner["i"])
    s.vectorize(inner["c"])
    for v in rows:
        s.annotate(v, WHOLE, True)
    return [*rows, vector]
