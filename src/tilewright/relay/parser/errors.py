"""Error positions: file, line and column, with the line's text and a caret below it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from tilewright.base.errors import Origin, ParseError, excerpt

MOST_ERRORS: Final = 10
"""Largest number of errors reported together; later ones are mostly consequences."""


class Source:
    """A text and its name in messages."""

    def __init__(self, text: str, name: str) -> None:
        self.text, self.name = text, name
        self._starts = [0, *(i + 1 for i, c in enumerate(text) if c == "\n")]

    def place(self, position: int) -> tuple[int, int]:
        """Return the line and column of a position, both from 1."""
        line = bisect_right(self._starts, position)
        return line, position - self._starts[line - 1] + 1

    def origin(self, position: int, kind: str) -> Origin:
        """Return the origin of a node at that position."""
        line, column = self.place(position)
        return Origin(f"{line}:{column}", kind, self.name, line)

    def error(self, position: int, length: int, message: str) -> ParseError:
        """Return the error for this position: `net.relay:3:8: …`, the line, and a caret."""
        line, column = self.place(position)
        end = self._starts[line] - 1 if line < len(self._starts) else len(self.text)
        shown = self.text[self._starts[line - 1] : end].rstrip()
        length = max(1, min(length, len(shown) - column + 1))
        return ParseError(f"{self.name}:{line}:{column}: {message}\n{excerpt(shown, column - 1, column - 1 + length)}")


def together(errors: Sequence[ParseError]) -> ParseError:
    """Combine several errors into one."""
    if len(errors) == 1:
        return errors[0]
    shown = [e.message for e in errors[:MOST_ERRORS]]
    if len(errors) > MOST_ERRORS:
        shown.append(f"and {len(errors) - MOST_ERRORS} more")
    return ParseError("\n".join(shown))
