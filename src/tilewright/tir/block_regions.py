"""The parts of buffers that a block reads and writes, over its axes: TVM's `Block.reads` and `Block.writes`."""

from __future__ import annotations

from tilewright.base.types import INT64
from tilewright.scalar.arith import Ranges
from tilewright.scalar.buffer_region import BufferRegion
from tilewright.scalar.expr import Buffer, as_expr, const, number_of
from tilewright.scalar.range import Range
from tilewright.tir.region import region_of
from tilewright.tir.stmt import Block, loaded_buffers, stored_buffers


def regions_read(block: Block) -> list[BufferRegion]:
    """Return the boxes that a block reads, in order, without the elements to which a sum adds."""
    made = stored_buffers(block) if block.init is not None else []
    return _regions(block, [b for b in loaded_buffers(block.body) if b not in made], stores=False)


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
