"""Where the calls of an imported graph come from: every one carries the node of the model that it was made for."""

from __future__ import annotations

from tilewright.errors import Origin
from tilewright.relay.expr import Call, Expr, Function, If, Let, Tuple, TupleGetItem
from tilewright.relay.visitor import operands


def locate(result: Expr, origin: Origin) -> None:
    """Set the span of the calls that were made for a node: those reached from `result` that have none yet."""
    stack = [result]
    seen: set[Expr] = set()
    while stack:
        e = stack.pop()
        if isinstance(e, Call):
            if e.span is None:
                e.span = origin
                stack.extend(e.args)
                if isinstance(e.op, Let):
                    stack.append(e.op)
        elif isinstance(e, (Tuple, TupleGetItem, If, Let, Function)) and e not in seen:
            seen.add(e)
            stack.extend(operands(e))
