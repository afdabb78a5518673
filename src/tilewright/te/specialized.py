"""Conditions for the use of an operator implementation: `te.SpecializedCondition`."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Final

from tilewright.scalar.expr import as_expr, number_of

_ENTERED: Final[ContextVar[tuple[SpecializedCondition, ...]]] = ContextVar("specialized", default=())


class SpecializedCondition:
    """Conditions on the shapes of an operator, which apply to the implementations added in the `with` block."""

    def __init__(self, conditions: Any) -> None:
        """`conditions` is one scalar expression, or a list of them."""
        given = conditions if isinstance(conditions, (list, tuple)) else [conditions]
        self.clauses = tuple(map(as_expr, given))

    @property
    def holds(self) -> bool:
        """Return whether all conditions are true constants."""
        return all(number_of(c) == 1 for c in self.clauses)

    @staticmethod
    def current() -> SpecializedCondition | None:
        """Return the innermost condition of the enclosing `with` blocks."""
        entered = _ENTERED.get()
        return entered[-1] if entered else None

    def __enter__(self) -> SpecializedCondition:
        _ENTERED.set((*_ENTERED.get(), self))
        return self

    def __exit__(self, *exception: object) -> None:
        _ENTERED.set(_ENTERED.get()[:-1])


__all__ = ["SpecializedCondition"]
