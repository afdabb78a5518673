"""Converts functions of operators and tuples into a list of steps over arrays, made once for all calls.

    fn (%x, %y) { %0 = add(%x, %y); (%0, exp(%0)) }
      -> slot 2 = add(slot 0, slot 1); slot 3 = exp(slot 2); slot 4 = (slot 2, slot 3)
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from tilewright.relay.visitor import operands, post_order

Step = Callable[..., Any]


def is_straight(function: Function) -> bool:
    """Return whether a function consists of operators and tuples only, with defined roundings and without deferred
    work.
    """
    return function.attrs.get("Parts", 1) == 1 and "numerics" not in function.attrs and all(
        isinstance(e, (Var, Constant, Tuple, TupleGetItem)) or (isinstance(e, Call) and not isinstance(e.op, Expr))
        for e in post_order(function.body))


def steps_of(function: Function, of_call: Callable[[Call], Step]) -> Step:
    """Return a function of arrays that runs the steps of a straight-line function. `of_call` makes the step of a call.
    """

    def step(e: Expr) -> Step:
        if isinstance(e, Call):
            return of_call(e)
        return operator.itemgetter(e.index) if isinstance(e, TupleGetItem) else _as_tuple

    order = list(post_order(function.body, inside=False))
    places: dict[Expr, int] = {p: k for k, p in enumerate(function.params)}
    constants = [e for e in order if isinstance(e, Constant)]
    places.update({e: len(function.params) + k for k, e in enumerate(constants)})
    steps: list[tuple[Step, int | Callable[[Sequence[Any]], Any]]] = []
    for e in order:
        if e not in places:
            needed = [places[o] for o in (e.args if isinstance(e, Call) else operands(e))]
            # a single step on all parameters
            if not steps and e is function.body and needed == list(range(len(places))):
                return functools.partial(_with, step(e), [c.value for c in constants]) if constants else step(e)
            steps.append(
                (step(e), needed[0] if len(needed) == 1 else operator.itemgetter(*needed) if needed else _nothing))
            places[e] = len(places)
    fixed, result = [e.value for e in constants], places[function.body]

    def run(*args: Any) -> Any:
        values = [*args, *fixed]
        for one, needed in steps:
            values.append(one(values[needed]) if type(needed) is int
                          else one(*needed(values)))  # type: ignore[operator]
        return values[result]

    return run


def _as_tuple(*fields: Any) -> tuple[Any, ...]:
    return fields


def _nothing(values: Sequence[Any]) -> tuple[()]:
    return ()


def _with(step: Step, fixed: Sequence[Any], *args: Any) -> Any:
    return step(*args, *fixed)
