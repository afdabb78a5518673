"""Branches, loops, graphs that run once, and the variables and tables that they write.

A loop becomes a recursive function. If its states change type between iterations, or are strings, it is unrolled while
its condition is known. A condition that is known only at run time defers the operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tilewright.base.errors import CompileError, ModelError, ShapeError
from tilewright.relay.expr import Expr, If, Tuple
from tilewright.relay.frontend.core.known import has_unknown_sizes
from tilewright.relay.frontend.core.node import NotKnownError
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import fields, reshape
from tilewright.relay.frontend.tflite.node import Node, Outside, Value
from tilewright.relay.frontend.tflite.registry import converter
from tilewright.relay.loops import Loop, Turn

_MOST: Final = 64
"""Largest number of unrolled iterations for loops whose states change type."""


@converter("IF")
def if_(condition: Value, *inputs: Value, then_subgraph_index: int = 0, else_subgraph_index: int = 0,
        node: Node) -> tuple[Expr, ...]:
    given = [x.expr for x in inputs]
    known = node.known(condition)
    if any(isinstance(d, int) and d != 1 for d in condition.expr.tensor_type.shape):
        node.refuse(f"its condition has the shape {tuple(condition.expr.tensor_type.shape)}, but must be one Boolean; "
                    "the file is damaged: convert it again")
    if known is not None:
        return tuple(node.import_graph(then_subgraph_index if known.reshape(-1)[0] else else_subgraph_index, given))
    if any(map(_holds_texts, given)):
        return tuple(node.import_graph(then_subgraph_index if node.value(condition).reshape(-1)[0]
                                       else else_subgraph_index, given))
    both = [node.import_graph(number, given) for number in (then_subgraph_index, else_subgraph_index)]
    if len(both[0]) != len(both[1]):
        node.refuse(f"its branches have {len(both[0])} and {len(both[1])} results, but must have the same number; the "
                    "file is damaged: convert it again")
    if any(has_unknown_sizes(a) or has_unknown_sizes(b) or a.checked_type != b.checked_type
           for a, b in zip(*both, strict=True)):
        return tuple(both[0] if node.value(condition).reshape(-1)[0] else both[1])
    then, otherwise = both
    chosen = reshape(condition.expr, ())
    if len(then) == 1:
        return (If(chosen, then[0], otherwise[0], node.origin),)
    return fields(If(chosen, Tuple(tuple(then)), Tuple(tuple(otherwise)), node.origin), len(then))


@converter("WHILE")
def while_(*inputs: Value, cond_subgraph_index: int = 0, body_subgraph_index: int = 0, node: Node) -> tuple[Expr, ...]:
    states = [x.expr for x in inputs]
    if any(map(_holds_texts, states)):
        why = ModelError("a compiled loop cannot contain strings", node.origin, code="TW0107")
        return tuple(_copied(inputs, cond_subgraph_index, body_subgraph_index, node, why))
    try:
        return tuple(_looped(states, cond_subgraph_index, body_subgraph_index, node))
    except (ShapeError, NotKnownError) as error:
        return tuple(_copied(inputs, cond_subgraph_index, body_subgraph_index, node, error))


def _holds_texts(x: Expr) -> bool:
    return x.tensor_type.dtype.is_object


def _looped(states: Sequence[Expr], cond: int, body: int, node: Node) -> list[Expr]:
    loop = Loop()

    def going(values: Sequence[Expr], outside: Outside | None) -> Expr:
        return reshape(_condition(node.import_graph(cond, values, outside), node), ())

    def turn(number: Expr, values: Sequence[Expr]) -> Turn:
        after = _after(node.import_graph(body, values, loop.outside), len(states), node)
        return Turn(after, (), going(after, loop.outside))

    return loop.run(None, states, turn, going=going(states, None))[1]


def _condition(results: Sequence[Expr], node: Node) -> Expr:
    """The only result of a condition graph; refuses other numbers of results."""
    if len(results) != 1:
        node.refuse(f"its condition has {len(results)} results, but must have one; the file is damaged: convert it "
                    "again")
    return results[0]


def _after(results: Sequence[Expr], count: int, node: Node) -> Sequence[Expr]:
    """The states after an iteration; refuses a body whose number of results is not `count`."""
    if len(results) != count:
        node.refuse(f"its body has {len(results)} results, but must have {count}, one for each input; the file is "
                    "damaged: convert it again")
    return results


def _copied(inputs: Sequence[Value], cond: int, body: int, node: Node, why: CompileError) -> list[Expr]:
    """Unroll the loop while the condition is known to be true."""
    states = [x.expr for x in inputs]
    for _ in range(_MOST):
        going = node.settled(_condition(node.import_graph(cond, states), node))
        holds = node.value(Value(going, node.output))
        if holds.size != 1:
            node.refuse(f"its condition has the shape {holds.shape}, but must be one Boolean; the file is damaged: "
                        "convert it again")
        if not holds.item():
            return states
        states = [node.settled(s) for s in _after(node.import_graph(body, states), len(states), node)]
    return node.refuse(f"it must be unrolled ({why.message}), but has more than {_MOST} iterations; keep the types of "
                       "its values the same in every iteration, and use no strings in it")


@converter("CALL")
def call(*inputs: Value, subgraph: int = 0, node: Node) -> tuple[Expr, ...]:
    return tuple(node.import_graph(subgraph, [x.expr for x in inputs]))


@converter("STABLEHLO_COMPOSITE")
def composite(
    *inputs: Value, name: str = "", decomposition_subgraph_index: int = 0, composite_attributes: Any = (),
    composite_attributes_format: int = 0, version: int = 0, node: Node,
) -> tuple[Expr, ...]:
    """Import the decomposition, ignoring the name and attributes, which are for runtimes with a native version."""
    return tuple(node.import_graph(decomposition_subgraph_index, [x.expr for x in inputs]))


@converter("CALL_ONCE")
def call_once(*, init_subgraph_index: int = 0, node: Node) -> tuple[Expr, ...]:
    if init_subgraph_index not in node.resources.done:
        node.resources.done.add(init_subgraph_index)
        node.import_graph(init_subgraph_index, [])
    return ()


@converter("VAR_HANDLE")
def var_handle(*, container: str = "", shared_name: str = "", node: Node) -> Expr:
    return node.resources.handle(("variable", container, shared_name))


@converter("READ_VARIABLE")
def read_variable(handle: Value, *, node: Node) -> Expr:
    key = node.resources.handles.get(handle.expr)
    found = node.resources.variables.get(key)
    if found is None:
        if key is None:
            node.refuse("its input is not a variable handle; the file is damaged: convert it again")
        return op.zeros(shape=node.output.shape, dtype=node.output.dtype)
    return found


@converter("ASSIGN_VARIABLE")
def assign_variable(handle: Value, value: Value, *, node: Node) -> tuple[Expr, ...]:
    key = node.resources.handles.get(handle.expr)
    if key is None:
        node.refuse("its first input is not a variable handle; the file is damaged: convert it again")
    node.resources.variables[key] = value.expr
    return ()


