"""Give every loop, block and `Let` its own variables.

    for i: A[i] = 0;  for i: B[i] = 1      (one variable, bound twice)
      ->
    for i: A[i] = 0;  for i_1: B[i_1] = 1
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tilewright.scalar.expr import Var
from tilewright.scalar.walk import substitute
from tilewright.tir.stmt import Block, For, Let, PrimFunc, Stmt, map_bodies, substitute_stmt


def convert_ssa(func: PrimFunc) -> PrimFunc:
    """Rename variables that are bound again. Returns `func` itself if no variable is bound twice."""
    return func.with_body(_visit(func.body, set()))


def _visit(s: Stmt, bound: set[Var]) -> Stmt:
    match s:
        case For() | Let():
            own = _own((s.var,), bound)
            if own:
                s = replace(s, var=own[s.var], body=_renamed(s.body, own))
            bound.add(s.var)
        case Block():
            own = _own([i.var for i in s.iters], bound)
            init = None if s.init is None else _visit(_renamed(s.init, own), bound)
            if own or init is not s.init:
                iters = tuple(replace(i, var=own.get(i.var, i.var)) for i in s.iters)
                predicate = substitute(s.predicate, own)
                s = replace(s, iters=iters, predicate=predicate, init=init, body=_renamed(s.body, own))
            bound.update(i.var for i in s.iters)
        case _:
            pass
    return map_bodies(s, lambda b: _visit(b, bound)) or s


def _own(variables: Sequence[Var], bound: set[Var]) -> dict[Var, Var]:
    """Return new variables for those that are already bound."""
    return {v: Var(v.name, v.dtype) for v in variables if v in bound}


def _renamed(s: Stmt, own: Mapping[Var, Var]) -> Stmt:
    return substitute_stmt(s, {old: new for old, new in own.items()})  # noqa: C416  a dictionary of expressions
