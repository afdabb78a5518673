"""What is known inside a loop: the range of its variable under the ranges of the loops around it."""

from __future__ import annotations

from tilewright.arith.bounds import bounds
from tilewright.arith.ranges import Ranges
from tilewright.arith.simplify import simplify
from tilewright.expr import IntImm, add, sub
from tilewright.tir.stmt import For


def inside(loop: For, ranges: Ranges) -> Ranges:
    """The ranges that hold in the body of `loop`."""
    low = bounds(simplify(loop.min, ranges), ranges)[0]
    high = bounds(simplify(sub(add(loop.min, loop.extent), 1), ranges), ranges)[1]
    return ranges.bind(loop.var, low, high, add(loop.min, loop.extent))


def trips(loop: For) -> range | None:
    """The values of the loop variable when they are constants."""
    if isinstance(loop.min, IntImm) and isinstance(loop.extent, IntImm):
        return range(loop.min.value, loop.min.value + max(0, loop.extent.value))
    return None


def runs_once(loop: For) -> bool:
    return isinstance(loop.extent, IntImm) and loop.extent.value == 1
