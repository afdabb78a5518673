"""Parts of a graph given by their nodes, outlined as functions: TVM's `relay.collage.PartitionForTesting`.

    %0 = add(%a, %b); subtract(%0, %c)    ->    %0 = (fn (%x, %y, Compiler="foo") { add(%x, %y) })(%a, %b); …

A part can have several results, which its function returns as a tuple, and inner parts, which become composite
functions inside it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.base.errors import OptionError
from tilewright.base.global_functions import register_func
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from tilewright.relay.transform.spans import indices
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
    """Return the part of a graph with these nodes. Constants that it reads belong to it."""
    order = post_order(body, inside=False)
    users = consumers(order)
    own = frozenset(nodes)
    results = tuple(e for e in order if e in own and (e is body or any(u not in own for u in users[e])))
    inputs: dict[Expr, None] = {}
    for root in reversed(results):
        for e in post_order(root, inside=False, without=[e for e in order if e not in own]):
            inputs.update({o: None for o in operands(e) if o not in own and not isinstance(o, (Constant, Function))})
    behind: set[Expr] = set()
    for e in order:
        if e not in own and any(o in own or o in behind for o in operands(e)):
            behind.add(e)
    return SubGraph(
        body, own, results, tuple(inputs), any(u in own for e in results for u in users[e]),
        not any(i in behind for i in inputs))


def function_of(part: SubGraph, attrs: Mapping[str, Any]) -> tuple[Function, dict[Expr, Expr]]:
    """Return the function of a part, and its nodes for those of the graph that are changed."""
    params = [Var(f"FunctionVar_{k}", e.known_type()) for k, e in enumerate(part.inputs)]
    new: dict[Expr, Expr] = dict(zip(part.inputs, params, strict=True))
    for e in post_order(*part.results, inside=False, without=part.inputs):
        _rebuild(e, new)
    found = [new.get(e, e) for e in part.results]
    return Function(params, found[0] if len(found) == 1 else Tuple(tuple(found)), attrs=dict(attrs)), new


def with_call(part: SubGraph, function: Function) -> tuple[Expr, dict[Expr, Expr]]:
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


def partitioned(function: Function, nodes: Mapping[Expr, str], compiler: str, most: int, taps: bool) -> Function:
    """Return a function with the part `nodes` as a function with the attribute `Compiler`; nodes with the same label,
    other than "", are a composite function inside. The function itself is returned for a part that is not convex, has
    more than `most` results, or reads one of its results, unless `taps` are allowed."""
    part = sub_graph(function.body, nodes)
    if not part.is_convex or len(part.results) > most or (part.has_taps and not taps):
        return function
    made, copies = function_of(part, {"Compiler": compiler} if compiler else {})
    body = made.body
    for label in dict.fromkeys(filter(None, nodes.values())):
        group = sub_graph(body, {copies.get(e, e) for e, own in nodes.items() if own == label})
        if group.is_convex:
            body, new = with_call(group, function_of(group, {"Composite": label})[0])
            copies = {e: new.get(c := copies.get(e, e), c) for e in nodes}
    body, _ = with_call(part, Function(made.params, body, attrs=made.attrs))
    return Function(
        function.params, body, function.declared_ret_type, function.type_params, function.attrs, function.span)


@dataclass(frozen=True)
class PartitionByIndex(FunctionPass):
    """Outlines the part of each function whose nodes have the post-order `indexes`, with a label for each, as
    `CapturePostDfsIndexInSpans` counts them. Raises `OptionError` for an index that no node has."""

    max_exits: int
    allow_taps: bool
    compiler: str
    indexes: Sequence[int]
    labels: Sequence[str]
    kind: ClassVar[type] = Function

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        found = {k: e for e, k in indices(function).items()}
        unknown = [k for k in self.indexes if k not in found]
        if unknown:
            raise OptionError(
                f"no value of the function has the index {unknown[0]}; the values have "
                f"{', '.join(map(str, sorted(found)))}", code="TW0204")
        nodes = {found[int(k)]: str(label) for k, label in zip(self.indexes, self.labels, strict=True)}
        return partitioned(function, nodes, self.compiler, self.max_exits, self.allow_taps)


register_func("relay.collage.PartitionForTesting", PartitionByIndex)

__all__ = ["PartitionByIndex", "SubGraph", "function_of", "partitioned", "sub_graph", "with_call"]
