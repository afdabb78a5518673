"""The pattern tables of targets, by the target's name: what `MergeComposite` puts together for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

PatternTable = Sequence[tuple[Any, ...]]
"""Rows `(name, pattern)` or `(name, pattern, check)`, in the order in which they are tried."""


@dataclass(frozen=True)
class Refusal:
    """What a check may answer in place of False: the rule that a match breaks, and the smallest edit of the model that would keep it.

    `change` makes that edit: of what the check was given, an expression in its place.
    """

    rule: str
    edit: str = ""
    change: Callable[[Any], Any] | None = None

    def __bool__(self) -> bool:
        return False


_TABLES: Final[dict[str, PatternTable]] = {}


def register_pattern_table(compiler: str, table: Callable[[], PatternTable] | None = None) -> Any:
    """Register the table that the function returns as that of `compiler`; without `table`, a decorator of such a function."""

    def register(make: Callable[[], PatternTable]) -> Callable[[], PatternTable]:
        _TABLES[compiler] = make()
        return make

    return register if table is None else register(table)


def get_pattern_table(compiler: str) -> PatternTable | None:
    """The table of `compiler`, or None when it has none."""
    return _TABLES.get(compiler)
