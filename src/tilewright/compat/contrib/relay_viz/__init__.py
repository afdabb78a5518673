"""TVM's `tvm.contrib.relay_viz`: modules of Relay as drawings.

    RelayVisualizer(mod).render()                                          prints a tree
    RelayVisualizer(mod, params, plotter=DotPlotter()).render("model")     writes model.dot, one cluster a function

A parser turns each expression into a node and its edges; a plotter collects and draws them. Both can be subclassed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.compat.contrib.relay_viz import dot, interface, terminal
from tilewright.compat.contrib.relay_viz.dot import DotPlotter, DotVizParser
from tilewright.compat.contrib.relay_viz.interface import DefaultVizParser, Plotter, VizEdge, VizNode, VizParser
from tilewright.compat.contrib.relay_viz.terminal import TermPlotter, TermVizParser
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Call, Expr, Function
from tilewright.relay.op.registry import Op
from tilewright.relay.visitor import post_order

__all__ = [
    "DefaultVizParser", "DotPlotter", "DotVizParser", "Plotter", "RelayVisualizer", "TermPlotter", "TermVizParser",
    "VizEdge", "VizNode", "VizParser", "dot", "interface", "terminal",
]


class RelayVisualizer:
    """The drawing of a module: a graph for each function, `main` first. Without a plotter, it is printed as a tree."""

    def __init__(
        self, relay_mod: IRModule, relay_param: Mapping[str, Any] | None = None, plotter: Plotter | None = None,
        parser: VizParser | None = None
    ) -> None:
        self._plotter = plotter if plotter is not None else TermPlotter()
        is_tree = isinstance(self._plotter, TermPlotter)
        self._parser = parser if parser is not None else TermVizParser() if is_tree else DotVizParser()
        self._params = dict(relay_param or {})
        functions = {v.name_hint: f for v, f in relay_mod.functions.items() if isinstance(f, Function)}
        for name in sorted(functions, key=lambda n: n != "main"):
            self._add(name, functions[name])

    def _add(self, name: str, function: Function) -> None:
        graph, ids = self._plotter.create_graph(name), dict[Any, str]()
        order = _nodes(function)
        for node in order:
            ids.setdefault(node, str(len(ids)))
        for node in order:
            made, edges = self._parser.get_node_edges(node, self._params, ids)
            if made is not None:
                graph.node(made)
            for edge in edges:
                graph.edge(edge)

    def render(self, filename: str | None = None) -> None:
        """Draw all graphs: print them, or write the file."""
        self._plotter.render(filename)


def _nodes(function: Function) -> list[Expr | Op]:
    """Return the nodes below a function, operands first: parameters, expressions, and operators before their calls."""
    order: dict[Any, None] = dict.fromkeys(function.params)
    for e in post_order(function):
        if isinstance(e, Call) and not isinstance(e.op, Expr):
            order.setdefault(e.op)
        if isinstance(e, Function):
            order.update(dict.fromkeys(e.params))
        order.setdefault(e)
    return list(order)
