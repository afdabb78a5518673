"""The subgraphs that a pattern matches: their nodes and inputs, and whether they can be extracted.

Groups do not overlap; those nearer to the root of the graph come first. A group whose inner value is used outside is
rejected, unless everything computed from that value is used inside the group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any, Final

from tilewright.relay.dataflow_pattern.graph import Graph
from tilewright.relay.dataflow_pattern.match import Matcher, NodeMap, root_keys
from tilewright.relay.dataflow_pattern.pattern import (
    CallPattern,
    DFPattern,
    DominatorPattern,
    ExprPattern,
    FunctionPattern,
    LetPattern,
    TuplePattern,
    VarPattern,
    WildcardPattern,
    pattern_nodes,
)
from tilewright.relay.expr import Call, Constant, Expr, Function, GlobalVar, If, Let, Tuple, TupleGetItem, Var
from tilewright.relay.op.registry import Op
from tilewright.relay.visitor import operands, post_order, with_operands

_SHARED: Final = (Constant, Function, GlobalVar, Var)
"""Node kinds that several groups may contain, and that may be used outside of groups."""


@dataclass(frozen=True, slots=True)
class Group:
    """A matched subgraph: its last value `root`, the expression of each part of the pattern, its inputs, and its nodes
    in order."""

    root: Expr
    node_map: NodeMap
    inputs: tuple[Expr, ...]
    inside: tuple[Expr, ...]

    @property
    def name(self) -> str:
        """The names of its operators, in order: `nn.conv2d_nn.relu_`."""
        return "".join(map(_name, self.inside))

    def as_function(self, number: int, attrs: Mapping[str, Any]) -> Function:
        """Return a function of the inputs, `FunctionVar_<number>_<i>`, that computes the root."""
        params = [Var(f"FunctionVar_{number}_{i}", e.known_type()) for i, e in enumerate(self.inputs)]
        new: dict[Expr, Expr] = dict(zip(self.inputs, params, strict=True))
        for e in self.inside:
            old = operands(e)
            if any(o in new for o in old):
                new[e] = with_operands(e, [new.get(o, o) for o in old])
        return Function(params, new.get(self.root, self.root), attrs={"PartitionedFromPattern": self.name, **attrs})


def groups(pattern: DFPattern, graph: Graph) -> dict[Expr, Group]:
    """Return the disjoint groups of `graph` that match `pattern`, by their roots."""
    found: dict[Expr, Group] = {}
    taken: set[Expr] = set()
    for group in overlapping_groups(pattern, graph, taken):
        found[group.root] = group
        taken.update(group.inside)
    return found


def overlapping_groups(pattern: DFPattern, graph: Graph, taken: Set[Expr] = frozenset()) -> Iterator[Group]:
    """Yield the groups of `graph` that match `pattern`, at most one per root, without nodes of `taken`; `taken` may
    grow during the iteration."""
    candidates = graph.last_first(root_keys(pattern))
    if not candidates:
        return
    matcher, parts = Matcher(graph), pattern_nodes(pattern)
    for e in candidates:
        if e in taken or e in graph.closed:
            continue
        node_map = matcher.match(pattern, e)
        if node_map is None:
            continue
        group = group_at(e, node_map, parts)
        if _can_be_taken(group, taken, graph):
            yield group


def group_at(root: Expr, node_map: NodeMap, parts: Iterable[DFPattern]) -> Group:
    """Return the group with the root `root` for a match `node_map`; `parts` are the `pattern_nodes` of the pattern."""
    known: list[Expr] = []
    within: set[Expr] = {root}
    for p in parts:
        matched = node_map.get(p)
        if matched is None:
            continue
        match p:
            case DominatorPattern():
                within.update(e for q in (p.parent, p.path) for e in node_map.get(q, ()))
            case FunctionPattern():
                within.update(e for f in matched for e in (*f.params, *post_order(f)))
            case LetPattern():
                within.update(e.var for e in matched)
            case TuplePattern(fields=None):
                known += [f for e in matched for f in e.fields]
            case CallPattern(args=None):
                known += [a for e in matched for a in e.args]
            case WildcardPattern(redirected=None) | VarPattern() | ExprPattern() if not _stays_inside(p):
                known += [e for e in matched if not isinstance(e, (Op, Function, GlobalVar))]
    inputs = tuple(dict.fromkeys(e for e in known if e not in within))
    return Group(root, node_map, inputs, tuple(post_order(root, without=inputs)))


def _stays_inside(p: DFPattern) -> bool:
    """Return whether a match of the innermost pattern `p` belongs to the group rather than to its inputs: a required
    constant."""
    return isinstance(p, ExprPattern) and isinstance(p.expr, Constant)


def _can_be_taken(group: Group, taken: Set[Expr], graph: Graph) -> bool:
    return not any(e in taken for e in own_nodes(group)) and not escapes(group, graph)


def own_nodes(group: Group) -> list[Expr]:
    """Return the nodes that no other group may contain: all but inputs, constants and functions."""
    return [e for e in group.inside if not isinstance(e, _SHARED)]


def escapes(group: Group, graph: Graph) -> list[tuple[Expr, Expr]]:
    """Return (inner value, outside user) pairs for which something computed from the value does not return to the
    group."""
    inside = set(group.inside)
    leaving = dict.fromkeys((e, u) for e in own_nodes(group) if e is not group.root for u in graph.users[e]
                            if u not in inside)
    return [(e, u) for e, u in leaving if not graph.dominates(group.root, u)]


def _name(e: Expr) -> str:
    """Return the contribution of a node to the name of a group."""
    match e:
        case Call():
            return f"{e.op.name}_" if isinstance(e.op, Op) else "Call_"
        case Function():
            return "Function"
        case TupleGetItem():
            return f"TupleGetItem{e.index}_"
        case Tuple() | If() | Let():
            return f"{type(e).__name__}_"
        case _:
            return ""
