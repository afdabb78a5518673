"""Paths in a pattern from the root to a part, and the operators that a pattern refers to."""

from __future__ import annotations

from tilewright.relay.dataflow_pattern.match import named
from tilewright.relay.dataflow_pattern.pattern import (
    AltPattern,
    AttrPattern,
    CallPattern,
    DataTypePattern,
    DFPattern,
    DominatorPattern,
    ExprPattern,
    FunctionPattern,
    ShapePattern,
    TypePattern,
    WildcardPattern,
    pattern_nodes,
)
from tilewright.relay.op.registry import Fusion, Op

_DEEP = 1_000
_AROUND = (AttrPattern, DataTypePattern, ShapePattern, TypePattern)


def path_of(root: DFPattern, part: DFPattern) -> str:
    """Return the path from the root to a part, as operators and argument numbers: `qnn.requantize[0].nn.bias_add[1]`.
    """
    stack: list[tuple[DFPattern, str]] = [(root, "")]
    seen: set[DFPattern] = set()
    while stack:
        p, way = stack.pop()
        if p is part:
            return f"{way}.{_name(p)}".strip(".") if _name(p) else way or "the whole"
        if p in seen:
            continue
        seen.add(p)
        if isinstance(p, CallPattern):
            here = f"{way}.{_name(p)}".strip(".")
            stack += [(q, f"{here}[{i}]") for i, q in reversed(list(enumerate(p.args or ())))]
            stack.append((p.op, way))
        elif isinstance(p, WildcardPattern):
            stack += [(p.redirected, way)] if p.redirected is not None else []
        else:
            stack += [(q, way) for q in reversed(p.inside())]
    return "the whole"


def _name(p: DFPattern) -> str:
    """Return the operator of a call pattern, regardless of its conditions."""
    if isinstance(p, _AROUND):
        return _name(p.pattern)
    if isinstance(p, CallPattern):
        return _name(p.op) or "a call"
    if isinstance(p, AltPattern):
        names = [n for q in (p.left, p.right) if (n := _name(q))]
        return "|".join(dict.fromkeys(names))
    return named(p)


def calls_in(p: DFPattern, outer: frozenset[DFPattern] = frozenset()) -> int:
    """Return the least number of calls in a match of a pattern."""
    if p in outer:
        return 0
    inside = outer | {p}
    match p:
        case AltPattern():
            return min(calls_in(p.left, inside), calls_in(p.right, inside))
        case CallPattern():
            return 1 + sum(calls_in(q, inside) for q in p.args or ())
        case WildcardPattern():
            return 0 if p.redirected is None else calls_in(p.redirected, inside)
        case _:
            return sum(calls_in(q, inside) for q in p.inside())


def depth_of(p: DFPattern, outer: frozenset[DFPattern] = frozenset()) -> int:
    """Return the largest number of nodes between the end of a match and a node in it; `_DEEP` for recursive and
    dominator patterns."""
    if p in outer or isinstance(p, DominatorPattern):
        return _DEEP
    below = (p.redirected,) if isinstance(p, WildcardPattern) and p.redirected is not None else p.inside()
    here = not isinstance(p, (*_AROUND, AltPattern, WildcardPattern))
    return min(_DEEP, here + max((depth_of(q, outer | {p}) for q in below), default=0))


def operators_of(p: DFPattern) -> set[type[Op]] | None:
    """Return the operators that a pattern refers to; None if it matches calls of any operator."""
    found: set[type[Op]] = set()
    for q in pattern_nodes(p):
        if isinstance(q, ExprPattern) and not isinstance(q.expr, Op) and isinstance(q.expr, type):
            found.add(q.expr)
        elif isinstance(q, ExprPattern) and isinstance(q.expr, Op):
            found.add(type(q.expr))
        elif isinstance(q, CallPattern) and isinstance(q.op, WildcardPattern):
            return None
    return found


def tops_of(p: DFPattern, steps: int = 2) -> set[type[Op]] | None:
    """Return the operators of calls that may end a match, if up to `steps` light operators are missing; None for any.
    """
    match p:
        case AttrPattern() | DataTypePattern() | ShapePattern() | TypePattern():
            return tops_of(p.pattern, steps)
        case AltPattern():
            return _both(tops_of(p.left, steps), tops_of(p.right, steps))
        case DominatorPattern():
            return tops_of(p.child, steps)
        case CallPattern():
            own = operators_of(p.op)
            if not own or isinstance(p.op, (WildcardPattern, FunctionPattern)):
                return None
            found: set[type[Op]] | None = set(own)
            if steps and all(o.kind <= Fusion.INJECTIVE for o in own):
                for q in p.args or ():
                    inner = tops_of(q, steps - 1) if operators_of(q) else set()
                    found = _both(found, inner)
            if any(o.name in ("multiply", "divide") for o in own):
                return None
            return found
        case WildcardPattern() if p.redirected is not None:
            return None
        case _:
            return set()


def _both(a: set[type[Op]] | None, b: set[type[Op]] | None) -> set[type[Op]] | None:
    return None if a is None or b is None else a | b
