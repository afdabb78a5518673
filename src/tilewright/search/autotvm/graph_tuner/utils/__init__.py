"""Graphs of networks as lists of nodes, for the graph tuner."""

from tilewright.search.autotvm.graph_tuner.utils.traverse_graph import (
    expr2graph,
    get_direct_ancestor,
    get_in_nodes,
    get_out_nodes,
)
from tilewright.search.autotvm.graph_tuner.utils.utils import bind_inputs, has_multiple_inputs, is_boundary_node

__all__ = [
    "bind_inputs", "expr2graph", "get_direct_ancestor", "get_in_nodes", "get_out_nodes", "has_multiple_inputs",
    "is_boundary_node",
]
