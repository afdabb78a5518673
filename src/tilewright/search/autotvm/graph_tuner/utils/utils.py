"""Questions about the nodes of a list that `expr2graph` makes, and types for the inputs of a function."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, cast

from tilewright.base.types import TensorType
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Constant, Expr, Function, Var
from tilewright.relay.transform.infer_type import InferType
from tilewright.relay.visitor import substitute
from tilewright.search.autotvm.graph_tuner._base import OPT_OUT_OP

Node = dict[str, Any]
"""`{"node": expression, "op": operator or None, "inputs": [[index, 0, 0], …], "types": [types], "name": text}`; a node
of a target operator also has "workloads"."""


def is_one_of(op: Any, operators: Iterable[Any]) -> bool:
    """Return whether an operator, or the operator of a call, is one of a list."""
    return op is not None and any(getattr(op, "name", op) == getattr(o, "name", o) for o in operators)


def is_input(node: Node, input_names: Collection[str]) -> bool:
    """Return whether a node is an input of the network, not a parameter."""
    return isinstance(node["node"], Var) and node["name"] in input_names


def is_boundary_node(node_entry: Node, input_names: Collection[str]) -> bool:
    """Return whether layouts begin anew at a node: an input of the network, or an operator of `OPT_OUT_OP`."""
    return is_one_of(node_entry["op"], OPT_OUT_OP) or is_input(node_entry, input_names)


def has_multiple_inputs(
    node_list: Sequence[Node], node_idx: int, input_names: Collection[str], opt_out_op: Iterable[Any]
) -> bool:
    """Return whether several operands of a node depend on inputs of the network, so that their layouts must agree.
    False for an operator of `opt_out_op`."""
    node = node_list[node_idx]
    if is_one_of(node["op"], opt_out_op):
        return False
    below = {index for index, *_ in node["inputs"]}
    return sum(_depends(node_list, index, input_names) for index in below) > 1


def _depends(node_list: Sequence[Node], node_idx: int, input_names: Collection[str]) -> bool:
    """Return whether the value of a node depends on an input of the network."""
    seen, work = {node_idx}, [node_idx]
    while work:
        node = node_list[work.pop()]
        if is_input(node, input_names):
            return True
        fresh = {index for index, *_ in node["inputs"]} - seen
        seen |= fresh
        work += fresh
    return False


def name_of(node: Any, index: int) -> str:
    """Return the name of a variable, or a made-up name of another node."""
    if isinstance(node, Var):
        return node.name_hint
    return f"Constant_{index}" if isinstance(node, Constant) else f"{type(node).__name__}_{index}"


def bind_inputs(
    expr: Function, input_shapes: Mapping[str, Sequence[int]] | None = None,
    input_dtypes: str | Mapping[str, str] = "float32",
) -> Function:
    """Return a typed function whose parameters have these shapes and data types, by name. The types of other parameters
    follow from the operators. Raises `ShapeError` if they do not fit."""
    if input_shapes is not None:
        dtypes = dict.fromkeys(input_shapes, input_dtypes) if isinstance(input_dtypes, str) else input_dtypes
        typed: dict[Expr, Expr] = {
            p: Var(p.name_hint, TensorType(tuple(input_shapes[p.name_hint]), dtypes[p.name_hint]))
            for p in expr.params if p.name_hint in input_shapes}
        params = [cast(Var, typed.get(p, p)) for p in expr.params]
        expr = Function(params, substitute(expr.body, typed), attrs=expr.attrs)
    found = InferType()(IRModule.from_expr(expr))["main"]
    assert isinstance(found, Function)
    return found
