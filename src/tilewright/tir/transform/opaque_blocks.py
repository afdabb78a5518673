"""Replaces the axes of blocks by their values, so that blocks only group statements, and removes such blocks.

`lower_blocks` does both, initializes reductions, and reduces and pads the memory of intermediate values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from tilewright.base.errors import CompileError
from tilewright.scalar.expr import Buffer, IntImm, PrimExpr, as_expr
from tilewright.scalar.walk import free_vars
from tilewright.tir.stmt import (
    SERIAL,
    Allocate,
    AttrStmt,
    Block,
    For,
    PrimFunc,
    Stmt,
    map_bodies,
    substitute_stmt,
)
from tilewright.tir.transform.buffer_homes import INTERMEDIATES, home_of, intermediates_of
from tilewright.tir.transform.lower_blocks import guarded

PARTITION_HINT: Final = "pragma_loop_partition_hint"
"""Annotation of loops that `LoopPartition` should split, which therefore stays one; it considers all loops."""


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
    """Remove blocks without axes, and allocate each intermediate value in full where it lives (`buffer_homes.py`).

    with block("C") where i < 3: C[i] = A[i]  ->  if i < 3: C[i] = A[i]

    Annotations of loops and blocks whose keys begin with `pragma_` become attributes of statements; others of blocks
    are left out. A loop of one trip without annotations is replaced by its body. Raises `CompileError` for a block with
    axes.
    """
    homes: dict[int, list[Buffer]] = {}
    outermost: list[Buffer] = []
    for buffer in intermediates_of(func):
        home = home_of(func.body, buffer)
        block = None if home is None else home.block
        (outermost if block is None else homes.setdefault(id(block), [])).append(buffer)
    body = _without_blocks(func.body, homes)
    for buffer in reversed(outermost):
        body = Allocate(buffer, body)
    return replace(func, body=body, attrs={k: v for k, v in func.attrs.items() if k != INTERMEDIATES})


def _without_blocks(s: Stmt, homes: Mapping[int, Sequence[Buffer]]) -> Stmt:
    inner = map_bodies(s, lambda b: _without_blocks(b, homes)) or s
    if isinstance(inner, For):
        return _without_pragmas(inner)
    if not isinstance(inner, Block):
        return inner
    if inner.iters or inner.init is not None:
        raise CompileError(
            f"block '{inner.name}' has axes; apply ConvertBlocksToOpaque before LowerOpaqueBlock", code="TW0611")
    body = inner.body
    for buffer in reversed(homes.get(id(s), ())):
        body = Allocate(buffer, body)
    return _attributed(IntImm("int32", 0), inner.annotations, guarded(inner.predicate, body))


def _without_pragmas(s: For) -> Stmt:
    """Return a loop with its pragmas as attributes; of one trip without annotations, its body."""
    if s.kind == SERIAL and not s.annotations and isinstance(s.extent, IntImm) and s.extent.value == 1:
        return substitute_stmt(s.body, {s.var: s.min})
    kept = {key: value for key, value in s.annotations.items() if not _is_pragma(key)}
    return _attributed(s.var, s.annotations, replace(s, annotations=kept))


def _attributed(node: PrimExpr, annotations: Mapping[str, Any], body: Stmt) -> Stmt:
    """Return `body` in attributes of a node for the annotations that are pragmas."""
    for key, value in reversed([*annotations.items()]):
        if _is_pragma(key):
            body = AttrStmt(node, key, value if isinstance(value, str) else as_expr(value, _type_of(value)), body)
    return body


def _is_pragma(key: str) -> bool:
    return key.startswith("pragma_") and key != PARTITION_HINT


def _type_of(value: Any) -> str | None:
    return "int32" if type(value) is int else None
