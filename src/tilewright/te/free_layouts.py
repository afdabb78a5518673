"""Record in a program which of its tensors may be stored in another layout.

    C = te.compute(…, attrs={"layout_free_placeholders": [B]})      # B, parameter 1
    D = te.compute(…, attrs={"layout_free_placeholders": [C]})      # C, an intermediate value
      ->
    T.func_attr({"layout_free_buffers": [1]})
    with T.block("D"): T.block_attr({"layout_free_placeholders": [C]})
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tilewright.scalar.expr import Buffer
from tilewright.te.tensor import ComputeOp, Operation, Tensor
from tilewright.tir.stmt import Block, PrimFunc, Stmt, map_bodies, stored_buffers, walk_stmt
from tilewright.tir.transform.remove_layout_rewrites import FREE

FREE_INPUTS: Final = "layout_free_placeholders"
"""Attribute of a computation, and annotation of its block: tensors that it reads, in any layout."""


def with_free_layouts(func: PrimFunc, blocks: Mapping[Operation, str], params: Mapping[Tensor, Buffer]) -> PrimFunc:
    """Return the program of computations, whose `blocks` are named, with the tensors that they read in any layout."""
    computed = {name: op for op, name in blocks.items() if isinstance(op, ComputeOp)}
    free = {name: list[Tensor](op.attrs.get(FREE_INPUTS, ())) for name, op in computed.items()}
    given = {params[t] for tensors in free.values() for t in tensors if t in params}
    made = {name: [t for t in tensors if t not in params] for name, tensors in free.items()}
    if any(made.values()):
        stores = {s.name: stored_buffers(s) for s in walk_stmt(func.body) if isinstance(s, Block)}
        inner = {name: [stores[blocks[t.op]][t.index] for t in tensors] for name, tensors in made.items() if tensors}
        func = func.with_body(_noted(func.body, inner))
    return func.with_attr(FREE, [k for k, b in enumerate(func.params) if b in given]) if given else func


def _noted(s: Stmt, free: Mapping[str, list[Buffer]]) -> Stmt:
    if isinstance(s, Block) and s.name in free:
        return replace(s, annotations={**s.annotations, FREE_INPUTS: free[s.name]})
    return map_bodies(s, lambda b: _noted(b, free)) or s


__all__ = ["with_free_layouts"]
