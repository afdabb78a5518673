"""Order the calls of a graph to reduce the peak memory: of the operands of a call, the one that needs the most memory
comes first.

    f(a(x), c(b(x)))        the results of a and c are small, that of b is large
    -> b, c, a, f           a's is not there yet while b's is

That is the order of Sethi and Ullman ("The generation of optimal code for arithmetic expressions", 1970), with bytes in
the place of registers: the best one where no value is read twice, and a good one elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.base import graphs
from tilewright.base.types import tensors_of
from tilewright.relay.expr import Call, Expr, Function
from tilewright.relay.visitor import operands, post_order


def least_memory_order(function: Function) -> list[Expr]:
    """The nodes of a function's body, operands before users."""
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
    """The most that is alive until a value is there, when its operands are made in this order."""
    most = held = 0
    for o in reads:
        most = max(most, held + need[o])
        held += size[o]
    return max(most, held + size[e] if _makes(e) else held)


def _walked(root: Expr, first: Mapping[Expr, Sequence[Expr]]) -> list[Expr]:
    return graphs.post_order([root], first.__getitem__)


def _makes(e: Expr) -> bool:
    """Whether a value has memory of its own, and is no name for what is there."""
    return isinstance(e, Call) and not (isinstance(e.op, Function) and e.op.attrs.get("reshape_only"))


def _nbytes(e: Expr) -> int:
    """The bytes of the tensors of a value that a call made; inputs and constants are there anyway."""
    kind = e.known_type() if isinstance(e, Call) or operands(e) else None
    return sum(t.nbytes for t in tensors_of(kind) if t.is_static and not t.dtype.is_object)
