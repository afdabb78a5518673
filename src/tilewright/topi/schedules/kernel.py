"""What a schedule is handed: the loops of one kernel, with every elementwise value in between already inlined."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.base.types import OpenSize
from tilewright.scalar.arith.open_sizes import typical
from tilewright.scalar.expr import Var
from tilewright.te.tensor import ComputeOp
from tilewright.tir.schedule import Schedule
from tilewright.topi.machine import Machine, current

WORTH_SHARING = 5_000.0
"""Nanoseconds of work under which a second thread costs more than it gains."""
_PIECES = 32
_CACHE_SPEED = 64.0
"""Bytes that one core reads from its second-level cache in a nanosecond."""


@dataclass(slots=True)
class KernelBlocks:
    """A kernel being scheduled: `anchor` is the computation that chose the schedule, `output` the block that stores the result."""

    schedule: Schedule
    anchor: ComputeOp
    names: dict[ComputeOp, str]
    output: str
    others: tuple[str, ...] = ()

    @property
    def multiply_time(self) -> float:
        """Nanoseconds that the anchor's multiply-adds take at the machine's peak, or what it takes to read the weights of a few rows."""
        attrs = self.anchor.attrs
        return max(typical(attrs["flops"]) / (16 * self.machine.lanes("float32")), typical(attrs.get("right_bytes", 0)) / _CACHE_SPEED)

    @property
    def machine(self) -> Machine:
        return current()

    def name(self, op: ComputeOp) -> str:
        return self.names[op]


def parallel_over(s: Schedule, loops: Sequence[Var], nanoseconds: float) -> None:
    """Run a nest's outermost loops on several threads when there is work for it: the fewest that give enough pieces."""
    if any(isinstance(s.extent(v), OpenSize) for v in loops):
        _parallel_over_open(s, loops, nanoseconds)
        return
    if nanoseconds < WORTH_SHARING:
        return
    chosen: list[Var] = []
    trips = 1
    for v in loops:
        chosen.append(v)
        trips *= s.extent(v)
        if trips >= _PIECES // 2:
            break
    if trips > 1:
        s.parallel(s.fuse(*chosen), grain=max(1, trips // _PIECES))


def _parallel_over_open(s: Schedule, loops: Sequence[Var], nanoseconds: float) -> None:
    """The same where some trips are open: down to the first such loop, in pieces that are worth a thread, a power of two of trips."""
    last = next(k for k, v in enumerate(loops) if isinstance(s.extent(v), OpenSize))
    chosen = loops[: last + 1]
    trips = math.prod(typical(s.extent(v)) for v in chosen)
    each = nanoseconds / max(trips, 1)
    s.parallel(s.fuse(*chosen), grain=1 << max(0, math.ceil(math.log2(WORTH_SHARING / max(each, 1.0)))))
