"""An order of the calls of a graph in which few bytes live at the same time: of all that could be done next, what leaves least behind.

    a = f(x); b = g(x); c = h(a); d = k(b)        a and b are large, c and d small
    -> a, c, b, d                                 b is made when a is gone
"""

from __future__ import annotations

import heapq

from tilewright.relay.expr import Call, Expr, Function
from tilewright.relay.visitor import operands, post_order
from tilewright.types import TensorType, TupleType, Type


def least_memory_order(function: Function) -> list[Expr]:
    """The nodes of a function's body, operands before users, chosen greedily. Names for memory (tuples, fields) cost nothing and come at once."""
    order = post_order(function.body, inside=False)
    place = {e: k for k, e in enumerate(order)}
    reads = {e: [o for o in dict.fromkeys(operands(e)) if o in place] for e in order}
    users: dict[Expr, list[Expr]] = {e: [] for e in order}
    for e in order:
        for o in reads[e]:
            users[o].append(e)
    waiting = {e: len(found) for e, found in reads.items()}
    left = {e: len(found) for e, found in users.items()}
    heap: list[tuple[int, int, Expr]] = []
    done: dict[Expr, None] = {}

    def cost(e: Expr) -> int:
        """The bytes that a call adds: its result, less those of its operands that it is the last to read."""
        if not isinstance(e, Call):
            return -(1 << 62)
        return _nbytes(e) - sum(_nbytes(o) for o in reads[e] if isinstance(o, Call) and left[o] == 1)

    def offer(e: Expr) -> None:
        heapq.heappush(heap, (cost(e), place[e], e))

    for e in order:
        if not waiting[e]:
            offer(e)
    while heap:
        known, _, e = heapq.heappop(heap)
        if e in done:
            continue
        if cost(e) != known:  # somebody else read an operand of it meanwhile
            offer(e)
            continue
        done[e] = None
        for o in reads[e]:
            left[o] -= 1
            if left[o] == 1:
                for user in users[o]:
                    if user not in done and not waiting[user]:
                        offer(user)
        for user in users[e]:
            waiting[user] -= 1
            if not waiting[user]:
                offer(user)
    return [*done]


def _nbytes(e: Expr) -> int:
    """The bytes of the tensors of a value."""
    stack: list[Type | None] = [e.known_type()]
    total = 0
    while stack:
        t = stack.pop()
        if isinstance(t, TupleType):
            stack += t.fields
        elif isinstance(t, TensorType) and t.is_static and not t.dtype.is_object:
            total += t.nbytes
    return total
