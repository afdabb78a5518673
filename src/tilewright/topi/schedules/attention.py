"""Attention, a block of queries of one head at a time:

    for batch, head, block of queries (parallel):
        turned = query of the block, transposed
        for tile of keys, tile of queries: scores = key @ turned * scale + mask register tiles
        for vectors of queries: { most = max over keys; for key: powers = exp(scores - most) }
        for vector of queries: inverse = 1 / sum over keys of powers
        for tile of queries: out = (powers @ value) * inverse                   register tiles
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.base.types import OpenSize
from tilewright.scalar.expr import Var
from tilewright.te.tensor import ComputeOp
from tilewright.topi.schedules.kernel import WORTH_SHARING, KernelBlocks
from tilewright.topi.schedules.tile import accumulate
from tilewright.topi.tiles import Tile

_GROUP = 4
_COPIES = 16


@dataclass(frozen=True, slots=True)
class AttentionStages:
    """The computations before the product with the values, in order, and how they are cut."""

    turned: ComputeOp
    products: ComputeOp
    scores: ComputeOp
    most: ComputeOp
    powers: ComputeOp
    total: ComputeOp
    inverse: ComputeOp
    packed: ComputeOp | None
    heads: int
    blocks: int
    block: int
    first: Tile
    second: Tile
    depth_unroll: int
    keys_unroll: int


def schedule_attention(k: KernelBlocks) -> None:
    """`out[b, t, c]` from `context[b, t, c]`."""
    s, stages = k.schedule, k.anchor.attrs["stages"]
    tile: Tile = stages.second
    (b, t, c), _ = s.axes(k.output)
    head, column = s.split(c, [stages.heads, None])
    block, tiles, row = s.split(t, [None, stages.block // tile.rows, tile.rows] if isinstance(stages.blocks, OpenSize) else [stages.blocks, None, tile.rows])
    panel, vector, lane = s.split(column, [None, tile.vectors, tile.lanes])
    s.reorder(b, head, block, panel, tiles, row, vector, lane)
    one = s.fuse(b, head, block)
    for v in (row, vector):
        s.unroll(v)
    s.vectorize(lane)
    accumulate(k, k.name(k.anchor), tiles, tile, depth_unroll=stages.keys_unroll)
    if stages.packed is not None:
        *_, column = s.compute_at(k.name(stages.packed), one, preserve_unit_loops=True)
        s.vectorize(s.split(column, [None, tile.lanes])[1])
    _sums(k, stages, one)
    _powers(k, stages, one)
    _scores(k, stages, one)
    d, t = s.compute_at(k.name(stages.turned), one, preserve_unit_loops=True)[-2:]
    outer, some = s.split(d, [None, min(_COPIES, s.extent(d))])
    s.reorder(t, outer, some)  # one element at a time: a vector read down a column costs more than its elements
    s.unroll(some)
    if k.multiply_time >= WORTH_SHARING and s.extent(one) > 1:
        s.parallel(one)


def _lanes(k: KernelBlocks, stages: AttentionStages) -> int:
    lanes = k.machine.lanes("float32")
    while stages.block % lanes:
        lanes //= 2
    return lanes


def _group(k: KernelBlocks, stages: AttentionStages, loop: Var) -> tuple[Var, Var, Var]:
    """The queries of a block as groups of a few vectors."""
    lanes = _lanes(k, stages)
    vectors = next(g for g in range(_GROUP, 0, -1) if stages.block // lanes % g == 0)
    group, vector, lane = k.schedule.split(loop, [None, vectors, lanes])
    return group, vector, lane


def _in_registers(k: KernelBlocks, stages: AttentionStages, op: ComputeOp, group: Var) -> None:
    """A reduction down the keys, for one group of queries."""
    s, name = k.schedule, k.name(op)
    s.set_scope(name, "local")
    s.compute_at(name, group, preserve_unit_loops=True)
    *_, queries, keys = s.loops(name)
    vector, lane = s.split(queries, [None, _lanes(k, stages)])
    s.reorder(keys, vector, lane)
    s.unroll(vector)
    s.vectorize(lane)


def _sums(k: KernelBlocks, stages: AttentionStages, at: Var) -> None:
    s = k.schedule
    (t,) = s.compute_at(k.name(stages.inverse), at, preserve_unit_loops=True)[-1:]
    group, vector, lane = _group(k, stages, t)
    s.unroll(vector)
    s.vectorize(lane)
    _in_registers(k, stages, stages.total, group)


def _powers(k: KernelBlocks, stages: AttentionStages, at: Var) -> None:
    s = k.schedule
    key, t = s.compute_at(k.name(stages.powers), at, preserve_unit_loops=True)[-2:]
    group, vector, lane = _group(k, stages, t)
    s.reorder(group, key, vector, lane)
    s.unroll(vector)
    s.vectorize(lane)
    _in_registers(k, stages, stages.most, group)


def _scores(k: KernelBlocks, stages: AttentionStages, at: Var) -> None:
    s, tile = k.schedule, stages.first
    key, t = s.compute_at(k.name(stages.scores), at, preserve_unit_loops=True)[-2:]
    tiles, row = s.split(key, [None, tile.rows], overlap=isinstance(s.extent(key), OpenSize))
    panel, vector, lane = s.split(t, [None, tile.vectors, tile.lanes])
    s.reorder(panel, tiles, row, vector, lane)
    accumulate(k, k.name(stages.products), tiles, tile, depth_unroll=stages.depth_unroll)
    for v in (row, vector):
        s.unroll(v)
    s.vectorize(lane)
