"""Surround loops by calls that a profiler of a device counts.

    for i: { for k: for l: B[i, k, l] = …;  for k: … }    ->    for i: { T.start_profile_intrinsic(2)
                                                                         for k: for l: B[i, k, l] = …
                                                                         T.end_profile_intrinsic(2)
                                                                         … }

The numbers count the loops of a function in the order of its text; the function itself has the first one. By default
loops beside others are measured, without innermost loops and those inside parallel loops. The options of `PassContext`
under `tir.` change this: `lwp_min_height`, `lwp_max_depth`, `instr_siblings` and `lwp_disable_func_prof`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.ir.transform import PassContext
from tilewright.scalar.expr import Call, as_expr
from tilewright.scalar.intrinsics import opaque
from tilewright.tir.stmt import PARALLEL, Evaluate, For, PrimFunc, Seq, Stmt, bodies, map_bodies, seq


def instrument_profile(func: PrimFunc) -> PrimFunc:
    """Measure the loops of `func` that the options select, and its whole body unless `lwp_disable_func_prof` is set."""
    context = PassContext.current()
    found = _Instrument(
        context.get("tir.lwp_min_height"), context.get("tir.lwp_max_depth"), context.get("tir.instr_siblings"))
    body = found.stmt(func.body, 0, beside=False, in_parallel=False)
    return func.with_body(body if context.get("tir.lwp_disable_func_prof") else _measured(body, 0))


def _measured(s: Stmt, number: int) -> Stmt:
    begin, end = (
        Evaluate(Call("handle", opaque(f"{word}_profile_intrinsic"), (as_expr(number),))) for word in ("start", "end"))
    return seq(begin, s, end)


def _height(s: Stmt) -> int:
    """Return the number of loops inside a statement, on the longest path."""
    return max((_height(b) + isinstance(b, For) for b in bodies(s)), default=0)


@dataclass
class _Instrument:
    min_height: int
    max_depth: int
    siblings: bool
    count: int = field(default=0)

    def stmt(self, s: Stmt, depth: int, *, beside: bool, in_parallel: bool) -> Stmt:
        if isinstance(s, Seq):
            several = sum(map(_has_loop, s.stmts)) > 1
            return map_bodies(s, lambda b: self.stmt(b, depth, beside=several, in_parallel=in_parallel)) or s
        if not isinstance(s, For):
            return map_bodies(s, lambda b: self.stmt(b, depth, beside=beside, in_parallel=in_parallel)) or s
        self.count += 1
        number = self.count
        inner = in_parallel or s.kind == PARALLEL
        body = map_bodies(s, lambda b: self.stmt(b, depth + 1, beside=False, in_parallel=inner)) or s
        selected = beside if self.siblings else depth < self.max_depth
        return _measured(body, number) if selected and not in_parallel and _height(s) >= self.min_height else body


def _has_loop(s: Stmt) -> bool:
    return isinstance(s, For) or any(map(_has_loop, bodies(s)))
