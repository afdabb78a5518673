"""Loops that are bound to the threads of a GPU, and the memory that they share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.scalar.expr import Var
from tilewright.tir.stmt import THREAD, For, Stmt

_SHARED_BY: Final = {"global": ("blockIdx", "threadIdx", "vthread", "cthread"),
                     "shared": ("threadIdx", "vthread", "cthread")}
"""The loops whose iterations share the memory of a scope; memory of other scopes belongs to one thread."""


def threads_that_share(scope: str, around: Sequence[Stmt]) -> list[Var]:
    """Return the loops of a path whose iterations share the memory of a scope, such as "shared" or "shared.dyn"."""
    kinds = _SHARED_BY.get(scope.partition(".")[0], ())
    return [
        s.var for s in around
        if isinstance(s, For) and str(s.annotations.get(THREAD, "")).partition(".")[0] in kinds]
