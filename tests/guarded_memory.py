"""Compiled models whose outputs and values in the workspace have guard bytes around them, which no kernel may change.

    with guarded_workspace() as plans:
        run = build_module(module, target).executable()
    outputs = run_guarded(run, plans, arrays)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from tilewright.base.memory_placement import ALIGNMENT, LiveRange
from tilewright.base.nd import aligned_empty
from tilewright.runtime.executable import Executable

Array = np.ndarray[Any, Any]
GUARD, FILL = 128, 0xA5


@dataclass(frozen=True)
class Plan:
    """One workspace: its size, and the first byte and the bytes of each value."""

    total: int
    pieces: tuple[tuple[int, int], ...]

    def changed(self, workspace: Array) -> list[int]:
        """The places of guard bytes that are not as they were."""
        guards = np.ones(self.total, bool)
        for begin, size in self.pieces:
            guards[begin : begin + size] = False
        return [int(k) for k in np.flatnonzero(guards & (workspace[: self.total] != FILL))]


@contextmanager
def guarded_workspace() -> Iterator[list[Plan]]:
    """Plan workspaces in which every value has a place of its own between guard bytes; the list gets the plans that are
    made."""
    made: list[Plan] = []

    def apart(pieces: Sequence[LiveRange], limit: int | None = None) -> tuple[list[int], int]:
        offsets, end = [], GUARD
        for piece in pieces:
            offsets.append(end)
            end += -(-int(piece.nbytes) // ALIGNMENT) * ALIGNMENT + GUARD
        made.append(Plan(end, tuple((at, int(piece.nbytes)) for at, piece in zip(offsets, pieces, strict=True))))
        return offsets, end

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(import_module("tilewright.relay.transform.plan_memory"), "place_pieces", apart)
        yield made


def run_guarded(run: Executable, plans: Sequence[Plan], arrays: Sequence[Array]) -> list[Array]:
    """The outputs; an `AssertionError` says which guard bytes were changed."""
    plan = next((p for p in plans if p.total == run.manifest.workspace_bytes), Plan(0, ()))
    frame = run._take_frame()
    frame.workspace.fill(FILL)
    run._frames.append(frame)
    banded = [aligned_empty((2 * GUARD + info.nbytes,), "uint8") for info in run.outputs]
    outputs = []
    for band, info in zip(banded, run.outputs, strict=True):
        band.fill(FILL)
        outputs.append(band[GUARD : GUARD + info.nbytes].view(info.dtype.numpy()).reshape(info.shape))
    run(*arrays, out=outputs if len(outputs) > 1 else outputs[0])
    for k, (band, info) in enumerate(zip(banded, run.outputs, strict=True)):
        around = np.concatenate([band[:GUARD], band[GUARD + info.nbytes :]])
        assert (around == FILL).all(), f"bytes around output {k} are written: {np.flatnonzero(around != FILL)[:8]}"
    changed = plan.changed(frame.workspace)
    assert not changed, f"bytes between the values of the workspace are written: {changed[:8]} of {plan}"
    return outputs
