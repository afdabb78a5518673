"""Loops that are bound to the threads of a GPU, and the memory that they share."""

from __future__ import annotations

from typing import Final

from tilewright.scalar.expr import Buffer
from tilewright.tir.stmt import THREAD, For, Stmt

_SHARED_BY: Final = {
    "global": ("blockIdx", "threadIdx", "vthread", "cthread"), "shared": ("threadIdx", "vthread", "cthread"),
    "warp": ("threadIdx.x",), "wmma": ("threadIdx.x",),
}
"""The threads that share the memory of a scope; memory of other scopes belongs to one thread."""


def is_shared_by(buffer: Buffer, loop: For) -> bool:
    """Return whether the trips of `loop` are threads that share the memory of `buffer`, e.g. of "shared.dyn"."""
    threads = _SHARED_BY.get(buffer.scope.partition(".")[0], ())
    return str(loop.annotations.get(THREAD, "")).startswith(threads) if threads else False


def is_virtual(s: Stmt) -> bool:
    """Return whether a statement is a loop over virtual threads, which no device has: `vthread` or `cthread`."""
    return isinstance(s, For) and str(s.annotations.get(THREAD, "")).startswith(("vthread", "cthread"))
