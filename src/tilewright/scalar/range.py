"""`Range`: a half-open interval of integers with symbolic ends, TVM's `tvm.ir.Range`."""

from __future__ import annotations

from tilewright.base.scriptable import Scriptable
from tilewright.scalar.expr import PrimExpr, Value, as_expr, sub


class Range(Scriptable):
    """The integers from `min` on, `extent` of them: `Range(end)` or `Range(begin, end)`."""

    __slots__ = ("extent", "min")
    min: PrimExpr
    extent: PrimExpr

    def __init__(self, begin: Value, end: Value | None = None) -> None:
        low, high = (0, begin) if end is None else (begin, end)
        self.min, self.extent = as_expr(low), sub(high, low) if end is not None else as_expr(high)

    @staticmethod
    def from_min_extent(min_value: Value, extent: Value) -> Range:
        """Return the range of `extent` integers from `min_value` on."""
        made = Range(extent)
        made.min = as_expr(min_value)
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Range) and self.min is other.min and self.extent is other.extent

    def __hash__(self) -> int:
        return hash((self.min, self.extent))

    def __repr__(self) -> str:
        return f"Range({self.min}, {self.min + self.extent})"
