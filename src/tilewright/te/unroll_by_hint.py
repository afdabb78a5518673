"""Unrolls loops by the pragmas `auto_unroll_max_step` and `unroll_explicit`.

    # on io: auto_unroll_max_step=16, unroll_explicit=1
    for io in range(8): for ii in range(4): for j in range(4): …  ->  for io in range(8): unrolled ii: unrolled j: …
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.scalar.expr import IntImm
from tilewright.tir.stmt import SERIAL, UNROLLED, For, PrimFunc, Stmt, Store, bodies, map_bodies

STEP, EXPLICIT = "pragma_auto_unroll_max_step", "pragma_unroll_explicit"


def unroll_by_hint(func: PrimFunc) -> PrimFunc:
    """Unroll the innermost serial loops under each pragma, up to its number of steps."""
    return func.with_body(_visit(func.body, 0, explicit=False))


def _visit(s: Stmt, most: int, *, explicit: bool) -> Stmt:
    if isinstance(s, For):
        most = int(s.annotations.get(STEP, most))
        explicit = bool(s.annotations.get(EXPLICIT, explicit))
    inner = map_bodies(s, lambda b: _visit(b, most, explicit=explicit)) or s
    if isinstance(inner, For) and explicit and inner.kind == SERIAL and STEP not in inner.annotations and isinstance(
        inner.extent, IntImm
    ):
        steps = _steps(inner)
        if steps is not None and 1 < steps <= most:
            return replace(inner, kind=UNROLLED)
    return inner


def _steps(s: Stmt) -> int | None:
    """Return the number of stores in a statement; None if it contains a loop that is not unrolled."""
    if isinstance(s, Store):
        return 1
    inner = [_steps(b) for b in bodies(s)]
    if any(n is None for n in inner):
        return None
    total = sum(n for n in inner if n is not None)
    if not isinstance(s, For):
        return total
    return int(s.extent) * total if isinstance(s.extent, IntImm) and s.kind != "parallel" else None
