"""Greatest common divisors of integers, by Euclid's algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilewright import te
from tilewright.scalar import expr as E
from tilewright.tir.ir_builder import BufferVar
from tilewright.topi.broadcast import broadcast_to
from tilewright.topi.elementwise import absolute
from tilewright.topi.loops import Loops, loops
from tilewright.topi.work import Step

__all__ = ["greatest_divisor"]

STEPS = 92
"""Maximum number of divisions for two 64-bit numbers, reached for consecutive Fibonacci numbers (Lamé, 1844)."""


def greatest_divisor(x: te.Tensor, y: te.Tensor, shape: Sequence[int]) -> te.Tensor:
    """Return the greatest common divisors of the elements of two tensors that broadcast to `shape`."""
    inputs = [t if tuple(t.extents) == tuple(shape) else broadcast_to(t, tuple(shape)) for t in (x, y)]
    total = prod(shape)

    def body(b: Loops, first: BufferVar, second: BufferVar, out: BufferVar) -> None:
        if not total:
            return
        with b.shared(total, total, Step.DIVISOR, "element") as at:
            divisor, rest = (
                b.variable("divisor", x.dtype, absolute(first[at])),
                b.variable("rest", x.dtype, absolute(second[at])),
            )
            with b.for_range(0, STEPS, "step"), b.if_scope(E.compare(E.NE, rest[0], 0)):
                left = b.let("left", E.truncmod(divisor[0], rest[0]))
                divisor[0] = rest[0]
                rest[0] = left
            out[at] = absolute(divisor[0])

    return loops("gcd", inputs, [(tuple(shape), x.dtype)], body)[0]
