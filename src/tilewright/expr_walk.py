"""Walks over scalar expressions: every subexpression, rebuilding, substitution, and their text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from tilewright.expr import Binary, Broadcast, Call, Cast, FloatImm, IntImm, Load, Not, PrimExpr, Ramp, Select, Var


def walk(e: PrimExpr) -> Iterator[PrimExpr]:
    """Every distinct subexpression, operands before users."""
    seen: set[int] = set()
    stack: list[tuple[PrimExpr, bool]] = [(e, False)]
    while stack:
        x, done = stack.pop()
        if done:
            yield x
        elif id(x) not in seen:
            seen.add(id(x))
            operands = x.operands()
            if operands:
                stack.append((x, True))
                stack.extend([(o, False) for o in reversed(operands)])
            else:
                yield x


def rewrite(e: PrimExpr, rule: Callable[[PrimExpr], PrimExpr | None], memo: dict[PrimExpr, PrimExpr] | None = None) -> PrimExpr:
    """Rebuild bottom up; `rule` sees each rebuilt expression and returns its replacement, or None to keep it."""
    memo = {} if memo is None else memo
    known = memo.get(e)
    if known is not None:
        return known
    old = e.operands()
    new = e
    if old:
        operands = [rewrite(o, rule, memo) for o in old]
        if any(a is not b for a, b in zip(old, operands, strict=True)):
            new = e.with_operands(operands)
    replaced = rule(new)
    result = new if replaced is None else replaced
    memo[e] = result
    return result


def substitute(e: PrimExpr, mapping: dict[PrimExpr, PrimExpr], memo: dict[PrimExpr, PrimExpr] | None = None) -> PrimExpr:
    """Replace variables (or any subexpressions) by `mapping`; pass one `memo` to share work between calls."""
    if not mapping:
        return e
    return rewrite(e, mapping.get, memo)


def free_vars(e: PrimExpr) -> list[Var]:
    return [x for x in walk(e) if isinstance(x, Var)]


def text_of(e: PrimExpr) -> str:
    """Python-syntax text of an expression."""
    match e:
        case Var():
            return e.name
        case IntImm():
            return str(bool(e.value)) if e.dtype.code == "bool" else str(e.value)
        case FloatImm():
            return repr(e.value) if math.isfinite(e.value) else f"float('{e.value}')"
        case Binary():
            a, b = text_of(e.a), text_of(e.b)
            return f"({a} {e.symbol} {b})" if not e.symbol[0].isalpha() or e.symbol in ("and", "or") else f"{e.symbol}({a}, {b})"
        case _:
            return _other_text(e)


def _other_text(e: PrimExpr) -> str:
    inner = ", ".join(text_of(o) for o in e.operands())
    match e:
        case Not():
            return f"(not {inner})"
        case Cast():
            return f"cast('{e.dtype}', {inner})"
        case Load():
            return f"{e.buffer.name}[{inner}]"
        case Call():
            return f"{e.op.name}({inner})"
        case Ramp():
            return f"ramp({inner}, {e.dtype.lanes})"
        case Broadcast():
            return f"broadcast({inner}, {e.dtype.lanes})"
        case Select():
            return f"if_then_else({inner})"
        case _:
            return f"{type(e).__name__.lower()}({inner})"
