"""Inlining of all simple stages of a te schedule: `te.schedule.AutoInlineInjective` and its narrower forms.

An intermediate stage without steps is inlined if its elements are

    AutoInlineElemWise      those of its inputs at the same indices            A[i, j] * B[i, j]
    AutoInlineBroadcast     those of its inputs at some of the indices         A[0] * B[j]
    AutoInlineInjective     any expression without a reduction                 A[j, i // 2]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.scalar.expr import IntImm, PrimExpr
from tilewright.scalar.walk import walk
from tilewright.te.schedule import Schedule
from tilewright.te.stage import Stage
from tilewright.te.tensor import ComputeOp, TensorElem


def AutoInlineElemWise(s: Schedule) -> None:
    """Inline the intermediate elementwise stages without steps."""
    _inline(s, lambda op: all(_same(at, [a.var for a in op.axis]) for at in _accesses(op)))


def AutoInlineBroadcast(s: Schedule) -> None:
    """Inline the intermediate stages without steps that repeat their inputs along dimensions."""
    _inline(s, lambda op: all(_in_order(at, [a.var for a in op.axis]) for at in _accesses(op)))


def AutoInlineInjective(s: Schedule) -> None:
    """Inline the intermediate stages without steps and without reductions."""
    _inline(s, lambda op: True)


def _inline(s: Schedule, simple: Callable[[ComputeOp], bool]) -> None:
    for stage in s.stages:
        op = stage.op
        if isinstance(op, ComputeOp) and not op.reduce_axis and _is_free(stage) and simple(op):
            stage.compute_inline()


def _is_free(stage: Stage) -> bool:
    """Return whether a stage is intermediate and has no steps."""
    return not (stage.is_output or stage.has_place or stage.relations or stage.marks or stage.is_scan_update)


def _accesses(op: ComputeOp) -> list[list[PrimExpr]]:
    """Return the indices of each access to an input."""
    return [list(e.indices) for b in op.body for e in walk(b) if isinstance(e, TensorElem)]


def _same(at: Sequence[PrimExpr], axes: Sequence[PrimExpr]) -> bool:
    return len(at) == len(axes) and all(i is a for i, a in zip(at, axes, strict=True))


def _in_order(at: Sequence[PrimExpr], axes: Sequence[PrimExpr]) -> bool:
    """Return whether indices are numbers, or some of the axes in their order."""
    rest = iter(axes)
    return all(isinstance(i, IntImm) or any(i is a for a in rest) for i in at)
