"""The parts of iterator maps: iterators, their splits, and sums of splits. `iter_map.py` finds them in expressions."""

from __future__ import annotations

from typing import Any, Final

from tilewright.base.node import node
from tilewright.scalar.arith.polynomials import is_number, is_same
from tilewright.scalar.arith.ranges import Ranges
from tilewright.scalar.arith.simplify import simplify
from tilewright.scalar.expr import PrimExpr, add, floordiv, floormod, literal, mul


class IterMapExpr:
    """Base of the parts of an iterator map."""

    __slots__ = ()


@node
class IterMark:
    """An iterator: an expression, or a sum of splits, that takes the values from 0 to `extent`."""

    source: Any
    extent: Any

    def __post_init__(self) -> None:
        _typed(self, source=self.source, extent=self.extent)


@node
class IterSplitExpr(IterMapExpr):
    """`scale * (source // lower_factor % extent)`."""

    source: IterMark
    lower_factor: Any
    extent: Any
    scale: Any

    def __post_init__(self) -> None:
        _typed(self, lower_factor=self.lower_factor, extent=self.extent, scale=self.scale)


@node
class IterSumExpr(IterMapExpr):
    """The sum of splits and `base`."""

    args: Any
    base: Any

    def __post_init__(self) -> None:
        _typed(self, base=self.base)
        object.__setattr__(self, "args", tuple(self.args))


def _typed(self: Any, **fields: Any) -> None:
    """Store numbers as int32 constants."""
    for name, value in fields.items():
        if isinstance(value, int):
            object.__setattr__(self, name, literal(value))


def expression_of(x: IterSumExpr | IterSplitExpr | PrimExpr) -> PrimExpr:
    """Return a part of an iterator map as an expression."""
    if isinstance(x, PrimExpr):
        return x
    if isinstance(x, IterSumExpr):
        total: PrimExpr | None = None
        for a in x.args:
            term = expression_of(a)
            total = term if total is None else add(total, term)
        return x.base if total is None else add(total, x.base)
    source, mark = expression_of(x.source.source), x.source
    if is_same(x.extent, mark.extent) and is_number(x.lower_factor, 1):
        value = source
    elif is_same(mul(x.lower_factor, x.extent), mark.extent):
        value = floordiv(source, x.lower_factor)
    elif is_number(x.lower_factor, 1):
        value = floormod(source, x.extent)
    else:
        value = floordiv(floormod(source, simplify(mul(x.lower_factor, x.extent), Ranges())), x.lower_factor)
    return mul(value, x.scale)


normalize_iter_map_to_expr: Final = expression_of

__all__ = [
    "IterMapExpr", "IterMark", "IterSplitExpr", "IterSumExpr", "expression_of", "normalize_iter_map_to_expr",
]
