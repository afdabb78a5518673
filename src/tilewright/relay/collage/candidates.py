"""Candidate parts of a graph for targets: a part computes one value, and none of its other values is used outside.

So disjoint parts cannot form a cycle: every path from one part to another starts at the former's value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tilewright.relay.analysis.regions import DEFAULT, open_nodes, scopes_of
from tilewright.relay.dataflow_pattern.graph import Graph
from tilewright.relay.dataflow_pattern.group import Group, overlapping_groups
from tilewright.relay.expr import Call, Constant, Expr, Function, Tuple, Var
from tilewright.relay.op.contrib import get_pattern_table, supports
from tilewright.relay.op.registry import Fusion, Op
from tilewright.relay.qnn.sources import NUMERICS
from tilewright.relay.visitor import operands, post_order, with_operands


@dataclass(frozen=True, slots=True)
class Candidate:
    """A part: its calls, its result `root`, the target, and the function that the target would compute.

    `name` is that of the matched row of a pattern table; None for a single operator or a kernel of the host.
    """

    target: str
    name: str
    calls: frozenset[Expr]
    root: Expr
    function: Function
    group: Group | None = None

    def __repr__(self) -> str:
        return f"<{self.target}: {self.name}>"


def candidates_of(function: Function, targets: Sequence[str], host_depth: int = 8) -> list[Candidate]:
    """Return the parts that `targets` support, and those of the host (the target `default`), whose kernels have up to
    `host_depth` calls.

    Pattern tables come from `register_pattern_table`, single operators from `register_op_attr(…, "target.<name>")`.
    """
    scopes = scopes_of(function)
    graph = Graph(function)
    rounding = function.attrs.get(NUMERICS)
    open_calls = [e for e in open_nodes(function) if isinstance(e, Call)]
    known = set(open_calls)
    found: list[Candidate] = []
    for target in targets:
        for row in get_pattern_table(target) or ():
            check = row[2] if len(row) == 3 else None
            for group in overlapping_groups(row[1], graph):
                part = _of_group(target, row[0], group)
                whole = part.calls <= known and len({scopes.get(e, 0) for e in part.calls}) == 1
                if whole and _only_the_root_leaves(part, graph) and (check is None or check(group.root)):
                    found.append(part)
        found += [_single(target, e) for e in open_calls if e.args and supports(target, e)]
    for e in open_calls:
        found += _host_kernels(e, graph, scopes, host_depth)
    return [replace(c, function=c.function.with_attr(NUMERICS, rounding)) for c in found] if rounding else found


def _of_group(target: str, name: str, group: Group) -> Candidate:
    composite = group.as_function(0, {"Composite": name})
    params = [Var(f"p{i}", e.known_type()) for i, e in enumerate(group.inputs)]
    function = Function(params, Call(composite, params), attrs=_attrs(target))
    calls = frozenset(e for e in group.inside if isinstance(e, Call))
    return Candidate(target, name, calls, group.root, function, group)


def _single(target: str, call: Call) -> Candidate:
    return Candidate(target, _name(call), frozenset([call]), call, _function_of([call], target))


def _name(call: Call) -> str:
    return call.op.name if isinstance(call.op, Op) else type(call.op).__name__


def _attrs(target: str) -> dict[str, object]:
    return {"Primitive": 1} if target == DEFAULT else {"Compiler": target, "Primitive": 1,
        "global_symbol": f"tvmgen_candidate_{target}".replace("-", "_")}


def _function_of(calls: Sequence[Call], target: str) -> Function:
    """Return the calls, the last of which is the root, as a function of their inputs, with constants inside."""
    inside = set(calls)
    read = [o for e in calls for a in operands(e) for o in (a.fields if isinstance(a, Tuple) else (a,))]
    inputs = tuple(dict.fromkeys(o for o in read if o not in inside and not isinstance(o, (Constant, Function))))
    new: dict[Expr, Expr] = {e: Var(f"p{i}", e.known_type()) for i, e in enumerate(inputs)}
    params = tuple(new.values())
    for e in post_order(calls[-1], without=inputs):
        old = operands(e)
        if any(o in new for o in old):
            new[e] = with_operands(e, [new.get(o, o) for o in old])
    return Function(params, new.get(calls[-1], calls[-1]), attrs=_attrs(target))  # type: ignore[arg-type]


def _only_the_root_leaves(part: Candidate, graph: Graph) -> bool:
    inside = set(part.group.inside) if part.group is not None else set(part.calls)
    return all(u in inside for e in part.calls if e is not part.root for u in graph.users[e])


def _host_kernels(root: Call, graph: Graph, scopes: dict[Expr, int], depth: int) -> Iterator[Candidate]:
    """Yield the call alone, then with more and more of its producers. A kernel has at most one product, sum or pool."""
    yield _single(DEFAULT, root)
    if not isinstance(root.op, Op):
        return
    inside: list[Call] = [root]
    heavy = root.op.kind > Fusion.INJECTIVE
    while len(inside) < depth and not (heavy and inside[0].op.kind >= Fusion.OUT_FUSABLE):
        more = _producer(inside, heavy, graph, scopes)
        if more is None:
            return
        heavy = heavy or more.op.kind > Fusion.INJECTIVE
        inside.insert(0, more)
        inside.sort(key=graph.position.__getitem__)
        yield Candidate(DEFAULT, "+".join(map(_name, inside)), frozenset(inside), root, _function_of(inside, DEFAULT))


def _producer(inside: list[Call], heavy: bool, graph: Graph, scopes: dict[Expr, int]) -> Call | None:
    """Return the last call in order that only `inside` reads and that can share one kernel with it."""
    known = set(inside)
    reads = [o for e in inside for o in e.args if isinstance(o, Call) and o not in known and isinstance(o.op, Op)]
    for e in sorted(reads, key=graph.position.__getitem__, reverse=True):
        fits = e.op.kind <= Fusion.INJECTIVE or (not heavy and e.op.kind == Fusion.OUT_FUSABLE)
        if fits and scopes.get(e, 0) == scopes.get(inside[-1], 0) and all(u in known for u in graph.users[e]):
            return e
    return None
