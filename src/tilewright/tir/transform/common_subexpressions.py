"""Name values that several statements compute.

    for i in T.serial(8):              ->      for i in T.serial(8):
        A[i // 3 + 1] = 1.0                        cse = i // 3
        B[i // 3 + 2] = 2.0                        A[cse + 1] = 1.0
                                                   B[cse + 2] = 2.0

A binding is placed directly inside the innermost loop that the value depends on. Values that read memory, may divide by
zero, or are vectors are not bound. Code generation shares the expressions of consecutive statements by itself. So this
pass is for readability and for other back ends, and is not part of `lower_loops`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Final

from tilewright.scalar.expr import (
    Binary,
    Call,
    Cast,
    FloorDiv,
    FloorMod,
    Load,
    PrimExpr,
    TruncDiv,
    TruncMod,
    Var,
    number_of,
)
from tilewright.scalar.walk import rewrite, walk
from tilewright.tir.stmt import For, Let, PrimFunc, Stmt, expressions, map_bodies, map_expressions, walk_stmt

_DIVISIONS: Final = (FloorDiv, FloorMod, TruncDiv, TruncMod)


def common_subexpressions(func: PrimFunc) -> PrimFunc:
    """Bind each scalar that is computed at least twice inside a loop with a `Let`."""
    return func.with_body(_stmt(func.body, frozenset()))


def _stmt(s: Stmt, known: frozenset[Var]) -> Stmt:
    if isinstance(s, (For, Let)):
        inside = known | {s.var}
        return replace(
            s, body=_named(_stmt(s.body, inside), s.var, inside) if isinstance(s, For) else _stmt(s.body, inside))
    return map_bodies(s, lambda b: _stmt(b, known)) or s


def _named(body: Stmt, var: Var, known: frozenset[Var]) -> Stmt:
    """Bind values that depend on `var`, but not on inner variables, and occur more than once in `body`."""
    counts = _counts(body, var, known)
    if not counts:
        return body
    chosen = max(counts, key=lambda e: (sum(1 for _ in walk(e)), counts[e]))
    name = Var("cse", chosen.dtype)
    memo: dict[PrimExpr, PrimExpr] = {}
    new = map_expressions(body, lambda e: rewrite(e, lambda x: name if x is chosen else None, memo))
    return Let(name, chosen, _named(new, var, known | {name}))


def _counts(body: Stmt, var: Var, known: frozenset[Var]) -> dict[PrimExpr, int]:
    found: Counter[PrimExpr] = Counter()
    allowed: dict[PrimExpr, bool] = {}
    for s in walk_stmt(body):
        for top in expressions(s):
            for e in walk(top):
                for o in e.operands():
                    if _worth(o, known, allowed):
                        found[o] += 1
            if _worth(top, known, allowed):
                found[top] += 1
    return {e: n for e, n in found.items() if n > 1 and any(x is var for x in walk(e))}


def _worth(e: PrimExpr, known: frozenset[Var], memo: dict[PrimExpr, bool]) -> bool:
    if not isinstance(e, (Binary, Call, Cast)) or e.dtype.lanes > 1:
        return False
    found = memo.get(e)
    if found is None:
        found = memo[e] = not any(
            isinstance(x, Load) or (isinstance(x, Var) and x not in known) or (isinstance(x, Call) and x.op.effect)
            or (isinstance(x, _DIVISIONS) and not number_of(x.b)) for x in walk(e))
    return found
