"""Finds the first value, in evaluation order, that a rewrite made wrong.

Lets and function calls are inlined, and every value outside of branches is computed. The counterpart of a new value is
the old value of the same model node. Otherwise it is the one at the same position in the sequence of operators and
types. The result is the first value that differs from its counterpart and equals no other old value, with the lines of
both texts.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tilewright.base import graphs
from tilewright.ir.module import IRModule
from tilewright.ir.transform import PassContext
from tilewright.relay.adt import Match
from tilewright.relay.expr import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    Var,
)
from tilewright.relay.interpreter import evaluate
from tilewright.relay.text_lines import line_of
from tilewright.relay.transform.to_graph_normal_form import ToGraphNormalForm
from tilewright.relay.visitor import operands, post_order, rewrite, substitute

Program = tuple[Function, Mapping[str, Any]]
Differs = Callable[[Any, Any], "str | None"]
MOST_VALUES: Final = 5_000
"""Number of values of the largest function that is examined."""


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """The first wrong value: its positions in both programs, and the difference."""

    before: Expr
    after: Expr
    line_before: str | None
    line_after: str | None
    found: str

    def __str__(self) -> str:
        return (f"  the first value that differs: {label(self.after)}\n  before: {self.line_before}\n  after:  "
                f"{self.line_after}\n  {self.found}")


def first_difference(old: Program, new: Program, args: Sequence[Any], differs: Differs) -> FirstDifference | None:
    """Find the first value that is wrong in `new`; None if no single value can be identified.

    `before` is an expression of `old` itself where that has no lets and no calls of functions.
    """
    programs = [straight(*p) for p in (old, new)]
    if any(p is None for p in programs):
        return None
    sides = [(p, values_of(p, args, functions)) for p, (_, functions) in zip(programs, (old, new), strict=True)
             if p is not None]
    (before, known), (after, made) = sides
    partner = _counterparts(list(known), list(made))
    for e, value in made.items():
        other = partner.get(e)
        if other is None or (found := differs(known[other], value)) is None:
            continue
        if any(_alike(v, value) and differs(v, value) is None for v in known.values()):
            continue
        return FirstDifference(other, e, line_of(before, other), line_of(after, e), found)
    return None


def label(e: Expr) -> str:
    """Return the operator of a value, and its model node."""
    name = e.op.name if isinstance(e, Call) and not isinstance(e.op, Expr) else type(e).__name__
    return name if e.span is None else f"{name}, from {e.span}"


def _alike(a: Any, b: Any) -> bool:
    return isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and a.shape == b.shape and a.dtype == b.dtype


def straight(function: Function, functions: Mapping[str, Any]) -> Function | None:
    """Inline lets and function calls; None if evaluation has side effects."""
    if any(isinstance(e, (RefCreate, RefRead, RefWrite)) for e in post_order(function)):
        return None

    def inline(e: Expr) -> Expr | None:
        if not isinstance(e, Call) or not isinstance(e.op, Expr):
            return None
        called = functions.get(e.op.name_hint) if isinstance(e.op, GlobalVar) else e.op
        if not isinstance(called, Function) or any(isinstance(x, GlobalVar) for x in post_order(called)):
            return None
        return substitute(called.body, dict(zip(called.params, e.args, strict=True)))

    plain: Function = ToGraphNormalForm().transform_function(function, IRModule(functions), PassContext.current())
    return plain.with_body(rewrite(plain.body, inline))


def _strict(e: Expr) -> tuple[Expr, ...]:
    """Return the operands that are computed whenever `e` is."""
    match e:
        case If():
            return (e.cond,)
        case Match():
            return (e.data,)
        case Function() | Let():
            return ()
        case Call():
            return e.args
        case _:
            return operands(e)


def values_of(function: Function, args: Sequence[Any], functions: Mapping[str, Any]) -> dict[Expr, Any]:
    """Evaluate every value outside of branches, in evaluation order."""
    order = graphs.post_order([function.body], _strict)
    wanted = [e for e in order if not isinstance(e, (Var, Constant, Function, Tuple, GlobalVar))][:MOST_VALUES]
    said = {k: v for k, v in function.attrs.items() if k == "numerics"}
    found = evaluate(Function(function.params, Tuple(tuple(wanted)), attrs=said), *args, functions=functions)
    return {e: v for e, v in zip(wanted, found, strict=True) if isinstance(v, np.ndarray)}


def _counterparts(old: Sequence[Expr], new: Sequence[Expr]) -> dict[Expr, Expr]:
    """Return the value of `old` that corresponds to each value of `new`."""
    partner: dict[Expr, Expr] = {e: e for e in set(old) & set(new)}
    spans = [Counter((str(e.span), _kind(e)) for e in side if e.span is not None) for side in (old, new)]
    by_span = {(str(e.span), _kind(e)): e for e in old if e.span is not None}
    for e in new:
        key = (str(e.span), _kind(e))
        if e not in partner and spans[0][key] == spans[1][key] == 1:
            partner[e] = by_span[key]
    taken = set(partner.values())
    left = [e for e in old if e not in taken]
    right = [e for e in new if e not in partner]
    _align(left, right, _kind, partner)
    taken = set(partner.values())
    _align([e for e in left if e not in taken], [e for e in right if e not in partner], lambda e: repr(e.known_type()),
           partner)
    return partner


def _align(old: Sequence[Expr], new: Sequence[Expr], key: Callable[[Expr], Any], partner: dict[Expr, Expr]) -> None:
    for block in difflib.SequenceMatcher(None, [key(e) for e in old], [key(e) for e in new],
                                         autojunk=False).get_matching_blocks():
        partner.update(zip(new[block.b : block.b + block.size], old[block.a : block.a + block.size], strict=True))


def _kind(e: Expr) -> str:
    name = e.op.name if isinstance(e, Call) and not isinstance(e.op, Expr) else type(e).__name__
    return f"{name} {e.known_type()!r}"
