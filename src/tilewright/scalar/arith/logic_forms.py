"""Conjunctive form: a condition as `and` of `or`s of conditions without either.

    a or (b and c)                                   ->  (a or b) and (a or c)
    (i == 0 or k == 20) and (i == 0 or k != 30)      ->  i == 0 or k == 20
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tilewright.scalar.expr import And, Or, PrimExpr, all_of, any_of, logical_and, logical_or, number_of

Group = tuple[PrimExpr, ...]
MOST_GROUPS: Final = 64
"""Largest number of `or`s; a condition with more keeps its form."""


def and_of_ors(e: PrimExpr, simplify: Callable[[PrimExpr], PrimExpr]) -> PrimExpr:
    """Return a condition in conjunctive form. `simplify` is applied to pairs of conditions in one `or`, and to pairs
    in which two `or`s differ."""
    groups = _groups(e)
    if groups is None:
        return e
    reduced = [_reduced(g, simplify) for g in groups]
    kept = _merged([g for g in reduced if g is not None], simplify)
    return all_of(*(any_of(*g) for g in kept))


def _groups(e: PrimExpr) -> list[Group] | None:
    if not isinstance(e, (And, Or)):
        return [(e,)]
    a, b = _groups(e.a), _groups(e.b)
    if a is None or b is None or len(a) * len(b) > MOST_GROUPS:
        return None
    return [*a, *b] if isinstance(e, And) else [(*g, *(x for x in h if x not in g)) for g in a for h in b]


def _reduced(group: Group, simplify: Callable[[PrimExpr], PrimExpr]) -> Group | None:
    """Return an `or` in which no two operands have a simpler one; None if it always holds."""
    parts = [*group]
    changed = True
    while changed:
        changed = False
        for i in range(len(parts)):
            for j in range(i + 1, len(parts)):
                one = simplify(logical_or(parts[i], parts[j]))
                if number_of(one):
                    return None
                if not isinstance(one, Or):
                    parts[j] = one
                    del parts[i]
                    changed = True
                    break
            if changed:
                break
    return tuple(parts)


def _merged(groups: list[Group], simplify: Callable[[PrimExpr], PrimExpr]) -> list[Group]:
    """Return `or`s without those that follow from another one; two that differ in one operand are merged if
    possible."""
    kept: list[Group] = []
    for group in groups:
        own: Group | None = group
        for other in [*kept]:
            if own is not None and {*other} <= {*own}:
                own = None
            if own is None:
                break
            joined = _joined(other, own, simplify)
            if joined is not None:
                kept = [g for g in kept if g is not other]
                own = joined
        if own is not None:
            kept.append(own)
    return kept


def _joined(first: Group, second: Group, simplify: Callable[[PrimExpr], PrimExpr]) -> Group | None:
    """Return the conjunction of two `or`s as one, in the order of the second; None if there is no such form."""
    mine, other = [x for x in first if x not in second], [x for x in second if x not in first]
    if len(mine) != 1 or len(other) != 1:
        return first if not other else None
    both = simplify(logical_and(mine[0], other[0]))
    if isinstance(both, And):
        return None
    return tuple(both if x is other[0] else x for x in second)
