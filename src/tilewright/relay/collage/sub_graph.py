"""Parts of a graph given by their nodes, as functions.

    add(%a, %b) in subtract(add(%a, %b), %c)    ->    fn (%x, %y) { add(%x, %y) }

A part can have several results, which its function returns as a tuple, and inner parts, which become composite
functions inside it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.relay.expr import Call, Constant, Expr, Function, GlobalVar, Tuple, TupleGetItem, Var
from tilewright.relay.visitor import consumers, operands, post_order, with_operands


@dataclass(frozen=True, slots=True)
class SubGraph:
    """A part of the graph of `body`: its nodes, its results in order, and the values that it reads."""

    body: Expr
    nodes: frozenset[Expr]
    results: tuple[Expr, ...]
    inputs: tuple[Expr, ...]
    has_taps: bool
    """Whether the part itself reads one of its results."""
    is_convex: bool
    """Whether no value computed outside, from a result of the part, is an input of the part."""


def sub_graph(body: Expr, nodes: Collection[Expr]) -> SubGraph:
    """Return the part of a graph with these nodes. Constants that it reads belong to it; its inputs are in the order in
    which a search from its results, the last one first, meets them."""
    order = post_order(body, inside=False)
    users = consumers(order)
    own = frozenset(nodes)
    results = tuple(e for e in order if e in own and (e is body or any(u not in own for u in users[e])))
    inputs = _inputs(results, own)
    behind: set[Expr] = set()
    for e in order:
        if e not in own and any(o in own or o in behind for o in operands(e)):
            behind.add(e)
    return SubGraph(
        body, own, results, inputs, any(u in own for e in results for u in users[e]),
        not any(i in behind for i in inputs))


def _inputs(results: Sequence[Expr], own: frozenset[Expr]) -> tuple[Expr, ...]:
    found: dict[Expr, None] = {}
    seen: set[Expr] = set()
    stack = list(results)
    while stack:
        e = stack.pop()
        if e in seen:
            continue
        seen.add(e)
        if e in own:
            stack += reversed(operands(e))
        elif not isinstance(e, (Constant, Function, GlobalVar)):
            found[e] = None
    return tuple(found)


def function_of(part: SubGraph, attrs: Mapping[str, Any]) -> tuple[Function, dict[Expr, Expr]]:
    """Return the function of a part, and its nodes for those of the graph that are changed."""
    params = [Var(f"FunctionVar_{k}", e.known_type()) for k, e in enumerate(part.inputs)]
    new: dict[Expr, Expr] = dict(zip(part.inputs, params, strict=True))
    for e in post_order(*part.results, inside=False, without=part.inputs):
        _rebuild(e, new)
    found = [new.get(e, e) for e in part.results]
    return Function(params, found[0] if len(found) == 1 else Tuple(tuple(found)), attrs=dict(attrs)), new


def with_call(part: SubGraph, function: Expr) -> tuple[Expr, dict[Expr, Expr]]:
    """Return the graph with a call of `function` in place of a part, and its nodes for those that are changed."""
    call = Call(function, part.inputs)
    several = len(part.results) > 1
    new: dict[Expr, Expr] = {e: TupleGetItem(call, k) if several else call for k, e in enumerate(part.results)}
    for e in post_order(part.body, inside=False):
        if e not in part.nodes:
            _rebuild(e, new)
    return new.get(part.body, part.body), new


def _rebuild(e: Expr, new: dict[Expr, Expr]) -> None:
    """Add the new node for `e` if one of its operands has one."""
    old = operands(e)
    if e not in new and any(o in new for o in old):
        new[e] = with_operands(e, [new.get(o, o) for o in old])


def composed(
    part: SubGraph, groups: Iterable[tuple[str, Collection[Expr]]], attrs: Mapping[str, Any]
) -> Function:
    """Return the function of a part. Each group of its nodes, given with its name, is a composite function inside, if
    it is convex."""
    made, copies = function_of(part, attrs)
    body = made.body
    now = {e: copies.get(e, e) for e in part.nodes}
    for name, nodes in groups:
        group = sub_graph(body, {now[e] for e in nodes})
        if group.is_convex:
            body, new = with_call(group, function_of(group, {"Composite": name})[0])
            now = {e: new.get(c, c) for e, c in now.items()}
    return Function(made.params, body, attrs=made.attrs)
