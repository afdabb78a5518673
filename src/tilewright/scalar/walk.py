"""Walks over scalar expressions: every subexpression, rebuilding, substitution, and their text."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tilewright.scalar.expr import (
    And,
    Binary,
    Broadcast,
    Call,
    Cast,
    FloatImm,
    IntImm,
    Load,
    Not,
    Or,
    PrimExpr,
    Ramp,
    Select,
    Var,
)


def has_effect(e: PrimExpr) -> bool:
    """Return whether the evaluation of `e` does more than compute a value."""
    return any(isinstance(x, Call) and x.op.effect for x in walk(e))


def walk(e: PrimExpr) -> Sequence[PrimExpr]:
    """Return every distinct subexpression, operands before users."""
    operands = e.operands()
    if not operands:
        return (e,)
    found: list[PrimExpr] = []
    seen: set[int] = {id(e)}
    stack: list[PrimExpr | None] = [e, None, *operands[::-1]]  # an expression follows its operands, marked by None
    while stack:
        x = stack.pop()
        if x is None:
            found.append(stack.pop())  # type: ignore[arg-type]
            continue
        key = id(x)
        if key not in seen:
            seen.add(key)
            operands = x.operands()
            if operands:
                stack += (x, None, *operands[::-1])
            else:
                found.append(x)
    return found


def certain(e: PrimExpr) -> dict[PrimExpr, None]:
    """Return the subexpressions evaluated whenever `e` is, in no particular order. Excluded are those in one side of a
    `Select` or in a second condition only."""
    found: dict[PrimExpr, None] = {e: None}
    stack = [e]
    while stack:
        x = stack.pop()
        operands = (x.condition,) if isinstance(x, Select) else (x.a,) if isinstance(x, (And, Or)) else x.operands()
        for o in operands:
            if o not in found:
                found[o] = None
                stack.append(o)
    return found


def shared_choices(a: PrimExpr, b: PrimExpr) -> list[PrimExpr]:
    """Return the outermost values containing a `Select` that are evaluated whenever `a` is, and whenever `b` is.

    Evaluating them once, before the choice between `a` and `b`, prevents doubling at each level of nested choices.
    """
    choices: set[PrimExpr] = set()
    for x in walk(a):
        if isinstance(x, Select) or any(o in choices for o in x.operands()):
            choices.add(x)
    other = certain(b) if choices else {}
    both = [x for x in certain(a) if x in choices and x in other] if other else []
    inner = {o for x in both for o in x.operands()}
    return [x for x in both if x not in inner]


def rewrite(
    e: PrimExpr, rule: Callable[[PrimExpr], PrimExpr | None], memo: dict[PrimExpr, PrimExpr] | None = None
) -> PrimExpr:
    """Rebuild bottom up; `rule` receives each rebuilt expression and returns its replacement, or None to keep it."""
    memo = {} if memo is None else memo
    known = memo.get(e)
    if known is not None:
        return known
    old = e.operands()
    new = e
    if old:
        operands = [rewrite(o, rule, memo) for o in old]
        for a, b in zip(old, operands, strict=True):
            if a is not b:
                new = e.with_operands(operands)
                break
    replaced = rule(new)
    result = new if replaced is None else replaced
    memo[e] = result
    return result


def substitute(e: PrimExpr, mapping: Mapping[Any, PrimExpr], memo: dict[PrimExpr, PrimExpr] | None = None) -> PrimExpr:
    """Replace variables (or any subexpressions) by `mapping`; pass one `memo` to share work between calls.

    All are replaced at once: a replacement, or what it folds to, is not replaced again.
    """
    if not mapping:
        return e
    return _substituted(e, mapping, {} if memo is None else memo)


def _substituted(e: PrimExpr, mapping: Mapping[Any, PrimExpr], memo: dict[PrimExpr, PrimExpr]) -> PrimExpr:
    known = memo.get(e)
    if known is not None:
        return known
    old = e.operands()
    new = [_substituted(o, mapping, memo) for o in old]
    same = all(a is b for a, b in zip(old, new, strict=True))
    result = memo[e] = mapping.get(e, e) if same else e.with_operands(new)
    return result


def free_vars(e: PrimExpr) -> list[Var]:
    return [x for x in walk(e) if isinstance(x, Var)]


LONGEST_TEXT: Final = 200_000
"""Largest number of characters of an expression's text, in which shared subexpressions are repeated at each use."""


def text_of(e: PrimExpr) -> str:
    """Return the text of an expression in Python syntax; operands whose text exceeds `LONGEST_TEXT` become `...`."""
    if isinstance(e, Var):
        return e.name
    texts: dict[PrimExpr, str] = {}
    for x in walk(e):
        text = _text(x, texts)
        texts[x] = text if len(text) <= LONGEST_TEXT else "..."
    return texts[e]


def _text(e: PrimExpr, texts: dict[PrimExpr, str]) -> str:
    match e:
        case Var():
            return e.name
        case IntImm():
            return str(bool(e.value)) if e.dtype.code == "bool" else str(e.value)
        case FloatImm():
            return repr(e.value) if math.isfinite(e.value) else f"float('{e.value}')"
        case Binary():
            a, b = texts[e.a], texts[e.b]
            return (
                f"({a} {e.symbol} {b})" if not e.symbol[0].isalpha() or e.symbol in ("and", "or")
                else f"{e.symbol}({a}, {b})"
            )
        case _:
            return _other_text(e, texts)


def _other_text(e: PrimExpr, texts: dict[PrimExpr, str]) -> str:
    inner = ", ".join(texts[o] for o in e.operands())
    match e:
        case Not():
            return f"(not {inner})"
        case Cast():
            return f"cast('{e.dtype}', {inner})"
        case Load():
            return f"{e.buffer.name}[{inner}]"
        case Call():
            return f"{e.op.spelling}({inner})"
        case Ramp():
            return f"ramp({inner}, {e.dtype.lanes})"
        case Broadcast():
            return f"broadcast({inner}, {e.dtype.lanes})"
        case Select():
            return f"if_then_else({inner})"
        case _:
            return f"{type(e).__name__.lower()}({inner})"
