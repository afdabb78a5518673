"""Groups of nodes that TVM's `FuseOps` puts in one function: calls, tuples, their fields, and scalar constants.

    %0 = split(%x, 2); add(exp(%0.0), tanh(%0.1))  -> one group, with the fields of %0

Every node has a fusion class, and every edge the class of the reader; a broadcasting reader of a value of its own shape
counts as elementwise. A node joins its immediate post-dominator, with all nodes on the paths to it, if their classes
permit. Three rounds: convolutions and elementwise nodes, then injective nodes and tuples, then what tuples read.
The compiler groups otherwise (`fuse_ops.py`): it keeps views apart, and stores results before they widen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from tilewright.base.types import TensorType, TupleType
from tilewright.ir.op_attributes import op_attr
from tilewright.relay.expr import Call, Constant, Expr, Tuple, TupleGetItem
from tilewright.relay.op.hooks import PATTERN, OpPattern
from tilewright.relay.op.registry import Op
from tilewright.relay.visitor import operands

_SCALARS: Final = frozenset({"int32", "int64", "float32", "float64", "bool"})
Condition = Callable[[int, bool], bool]


@dataclass(eq=False, slots=True)
class GraphNode:
    """A node of the program: its fusion class, its readers with the classes of their edges, and its post-dominator.

    `outside`: whether anything but calls, tuples and fields reads it. `edge` is the hardest class on the way to the
    post-dominator. Groups are a forest: `joined` leads to the node that computes the result; the group's class and
    number of nodes are those of that node.
    """

    expr: Expr
    pattern: int
    outside: bool = False
    readers: list[tuple[GraphNode, int]] = field(default_factory=list)
    depth: int = 1
    dominator: GraphNode | None = None
    edge: int = OpPattern.OPAQUE
    joined: GraphNode | None = None
    anchored: bool = False
    group_pattern: int = 0
    count: int = 1

    @property
    def root(self) -> GraphNode:
        """The node that computes the result of the group."""
        found = self
        while found.joined is not None:
            found = found.joined
        at = self
        while at.joined is not None and at.joined is not found:
            at.joined, at = found, at.joined
        return found


def grouped(order: Sequence[Expr], body: Expr, most: int, link_params: bool, alone: Callable[[Call], bool]) -> dict[
        Expr, GraphNode]:
    """Return the nodes of a program by expression, joined into groups of at most `most` nodes.

    `order` has all expressions, operands first. A call that is `alone` joins no group.
    """
    nodes = {e: GraphNode(e, _pattern(e, link_params, alone)) for e in order}
    for e in order:
        for o, pattern in _edges(e):
            if pattern is None and o in nodes:
                nodes[o].outside = True
            elif pattern is not None:
                nodes[o].readers.append((nodes[e], pattern))
    nodes[body].outside = True
    for e in reversed(order):
        _place(nodes[e])
    for node in nodes.values():
        node.group_pattern = node.pattern
        node.anchored = node.pattern == OpPattern.OUT_ELEMWISE_FUSABLE
    if most > 1:
        for phase in range(3):
            for e in order:
                _join_dominator(nodes[e], phase, most)
    return nodes


def _pattern(e: Expr, link_params: bool, alone: Callable[[Call], bool]) -> int:
    if isinstance(e, Call) and isinstance(e.op, Op):
        if alone(e):
            return OpPattern.OPAQUE
        given = op_attr(e.op.name, PATTERN)
        return int(e.op.kind if given is None else given)
    if isinstance(e, Constant):
        scalar = not e.value.shape and str(np.dtype(e.value.dtype)) in _SCALARS
        return OpPattern.ELEMWISE if scalar or link_params else OpPattern.OPAQUE
    if isinstance(e, Tuple):
        return OpPattern.TUPLE
    return OpPattern.INJECTIVE if isinstance(e, TupleGetItem) and _holds_tensors(e.tuple_value) else OpPattern.OPAQUE


def _holds_tensors(e: Expr) -> bool:
    kind = e.known_type()
    return isinstance(kind, TupleType) and all(isinstance(f, TensorType) for f in kind.fields)


def _edges(e: Expr) -> list[tuple[Expr, Any]]:
    """Return the operands of a node with the classes of the edges; None for an operand that is read from outside."""
    if isinstance(e, Call) and isinstance(e.op, Op):
        given = op_attr(e.op.name, PATTERN)
        pattern = int(e.op.kind if given is None else given)
        return [(a, OpPattern.ELEMWISE if pattern == OpPattern.BROADCAST and _same_shape(a, e) else pattern)
                for a in e.args]
    if isinstance(e, Tuple):
        return [(f, OpPattern.INJECTIVE if isinstance(f.known_type(), TensorType) else None) for f in e.fields]
    if isinstance(e, TupleGetItem) and _holds_tensors(e.tuple_value):
        return [(e.tuple_value, OpPattern.INJECTIVE)]
    return [(o, None) for o in operands(e)]


def _same_shape(a: Expr, b: Expr) -> bool:
    x, y = a.known_type(), b.known_type()
    return isinstance(x, TensorType) and isinstance(y, TensorType) and x.shape == y.shape


def _place(node: GraphNode) -> None:
    """Find the immediate post-dominator of a node from those of its readers."""
    if node.outside or not node.readers:
        return
    edge: int = OpPattern.ELEMWISE
    meet: GraphNode | None = node.readers[0][0]
    for reader, pattern in node.readers:
        other: GraphNode | None = reader
        edge = max(edge, pattern)
        while meet is not other:
            if meet is None or other is None:
                meet = None
                break
            a, b = meet.depth, other.depth
            if a >= b:
                edge, meet = max(edge, meet.edge), meet.dominator
            if b >= a:
                edge, other = max(edge, other.edge), other.dominator
        if meet is None:
            break
    node.dominator, node.edge = meet, edge
    node.depth = 1 if meet is None else meet.depth + 1


def _join_dominator(node: GraphNode, phase: int, most: int) -> None:
    """Join a node, and all nodes between, to its post-dominator where this round and the classes permit it."""
    end = node.dominator
    if node.group_pattern == OpPattern.OPAQUE or end is None or _count(node, end) > most:
        return
    if phase == 2:
        root = end.root
        if (node.group_pattern <= OpPattern.INJECTIVE and end.group_pattern == OpPattern.TUPLE
                and root.group_pattern <= OpPattern.INJECTIVE):
            _join_if(node, end, lambda kind, last: kind <= OpPattern.INJECTIVE)
        return
    if node.root is end.root or end.group_pattern == OpPattern.TUPLE:
        return
    if node.group_pattern == OpPattern.OUT_ELEMWISE_FUSABLE:
        if phase == 0 and node.edge == OpPattern.ELEMWISE:
            _join_if(node, end, lambda kind, last: kind <= OpPattern.BROADCAST)
    elif node.group_pattern <= OpPattern.BROADCAST:
        if node.edge <= OpPattern.INJECTIVE or node.edge == OpPattern.COMM_REDUCE:
            _join_if(node, end, lambda kind, last: kind <= (
                OpPattern.OUT_ELEMWISE_FUSABLE if last else OpPattern.INJECTIVE))
    elif node.group_pattern in (OpPattern.INJECTIVE, OpPattern.TUPLE) and phase == 1:
        _join_if(node, end, lambda kind, last: kind <= OpPattern.INJECTIVE)


def _between(node: GraphNode, end: GraphNode) -> list[GraphNode]:
    """Return the nodes on the paths from `node` to `end`, from `node` on, without `end`."""
    found = {node: None}
    stack = [node]
    while stack:
        for reader, _ in stack.pop().readers:
            if reader is not end and reader not in found:
                found[reader] = None
                stack.append(reader)
    return list(found)


def _count(node: GraphNode, end: GraphNode) -> int:
    return end.root.count + sum(n.count for n in _between(node, end))


def _join_if(node: GraphNode, end: GraphNode, permits: Condition) -> None:
    path = _between(node, end)
    if not permits(end.root.group_pattern, True) or not all(permits(n.root.group_pattern, False) for n in path[1:]):
        return
    for n in path:
        child, parent = n.root, end.root
        if child is parent:
            continue
        parent.count += child.count
        child.joined = parent
        if child.anchored:
            parent.anchored, parent.group_pattern = True, max(child.group_pattern, parent.group_pattern)
