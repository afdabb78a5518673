"""Make the initialization of a reduction a part of the block's body.

    with block("C"): r = reduce(8, k);  init: C[i] = 0;  C[i] = C[i] + A[i, r]
      ->
    with block("C"): r = reduce(8, k);  if r == 0: C[i] = 0;  C[i] = C[i] + A[i, r]
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.scalar.arith.bounds import bounds
from tilewright.scalar.arith.ranges import Ranges
from tilewright.scalar.expr import EQ, PrimExpr, all_of, compare
from tilewright.tir.stmt import Block, For, IfThenElse, PrimFunc, Stmt, map_bodies, seq


def lower_init(func: PrimFunc) -> PrimFunc:
    """Replace the initializations of blocks by conditional statements: they run where each reduction axis has its first
    value."""
    return func.with_body(_visit(func.body, Ranges()))


def _visit(s: Stmt, ranges: Ranges) -> Stmt:
    if isinstance(s, For):
        ranges = ranges.bind_loop(s.var, s.min, s.extent)
    elif isinstance(s, Block):
        first = {i.var: bounds(b, ranges)[0] or 0 for i, b in zip(s.iters, s.bindings, strict=True)}
        if s.init is not None:
            start: list[PrimExpr] = [compare(EQ, i.var, first[i.var]) for i in s.iters if i.kind == "reduce"]
            init = IfThenElse(all_of(*start), s.init) if start else s.init
            s = replace(s, init=None, body=seq(init, s.body))
        for i, b in zip(s.iters, s.bindings, strict=True):
            ranges = ranges.bind(i.var, *bounds(b, ranges))
    return map_bodies(s, lambda b: _visit(b, ranges)) or s
