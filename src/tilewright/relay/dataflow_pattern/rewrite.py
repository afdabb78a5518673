"""Rewrite the matches of patterns until nothing changes, or outline them as functions.

    class RemoveDoubleNegation(DFPatternCallback):
        def __init__(self):
            super().__init__()
            self.x = wildcard()
            self.pattern = is_op("negative")(is_op("negative")(self.x))

        def callback(self, pre, post, node_map):
            return node_map[self.x][0]

    function = rewrite(RemoveDoubleNegation(), function)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tilewright.base.errors import CompileError
from tilewright.ir.module import IRModule
from tilewright.ir.structural import structural_equal
from tilewright.relay.dataflow_pattern.graph import Graph
from tilewright.relay.dataflow_pattern.group import Group, groups
from tilewright.relay.dataflow_pattern.match import NodeMap
from tilewright.relay.dataflow_pattern.pattern import DFPattern
from tilewright.relay.expr import Call, Expr, Function, GlobalVar
from tilewright.relay.visitor import free_vars, operands, with_operands

_ROUNDS: Final = 100
"""Number of rounds after which rewriting is assumed not to terminate."""

Replace = Callable[[Group, Expr, dict[Expr, Expr]], Expr]


class DFPatternCallback:
    """A pattern, and the replacement of its matches. A subclass sets `pattern` and defines `callback`.

    `require_type`: infer all types before matching. `rewrite_once`: run a single round.
    """

    pattern: DFPattern

    def __init__(self, require_type: bool = False, rewrite_once: bool = False) -> None:
        self.require_type = require_type
        self.rewrite_once = rewrite_once

    def rewrite(self, expr: Expr) -> Expr:
        """Rewrite all matches of the pattern in `expr`."""
        return rewrite(self, expr)

    def callback(self, pre: Expr, post: Expr, node_map: NodeMap) -> Expr:
        """Return the replacement of a match.

        `pre` is the matched value, `post` the same value over rewritten operands; returning `post` changes nothing.
        `node_map` has a list of the matched expressions, rewritten, for each part of the pattern.
        """
        raise NotImplementedError(f"{type(self).__name__} has no callback")

    def __getattr__(self, name: str) -> Any:
        if name == "pattern":
            raise CompileError(f"{type(self).__name__} has no pattern; set self.pattern in __init__, after "
                               "super().__init__()", code="TW0413")
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'", name=name, obj=self)


def rewrite(callbacks: DFPatternCallback | Sequence[DFPatternCallback], expr: Expr, mod: IRModule
            | None = None) -> Expr:
    """Rewrite `expr` by each callback in turn, until a round changes nothing.

    `mod` has the functions that `expr` calls. Raises `CompileError` with the callbacks that still change the graph
    after 100 rounds, or whose result is not an expression.
    """
    active = [callbacks] if isinstance(callbacks, DFPatternCallback) else list(callbacks)
    graph: Graph | None = None
    changed: list[DFPatternCallback] = []
    for count in range(_ROUNDS):
        before, changed = expr, []
        for c in active:
            graph = graph if graph is not None and graph.root is expr else Graph(expr)
            graph = _typed(graph, mod) if c.require_type else graph
            expr = _rewritten(c, graph)
            if expr is not graph.root:
                changed.append(c)
        active = [c for c in active if not c.rewrite_once]
        if not changed or not active or (count and structural_equal(before, expr, exact=True)):
            return expr
    names = " and ".join(dict.fromkeys(type(c).__name__ for c in changed))
    raise CompileError(f"after {_ROUNDS} rounds {names} still rewrites the graph; a callback must not "
                       "return an expression that one of the patterns matches again", code="TW0413")


def partition(pattern: DFPattern, expr: Expr, attrs: Mapping[str, Any] | None, check: Callable[[Expr], bool]) -> Expr:
    """Outline the matches of `pattern` in `expr` as functions; see `DFPattern.partition`."""
    graph = Graph(expr)
    found = groups(pattern, graph)
    numbers = {root: i for i, root in enumerate(found)}

    def outline(group: Group, post: Expr, new: dict[Expr, Expr]) -> Expr:
        if not check(group.root):
            return post
        return Call(group.as_function(numbers[group.root], attrs or {}), [new.get(e, e) for e in group.inputs],
                    span=group.root.span)

    return _replaced(graph, found, outline)


def _rewritten(c: DFPatternCallback, graph: Graph) -> Expr:
    def replace(group: Group, post: Expr, new: dict[Expr, Expr]) -> Expr:
        node_map = {p: [post if e is group.root else new.get(e, e) for e in matched]
                    for p, matched in group.node_map.items()}
        given = c.callback(group.root, post, node_map)
        if not isinstance(given, Expr):
            raise CompileError(f"{type(c).__name__}.callback returned {given!r}, which is not an expression; "
                               "return `post` to change nothing", group.root.span, code="TW0413")
        return given

    return _replaced(graph, groups(c.pattern, graph), replace)


def _replaced(graph: Graph, found: Mapping[Expr, Group], replace: Replace) -> Expr:
    """Return the root of the graph after `replace` has replaced the root of each group."""
    new: dict[Expr, Expr] = {}
    first = min((graph.position[e] for e in found), default=len(graph.order))
    for e in graph.order[first:]:
        old = operands(e)
        post = with_operands(e, [new.get(o, o) for o in old]) if any(o in new for o in old) else e
        group = found.get(e)
        if group is not None:
            post = replace(group, post, new)
        if post is not e:
            new[e] = post
    return new.get(graph.root, graph.root)


def _typed(graph: Graph, mod: IRModule | None) -> Graph:
    """Return the graph with all types inferred."""
    if all(e.known_type() is not None or isinstance(e, GlobalVar) for e in graph.order):
        return graph
    from tilewright.relay.transform.infer_type import InferType

    root = graph.root
    function = root if isinstance(root, Function) else Function(free_vars(root), root)
    functions = dict((mod or IRModule()).items())
    name = next(n for n in ("main", "expression", "expression_") if n not in functions)
    whole = IRModule({**functions, name: function}, (mod or IRModule()).type_definitions)
    typed = InferType()(whole)[name]
    return Graph(typed if isinstance(root, Function) else typed.body)
