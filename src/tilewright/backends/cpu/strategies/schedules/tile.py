"""Kernels around a register tile: matrix products and convolutions.

    for panel: for rows (parallel): { acc[rows x vectors] = 0
                                      for k: acc += A[row, k] * B[panel, k, vector]
                                      out = epilogue(acc) }
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from tilewright.backends.cpu.strategies.schedules import epilogues, open_images
from tilewright.backends.cpu.strategies.schedules.kernel import CpuSchedule, KernelBlocks
from tilewright.backends.cpu.strategies.tiles import Tile
from tilewright.backends.decisions import BY_MODEL
from tilewright.base.types import OpenSize
from tilewright.scalar.arith.divisors import divisors
from tilewright.scalar.expr import Var
from tilewright.te.tensor import ComputeOp, Operation, Tensor
from tilewright.tir.loop_schedule import Schedule
from tilewright.tir.stmt import NUMBERS

MOST_TAPS: Final = 12
"""Largest number of unrolled taps along a row, each with its own set of outputs at the edges of the image."""
MOST_WRITTEN: Final = 1024
"""Largest number of statements of a tile with unrolled taps along a row; a tile of a 7x7 window has up to 784."""
_ENOUGH: Final = 8
_CHUNK_COUNTS: Final = (1, 2, 4, 8)
_SHORTEST_CHUNK: Final = 128
_BLOCKS: Final = (0, 2, 4, 8, 16, 32)
_LEAST_TILES: Final = 4
_OPEN_GRAIN: Final = 4


def writes_out_taps(taps: int, step: int, tile: Tile) -> bool:
    """Return whether to unroll the taps along a row; each then skips the outputs whose input is padding."""
    return taps <= MOST_TAPS and taps * step * tile.rows * tile.vectors <= MOST_WRITTEN


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MatmulSchedule(CpuSchedule):
    """Schedule of a matrix product: `out[…, n]` from `acc[(batch,) m, n]`; the axes of the output before the last are
    rows, except batch axes."""

    tile: Tile
    left_bytes: int
    """Bytes of the left operand, or of one matrix of a batch."""
    batch_axes: int = 0
    unroll: int = 1
    """Number of unrolled steps of the sum."""
    scattered: tuple[int, ...] = ()
    """Block sizes of the output that contain the columns of a row, if columns are scattered over an image."""
    exact: bool = False
    """Whether the sums are of integers, whose order does not matter."""
    shared: bool = False
    """Whether the innermost axis of the sum, the taps along a row, is unrolled."""
    gathered: Tensor | None = None
    """The rows of the left operand, if the kernel collects them."""

    def apply(self, k: KernelBlocks) -> None:
        s, tile = k.schedule, self.tile
        spatial, _ = s.axes(k.output)
        batch, rows, column = spatial[: self.batch_axes], spatial[self.batch_axes : -1], spatial[-1]
        if self.scattered:
            rows, column = _gather_blocks(s, rows, column, self.scattered)
        if not rows:  # a vector is one row
            (*rows, column) = s.split(column, [1, None])
        row = s.fuse(*rows)
        if height := k.options.height:
            _schedule_open_rows(k, self, batch, row, column, replace(tile, rows=height))
            return
        even = s.extent(row) % tile.rows == 0 and s.extent(column) % tile.columns == 0
        row_outer, row_inner = s.split(row, [None, tile.rows])
        panel, vector, lane = s.split(column, [None, tile.vectors, tile.lanes])
        s.reorder(*batch, panel, row_outer, row_inner, vector, lane)
        packed = k.packed
        for v in (row_inner, vector):
            s.unroll(v)
        s.vectorize(lane)
        tiles = s.extent(row_outer)
        chunks = 1 if batch or self.scattered else _chunks(k, tile, tiles)
        if chunks > 1:
            _in_chunks(k, self, panel, row_outer, chunks)
            _pack_inside(s, packed, batch, k)
            return
        depth = accumulate(k, k.acc, row_outer, tile, depth_unroll=self.unroll, exact=self.exact)
        if packed and batch:
            _pack_inside(s, packed, batch, k)
            if k.is_shared and math.prod(s.extent(v) for v in batch) > 1:
                s.parallel(s.fuse(*batch))
            return
        _pack_inside(s, packed, batch, k)
        large = tiles >= _LEAST_TILES and _large_weights(k, k.anchor) is not None
        panels = _share(k, self.left_bytes, [*batch, panel], row_outer, even, by_panel=large)
        if large and panels is not None:
            prefetch_panels(k, k.anchor, panels, depth)


def _schedule_open_rows(
    k: KernelBlocks, plan: MatmulSchedule, batch: list[Var], row: Var, column: Var, tile: Tile
) -> None:
    """Schedule a product for any number of rows of at least one tile: the last tile overlaps the previous one, and
    repeats some rows."""
    s = k.schedule
    large = not batch and _large_weights(k, k.anchor) is not None
    if not batch and not k.packed and not large:
        tile = _widened(tile, plan.tile, s.extent(column))
    panels = -(-s.extent(column) // tile.columns)
    even = s.extent(column) % tile.columns == 0
    row_outer, row_inner = s.split(row, [None, tile.rows], overlap=True)
    panel, vector, lane = s.split(column, [None, tile.vectors, tile.lanes])
    s.reorder(*batch, panel, row_outer, row_inner, vector, lane)
    if epilogues.in_loop(k, tile.rows, tile.lanes):
        epilogues.store_sums(k, row_outer, tile.lanes)
    else:
        s.unroll(row_inner)
    s.unroll(vector)
    s.vectorize(lane)
    depth = accumulate(k, k.acc, row_outer, tile, depth_unroll=plan.unroll, shared=plan.shared, exact=plan.exact)
    if plan.gathered is not None:
        open_images.copy_whole(k, plan.gathered)
    _pack_inside(s, k.packed, batch, k)
    shared = [*batch, panel, *([row_outer] if even and panels < _ENOUGH and not large else [])]
    tiles = row_outer
    if k.is_shared:
        panel = s.fuse(*shared)
        tiles = panel if row_outer in shared else row_outer
        s.parallel(panel, grain=_OPEN_GRAIN if len(shared) > len(batch) + 1 else 1)
    if large:
        prefetch_panels(k, k.anchor, panel, depth)
    if added := _added(k):
        s.prefetch_reads(tiles, added)


def _widened(tile: Tile, tallest: Tile, columns: int) -> Tile:
    """Return a tile of few rows with as many neighbouring panels as hide the latency of its sums, but at least two of
    these, and no more sums than in the tallest tile."""
    while (
        tile.rows * tile.vectors < _ENOUGH and columns % (4 * tile.columns) == 0
        and 2 * tile.rows * tile.vectors <= tallest.rows * tallest.vectors
    ):
        tile = replace(tile, vectors=2 * tile.vectors)
    return tile


def _added(k: KernelBlocks) -> list[str]:
    """Return the parameters of the size of the output that the operators after the product read."""
    *inputs, output = k.schedule.func.buffers
    product = {t.name for t in k.anchor.inputs}
    return [
        b.name for b in inputs
        if b.name not in product and len(b.shape) > 1 and b.shape[-1:] == output.shape[-1:]]


def _chunks(k: KernelBlocks, tile: Tile, tiles: int) -> int:
    """Return the number of chunks of the sum, such that one chunk of a panel and of the left operand fit the
    second-level cache.

    It is 1 if a panel fits together with the one that is being prefetched.
    """
    depth = k.schedule.extent(k.schedule.axes(k.acc)[1][0])
    chunks = k.options.decide_one(
        "chunks", BY_MODEL,
        lambda: [(n,) for n in _CHUNK_COUNTS if depth % (n * 8) == 0 and depth >= _SHORTEST_CHUNK * max(n, 2)],
        selects=True
    )
    if chunks != BY_MODEL:
        return chunks
    panel = depth * tile.columns * 4
    if tiles < _LEAST_TILES or panel <= k.machine.l2_bytes // 4:
        return 1
    return next((n for n in range(-(-depth // k.machine.core.chunk_steps), depth) if depth % (n * 8) == 0), 1)


def _in_chunks(k: KernelBlocks, plan: MatmulSchedule, panel: Var, row: Var, chunks: int) -> None:
    """Keep the sums of all rows under one panel in memory, and add chunks to them, one register tile after another.

        for panel (parallel): for chunk: for tile of rows: { part[rows x vectors] = 0; for k of chunk: part += A * B;
                                                             acc[tile] += part }
                              for tile of rows: out = epilogue(acc[tile])
    """
    s, acc, tile, unroll = k.schedule, k.acc, plan.tile, plan.unroll
    blocks = _block_count(s.extent(row), -(-plan.left_bytes // (chunks * k.machine.l2_bytes // 2)))
    if blocks > 1:
        block, _ = s.split(row, [blocks, None])
        s.reorder(block, panel)
        panel = s.fuse(block, panel)
    s.compute_at(acc, panel, preserve_unit_loops=True)
    *_, rows, columns, depth = s.loops(acc)
    tiles, row = s.split(rows, [None, tile.rows])
    vector, lane = s.split(columns, [None, tile.lanes])
    trips = s.extent(depth) // chunks // unroll
    pieces = max(1, round(trips * unroll / k.machine.core.product_piece))
    while trips % pieces:
        pieces -= 1
    chunk, piece, steps, step = s.split(depth, [chunks, pieces, None, unroll])
    s.reorder(chunk, tiles, piece, steps, step, row, vector, lane)
    s.annotate(piece, "apart", True)
    for v in (step, row, vector):
        s.unroll(v)
    s.vectorize(lane)
    if k.is_shared and s.extent(panel) > 1:
        s.parallel(panel)
    prefetch_panels(k, k.anchor, panel, steps)


def _large_weights(k: KernelBlocks, product: Operation) -> str | None:
    """Return the packed constant operand of `product` if it exceeds the second-level cache, else None."""
    given = {b.name for b in k.schedule.func.buffers}
    packed = (
        t for t in product.inputs
        if isinstance(t.op, ComputeOp) and (t.op.prepack is not None or t.op.kept) and t.name in given)
    return next((t.name for t in packed if math.prod(t.extents) * t.dtype.itemsize > k.machine.l2_bytes // 2), None)


def prefetch_panels(k: KernelBlocks, product: Operation, panels: Var, depth: Var) -> None:
    """Prefetch the next panel of weights while this one is used, if they exceed the second-level cache."""
    weights = _large_weights(k, product)
    if weights is not None and k.schedule.extent(panels) > 1 and k.options.decide_one("prefetch", 1, lambda: [(0,)]):
        k.schedule.prefetch_next(weights, panels, depth)


def _gather_blocks(s: Schedule, rows: list[Var], column: Var, sizes: tuple[int, ...]) -> tuple[list[Var], Var]:
    """Split image rows into blocks of `sizes`, which hold the columns of the product; return the axes of blocks, and
    one axis inside."""
    parts = [s.split(v, [None, size]) for v, size in zip(rows[1:], sizes, strict=True)]
    blocks, inside = [p[0] for p in parts], [p[1] for p in parts]
    s.reorder(rows[0], *blocks, *inside, column)
    return [rows[0], *blocks], s.fuse(*inside, column)


def _pack_inside(s: Schedule, packed: list[str], batch: list[Var], k: KernelBlocks) -> None:
    """Pack an operand that is not constant at run time, once for each matrix of the batch."""
    for name in packed:
        if batch:
            s.compute_at(name, batch[-1])
        spatial, _ = s.axes(name)
        lane = spatial[-1]
        s.vectorize(s.split(lane, [None, k.machine.lanes()])[1])
        if not batch and k.is_shared:
            s.parallel(spatial[0])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ConvSchedule(CpuSchedule):
    """Schedule of a convolution by tiles along a row: `out[n, oh…, ow, oc]`, axes in the order of the layout, from
    `acc[n, oh…, ow, group, oc]`."""

    tile: Tile
    channels_last: tuple[int, ...]
    """The axes of batch, spatial dimensions and channels in the output."""
    left_bytes: int
    """Size of the input, in bytes."""
    groups: int = 1
    channels: int = 0
    """Number of output channels of all groups."""
    unroll: int = 1
    """Number of unrolled steps of the sum."""
    shared: bool = False
    """Whether the taps along a row are the innermost axis of the sum, unrolled to share their inputs in registers."""
    exact: bool = False
    """Whether the sums are of integers, whose order does not matter."""
    padded: Tensor | None = None
    """The padded copy of the input, if there is one."""
    in_bands: bool = False
    """Whether a kernel for images of symbolic size copies the rows of a band, instead of the whole image."""

    def apply(self, k: KernelBlocks) -> None:
        s, tile = k.schedule, self.tile
        axes, _ = s.axes(k.output)
        *images, ow, oc = (axes[d] for d in self.channels_last)
        if any(isinstance(s.extent(v), OpenSize) for v in (*images[1:], ow, oc)):
            open_images.check_axes(k, images, self.channels, oc)
        group: list[Var] = []
        if self.groups > 1:
            g, oc = s.split(oc, [self.groups, None])
            group = [g]
        even = s.extent(oc) % tile.columns == 0
        is_open = any(isinstance(s.extent(v), OpenSize) for v in (*images[1:], ow))
        bands = open_images.bands(s, images) if is_open else []
        ow_outer, ow_inner = s.split(ow, [None, tile.rows])
        panel, vector, lane = s.split(oc, [None, tile.vectors, tile.lanes])
        s.reorder(*bands[:1], *group, panel, *(bands[1:] or images), ow_outer, ow_inner, vector, lane)
        if is_open and epilogues.in_loop(k, tile.rows, tile.lanes):
            epilogues.store_sums(k, ow_outer, tile.lanes)
        else:
            s.unroll(ow_inner)
        accumulate(k, k.acc, ow_outer, tile, depth_unroll=self.unroll, shared=self.shared, exact=self.exact)
        s.unroll(vector)
        s.vectorize(lane)
        if is_open:
            assert self.padded is not None
            shared = [*bands[:1], *group, panel]
            if self.in_bands:
                shared = shared[: 1 + len(group)]
                open_images.copy_band(k, self.padded, shared[-1])
            else:
                open_images.copy_whole(k, self.padded)
        elif self.padded is not None:
            *planes, _, x = s.loops(k.name(self.padded))
            s.vectorize(s.split(x, [None, k.machine.lanes(self.padded.dtype)])[1])
            if k.is_shared:
                s.parallel(s.fuse(*planes))
        for name in k.packed:
            spatial, _ = s.axes(name)
            s.vectorize(s.split(spatial[-1], [None, k.machine.lanes()])[1])
        if is_open:
            open_images.share(k, shared)
        else:
            _share(k, self.left_bytes, [*group, panel], s.fuse(*images), even, windows=True)


def accumulate(
    k: KernelBlocks, acc: str, at: Var, tile: Tile, depth_unroll: int, shared: bool = False, exact: bool = False
) -> Var:
    """Schedule the accumulators: in registers, computed at `at`, the reduction outside and the tile unrolled inside.

    Returns the innermost loop that is not unrolled.
    """
    s = k.schedule
    s.set_scope(acc, "local")
    s.compute_at(acc, at)
    inside, reduce = s.axes(acc)
    around = s.loops(acc)
    spatial = [v for v in inside if around.index(v) > around.index(at)]
    columns: list[Var] = []
    if tile.columns > 1:  # one column has no loop
        # more vectors than in the tile if a panel crosses groups
        columns = s.split(spatial.pop(), [None, tile.lanes])
    if shared:
        *taps, depth, step = reduce
    else:
        *taps, whole = reduce
        depth, step = s.split(whole, [None, _steps(k, tile, depth_unroll)])
    outer = [*taps, depth] if exact else _in_pieces(k, [*taps, depth], s.extent(step), shared)
    s.reorder(*outer, step, *spatial, *columns)
    along = [v for v in taps[-1:] if not shared and writes_out_taps(s.extent(v), depth_unroll, tile)]
    for v in (step, *spatial, *columns[:1], *along):
        s.unroll(v)
    for v in columns[1:]:
        s.vectorize(v)
    return outer[-1]


def _steps(k: KernelBlocks, tile: Tile, most: int) -> int:
    """Return the number of unrolled steps of a sum, a divisor of `most`. Kernels with symbolic sizes, which have code
    for several tiles, unroll only steps of few products: others take as long in a loop, and compile faster."""
    if not k.schedule.func.attrs.get(NUMBERS):
        return most
    products = tile.rows * tile.vectors
    return next((n for n in divisors(most, most) if n * products >= k.machine.core.loop_products), most)


def _in_pieces(k: KernelBlocks, loops: list[Var], step: int, cut: bool) -> list[Var]:
    """Split a long sum into pieces that are summed separately. This reduces rounding errors; each costs an addition.

    The last loop over taps gives the pieces if the depth is too short, or the channels one each; the taps may be split
    if `cut` is set.
    """
    s, length = k.schedule, k.machine.core.product_piece
    *taps, depth = loops
    if isinstance(s.extent(depth), OpenSize):
        return loops
    pieces = max(1, round(s.extent(depth) * step / length))
    while s.extent(depth) % pieces:
        pieces -= 1
    if pieces > 1:
        piece, rest = s.split(depth, [pieces, None])
        s.annotate(piece, "apart", True)
        return [*taps, piece, rest]
    if not taps:
        return loops
    *outer, tap = taps
    trips, channels = s.extent(tap), s.extent(depth)
    ways = {d: tap for d in range(1, trips + 1) if trips % d == 0 and (cut or d in (1, trips))}
    if cut and not outer:  # the channels outside the taps
        ways.setdefault(channels, depth)
    pieces = min(ways, key=lambda d: abs(math.log(trips * channels * step / d / length)))
    if pieces == 1:
        return loops
    loop = ways[pieces]
    within = [v for v in (tap, depth) if v is not loop]
    if pieces < s.extent(loop):
        loop, rest = s.split(loop, [pieces, None])
        within.insert(0, rest)
    s.annotate(loop, "apart", True)
    return [*outer, loop, *within]


def _share(
    k: KernelBlocks, left: int, outer: list[Var], row: Var, even: bool, windows: bool = False, by_panel: bool = False
) -> Var | None:
    """Order and parallelize the loops over panels and rows.

    Panels are outside and rows inside. Blocks of rows are outermost if the left operand exceeds the second-level cache,
    or if there are too few panels for the threads. If all tiles are `even`, both loops are fused and parallelized in
    pieces small enough to balance threads; otherwise each piece would have to test for an edge. With `by_panel`, a
    panel is one piece. Returns the loop whose next iteration has the next panel, if there is one.
    """
    s, cache = k.schedule, k.machine.l2_bytes // 2
    trips = math.prod(s.extent(v) for v in outer)
    worth = k.is_shared
    wanted = k.options.decide_one("blocks", BY_MODEL, lambda: [(n,) for n in _BLOCKS])
    if wanted == BY_MODEL:
        in_blocks = (left > cache and trips > 1) or (worth and trips < _ENOUGH and s.extent(row) >= 2)
        wanted = max(_ENOUGH, -(-left // cache)) if in_blocks else 0
    if not wanted:
        panels = outer[-1]
        if worth and trips > 1:
            together = even and not windows and not by_panel and s.loops(k.output).index(row) == len(outer)
            panels = s.fuse(*outer, *([row] if together else []))
            _parallel(k, panels)
            return None if together else panels
        return panels
    blocks = _block_count(s.extent(row), wanted)
    if blocks == 1:
        if worth and s.loops(k.output).index(row) == len(outer):
            _parallel(k, s.fuse(*outer, row))
            return None
        return outer[-1]
    block, _ = s.split(row, [blocks, None])
    s.reorder(block, *outer)
    if worth and even:
        panels = s.fuse(block, *outer)
        _parallel(k, panels)
        return panels
    if worth:
        _parallel(k, block)
    return outer[-1]


def _parallel(k: KernelBlocks, loop: Var) -> None:
    k.schedule.parallel(loop, grain=max(1, k.schedule.extent(loop) // k.machine.core.tile_pieces))


def _block_count(extent: int, wanted: int) -> int:
    """Return a divisor of `extent` that is at least `wanted` and not far above it, else the largest one below."""
    found = divisors(extent, 8 * wanted)
    return next((d for d in found if d >= wanted), found[-1])
