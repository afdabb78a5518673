"""The base class of kernel schedules, and the kernel being scheduled: its blocks, with elementwise values inlined."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from tilewright.backends.cpu.strategies.schedules.open_rows import Heights
from tilewright.backends.kernel_options import KernelOptions
from tilewright.backends.machine import Machine
from tilewright.base.types import OpenSize
from tilewright.scalar.arith.open_sizes import typical
from tilewright.scalar.expr import PrimExpr, Var
from tilewright.te.tensor import ComputeOp, KernelSchedule, Operation, Tensor
from tilewright.tir.loop_schedule import Schedule

Alternatives: TypeAlias = tuple[tuple[Mapping[str, Any], PrimExpr], ...]
"""Values of `KernelOptions` that ask for other algorithms, each with the condition for it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CpuSchedule(KernelSchedule):
    """Base class of CPU schedules. Sizes that depend on dynamic shapes are symbolic."""

    copies_result: ClassVar[bool] = False
    """Whether the result is a copy of what the computation stores. If the computation stores the result of a kernel
    itself, it gets other memory."""
    flops: int = 0
    """Number of floating-point or integer operations of the computation."""
    right_bytes: int = 0
    """Size of the right operand of a product, in bytes."""
    heights: Heights = ()
    """Tile heights for a symbolic number of rows, each with its condition."""
    faster: Alternatives = ()
    """Other algorithms, each with the condition on symbolic sizes under which it takes less time."""

    def apply(self, kernel: KernelBlocks) -> None:
        """Schedule the loops of a kernel."""
        raise NotImplementedError


@dataclass(slots=True)
class KernelBlocks:
    """A kernel being scheduled: `anchor` is the computation that has the schedule `plan`, `output` the block that
    stores the result."""

    schedule: Schedule
    anchor: ComputeOp
    names: dict[Operation, str]
    output: str
    plan: CpuSchedule
    options: KernelOptions

    @property
    def acc(self) -> str:
        """Name of the anchor's block."""
        return self.names[self.anchor]

    @property
    def multiply_time(self) -> float:
        """Nanoseconds of the anchor's multiply-adds at peak rate, or of one read of the weights, if that takes longer.
        """
        return max(
            typical(self.plan.flops) / self.machine.flops_per_ns,
            typical(self.plan.right_bytes) / self.machine.core.l2_bytes_per_ns
        )

    @property
    def is_shared(self) -> bool:
        """Whether the anchor takes long enough for several threads."""
        return self.multiply_time >= self.machine.core.thread_ns

    @property
    def machine(self) -> Machine:
        return self.options.machine

    @property
    def packed(self) -> list[str]:
        """Names of the blocks that pack an operand."""
        return [name for op, name in self.names.items() if isinstance(op, ComputeOp) and op.prepack is not None]

    def name(self, t: Tensor) -> str:
        """Return the name of the block that computes a tensor."""
        return self.names[t.op]


def parallel_over(s: Schedule, loops: Sequence[Var], nanoseconds: float, machine: Machine) -> None:
    """Parallelize a nest's outermost loops if there is enough work: the fewest loops with enough iterations."""
    core = machine.core
    if any(isinstance(s.extent(v), OpenSize) for v in loops):
        _parallel_over_open(s, loops, nanoseconds, core.thread_ns)
        return
    if nanoseconds < core.thread_ns:
        return
    chosen: list[Var] = []
    trips = 1
    for v in loops:
        chosen.append(v)
        trips *= s.extent(v)
        if trips >= core.pieces // 2:
            break
    if trips > 1:
        s.parallel(s.fuse(*chosen), grain=max(1, trips // core.pieces))


def _parallel_over_open(s: Schedule, loops: Sequence[Var], nanoseconds: float, thread_ns: float) -> None:
    """Parallelize loops down to the first one of symbolic extent, in chunks worth a thread, of a power of two of
    iterations."""
    last = next(k for k, v in enumerate(loops) if isinstance(s.extent(v), OpenSize))
    chosen = loops[: last + 1]
    trips = math.prod(typical(s.extent(v)) for v in chosen)
    each = nanoseconds / max(trips, 1)
    s.parallel(s.fuse(*chosen), grain=1 << max(0, math.ceil(math.log2(thread_ns / max(each, 1.0)))))


def row_divisor(width: int, most: int) -> int:
    """Return the largest divisor of a row in (`most`/2, `most`]; without one, `most` or the row width."""
    return next((r for r in range(most, most // 2, -1) if width % r == 0), min(most, width))
