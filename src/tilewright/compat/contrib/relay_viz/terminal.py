"""Drawings as trees of text: a user, and below it its operands.

    @main
    `--Function
       `--Call
          |--nn.relu
          `--Var x
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright.compat.contrib.relay_viz.interface import (
    DefaultVizParser,
    Plotter,
    VizEdge,
    VizGraph,
    VizNode,
    VizParser,
)
from tilewright.relay.expr import Call, Function, GlobalVar, If, Let
from tilewright.relay.op.registry import Op

__all__ = ["TermGraph", "TermNode", "TermPlotter", "TermVizParser"]


class TermVizParser(VizParser):
    """Nodes of a tree: operators and called functions have nodes of their own, the first operands of their calls."""

    def __init__(self) -> None:
        self._default = DefaultVizParser()

    def get_node_edges(
        self, node: Any, relay_param: Mapping[str, Any], node_to_id: Mapping[Any, str]
    ) -> tuple[VizNode | None, list[VizEdge]]:
        """Return the node and its edges."""
        own = node_to_id[node]
        below: tuple[Any, ...] = ()
        match node:
            case Op():
                kind, detail = node.name, ""
            case Call():
                kind, detail, below = "Call", "", (node.op, *node.args)
            case Function():
                kind, detail, below = "Function", "", (*node.params, node.body)
            case GlobalVar():
                kind, detail = "GlobalVar", node.name_hint
            case Let():
                kind, detail, below = "Let", "(var, val, body)", (node.var, node.value, node.body)
            case If():
                below = (node.cond, node.true_branch, node.false_branch)
                kind, detail = "If", "(cond, true, false)"
            case _:
                return self._default.get_node_edges(node, relay_param, node_to_id)
        return VizNode(own, kind, detail), [VizEdge(node_to_id[x], own) for x in below if x in node_to_id]


class TermNode:
    """A node with its operands, which are printed below it."""

    def __init__(self, viz_node: VizNode) -> None:
        self.type = viz_node.type_name
        self.other_info = viz_node.detail.replace("\n", ", ")
        self.children: list[TermNode] = []


class TermGraph(VizGraph):
    """The tree of a function. A node of several users is printed in full once, and marked `(reuse)` after that."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes: dict[str, TermNode] = {}
        self._users: dict[str, set[str]] = {}

    def node(self, viz_node: VizNode) -> None:
        """Add a node."""
        made = TermNode(viz_node)
        if (old := self._nodes.get(viz_node.identity)) is not None:
            made.children = old.children
        self._nodes[viz_node.identity] = made

    def edge(self, viz_edge: VizEdge) -> None:
        """Add an operand. Nodes may follow their edges."""
        for identity in (viz_edge.start, viz_edge.end):
            self._nodes.setdefault(identity, TermNode(VizNode(identity, "", "")))
        self._nodes[viz_edge.end].children.append(self._nodes[viz_edge.start])
        self._users.setdefault(viz_edge.start, set()).add(viz_edge.end)

    def render(self) -> str:
        """Return the tree: nodes without users, and below each node its operands."""
        lines, seen = [f"@{self._name}"], set[TermNode]()
        roots = [node for identity, node in self._nodes.items() if identity not in self._users]
        stack = [(node, "", k == len(roots) - 1) for k, node in enumerate(roots)][::-1]
        while stack:
            node, indent, is_last = stack.pop()
            again = " (reuse)" if node in seen and node.children else ""
            text = " ".join(filter(None, (node.type, node.other_info)))
            lines.append(f"{indent}{'`' if is_last else '|'}--{text}{again}")
            if not again:
                seen.add(node)
                below = f"{indent}{' ' if is_last else '|'}  "
                count = len(node.children)
                stack += [(c, below, k == count - 1) for k, c in enumerate(node.children)][::-1]
        return "\n".join(lines)


class TermPlotter(Plotter):
    """Prints trees, or writes them to a file."""

    def __init__(self) -> None:
        self._name_to_graph: dict[str, TermGraph] = {}

    def create_graph(self, name: str) -> TermGraph:
        """Return a new tree."""
        made = self._name_to_graph[name] = TermGraph(name)
        return made

    def render(self, filename: str | None = None) -> None:
        """Print all trees, or write them to the file."""
        text = "\n".join(graph.render() for graph in self._name_to_graph.values())
        if filename is None:
            print(text)
        else:
            Path(filename).write_text(text + "\n", encoding="utf-8")
