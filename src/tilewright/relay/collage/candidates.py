"""Candidate parts of a graph for targets: a part computes one value, and none of its other values is used outside.

So disjoint parts cannot form a cycle: every path from one part to another starts at the former's value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tilewright.relay.analysis.regions import DEFAULT, open_nodes, scopes_of
from tilewright.relay.dataflow_pattern.graph import Graph
from tilewright.relay.dataflow_pattern.group import Group, overlapping_groups, own_nodes
from tilewright.relay.expr import Call, Constant, Expr, Function, Tuple, Var
from tilewright.relay.op import contrib
from tilewright.relay.op.registry import Fusion, Op
from tilewright.relay.qnn.sources import NUMERICS
from tilewright.relay.visitor import operands, post_order, with_operands


@dataclass(frozen=True, slots=True)
class Candidate:
    """A part: its calls, its result `root`, the target, and the function that the target would compute.

    `name` is that of the matched row of a pattern table, or the names of the operators. `joined` are the neighbouring
    parts of one target that this one consists of, if there are several.
    """

    target: str
    name: str
    calls: frozenset[Expr]
    root: Expr
    function: Function
    group: Group | None = None
    joined: tuple[Candidate, ...] = ()

    def __repr__(self) -> str:
        return f"<{self.target}: {self.name}>"

    @property
    def members(self) -> tuple[Candidate, ...]:
        """The parts that this one consists of, in order, or the part itself."""
        return self.joined or (self,)

    @property
    def nodes(self) -> frozenset[Expr]:
        """The nodes that belong to the part alone: its calls, and tuples and fields between them."""
        if self.joined:
            return frozenset(e for part in self.joined for e in part.nodes)
        return self.calls if self.group is None else frozenset(own_nodes(self.group))


def candidates_of(
    function: Function, targets: Sequence[str], host_depth: int = 8, target_depth: int = 1
) -> list[Candidate]:
    """Return the parts that `targets` support, and those of the host (the target `default`), whose kernels have up to
    `host_depth` calls. Up to `target_depth` neighbouring parts of one target are also one part.

    Pattern tables come from `register_pattern_table`, single operators from `register_op_attr(…, "target.<name>")`.
    """
    scopes = scopes_of(function)
    graph = Graph(function)
    rounding = function.attrs.get(NUMERICS)
    open_calls = [e for e in open_nodes(function) if isinstance(e, Call)]
    known = set(open_calls)
    found: list[Candidate] = []
    for target in targets:
        own: list[Candidate] = []
        for row in contrib.get_pattern_table(target) or ():
            check = row[2] if len(row) == 3 else None
            for group in overlapping_groups(row[1], graph):
                part = _of_group(target, row[0], group)
                whole = part.calls <= known and len({scopes.get(e, 0) for e in part.calls}) == 1
                if whole and _only_the_root_leaves(part, graph) and (check is None or check(group.root)):
                    own.append(part)
        own += [_single(target, e) for e in open_calls if e.args and contrib.supports(target, e)]
        found += own
        if target_depth > 1:
            found += _unions(own, graph, scopes, target_depth)
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
    inside = set(part.group.inside) if part.group is not None else part.nodes
    return all(u in inside for e in part.calls if e is not part.root for u in graph.users[e])


def _unions(
    parts: Sequence[Candidate], graph: Graph, scopes: dict[Expr, int], depth: int
) -> Iterator[Candidate]:
    """Yield the unions of two to `depth` disjoint parts of one target in which another part reads each part but the
    last one, if only the value of the last one leaves."""
    ending: dict[Expr, list[Candidate]] = {}
    for part in parts:
        ending.setdefault(part.root, []).append(part)
    for last in parts:
        seen: set[frozenset[int]] = set()
        waiting: list[tuple[Candidate, ...]] = [(last,)]
        while waiting:
            union = waiting.pop()
            for producer in _producers(union, ending, graph):
                more = (*union, producer)
                key = frozenset(map(id, more))
                if key in seen or scopes.get(producer.root, 0) != scopes.get(last.root, 0):
                    continue
                seen.add(key)
                if len(more) < depth:
                    waiting.append(more)
                inside = {e for part in more for e in part.nodes}
                if all(u in inside for part in more[1:] for u in graph.users[part.root]):
                    yield _union(sorted(more, key=lambda part: graph.position[part.root]))


def _producers(
    union: Sequence[Candidate], ending: dict[Expr, list[Candidate]], graph: Graph
) -> Iterator[Candidate]:
    """Yield the parts whose values a union of parts reads, and that have no node in common with it."""
    inside = {e for part in union for e in part.nodes}
    reads = dict.fromkeys(o for e in sorted(inside, key=graph.position.__getitem__) for o in operands(e))
    for read in reads:
        for producer in ending.get(read, ()):
            if not producer.nodes & inside:
                yield producer


def _union(parts: Sequence[Candidate]) -> Candidate:
    """Return the union of parts of one target, the last of which has the result."""
    last = parts[-1]
    return Candidate(
        last.target, "+".join(part.name for part in parts), frozenset(e for part in parts for e in part.calls),
        last.root, _function_of_parts(parts), joined=tuple(parts))


def _function_of_parts(parts: Sequence[Candidate]) -> Function:
    """Return parts of one target, in order, as a function of their inputs. Matches of patterns are composite functions
    inside."""
    roots = {part.root for part in parts}
    read = [o for part in parts for o in _reads(part) if o not in roots and not isinstance(o, (Constant, Function))]
    new: dict[Expr, Expr] = {e: Var(f"p{i}", e.known_type()) for i, e in enumerate(dict.fromkeys(read))}
    params = tuple(new.values())
    for part in parts:
        if part.group is not None:
            composite = part.function.body.op  # type: ignore[attr-defined]
            new[part.root] = Call(composite, [new.get(i, i) for i in part.group.inputs])
            continue
        for e in (*(o for o in operands(part.root) if isinstance(o, Tuple) and o not in new), part.root):
            new[e] = with_operands(e, [new.get(o, o) for o in operands(e)])
    return Function(params, new[parts[-1].root], attrs=_attrs(parts[-1].target))  # type: ignore[arg-type]


def _reads(part: Candidate) -> Sequence[Expr]:
    """Return the values that a part reads; those of a single call through the tuples that it takes."""
    if part.group is not None:
        return part.group.inputs
    return [o for a in operands(part.root) for o in (a.fields if isinstance(a, Tuple) else (a,))]


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
