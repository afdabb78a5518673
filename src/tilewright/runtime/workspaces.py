"""Workspaces that all calls of a program of dynamic sizes share, and layouts of the pieces in them.

    calls with pieces of 100 and 300 bytes, then of 110 and 310, then of 112 and 320
    ->  a layout for 100 and 300 bytes; one for 192 and 384, which serves the third call, too

A layout serves all calls whose pieces are not larger than its own, and not much smaller. The first one has the sizes of
the first call. Later ones have an eighth more than their call needs, so that a size which grows by one at each call
rarely needs a new layout. They keep the order of the pieces, which takes microseconds, while that wastes
little memory; otherwise the pieces are placed again. A workspace that is far larger than all calls need for a long time
is freed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import le
from typing import Any, Final

import numpy as np

from tilewright.base.forks import lazy_attribute, new_lock
from tilewright.base.mapped_memory import workspace_memory
from tilewright.base.memory_placement import find_clashes, place_sizes, ranges_below, stack_sizes
from tilewright.base.nd import ALIGNMENT, aligned_empty
from tilewright.runtime.executable import Frame
from tilewright.runtime.manifest import Manifest

Array = np.ndarray[Any, Any]

PATIENCE: Final = 256
"""Number of consecutive calls that need little memory, after which the workspaces are freed."""
MOST_LAYOUTS: Final = 16
_LITTLE: Final = 4
"""Factor by which a workspace must exceed the needed bytes to count as too large."""
_WASTE: Final = 1.25
"""Factor by which the density of a layout may fall below that of the layout whose order it has."""
_SLACK: Final = 64 << 10
"""Bytes by which the pieces of a layout may always exceed those of a call."""


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Offsets of pieces in the workspace, for pieces of up to `capacity` bytes, whose sum is `total`."""

    capacity: tuple[int, ...]
    total: int
    offsets: Array
    workspace_bytes: int


class Workspaces:
    """The free frames of a program, and the layouts that its calls use. Safe to use from several threads."""

    def __init__(self, manifest: Manifest, constants: int) -> None:
        """`constants` is the address of the constants."""
        self.free: list[Frame] = []
        self._arguments, self._constants = len(manifest.inputs) + len(manifest.outputs), constants
        self._static = manifest.workspace_bytes
        self._pieces = manifest.pieces
        self._layouts: tuple[Layout, ...] = ()
        self._order: list[tuple[int, list[int]]] = []
        """The pieces of the last layout that was placed, each with those directly below it."""
        self._density = 0.0
        """Bytes of the workspace of that layout for each byte of its pieces; fewer are denser."""
        self._calls_of_little = 0
        self._lock = new_lock()

    @lazy_attribute
    def _clashes(self) -> list[list[int]]:
        """The pieces that are live at the same time as each piece."""
        return find_clashes(self._pieces)

    def layout(self, sizes: tuple[int, ...]) -> Layout:
        """Return a layout for pieces of these sizes."""
        total = sum(sizes)
        with self._lock:
            for found in self._layouts:
                if found.total <= 2 * total + _SLACK and all(map(le, sizes, found.capacity)):
                    return found
            made = self._stacked(tuple(map(_with_room, sizes))) if self._layouts else self._placed(sizes)
            self._layouts = (made, *self._layouts[: MOST_LAYOUTS - 1])
            return made

    def fitted(self, frame: Frame | None, layout: Layout, table: Array) -> Frame:
        """Return a free frame, or a new one, with a workspace for a layout. Raises `MemoryError`."""
        nbytes = layout.workspace_bytes
        if frame is None:
            return Frame(self._arguments, self._constants, nbytes, table)
        if not self._fits(frame, nbytes):
            frame.use(aligned_empty((0,)), table)  # frees the old workspace first
            frame.use(workspace_memory(nbytes), table)
        elif frame.table is not table:
            frame.use(frame.workspace, table)
        return frame

    def _fits(self, frame: Frame, nbytes: int) -> bool:
        """Whether the workspace of a frame has `nbytes`, and not far more for many calls."""
        there = frame.workspace.nbytes
        frame.is_roomy = there > _LITTLE * nbytes + _SLACK
        if not frame.is_roomy:
            self._calls_of_little = 0
            return there >= nbytes
        self._calls_of_little += 1
        if self._calls_of_little < PATIENCE:
            return True
        self._calls_of_little = 0
        self.free.clear()
        frame.is_roomy = False
        return False

    def exact_bytes(self, sizes: tuple[int, ...]) -> int:
        """Return the bytes of a workspace for pieces of these sizes alone."""
        return self._static + place_sizes(sizes, self._clashes)[1]

    def _stacked(self, sizes: tuple[int, ...]) -> Layout:
        """Return a layout in the order of an earlier one if it is as dense, else a new one."""
        offsets, total = stack_sizes(sizes, self._order)
        if total > self._density * sum(sizes) * _WASTE + _SLACK:
            return self._placed(sizes)
        return self._layout_of(sizes, offsets, total)

    def _placed(self, sizes: tuple[int, ...]) -> Layout:
        offsets, total = place_sizes(sizes, self._clashes)
        self._order = ranges_below(offsets, self._clashes)
        self._density = total / max(sum(sizes), 1)
        return self._layout_of(sizes, offsets, total)

    def _layout_of(self, sizes: tuple[int, ...], offsets: Sequence[int], total: int) -> Layout:
        return Layout(sizes, sum(sizes), np.array(offsets, np.int64) + self._static, self._static + total)


def _with_room(nbytes: int) -> int:
    """Return a number of bytes plus an eighth, rounded up to the alignment."""
    return -(-(nbytes + nbytes // 8) // ALIGNMENT) * ALIGNMENT


def table_of(head: Sequence[int], layout: Layout) -> Array:
    """Return the table that the code reads: sizes, and offsets of pieces."""
    return np.concatenate((np.array(head, np.int64), layout.offsets, _END))


_END: Final = np.zeros(1, np.int64)
