"""TVM's names for the origin of a node: `Span`, `SourceName`, `SequentialSpan`. All are `Origin`s, which messages show.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.base.errors import Origin


class SourceName(str):
    """The name of a text."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return str(self)


class Span(Origin):
    """A range of a text; lines and columns count from 1 and include both ends."""

    __slots__ = ("column", "end_column", "end_line")
    column: int
    end_column: int
    end_line: int

    def __init__(self, source_name: str | None, line: int, end_line: int, column: int, end_column: int) -> None:
        super().__init__(f"{line}:{column}", "", str(source_name or ""), line)
        for name, value in (("column", column), ("end_column", end_column), ("end_line", end_line)):
            object.__setattr__(self, name, value)

    @property
    def source_name(self) -> SourceName | None:
        """The name of the text, or None."""
        return SourceName(self.file) if self.file else None

    def same_as(self, other: object) -> bool:
        """Return whether this is the same object."""
        return self is other


class SequentialSpan(Origin):
    """Several positions: the origin of a rewrite's result that replaces several nodes."""

    __slots__ = ("spans",)
    spans: tuple[Origin, ...]

    def __init__(self, spans: Sequence[Origin]) -> None:
        flat = tuple(t for s in spans for t in (s.spans if isinstance(s, SequentialSpan) else (s,)))
        first = flat[0] if flat else Origin("")
        super().__init__(", ".join(s.name for s in flat), first.kind, first.file, first.line)
        object.__setattr__(self, "spans", flat)
