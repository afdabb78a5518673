"""Schedules the blocks of a kernel: elementwise blocks are inlined, and the anchor's schedule does the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.backends.cpu.strategies.schedules.channel_blocks import ChannelBlocksSchedule
from tilewright.backends.cpu.strategies.schedules.injective import schedule_injective
from tilewright.backends.cpu.strategies.schedules.kernel import CpuSchedule, KernelBlocks
from tilewright.backends.cpu.strategies.schedules.reduce import ReduceSchedule
from tilewright.backends.cpu.strategies.schedules.rows import RowsSchedule
from tilewright.backends.kernel_options import KernelOptions
from tilewright.base.errors import InternalError
from tilewright.base.types import BOOL
from tilewright.scalar.expr import PrimExpr, const
from tilewright.te.create import computations
from tilewright.te.tensor import ComputeOp, KernelKind, Operation, Tensor
from tilewright.tir.loop_schedule import Schedule
from tilewright.tir.stmt import PrimFunc, block_names
from tilewright.topi.kinds import ChannelBlocks, Reduction, RowReductions


def schedule_of(kind: KernelKind) -> CpuSchedule:
    """Return the schedule for a kind of kernels; a schedule for processors is its own kind."""
    match kind:
        case CpuSchedule():
            return kind
        case Reduction():
            return ReduceSchedule()
        case RowReductions():
            return RowsSchedule(axes=kind.axes)
        case ChannelBlocks():
            return ChannelBlocksSchedule(flops=kind.flops, row=kind.row)
    raise InternalError(f"processors have no schedule for kernels of the kind {type(kind).__name__}")


def arrange(func: PrimFunc, args: Sequence[Tensor], outputs: Sequence[Tensor], options: KernelOptions) -> PrimFunc:
    """`func`, one block for each computation between `args` and `outputs`, scheduled for the machine of `options`."""
    return Inlined.of(func, args, outputs).scheduled(options)


@dataclass(frozen=True, slots=True)
class Inlined:
    """A kernel whose elementwise values are inlined; `names` are the blocks of the computations that are left."""

    func: PrimFunc
    names: Mapping[Operation, str]
    outputs: Sequence[Tensor]

    @staticmethod
    def of(func: PrimFunc, args: Sequence[Tensor], outputs: Sequence[Tensor]) -> Inlined:
        """Inline the elementwise values of `func`, one block for each computation between `args` and `outputs`."""
        s = Schedule(func, recorded=False)
        blocks = zip(computations(args, outputs), block_names(func), strict=True)
        names: dict[Operation, str] = {op: block for op, block in blocks if isinstance(op, ComputeOp)}
        results = {t.op for t in outputs}
        for op in [op for op in names if isinstance(op, ComputeOp)]:
            if op not in results and op.may_inline:
                s.compute_inline(names.pop(op))
        return Inlined(s.func, names, outputs)

    def scheduled(self, options: KernelOptions) -> PrimFunc:
        """Return the kernel scheduled for `options`."""
        s, names = Schedule(self.func, recorded=False), dict(self.names)
        anchors = [(op, op.schedule) for op in names if isinstance(op, ComputeOp) and op.schedule is not None]
        if not anchors:
            for result in dict.fromkeys(t.op for t in self.outputs):
                if isinstance(result, ComputeOp):
                    schedule_injective(s, names[result], options.machine)
            return s.func
        anchor, kind = anchors[-1]
        plan = schedule_of(kind)
        output = names[self.outputs[0].op]
        if plan.copies_result and output == names[anchor]:
            output = s.cache_write(output, "local")
        plan.apply(KernelBlocks(s, anchor, names, output, plan, options))
        return s.func


def variants(
    args: Sequence[Tensor], outputs: Sequence[Tensor], options: KernelOptions
) -> list[tuple[KernelOptions, PrimExpr]]:
    """Return the options of the variants of a kernel with symbolic sizes, each with its condition: the first one whose
    condition holds is taken, else the last. Empty for a kernel of one form."""
    kinds = [op.schedule for op in computations(args, outputs) if isinstance(op, ComputeOp) and op.schedule is not None]
    if not kinds:
        return []
    plan = schedule_of(kinds[-1])
    own = [(replace(options, tile_height=height, asked=set()), condition) for height, condition in plan.heights]
    if plan.faster and not own:
        own = [(options, const(1, BOOL))]
    faster = [(replace(options, **changes, asked=set()), condition) for changes, condition in plan.faster]
    return [*faster, *own]
