"""Kinds of kernels: definitions declare them, and a back end maps them to schedules.

A kernel has a kind by `te.compute(…, schedule=kind)`, which a back end maps to a schedule. Computations with equal
kinds share one kernel: kinds compared by identity have a kernel each.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.te.tensor import KernelKind


@dataclass(frozen=True, slots=True, eq=False)
class Reduction(KernelKind):
    """One reduction over some axes of its inputs."""


@dataclass(frozen=True, slots=True)
class RowReductions(KernelKind):
    """Several reductions along the same `axes` of the output, and a result that is elementwise over it."""

    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ChannelBlocks(KernelKind):
    """A window over data in a blocked layout, such as `NCHW8c`, with `flops` operations.

    The last axis of the output is a block of channels, unless it is `row`, the axis along a row.
    """

    row: int
    flops: int
