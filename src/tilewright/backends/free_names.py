"""Free names of a statement: the parameters of the function that the body of a parallel loop becomes."""

from __future__ import annotations

from tilewright.base.graphs import reachable
from tilewright.scalar.expr import Buffer, Load, PrimExpr, Var
from tilewright.tir.stmt import Allocate, For, Let, Stmt, Store, expressions, walk_stmt


def free_names(s: Stmt) -> tuple[list[Buffer], list[Var]]:
    """Return the buffers and variables that `s` uses and does not define, in order of first use."""
    buffers: dict[Buffer, None] = {}
    variables: dict[Var, None] = {}
    own: set[Buffer | Var] = set()
    seen: set[PrimExpr] = set()
    for x in walk_stmt(s):
        match x:
            case For() | Let():
                own.add(x.var)
            case Allocate():
                own.add(x.buffer)
            case Store():
                buffers.setdefault(x.buffer)
            case _:
                pass
        tops = list(reversed(expressions(x)))
        if isinstance(x, Allocate):
            tops += [d for d in x.buffer.shape if isinstance(d, PrimExpr)]
        for e in reachable(tops, lambda e: reversed(e.operands()), seen):
            if isinstance(e, Load):
                buffers.setdefault(e.buffer)
            elif isinstance(e, Var):
                variables.setdefault(e)
    return [b for b in buffers if b not in own], [v for v in variables if v not in own]
