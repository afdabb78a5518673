"""Facts about the stages of a state: whether they are tiled, and which stages were added for them."""

from __future__ import annotations

from tilewright.search.auto_scheduler.loop_state import Stage, State
from tilewright.search.auto_scheduler.transform_step import ANNOTATIONS
from tilewright.te.tensor import ComputeOp

ADDING = ("CHR", "CHW", "RF")
"""Codes of the steps that add a stage: after the stage for a copy that is read, before it for the others."""


def is_tiled(stage: Stage) -> bool:
    """Return whether a computation has other loops than those of its axes."""
    op = stage.computed
    return isinstance(op, ComputeOp) and len(stage.iters) != len(op.axis) + len(op.reduce_axis)


def has_cache_write(state: State, stage_id: int) -> bool:
    """Return whether a stage is the computation whose result another stage copies."""
    return _was_added(state, stage_id, "CHW")


def has_cache_read(state: State, stage_id: int) -> bool:
    """Return whether a copy of the result of a stage is read."""
    return _was_added(state, stage_id, "CHR")


def has_rfactor(state: State, stage_id: int) -> bool:
    """Return whether a stage computes the parts of a reduction."""
    return _was_added(state, stage_id, "RF")


def has_cross_thread_reduction(state: State, stage_id: int) -> bool:
    """Return whether threads compute a reduction of a stage together."""
    return any(
        it.kind == "reduce" and it.annotation == ANNOTATIONS["threadIdx.x"] for it in state.stages[stage_id].iters)


def _was_added(state: State, stage_id: int, code: str) -> bool:
    """Return whether a step of this code was applied to a stage, whose number now is `stage_id`."""
    for step in reversed(state.transform_steps):
        if step.code == code and step.stage_id == stage_id:
            return True
        if step.code in ADDING and stage_id > step.stage_id:
            stage_id -= 1
    return False
