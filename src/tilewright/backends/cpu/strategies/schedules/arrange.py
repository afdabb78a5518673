"""Schedules the blocks of a kernel: elementwise blocks are inlined, and the anchor's schedule does the rest."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.backends.cpu.strategies.schedules.injective import schedule_injective
from tilewright.backends.cpu.strategies.schedules.kernel import CpuSchedule, KernelBlocks
from tilewright.backends.cpu.strategies.schedules.open_rows import Heights
from tilewright.base.errors import ScheduleError
from tilewright.te.create import computations
from tilewright.te.tensor import ComputeOp, Operation, Tensor
from tilewright.tir.schedule import Schedule
from tilewright.tir.stmt import PrimFunc, block_names
from tilewright.topi import machine as machines


def arrange(func: PrimFunc, args: Sequence[Tensor], outputs: Sequence[Tensor]) -> PrimFunc:
    """Return `func`, with one block per computation between `args` and `outputs`, scheduled for the current machine."""
    s = Schedule(func)
    blocks = zip(computations(args, outputs), block_names(func), strict=True)
    names: dict[Operation, str] = {op: block for op, block in blocks if isinstance(op, ComputeOp)}
    ops = [op for op in names if isinstance(op, ComputeOp)]
    results = {t.op for t in outputs}
    for op in ops:
        if op not in results and op.may_inline:
            s.compute_inline(names.pop(op))
    anchors = [op for op in ops if op.schedule is not None and op in names]
    if not anchors:
        for result in dict.fromkeys(t.op for t in outputs):
            if isinstance(result, ComputeOp):
                schedule_injective(s, names[result], machines.current())
        return s.func
    anchor = anchors[-1]
    assert isinstance(anchor.schedule, CpuSchedule)
    anchor.schedule.apply(KernelBlocks(s, anchor, names, names[outputs[0].op], anchor.schedule))
    return s.func


def heights(args: Sequence[Tensor], outputs: Sequence[Tensor]) -> Heights:
    """Return the tile heights of a kernel of these computations; empty without a symbolic number of rows."""
    schedules = [
        op.schedule for op in computations(args, outputs) if isinstance(op, ComputeOp) and op.schedule is not None
    ]
    return schedules[-1].heights if schedules and isinstance(schedules[-1], CpuSchedule) else ()


def check_one_anchor(outputs: Sequence[Operation]) -> None:
    """Raise `ScheduleError` if `outputs` depend on anchors that no single schedule covers."""
    anchors: dict[object, ComputeOp] = {}
    stack, seen = list(outputs), set(outputs)
    while stack:
        op = stack.pop()
        if isinstance(op, ComputeOp) and op.schedule is not None:
            anchors.setdefault(op.schedule, op)
        for t in op.inputs:
            if t.op not in seen:
                seen.add(t.op)
                stack.append(t.op)
    if len(anchors) > 1:
        names = " and ".join(f"'{op.name}'" for op in reversed(anchors.values()))
        raise ScheduleError(
            f"{names} each have a schedule of their own, and one kernel follows one; build a function for each of "
            "them, or take topi.generic.schedule_default, which makes plain loops of all"
        )
