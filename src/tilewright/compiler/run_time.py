"""How long the steps of a program may take, estimated without knowledge of the machine: where its entries look for pending signals.

The estimate is for a slow core, so that a program that takes long has looks. One too many costs some 30 ns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.relay.op.external import ExternalCall
from tilewright.runtime.notes import Note
from tilewright.runtime.program import NativeStep, Step

SPAN: Final = 2_000_000
"""Estimated nanoseconds between two looks."""
LONG: Final = 10_000_000
"""Estimated nanoseconds of a run from which on it is interruptible."""
_RATE: Final = 8
"""Operations, and bytes, of a nanosecond."""


def step_times(notes: Sequence[Note]) -> list[int]:
    """The estimated nanoseconds of each step; `SPAN` for a loop program, of which nothing is known."""
    return [SPAN if ExternalCall.name in n.operators else (n.operations + n.nbytes) // _RATE for n in notes]


def looks_of(steps: Sequence[Step], times: Sequence[int], parts: int) -> frozenset[int] | None:
    """The numbers of the steps after which a run looks for signals; None for a program of short runs, which never does.

    A look comes where the steps since the look before take `SPAN`, and never after the last. Steps that run in Python look themselves.
    """
    if parts * sum(times) < LONG:
        return None
    found, total = [], 0
    for k, (step, time) in enumerate(zip(steps, times, strict=True)):
        total = total + time if isinstance(step, NativeStep) else 0
        if total >= SPAN and k + 1 < len(steps):
            found.append(k)
            total = 0
    return frozenset(found)
