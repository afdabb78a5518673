"""Loops of scans: one step loop that contains all computations that depend on the previous step.

    for t in range(m): s[t] = s[t - 1] + X[t]         for t in range(1, m):
    for t in range(m): u[t] = u[t - 1] * s[t - 1]  ->     s[t] = s[t - 1] + X[t]
                                                          u[t] = u[t - 1] * s[t - 1]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.base.errors import InternalError
from tilewright.scalar.expr import PrimExpr, Var
from tilewright.te.scan import ScanOp
from tilewright.te.tensor import Operation
from tilewright.tir.loop_schedule import Schedule as Engine
from tilewright.tir.stmt import SERIAL, For, PrimFunc, Stmt, seq, substitute_stmt


def join_steps(op: ScanOp, updates: Sequence[Stmt]) -> Stmt:
    """Combine the nests of the updates into one loop over the steps after the start."""
    step = Var(op.scan_axis.var.name)
    bodies = []
    for nest in updates:
        if not isinstance(nest, For):
            raise InternalError(f"update of scan '{op.name}' has no loop over its steps")
        mapping: dict[PrimExpr, PrimExpr] = {nest.var: step}
        bodies.append(substitute_stmt(nest.body, mapping))
    return For(step, op.first, op.scan_axis.extent, SERIAL, seq(*bodies))


def compute_in_steps(
    func: PrimFunc, scan: ScanOp, ops: Sequence[Operation], blocks: Mapping[Operation, str]
) -> PrimFunc:
    """Move intermediate values that depend on the state into the step loop, and compute only the parts needed in each
    step."""
    depends = {t.op for t in scan.state}
    updates = {t.op for t in scan.update}
    between = []
    for op in ops:
        if op in blocks and any(t.op in depends for t in op.inputs):
            depends.add(op)
            if op not in updates:
                between.append(op)
    if not between:
        return func
    engine = Engine(func)
    step = engine.loops(blocks[scan.update[0].op])[0]
    for op in reversed(between):
        engine.compute_at(blocks[op], step, preserve_unit_loops=True)
    return engine.func
