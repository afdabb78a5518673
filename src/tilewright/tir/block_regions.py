"""The buffers that a block reads and writes, and their parts over its axes: TVM's `Block.reads` and `Block.writes`."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.base.types import INT64
from tilewright.scalar.arith import Ranges
from tilewright.scalar.buffer_region import BufferRegion
from tilewright.scalar.expr import Buffer, Load, as_expr, const, number_of
from tilewright.scalar.range import Range
from tilewright.scalar.walk import walk
from tilewright.tir.region import region_of
from tilewright.tir.stmt import OWN_READS, Block, Stmt, bodies, expressions, stored_buffers


def buffers_read(block: Block) -> list[Buffer]:
    """Return the buffers that a block reads, each once, in order. The results to which a sum adds count only if its
    text says so (`OWN_READS`)."""
    own = stored_buffers(block) if block.init is not None and not block.annotations.get(OWN_READS) else []
    return [b for b in dict.fromkeys(_loaded(block.body)) if b not in own]


def _loaded(s: Stmt) -> Iterator[Buffer]:
    for top in expressions(s):
        yield from (e.buffer for e in walk(top) if isinstance(e, Load))
    if isinstance(s, Block):
        yield from buffers_read(s)
    else:
        for b in bodies(s):
            yield from _loaded(b)


def regions_read(block: Block) -> list[BufferRegion]:
    """Return the boxes of the buffers that a block reads, in the order of `buffers_read`."""
    return _regions(block, buffers_read(block), stores=False)


def regions_written(block: Block) -> list[BufferRegion]:
    """Return the boxes that a block writes, in order."""
    return _regions(block, stored_buffers(block), stores=True)


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
