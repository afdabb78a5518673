"""Attention, a block of queries of one head at a time:

    for batch, head, block of queries (parallel):
        turned = query of the block, transposed
        limit = number of keys that the block needs                             with a mask, symbolic sizes
        for tile of keys, tile of queries: scores = key @ turned * scale + mask register tiles
        for vectors of queries: { most = max over keys; for key: powers = exp(scores - most) }
        for vector of queries: inverse = 1 / sum over keys of powers
        for tile of queries: out = (powers @ value) * inverse                   register tiles
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.backends.cpu.strategies.key_limit import KeyLimit
from tilewright.backends.cpu.strategies.schedules.kernel import CpuSchedule, KernelBlocks
from tilewright.backends.cpu.strategies.schedules.tile import accumulate
from tilewright.backends.cpu.strategies.tiles import Tile
from tilewright.base.types import OpenSize
from tilewright.scalar.expr import Var
from tilewright.te.tensor import Tensor

_GROUP = 4
_COPIES = 16
_SUMS = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AttentionSchedule(CpuSchedule):
    """Schedule of attention: `out[b, t, c]` from the anchor `context[b, t, c]`, after the named stages, in order.

    Queries are cut into `blocks` blocks of `block` queries; `first` is the tile of the scores, `second` that of the
    product with the values.
    """

    turned: Tensor
    products: Tensor
    scores: Tensor
    most: Tensor
    powers: Tensor
    total: Tensor
    inverse: Tensor
    packed: Tensor | None
    limit: KeyLimit | None
    """The number of keys that each block needs, if it may be less than all."""
    heads: int
    blocks: int
    block: int
    first: Tile
    second: Tile
    depth_unroll: int
    keys_unroll: int

    def apply(self, k: KernelBlocks) -> None:
        s, tile = k.schedule, self.second
        (b, t, c), _ = s.axes(k.output)
        head, column = s.split(c, [self.heads, None])
        pieces = [
            None, self.block // tile.rows, tile.rows
        ] if isinstance(self.blocks, OpenSize) else [self.blocks, None, tile.rows]
        block, tiles, row = s.split(t, pieces)
        panel, vector, lane = s.split(column, [None, tile.vectors, tile.lanes])
        s.reorder(b, head, block, panel, tiles, row, vector, lane)
        one = s.fuse(b, head, block)
        for v in (row, vector):
            s.unroll(v)
        s.vectorize(lane)
        accumulate(k, k.acc, tiles, tile, depth_unroll=self.keys_unroll)
        if self.packed is not None:
            *_, column = s.compute_at(k.name(self.packed), one, preserve_unit_loops=True)
            s.vectorize(s.split(column, [None, tile.lanes])[1])
        _sums(k, self, one)
        _powers(k, self, one)
        _scores(k, self, one)
        if self.limit is not None:
            _limits(k, self, self.limit, one)
        d, t = s.compute_at(k.name(self.turned), one, preserve_unit_loops=True)[-2:]
        outer, some = s.split(d, [None, min(_COPIES, s.extent(d))])
        s.reorder(t, outer, some)  # one element at a time: a strided vector load costs more than its elements
        s.unroll(some)
        if k.is_shared and s.extent(one) > 1:
            s.parallel(one)


def _lanes(k: KernelBlocks, plan: AttentionSchedule) -> int:
    lanes = k.machine.lanes("float32")
    while plan.block % lanes:
        lanes //= 2
    return lanes


def _group(k: KernelBlocks, plan: AttentionSchedule, loop: Var) -> tuple[Var, Var, Var]:
    """Split the queries of a block into groups of a few vectors."""
    lanes = _lanes(k, plan)
    vectors = next(g for g in range(_GROUP, 0, -1) if plan.block // lanes % g == 0)
    group, vector, lane = k.schedule.split(loop, [None, vectors, lanes])
    return group, vector, lane


def _in_registers(k: KernelBlocks, plan: AttentionSchedule, t: Tensor, group: Var) -> None:
    """Compute a reduction over the keys for one group of queries in registers."""
    s, name = k.schedule, k.name(t)
    s.set_scope(name, "local")
    s.compute_at(name, group, preserve_unit_loops=True)
    *_, queries, keys = s.loops(name)
    vector, lane = s.split(queries, [None, _lanes(k, plan)])
    s.reorder(keys, vector, lane)
    s.unroll(vector)
    s.vectorize(lane)


def _sums(k: KernelBlocks, plan: AttentionSchedule, at: Var) -> None:
    s = k.schedule
    (t,) = s.compute_at(k.name(plan.inverse), at, preserve_unit_loops=True)[-1:]
    group, vector, lane = _group(k, plan, t)
    s.unroll(vector)
    s.vectorize(lane)
    _in_registers(k, plan, plan.total, group)


def _powers(k: KernelBlocks, plan: AttentionSchedule, at: Var) -> None:
    s = k.schedule
    key, t = s.compute_at(k.name(plan.powers), at, preserve_unit_loops=True)[-2:]
    group, vector, lane = _group(k, plan, t)
    s.reorder(group, key, vector, lane)
    if plan.limit is not None:
        s.limit(key, k.name(plan.limit.keys))
    s.unroll(vector)
    s.vectorize(lane)
    _in_registers(k, plan, plan.most, group)


def _scores(k: KernelBlocks, plan: AttentionSchedule, at: Var) -> None:
    s, tile = k.schedule, plan.first
    key, t = s.compute_at(k.name(plan.scores), at, preserve_unit_loops=True)[-2:]
    tiles, row = s.split(key, [None, tile.rows], overlap=isinstance(s.extent(key), OpenSize))
    panel, vector, lane = s.split(t, [None, tile.vectors, tile.lanes])
    s.reorder(panel, tiles, row, vector, lane)
    if plan.limit is not None:
        s.limit(tiles, k.name(plan.limit.keys), tile.rows)
        s.cut(tiles, k.name(plan.limit.plain), tile.rows)
    accumulate(k, k.name(plan.products), tiles, tile, depth_unroll=plan.depth_unroll)
    for v in (row, vector):
        s.unroll(v)
    s.vectorize(lane)


def _limits(k: KernelBlocks, plan: AttentionSchedule, limit: KeyLimit, at: Var) -> None:
    """Compute the number of keys that a block needs, before everything else of the block."""
    s = k.schedule
    s.set_scope(k.name(limit.keys), "local")
    s.compute_at(k.name(limit.keys), at)
    for t in (limit.of_queries, limit.last, limit.plain):
        s.set_scope(k.name(t), "local")
        s.compute_at(k.name(t), at)
        s.vectorize(s.split(s.axes(k.name(t))[1][-1], [None, _lanes(k, plan)])[1])
    for t in limit.squares:
        heads, (_, column) = s.axes(k.name(t))
        width = math.gcd(s.extent(column), _SUMS * k.machine.lanes("float32"))
        s.vectorize(s.split(column, [None, width])[1])
        if k.is_shared:
            s.parallel(s.fuse(*heads))
