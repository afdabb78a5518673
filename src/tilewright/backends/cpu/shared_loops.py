"""Threads for loops that declare their work (`topi/work.py`)."""

from __future__ import annotations

from dataclasses import replace

from tilewright.backends.cpu.machine import STEP_NS
from tilewright.backends.machine import Machine
from tilewright.scalar.arith.open_sizes import typical
from tilewright.tir.stmt import PARALLEL, SERIAL, For, PrimFunc, Stmt, map_bodies, walk_stmt
from tilewright.topi.work import WORK


def share_loops(func: PrimFunc, machine: Machine) -> PrimFunc:
    """Make the loops of `func` that declare their work parallel where threads gain more than they cost on `machine`;
    the others become serial."""

    def visit(s: Stmt) -> Stmt:
        if not isinstance(s, For) or WORK not in s.annotations:
            return map_bodies(s, visit) or s
        step, steps, trips = s.annotations[WORK]
        shared = typical(trips) > 1 and typical(steps) * STEP_NS[step] > machine.core.thread_ns
        grain = max(1, trips // machine.core.pieces) if shared else 1
        notes = {k: v for k, v in s.annotations.items() if k != WORK} | ({} if grain == 1 else {"grain": grain})
        return replace(s, kind=PARALLEL if shared else SERIAL, body=visit(s.body), annotations=notes)

    noted = any(isinstance(s, For) and WORK in s.annotations for s in walk_stmt(func.body))
    return func.with_body(visit(func.body)) if noted else func
