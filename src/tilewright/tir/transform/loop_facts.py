"""Facts inside a loop or a branch: the range of the loop variable, and the part of a condition that stays true."""

from __future__ import annotations

from tilewright.scalar.arith.bounds import bounds
from tilewright.scalar.arith.ranges import Ranges
from tilewright.scalar.arith.simplify import simplify
from tilewright.scalar.arith.solve import conjuncts
from tilewright.scalar.expr import IntImm, Load, PrimExpr, add, all_of, sub
from tilewright.scalar.walk import walk
from tilewright.tir.stmt import For, Stmt, stored_buffers


def inside(loop: For, ranges: Ranges) -> Ranges:
    """The ranges that hold in the body of `loop`."""
    low = bounds(simplify(loop.min, ranges), ranges)[0]
    high = bounds(simplify(sub(add(loop.min, loop.extent), 1), ranges), ranges)[1]
    return ranges.bind(loop.var, low, high, add(loop.min, loop.extent))


def lasting(condition: PrimExpr, body: Stmt) -> PrimExpr:
    """Return the part of a condition that holds throughout `body`: without reads of memory that `body` stores to."""
    if not any(isinstance(x, Load) for x in walk(condition)):
        return condition
    stored = {*stored_buffers(body)}
    return all_of(
        *(c for c in conjuncts(condition) if not any(isinstance(x, Load) and x.buffer in stored for x in walk(c))))


def trips(loop: For) -> range | None:
    """Return the values of the loop variable if its bounds are constants, else None."""
    if isinstance(loop.min, IntImm) and isinstance(loop.extent, IntImm):
        return range(loop.min.value, loop.min.value + max(0, loop.extent.value))
    return None


def runs_once(loop: For) -> bool:
    return isinstance(loop.extent, IntImm) and loop.extent.value == 1
