"""The difference of two Relay texts up to renumbering: `%7 = nn.relu(%6)` and `%9 = nn.relu(%8)` are the same line.

Lines are first matched without the numbers of values. Of the remaining lines between two matches, calls of the same
operator with most words in common are treated as one changed call. A line that reads values other than the counterparts
of those that it read before is changed, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final

SAME, ADDED, REMOVED, CHANGED = "=", "+", "-", "~"
_NUMBERED: Final = re.compile(r"%\d+(?:\.\d+)?|meta\[[\w.]+\]\[\d+\]")
_DEFINES: Final = re.compile(r"\s*(?:let )?(%\d+) = ")
_WORD: Final = re.compile(r"[\w.]+")
_CALLS: Final = re.compile(r"\s*(?:(?:let )?%\w+ = )?([\w.@%]+)\(")


@dataclass(frozen=True, slots=True)
class Row:
    """A line of one or both texts; its numbers count from 1, and are 0 for a text without it."""

    kind: str
    old: int
    new: int


def difference(old: Sequence[str], new: Sequence[str]) -> list[Row]:
    """Return the rows of both texts in order."""
    rows: list[Row] = []
    became: dict[str, str] = {}
    a, b = ([_NUMBERED.sub("%", line) for line in text] for text in (old, new))
    for tag, a0, a1, b0, b1 in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        pairs = (
            zip(range(a0, a1), range(b0, b1), strict=True) if tag == "equal"
            else _paired(old, new, range(a0, a1), range(b0, b1))
        )
        for i, j in pairs:
            if j is not None and new[j].startswith("def "):
                became.clear()
            if i is None or j is None:
                rows.append(Row(ADDED, 0, j + 1) if j is not None else Row(REMOVED, (i or 0) + 1, 0))
                continue
            rows.append(Row(SAME if a[i] == b[j] and not _rewired(old[i], new[j], became) else CHANGED, i + 1, j + 1))
            became.update(zip(_defined([old[i]]), _defined([new[j]]), strict=False))
    return rows


def _paired(
    old: Sequence[str], new: Sequence[str], these: range, those: range
) -> Iterator[tuple[int | None, int | None]]:
    """Pair the lines of two ranges: calls of the same operator together, others alone."""
    a, b = (
        [_operator(text[k], f"{side}{k}") for k in stretch]
        for text, stretch, side in ((old, these, "-"), (new, those, "+")))
    for tag, a0, a1, b0, b1 in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if tag == "equal":
            for i, j in zip(these[a0:a1], those[b0:b1], strict=True):
                yield from ((i, j),) if _alike(old[i], new[j]) else ((i, None), (None, j))
            continue
        yield from ((i, None) for i in these[a0:a1])
        yield from ((None, j) for j in those[b0:b1])


def _alike(old: str, new: str) -> bool:
    """Whether two lines are indented equally and share most words, so that a comparison within them is useful."""
    if len(old) - len(old.lstrip()) != len(new) - len(new.lstrip()):
        return False
    a, b = (set(_WORD.findall(_NUMBERED.sub("%", line))) for line in (old, new))
    return 2 * len(a & b) > len(a | b)


def _operator(line: str, otherwise: str) -> str:
    """Return the operator that a line calls, or `otherwise`."""
    found = _CALLS.match(line)
    return found[1] if found is not None else otherwise


def _defined(lines: Sequence[str]) -> list[str]:
    """Return the numbers of the values that lines define."""
    return [found[1] for line in lines if (found := _DEFINES.match(line))]


def _rewired(old: str, new: str, became: dict[str, str]) -> bool:
    """Return whether a line reads a different value than before. Constants are compared only by their lines."""
    pairs = zip(_NUMBERED.findall(_DEFINES.sub("", old)), _NUMBERED.findall(_DEFINES.sub("", new)), strict=True)
    return any(x.startswith("%") and became.get(x.partition(".")[0], "") != y.partition(".")[0] for x, y in pairs)
