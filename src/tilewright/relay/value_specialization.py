"""Outline the parts of a program that depend on few values each, so that they can be specialized for these values.

    %0 = dyn.strided_slice(%places, 0, %n, 1)
    %1 = frontend.deferred(%boxes, %0, op_type="GatherND")
    %2 = dyn.strided_slice(%others, 0, %m, 1)
    %3 = frontend.deferred(%boxes, %2, op_type="GatherND")
    frontend.deferred(%1, %3, op_type="Concat")
    -> %0 = fn (%p0, %p1, %p2, %p3, %p4) {
         frontend.deferred(%p4, dyn.strided_slice(%p0, %p1, %p2, %p3), op_type="GatherND")
       }(%places, 0, %n, 1, %boxes)
       %1 = fn (…) { … }(%others, 0, %m, 1, %boxes)
       frontend.deferred(%0, %1, op_type="Concat")

The counts `n` and `m` together differ from call to call, but each alone is a small number that recurs. A part is
specialized for the values that decide it (`decided`). Parts of equal content (`content_of`) share specializations;
constants are parameters, so that they do not make contents differ.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.errors import CompileError
from tilewright.base.nd import content
from tilewright.base.types import TensorType
from tilewright.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from tilewright.relay.interpreter import evaluate
from tilewright.relay.op.deferred import Waiting, pending
from tilewright.relay.transform.fold_constant import fold
from tilewright.relay.transform.stages import is_static, needs_stages, resolve
from tilewright.relay.visitor import consumers, free_vars, operands, post_order, rewrite

Array = np.ndarray[Any, Any]
Deciding = frozenset[int]
"""Indices of the parameters whose values decide a part."""

_FEWEST: Final = 4
"""Least number of operators in a part."""
_FOLDED_BYTES: Final = 1 << 16
_OPEN: Final = -1
"""Marks a value that depends on unknown sizes or cannot be decided."""


def outlined(function: Function) -> Function:
    """Return a function of operators and tuples with each of its parts as a call of a function."""
    deciding = _deciding(function)
    order = [e for e in deciding if not isinstance(e, (Var, Constant))]
    groups: dict[Deciding, list[Expr]] = {}
    for e in order:
        groups.setdefault(deciding[e], []).append(e)
    parts = [members for by, members in groups.items() if by and _OPEN not in by and function.body not in members
             and _is_part(members, by, deciding)]
    users = consumers(order)
    new: dict[Expr, Expr] = {}
    for members in parts:
        new.update(_outline(members, users))
    return Function(function.params, rewrite(function.body, lambda e: None, memo=new), attrs=function.attrs,
                    span=function.span) if parts else function


def deciding_of(function: Function) -> Deciding:
    """Return the numbers of the parameters that decide a part, as far as they are needed before anything is known."""
    return frozenset().union(*_deciding(function).values())


def content_of(function: Function) -> Hashable:
    """Return a key of the content of a part, independent of its position and names."""
    places: dict[Expr, int] = {}
    said: list[Hashable] = []
    for e in (*function.params, *post_order(function.body)):
        if e not in places:
            places[e] = len(places)
            said.append((_content(e), *[places[o] for o in operands(e)]))
    return tuple(said)


def decided(function: Function, args: Sequence[Array]) -> tuple[Function | None, Deciding]:
    """Return the part specialized for these values, and the values that decided it; None if sizes remain unknown before
    it runs.

    A value without elements becomes a constant. Raises the errors of conversions and type inference.
    """
    places = {p: k for k, p in enumerate(function.params)}
    asked: set[int] = set()

    def ask(e: Expr) -> Array | None:
        needed = free_vars(e)
        asked.update(places[v] for v in needed)
        return (args[places[e]] if e in places
                else np.asarray(evaluate(Function(needed, e), *[args[places[v]] for v in needed])))

    found = resolve(function, function.params, _of_arithmetic(ask))
    return (None if needs_stages(found) else found.with_body(rewrite(found.body, _known_without_running)),
            frozenset(asked))


def _known_without_running(e: Expr) -> Expr | None:
    """A call with known results or a tensor without elements -> a constant."""
    made = fold(e, _FOLDED_BYTES)
    t = e.known_type()
    if (made is not None or not isinstance(e, (Call, TupleGetItem)) or not isinstance(t, TensorType) or not t.is_static
            or t.size):
        return made
    return None if isinstance(e, Call) and not e.op.pure else Constant(np.empty(t.shape, t.dtype.numpy()), e.span)


def _of_arithmetic(ask: Callable[[Expr], Array | None]) -> Callable[[Expr], Array | None]:
    """Return `ask` for values computed from parameters by operators of known sizes; other values are unknown before the
    run.
    """
    return lambda e: ask(e) if not any(pending(o) or not is_static(o.known_type()) for o in post_order(e)) else None


def _deciding(function: Function) -> dict[Expr, Deciding]:
    """Return, for every expression, the values that decide it: those that deferred operators below it need."""
    places = {p: k for k, p in enumerate(function.params)}
    found: dict[Expr, Deciding] = {}
    for e in post_order(function.body):
        below = operands(e)
        by = frozenset().union(*[found[o] for o in below]) if below else frozenset[int]()
        if isinstance(e, Var) and not is_static(e.known_type()):
            by = frozenset({_OPEN})
        elif isinstance(e, Call) and pending(e) and all(is_static(a.known_type()) for a in e.args):
            by |= _asked_by(e, places)
        found[e] = by
    return found


def _asked_by(call: Call, places: dict[Var, int]) -> Deciding:
    asked: set[int] = set()

    def ask(e: Expr) -> Array | None:
        if isinstance(e, Constant):
            return e.value
        asked.update(places[v] for v in free_vars(e))
        return None

    try:
        call.op.resolve(call, ask)
    except CompileError:  # the call raises the error again if it runs
        asked.add(_OPEN)
    return frozenset(asked)


def _is_part(members: Sequence[Expr], by: Deciding, deciding: dict[Expr, Deciding]) -> bool:
    calls = [e for e in members if isinstance(e, Call)]
    return len(calls) >= _FEWEST and all(c.op.pure for c in calls) and all(deciding[o] == by or not deciding[o]
        for e in members for o in operands(e))


def _outline(members: Sequence[Expr], users: dict[Expr, list[Expr]]) -> dict[Expr, Expr]:
    """Return the replacements of the values that are needed outside."""
    own = set(members)
    inputs = dict.fromkeys(o for e in members for o in operands(e) if o not in own
                           and not (isinstance(o, Constant) and o.value.dtype.hasobject))
    needed = [e for e in members if any(u not in own for u in users[e])]
    params = {o: Var(f"p{k}", o.known_type()) for k, o in enumerate(inputs)}
    body = Tuple(tuple(needed)) if len(needed) > 1 else needed[0]
    part = Call(Function(list(params.values()), rewrite(body, lambda e: None, memo=dict(params))), list(params))
    return {e: TupleGetItem(part, k) for k, e in enumerate(needed)} if len(needed) > 1 else {needed[0]: part}


def _content(e: Expr) -> Hashable:
    if isinstance(e, Call):
        return e.op.content() if isinstance(e.op, Waiting) else e.op
    if isinstance(e, Constant):
        value = e.value
        return (value.shape, str(value.dtype), content(value))
    if isinstance(e, Var):
        return str(e.known_type())
    return e.index if isinstance(e, TupleGetItem) else ""
