"""What a schedule is handed: the loops of one kernel, with every elementwise value in between already inlined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.expr import Var
from tilewright.te.tensor import ComputeOp
from tilewright.tir.schedule import Schedule
from tilewright.topi.machine import Machine, current

PARALLEL_WORK = 40_000
"""Scalar operations under which waking a second thread costs more than it gains."""


@dataclass(slots=True)
class KernelBlocks:
    """A kernel being scheduled: `anchor` is the computation that chose the schedule, `output` the block that stores the result."""

    schedule: Schedule
    anchor: ComputeOp
    names: dict[ComputeOp, str]
    output: str
    others: tuple[str, ...] = ()

    @property
    def machine(self) -> Machine:
        return current()

    def name(self, op: ComputeOp) -> str:
        return self.names[op]


def parallel_over(s: Schedule, loops: Sequence[Var], work: int, machine: Machine) -> None:
    """Run a nest's outermost loops on several threads when there is work for it: the fewest that give enough pieces."""
    if work < PARALLEL_WORK or not loops:
        return
    wanted = 16
    chosen: list[Var] = []
    trips = 1
    for v in loops:
        chosen.append(v)
        trips *= s.extent(v)
        if trips >= wanted:
            break
    if trips < 2:
        return
    fused = s.fuse(*chosen) if len(chosen) > 1 else chosen[0]
    s.parallel(fused, grain=max(1, trips // 64))


def vector_split(s: Schedule, loop: Var, lanes: int, unroll: int = 1) -> tuple[Var, Var, Var]:
    """A loop cut for vectors: outer trips, unrolled vectors, lanes."""
    outer, vectors, lane = s.split(loop, [None, unroll, lanes])
    s.unroll(vectors)
    s.vectorize(lane)
    return outer, vectors, lane
