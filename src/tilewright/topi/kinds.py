"""Kinds of kernels and the work of loops: definitions declare them, and a back end maps them to schedules and threads.

A kernel has a kind by `te.compute(…, schedule=kind)`, which a back end maps to a schedule. Computations with equal
kinds share one kernel: kinds compared by identity have a kernel each. Loops that are written out (`loops.py`) have the
annotation `WORK`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

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


WORK: Final = "work"
"""The annotation of a loop whose trips may run on several threads: the kind of its steps, their number, and the number
of trips."""


class Step(StrEnum):
    """Kinds of steps of loops that are written out, by how long they take."""

    MOVE = "move"
    """An element is read, combined, and written."""
    COMPARE = "compare"
    """An element is compared and moved, in one pass of a sort."""
    RANDOM = "random"
    """A random word is made."""
    OVERLAP = "overlap"
    """A box is compared with others."""
    SAMPLE = "sample"
    """A cell of a region is sampled."""
    DIVISOR = "divisor"
    """A greatest common divisor is found."""
    PROPOSAL = "proposal"
    """A box is predicted, sorted, and compared with others."""
    FUNCTION = "function"
    """A special function is evaluated."""
