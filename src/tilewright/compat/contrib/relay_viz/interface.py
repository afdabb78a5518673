"""The parts of a drawing: nodes and edges, the parser that makes them, the graph that collects and the plotter that
draws them."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.base.errors import OptionError
from tilewright.base.types import TensorType
from tilewright.relay.expr import Call, Constant, Expr, Function, GlobalVar, If, Let, Tuple, TupleGetItem, Var
from tilewright.relay.op.registry import Op
from tilewright.relay.visitor import operands

__all__ = ["DefaultVizParser", "Plotter", "VizEdge", "VizGraph", "VizNode", "VizParser"]


@dataclass(frozen=True, slots=True)
class VizNode:
    """A node of a drawing: its number as text, its kind, and a text."""

    identity: str
    type_name: str
    detail: str

    def __repr__(self) -> str:
        return f"VizNode(identity: {self.identity}, type_name: {self.type_name}, detail: {self.detail}"


@dataclass(frozen=True, slots=True)
class VizEdge:
    """An arrow from an operand to its user, given by their numbers."""

    start: str
    end: str


class VizParser(abc.ABC):
    """Turns expressions into nodes and edges."""

    @abc.abstractmethod
    def get_node_edges(
        self, node: Any, relay_param: Mapping[str, Any], node_to_id: Mapping[Any, str]
    ) -> tuple[VizNode | None, list[VizEdge]]:
        """Return the node of an expression or operator, None for no node, and its edges."""


class VizGraph(abc.ABC):
    """Collects the nodes and edges of one function."""

    @abc.abstractmethod
    def node(self, viz_node: VizNode) -> None:
        """Add a node."""

    @abc.abstractmethod
    def edge(self, viz_edge: VizEdge) -> None:
        """Add an edge."""


class Plotter(abc.ABC):
    """Makes a graph for each function, and draws all of them."""

    @abc.abstractmethod
    def create_graph(self, name: str) -> VizGraph:
        """Return the graph of a function."""

    @abc.abstractmethod
    def render(self, filename: str | None) -> None:
        """Draw the graphs into a file."""


class DefaultVizParser(VizParser):
    """One node an expression; a call of an operator has its name and attributes. Operators have no nodes."""

    def get_node_edges(
        self, node: Any, relay_param: Mapping[str, Any], node_to_id: Mapping[Any, str]
    ) -> tuple[VizNode | None, list[VizEdge]]:
        """Return the node and its edges. Raises `OptionError` for other objects."""
        if isinstance(node, Op):
            return None, []
        if not isinstance(node, Expr):
            raise OptionError(f"a drawing has expressions and operators, not a {type(node).__name__}", code="TW0215")
        own = node_to_id[node]
        kind, detail = _kind(node, relay_param)
        return VizNode(own, kind, detail), [VizEdge(node_to_id[x], own) for x in operands(node)]


def _kind(node: Expr, params: Mapping[str, Any]) -> tuple[str, str]:
    """Return the kind and the text of an expression."""
    match node:
        case Var():
            kind = "Var(Param)" if node.name_hint in params else "Var(Input)"
            return kind, f"name_hint: {node.name_hint}" + _tensor(node.type_annotation)
        case GlobalVar():
            return "GlobalVar", f"name_hint: {node.name_hint}"
        case Constant():
            value = f"\nvalue: {node.data.numpy()}" if not node.data.shape else ""
            return "Const", f"shape: {tuple(node.data.shape)}\ndtype: {node.data.dtype}{value}"
        case Call(op=Op()):
            found = node.op.attribute_names
            return f"Call {node.op.name}", "\n".join(f"{k}: {getattr(node.op, k)}" for k in found)
        case Function():
            name = dict(node.attrs or {}).get("Composite")
            return "Func", str(name) if name else ""
        case TupleGetItem():
            return "TupleGetItem", f"idx: {node.index}"
        case Tuple() | Let() | If():
            return type(node).__name__, f"var: {node.var.name_hint}" if isinstance(node, Let) else ""
        case _:
            return type(node).__name__, ""


def _tensor(found: Any) -> str:
    return f"\nshape: {tuple(found.shape)}\ndtype: {found.dtype}" if isinstance(found, TensorType) else ""
