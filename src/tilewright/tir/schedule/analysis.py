"""Questions about the blocks of a schedule: TVM's `tvm.tir.schedule.analysis`."""

from __future__ import annotations

from tilewright.tir.module_schedule import Schedule
from tilewright.tir.steps import BlockAt
from tilewright.tir.stmt import block_names


def has_block(sch: Schedule, block_name: str) -> bool:
    """Return whether a function of the schedule has a block of that name."""
    return any(block_name in block_names(f) for f in sch.functions.values())


def is_output_block(sch: Schedule, block: BlockAt) -> bool:
    """Return whether the block stores to a parameter of its function."""
    return block in sch.get_output_blocks(block.func)


__all__ = ["has_block", "is_output_block"]
