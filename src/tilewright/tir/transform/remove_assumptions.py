"""Remove assumptions, which are for the passes before, and stores of undefined values.

    T.evaluate(T.assume(n > 0))        ->      A[0] = 1
    A[0] = 1
    B[0] = T.undef() + 1
"""

from __future__ import annotations

from tilewright.base.errors import CompileError
from tilewright.scalar.expr import Call, Load, PrimExpr, Var, as_expr
from tilewright.scalar.walk import walk
from tilewright.tir.stmt import Evaluate, IfThenElse, Let, PrimFunc, Stmt, Store, expressions, map_bodies, walk_stmt


def remove_assumptions(func: PrimFunc) -> PrimFunc:
    """Remove calls of `T.assume`, and loops and branches that contain nothing else."""
    return func.with_body(_without_assumptions(func.body) or Evaluate(as_expr(0)))


def _without_assumptions(s: Stmt) -> Stmt | None:
    if isinstance(s, Evaluate):
        return None if _is_call(s.value, "assume") else s
    if isinstance(s, IfThenElse):
        then = _without_assumptions(s.then_case)
        other = None if s.else_case is None else _without_assumptions(s.else_case)
        if then is None and other is None:
            return None
        return s if then is s.then_case and other is s.else_case else IfThenElse(
            s.condition, Evaluate(as_expr(0)) if then is None else then, other)
    return map_bodies(s, _without_assumptions)


def remove_undefined_stores(func: PrimFunc) -> PrimFunc:
    """Remove stores of values that contain `T.undef()`, also by a binding, and bindings that nothing uses then.

    Raises `CompileError` for an undefined index.
    """
    undefined = {s.var for s in walk_stmt(func.body) if isinstance(s, Let) and _is_call(s.value, "undef")}
    for s in walk_stmt(func.body):
        places = [*s.indices] if isinstance(s, Store) else []
        places += [i for top in expressions(s) for e in walk(top) if isinstance(e, Load) for i in e.indices]
        wrong = next((i for i in places if _is_undefined(i, undefined)), None)
        if wrong is not None:
            raise CompileError(
                f"function '{func.name}' has the undefined index {wrong}, in\n{s}\nonly stored values may be undefined",
                func.origin, code="TW0611")
    return func.with_body(_without_undefined(func.body, undefined) or Evaluate(as_expr(0)))


def _without_undefined(s: Stmt, undefined: set[Var]) -> Stmt | None:
    if isinstance(s, Store):
        return None if _is_undefined(s.value, undefined) else s
    left = map_bodies(s, lambda b: _without_undefined(b, undefined))
    if isinstance(left, Let) and left.var in undefined and not _uses(left.body, left.var):
        return left.body
    return left


def _is_undefined(e: PrimExpr, undefined: set[Var]) -> bool:
    return any(_is_call(x, "undef") or x in undefined for x in walk(e))


def _is_call(e: PrimExpr, name: str) -> bool:
    return isinstance(e, Call) and e.op.spelling == name


def _uses(s: Stmt, var: Var) -> bool:
    return any(e is var for x in walk_stmt(s) for top in expressions(x) for e in walk(top))
