"""Replaces the axes of blocks by their values, so that blocks only group statements, and removes such blocks.

`lower_blocks` does both, initializes reductions, and reduces and pads the memory of intermediate values.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.base.errors import CompileError
from tilewright.scalar.expr import PrimExpr
from tilewright.scalar.walk import free_vars
from tilewright.tir.stmt import Allocate, Block, PrimFunc, Stmt, map_bodies, substitute_stmt
from tilewright.tir.transform.lower_blocks import guarded


def convert_blocks_to_opaque(func: PrimFunc) -> PrimFunc:
    """Replace the axes of every block by their values; the conditions of blocks stay.

    with block("C", v = i): C[v] = A[v]  ->  with block("C"): C[i] = A[i]

    Raises `CompileError` for a block with an initialization, which needs its axes (`LowerInitBlock` removes it), and
    for a condition over a block's own axes.
    """
    return func.with_body(_visit(func.body))


def _visit(s: Stmt) -> Stmt:
    if isinstance(s, Block) and s.iters:
        if s.init is not None:
            raise CompileError(
                f"block '{s.name}' initializes a reduction, so it needs its axes; apply LowerInitBlock before "
                "ConvertBlocksToOpaque", code="TW0611")
        own = next((i.var for i in s.iters if i.var in free_vars(s.predicate)), None)
        if own is not None:
            raise CompileError(
                f"the condition of block '{s.name}' uses its axis '{own.name}'; write it with the loops around the "
                "block", code="TW0611")
        points: dict[PrimExpr, PrimExpr] = dict(zip((i.var for i in s.iters), s.bindings, strict=True))
        s = replace(s, iters=(), bindings=(), body=substitute_stmt(s.body, points))
    return map_bodies(s, _visit) or s


def lower_opaque_blocks(func: PrimFunc) -> PrimFunc:
    """Remove blocks without axes, and allocate each intermediate value in full around the whole body.

    with block("C") where i < 3: C[i] = A[i]  ->  if i < 3: C[i] = A[i]

    Raises `CompileError` for a block with axes.
    """
    body = _without_blocks(func.body)
    for buffer in reversed(func.attrs.get("intermediates", ())):
        body = Allocate(buffer, body)
    return replace(func, body=body, attrs={k: v for k, v in func.attrs.items() if k != "intermediates"})


def _without_blocks(s: Stmt) -> Stmt:
    s = map_bodies(s, _without_blocks) or s
    if not isinstance(s, Block):
        return s
    if s.iters or s.init is not None:
        raise CompileError(
            f"block '{s.name}' has axes; apply ConvertBlocksToOpaque before LowerOpaqueBlock", code="TW0611")
    return guarded(s.predicate, s.body)
