"""31-bit fractions as int64 expressions of a graph. `quotients.py` has the same arithmetic for constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast
from tilewright.relay.frontend.tflite.node import constant

ONE: Final = (1 << 31) - 1


def of(value: int) -> Constant:
    return constant(value, "int64")


def times(a: Expr, b: Expr) -> Expr:
    """The product of fractions, rounded half up."""
    return op.right_shift(op.add(op.multiply(a, b), of(1 << 30)), of(31))


def shifted(x: Expr, count: int) -> Expr:
    """x / 2^count, rounded half away from zero."""
    if not count:
        return x
    sign = op.right_shift(x, of(63))
    return op.right_shift(op.add(op.add(x, of(1 << (count - 1))), sign), of(count))


def held(x: Expr) -> Expr:
    """Saturate to 32 bits."""
    return op.maximum(op.minimum(x, of(ONE)), of(-(1 << 31)))


def counted(conditions: Sequence[Expr]) -> Expr:
    """The number of true conditions, summed in pairs to keep the expression shallow."""
    terms = [cast(c, "int64") for c in conditions]
    while len(terms) > 1:
        terms = [op.add(*terms[k : k + 2]) if k + 1 < len(terms) else terms[k] for k in range(0, len(terms), 2)]
    return terms[0]


def truncated_quotient(x: Expr, by: int) -> Expr:
    """x / by for a positive integer, truncated toward zero."""
    size = op.floor_divide(op.abs(x), of(by))
    return op.where(op.less(x, of(0)), op.negative(size), size)


def inverse_root(x: Expr) -> tuple[Expr, Expr]:
    """1 / sqrt(x) for x < 2^31, 1 for x < 1, as fractions and right shifts, like `quotients.inverse_roots`."""
    large = op.greater_equal(x, of(1 << 29))
    value = op.where(large, op.right_shift(x, of(2)), x)
    pairs = counted([op.less(value, of(1 << (27 - 2 * k))) for k in range(14)])
    shift = op.subtract(op.add(of(11), cast(large, "int64")), pairs)
    data = op.right_shift(op.left_shift(value, op.multiply(pairs, of(2))), of(1))
    half = op.right_shift(op.add(data, of(1)), of(1))
    root: Expr = of(1 << 28)
    for _ in range(5):
        cube = held(op.left_shift(times(times(root, root), root), of(6)))
        root = held(op.left_shift(op.subtract(times(of(402653184), root), times(half, cube)), of(3)))
    found = op.left_shift(times(root, of(1518500250)), op.maximum(op.negative(shift), of(0)))
    one = op.less_equal(x, of(1))
    return op.where(one, of(ONE), found), op.where(one, of(0), op.maximum(shift, of(0)))
