"""Make parallel loops serial.

    for i in T.parallel(8): A[i] = 0.0  ->  for i in T.serial(8): A[i] = 0.0
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.tir.stmt import PARALLEL, SERIAL, For, PrimFunc, Stmt, map_bodies


def serialize_loops(func: PrimFunc) -> PrimFunc:
    """Make the parallel loops of `func` serial; vectorized and unrolled loops stay."""
    return func.with_body(_stmt(func.body))


def _stmt(s: Stmt) -> Stmt:
    new = map_bodies(s, _stmt) or s
    return replace(new, kind=SERIAL) if isinstance(new, For) and new.kind == PARALLEL else new
