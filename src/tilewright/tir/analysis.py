"""Checks of TIR functions: whether they are well formed, and whether every variable is bound once."""

from __future__ import annotations

from tilewright.base.errors import CompileError
from tilewright.ir.structural import structural_equal
from tilewright.scalar.expr import Buffer, Load, PrimExpr, Value, Var, as_expr
from tilewright.scalar.walk import walk
from tilewright.tir.stmt import (
    NUMBERS,
    SCALARS,
    Allocate,
    Block,
    For,
    Let,
    PrimFunc,
    Stmt,
    Store,
    bodies,
    expressions,
    walk_stmt,
)


def verify_ssa(func: PrimFunc) -> bool:
    """Return whether no variable is bound twice; scalar parameters are bound by the function."""
    bound = {v for _, v in func.attrs.get(SCALARS, ())}
    for s in walk_stmt(func.body):
        own = [i.var for i in s.iters] if isinstance(s, Block) else [s.var] if isinstance(s, (For, Let)) else []
        if any(v in bound for v in own) or len(set(own)) != len(own):
            return False
        bound.update(own)
    return True


def expr_deep_equal(lhs: Value, rhs: Value) -> bool:
    """Return whether two expressions are the same, with the same variables and buffers. Numbers are constants."""
    return structural_equal(as_expr(lhs), as_expr(rhs), exact=True)


def verify_memory(func: PrimFunc) -> bool:
    """Return whether all memory is used in scope: parameters anywhere, other buffers inside their allocation."""
    return _fault(func, variables=False) is None


def verify_well_formed(func: PrimFunc, assert_mode: bool = True) -> bool:
    """Return whether variables and memory are used only in scope; with `assert_mode`, raise `CompileError` for the
    first fault.

    The body of a block with axes can use the loops around it only through these axes.
    """
    found = _fault(func, variables=True)
    if found is not None and assert_mode:
        raise CompileError(f"function '{func.name}' is not well formed: {found}", func.origin, code="TW0611")
    return found is None


def _fault(func: PrimFunc, *, variables: bool) -> str | None:
    sizes = {v for b in func.params for d in b.shape if isinstance(d, PrimExpr) for v in walk(d) if isinstance(v, Var)}
    sizes |= {v for _, v in func.attrs.get(SCALARS, ())} | set(func.attrs.get(NUMBERS, ()))
    stack: list[tuple[Stmt, frozenset[Var], frozenset[Var], frozenset[Buffer]]]
    stack = [
        (func.body, frozenset(sizes), frozenset[Var](), frozenset((*func.params, *func.attrs.get("intermediates", ()))))
    ]
    while stack:
        s, known, loops, memory = stack.pop()
        inner = known | {i.var for i in s.iters} if isinstance(s, Block) else known
        for top in (*expressions(s),):
            for e in walk(top):
                if variables and isinstance(e, Var) and e not in inner:
                    return f"variable '{e.name}' is used where it is not defined, in\n{s}"
                if isinstance(e, Load) and e.buffer not in memory:
                    return f"buffer '{e.buffer.name}' is read where it does not exist, in\n{s}"
        if isinstance(s, Store) and s.buffer not in memory:
            return f"buffer '{s.buffer.name}' is written where it does not exist, in\n{s}"
        if isinstance(s, (For, Let)):
            inner = known | {s.var}
            loops = loops | {s.var} if isinstance(s, For) else loops
        if isinstance(s, Block) and s.iters:  # its body can use the enclosing loops only through its axes
            inner, loops = inner - loops, frozenset()
        if isinstance(s, Allocate):
            memory |= {s.buffer}
        stack.extend((b, inner, loops, memory) for b in bodies(s))
    return None
