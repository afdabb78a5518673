"""The nodes of a network in a list, and the neighbours of those that decide layouts."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tilewright.backends.targets.target import Target
from tilewright.base.types import TupleType
from tilewright.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from tilewright.relay.visitor import operands, post_order
from tilewright.search.autotvm.graph_tuner._base import OPT_OUT_OP
from tilewright.search.autotvm.graph_tuner.utils.utils import (
    Node,
    bind_inputs,
    has_multiple_inputs,
    is_boundary_node,
    is_one_of,
    name_of,
)
from tilewright.search.autotvm.tvm_logs import anchor_of_call


def expr2graph(
    expr: Function, target_ops: Sequence[Any], node_dict: dict[Expr, int], node_list: list[Node],
    tvm_target: str | Target,
) -> None:
    """Append a node for each parameter of a function, and for each call, tuple and constant of its body, operands
    before users. `node_dict` gets their indices. A node of an operator of `target_ops` has its workloads, by which
    records are found; they are the same for each target."""
    Target(tvm_target)
    typed = bind_inputs(expr) if expr.body.known_type() is None else expr
    for e in dict.fromkeys([*typed.params, *post_order(typed.body, inside=False)]):
        if not isinstance(e, (Call, Constant, Tuple, TupleGetItem, Var)):
            continue
        index, t = len(node_list), e.checked_type
        below = e.args if isinstance(e, Call) else operands(e)
        op = e.op if isinstance(e, Call) else None
        node: Node = {
            "node": e, "op": op, "inputs": [[node_dict[o], 0, 0] for o in below if o in node_dict],
            "types": list(t.fields) if isinstance(t, TupleType) else [t], "name": name_of(e, index)}
        if isinstance(e, Call) and is_one_of(op, target_ops):
            anchor = anchor_of_call(e)
            node["workloads"] = [] if anchor is None else [anchor]
        node_dict[e] = index
        node_list.append(node)


def get_direct_ancestor(
    node_list: Sequence[Node], visited_dict: dict[int, list[int]], target_ops: Sequence[Any], node_idx: int,
    input_names: Collection[str],
) -> list[int]:
    """Return the nearest nodes before a node that decide layouts: target operators, nodes of several inputs, and
    boundaries. `visited_dict` keeps the answers for other nodes of the same list."""
    if node_idx in visited_dict:
        return visited_dict[node_idx]
    if is_boundary_node(node_list[node_idx], input_names):
        return [node_idx]
    found: dict[int, None] = {}
    for index, *_ in node_list[node_idx]["inputs"]:
        if is_one_of(node_list[index]["op"], target_ops) or has_multiple_inputs(
                node_list, index, input_names, OPT_OUT_OP):
            found[index] = None
        else:
            found |= dict.fromkeys(get_direct_ancestor(node_list, visited_dict, target_ops, index, input_names))
    visited_dict[node_idx] = list(found)
    return visited_dict[node_idx]


def get_in_nodes(
    node_list: Sequence[Node], target_ops: Sequence[Any], input_names: Collection[str]
) -> dict[int, list[int]]:
    """Return the direct ancestors of each target operator and of each node of several inputs, by index."""
    visited: dict[int, list[int]] = {}
    found = {}
    for index, node in enumerate(node_list):
        ancestors = get_direct_ancestor(node_list, visited, target_ops, index, input_names)
        decides = is_one_of(node["op"], target_ops) or has_multiple_inputs(node_list, index, input_names, OPT_OUT_OP)
        if decides and ancestors and not is_boundary_node(node, input_names):
            found[index] = ancestors
    return found


def get_out_nodes(in_node_dict: Mapping[int, Sequence[int]]) -> dict[int, list[int]]:
    """Return the opposite of `get_in_nodes`: the nodes that have each node as a direct ancestor."""
    found: dict[int, list[int]] = {index: [] for index in in_node_dict}
    for index, ancestors in in_node_dict.items():
        for ancestor in ancestors:
            found.setdefault(ancestor, []).append(index)
    return found


def _replace_device_with_tracing(target: str) -> str:
    """Return the text of a target whose device is `tracing`, for which no records exist."""
    if "-device" in target:
        return re.sub(r"-device=[^\-$]+", "-device=tracing ", target).strip()
    return f"{target} -device=tracing"
