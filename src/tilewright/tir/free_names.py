"""The variables and the memory that a program uses, and does not define."""

from __future__ import annotations

from typing import Any

from tilewright.scalar.expr import Buffer, Load, PlacedBuffer, PrimExpr, Var
from tilewright.scalar.walk import walk
from tilewright.tir.stmt import INNER, Allocate, Block, For, Let, PrimFunc, Stmt, Store, expressions, walk_stmt


def free_names(func: PrimFunc) -> tuple[list[Var], list[Buffer]]:
    """Return the variables and buffers that nothing in the function binds, in order of use; these include symbolic
    dimensions of parameters."""
    inner = func.attrs.get(INNER) or ()
    return _free(func.body, (*func.params, *inner))


def undefined_names(s: Stmt) -> tuple[list[Var], list[Buffer]]:
    """Return the variables and buffers that a statement uses and does not bind, in order of use; the variables include
    symbolic dimensions and addresses of the buffers."""
    return _free(s, ())


def _free(body: Stmt, given: tuple[Any, ...]) -> tuple[list[Var], list[Buffer]]:
    used: dict[Any, None] = {}
    bound: set[Any] = set(given)
    seen: set[PrimExpr] = set()

    def use(e: Any) -> None:
        for x in walk(e) if isinstance(e, PrimExpr) and e not in seen else ():
            seen.add(x)
            if isinstance(x, Var):
                used.setdefault(x)
            elif isinstance(x, Load):
                declare(x.buffer)

    def declare(b: Buffer) -> None:
        if b not in used:
            if isinstance(b, PlacedBuffer):
                use(b.pointer)
            for d in (*b.shape, *b.strides):
                use(d)
            used.setdefault(b)

    for b in given:
        if isinstance(b, Buffer):
            declare(b)
    for s in walk_stmt(body):
        if isinstance(s, (For, Let)):
            bound.add(s.var)
        elif isinstance(s, Allocate):
            declare(s.buffer)
            bound.add(s.buffer)
        elif isinstance(s, Store):
            declare(s.buffer)
        elif isinstance(s, Block):
            bound.update(i.var for i in s.iters)
            for i in s.iters:
                use(i.extent)
        for e in expressions(s):
            use(e)
    free = [x for x in used if x not in bound]
    return [x for x in free if isinstance(x, Var)], [x for x in free if isinstance(x, Buffer)]
