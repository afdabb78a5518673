"""Order the calls of a graph to reduce the peak memory: the operand of a call that needs the most memory comes first.

    f(a(x), c(b(x)))        the results of a and c are small, that of b is large
      -> b, c, a, f           so that the result of a is not alive while that of b is

This is the order of Sethi and Ullman ("The generation of optimal code for arithmetic expressions", 1970) with bytes
instead of registers. It is optimal for trees, and a good heuristic otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.base import graphs
from tilewright.base.types import tensors_of
from tilewright.relay.expr import Call, Expr, Function
from tilewright.relay.visitor import operands, post_order


def least_memory_order(function: Function) -> list[Expr]:
    """Return the nodes of a function's body, operands before users."""
    order = post_order(function.body, inside=False)
    known = {*order}
    first: dict[Expr, list[Expr]] = {}
    size: dict[Expr, int] = {}
    need: dict[Expr, int] = {}
    for e in order:
        reads = [o for o in dict.fromkeys(operands(e)) if o in known]
        reads.sort(key=lambda o: size[o] - need[o])
        first[e], size[e] = reads, _nbytes(e)
        need[e] = _need(e, reads, size, need)
    return _walked(function.body, first)


def _need(e: Expr, reads: Sequence[Expr], size: Mapping[Expr, int], need: Mapping[Expr, int]) -> int:
    """Return the peak memory in bytes up to the computation of `e`, with its operands computed in this order."""
    most = held = 0
    for o in reads:
        most = max(most, held + need[o])
        held += size[o]
    return max(most, held + size[e] if _makes(e) else held)


def _walked(root: Expr, first: Mapping[Expr, Sequence[Expr]]) -> list[Expr]:
    return graphs.post_order([root], first.__getitem__)


def _makes(e: Expr) -> bool:
    """Return whether a value has its own memory."""
    return isinstance(e, Call) and not (isinstance(e.op, Function) and e.op.attrs.get("reshape_only"))


def _nbytes(e: Expr) -> int:
    """Return the size in bytes of a value's tensors; 0 for inputs and constants, which are always alive."""
    kind = e.known_type() if isinstance(e, Call) or operands(e) else None
    return sum(t.nbytes for t in tensors_of(kind) if t.is_static and not t.dtype.is_object)
