"""Drawings in the language of Graphviz."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tilewright.base.errors import ArtifactError
from tilewright.compat.contrib.relay_viz.interface import DefaultVizParser, Plotter, VizEdge, VizGraph, VizNode

__all__ = ["DotGraph", "DotPlotter", "DotVizParser"]

Attributes = Mapping[str, str]

DotVizParser = DefaultVizParser
_COLORS: Final = {"Var(Param)": "cornsilk", "Var(Input)": "palegreen", "Const": "lightgray", "Func": "lightblue"}


def _default_attributes(node: VizNode) -> Attributes:
    """Return the colour of a kind of node."""
    return {"fillcolor": _COLORS.get(node.type_name, "white"), "style": "filled", "shape": "box"}


class DotGraph(VizGraph):
    """The graph of a function, as a cluster. `get_node_attr` gives Graphviz' attributes of a node."""

    def __init__(
        self, name: str, get_node_attr: Callable[[VizNode], Attributes] = _default_attributes
    ) -> None:
        self._name, self._get_attr = name, get_node_attr
        self._lines: list[str] = []

    def node(self, viz_node: VizNode) -> None:
        """Add a node with its kind and text."""
        text = f"{viz_node.type_name}\n{viz_node.detail}" if viz_node.detail else viz_node.type_name
        self._lines.append(f"{self._id(viz_node.identity)}{_attributes({'label': text, **self._get_attr(viz_node)})};")

    def edge(self, viz_edge: VizEdge) -> None:
        """Add an arrow."""
        self._lines.append(f"{self._id(viz_edge.start)} -> {self._id(viz_edge.end)};")

    def source(self) -> str:
        """Return the cluster in the language of Graphviz."""
        lines = "\n".join(f"    {line}" for line in self._lines)
        head, label = _quoted(f"cluster_{self._name}"), _quoted(f"@{self._name}")
        return f"  subgraph {head} {{\n    label={label};\n{lines}\n  }}"

    def _id(self, identity: str) -> str:
        return _quoted(f"{self._name}_{identity}")


class DotPlotter(Plotter):
    """Writes the graphs of all functions to one file. The attributes are those of Graphviz."""

    def __init__(
        self, graph_attr: Attributes | None = None, node_attr: Attributes | None = None,
        edge_attr: Attributes | None = None, get_node_attr: Callable[[VizNode], Attributes] | None = None
    ) -> None:
        self._attributes = {"graph": graph_attr or {}, "node": node_attr or {}, "edge": edge_attr or {}}
        self._get_node_attr = get_node_attr or _default_attributes
        self._name_to_graph: dict[str, DotGraph] = {}

    def create_graph(self, name: str) -> DotGraph:
        """Return a new graph."""
        made = self._name_to_graph[name] = DotGraph(name, self._get_node_attr)
        return made

    def source(self) -> str:
        """Return all graphs in the language of Graphviz."""
        lines = [f"  {kind}{_attributes(found)};" for kind, found in self._attributes.items() if found]
        return "\n".join(["digraph {", *lines, *(g.source() for g in self._name_to_graph.values()), "}"]) + "\n"

    def render(self, filename: str | None = None) -> None:
        """Write `filename.dot` (default `relay_viz.dot`), and `filename.pdf` where the program dot is installed. Raises
        `ArtifactError` if that program fails."""
        path = Path(f"{filename or 'relay_viz'}.dot")
        path.write_text(self.source(), encoding="utf-8")
        program = shutil.which("dot")
        if program is not None:
            command = [program, "-Tpdf", str(path), "-o", str(path.with_suffix(".pdf"))]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise ArtifactError(f"{' '.join(command)}\nfailed:\n{done.stderr}", code="TW0508")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _attributes(found: Attributes) -> str:
    return " [" + ", ".join(f"{name}={_quoted(value)}" for name, value in found.items()) + "]"
