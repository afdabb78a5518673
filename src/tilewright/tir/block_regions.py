"""The buffers that a block reads and writes, and their parts over its axes: TVM's `Block.reads` and `Block.writes`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from tilewright.base.types import INT64
from tilewright.scalar.arith import Ranges
from tilewright.scalar.buffer_region import BufferRegion
from tilewright.scalar.expr import Buffer, Call, Load, PrimExpr, as_expr, const, number_of
from tilewright.scalar.intrinsics import address_of
from tilewright.scalar.range import Range
from tilewright.scalar.walk import walk
from tilewright.tir.region import region_of
from tilewright.tir.stmt import OWN_READS, Block, Stmt, bodies, expressions, handed_out, stored_buffers, walk_stmt


def buffers_read(block: Block) -> list[Buffer]:
    """Return the buffers that a block reads, each once, in order, and of those whose address it passes on, the ones
    that the callee may read. The results to which a sum adds count only if its text says so (`OWN_READS`)."""
    own = stored_buffers(block) if block.init is not None and not block.annotations.get(OWN_READS) else []
    return [b for b in dict.fromkeys(_loaded(block.body)) if b not in own]


def _loaded(s: Stmt) -> Iterator[Buffer]:
    for top in expressions(s):
        yield from _loads(top)
    if isinstance(s, Block):
        yield from buffers_read(s)
    else:
        for b in bodies(s):
            yield from _loaded(b)


def _loads(top: PrimExpr) -> Iterator[Buffer]:
    found = walk(top)
    only_written = {
        e.args[0] for e in found if isinstance(e, Call) and e.op is address_of and number_of(e.args[1]) == 2}
    yield from (e.buffer for e in found if isinstance(e, Load) and e not in only_written)


def regions_read(block: Block) -> list[BufferRegion]:
    """Return the boxes of the buffers that a block reads, in the order of `buffers_read`."""
    return _regions(block, buffers_read(block), stores=False)


def regions_written(block: Block) -> list[BufferRegion]:
    """Return the boxes that a block writes, in order."""
    return _regions(block, stored_buffers(block), stores=True)


def get_block_read_write_region(
    block: Block, buffer_var_map: Mapping[Any, Buffer]
) -> tuple[list[BufferRegion], list[BufferRegion]]:
    """Return the boxes of the buffers of a map that a block reads, and those that it writes. A buffer whose address it
    passes on is read, written or both, as the address says."""
    known = set(buffer_var_map.values())
    return _among(regions_read(block), known), _among(regions_written(block), known)


def get_block_access_region(
    block: Block, buffer_var_map: Mapping[Any, Buffer]
) -> tuple[list[BufferRegion], list[BufferRegion], list[BufferRegion]]:
    """Return the boxes of the buffers of a map that a block reads, those that it writes, and the whole of each buffer
    whose address it passes on."""
    passed = [b for s in walk_stmt(block) for e in expressions(s) for b in handed_out(e)]
    opaque = [b for b in dict.fromkeys(passed) if b in set(buffer_var_map.values())]
    reads, writes = get_block_read_write_region(block, buffer_var_map)
    reads, writes = ([r for r in found if r.buffer not in opaque] for found in (reads, writes))
    return reads, writes, [_whole(b) for b in opaque]


def _whole(b: Buffer) -> BufferRegion:
    return BufferRegion(b, tuple(Range.from_min_extent(const(0, INT64), as_expr(n)) for n in b.shape))


def _among(regions: list[BufferRegion], buffers: Collection[Buffer]) -> list[BufferRegion]:
    return [r for r in regions if r.buffer in buffers]


def _regions(block: Block, buffers: list[Buffer], *, stores: bool) -> list[BufferRegion]:
    ranges = Ranges()
    for i in block.iters:
        ranges = ranges if number_of(i.extent) == 1 else ranges.bind_loop(i.var, const(0, INT64), i.extent)
    found = []
    for b in buffers:
        box = region_of(block.body, b, ranges, stores=stores)
        if box is not None:
            found.append(BufferRegion(b, tuple(Range.from_min_extent(low, as_expr(n)) for low, n in box)))
    return found
