"""The error catalogue: meaning, cause and remedy of each error code. Each file of this folder is one area, edited by
hand:

    ## TW0101 A model file cannot be opened
    `InputError`, `ModelError` · since 0.1.0

    The meaning.

    **Why:** the cause.

    **What to do:** the remedy.

    ```text
    a message, as the example of the code produces it
    ```

`tests/test_error_catalogue.py` compares each code with the errors that are raised, and reports a missing or wrong code.
Run as a program, it writes the line of classes, the messages and docs/errors.md. The files are read on first use.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tilewright.base.errors import OptionError

FOLDER: Final = Path(__file__).parent
AREAS: Final = (
    "models", "options", "shapes", "programs", "targets", "loops", "running", "artifacts", "accelerators",
    "quantization", "tuning", "devices", "compiler",
)
"""The files, in the order of their codes: codes of the first file begin with TW01."""
_ENTRY: Final = re.compile(
    r"^## (?P<code>TW\d{4}) (?P<title>.+)\n(?P<kinds>`.+`) · since (?P<since>\S+)\n\n(?P<meaning>(?:.+\n)+)\n"
    r"\*\*Why:\*\* (?P<why>(?:.+\n)+)\n\*\*What to do:\*\* (?P<cure>(?:.+\n)+)\n```text\n(?P<example>(?:.*\n)*?)```\n",
    re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Entry:
    """One code: `kinds` are the error classes with this code, `example` is a message, `since` a version of this
    package."""

    code: str
    title: str
    kinds: tuple[str, ...]
    since: str
    meaning: str
    why: str
    cure: str
    example: str
    area: str

    def text(self) -> str:
        """Return the entry of this code as Markdown."""
        return (
            f"## {self.code} {self.title}\n{', '.join(f'`{k}`' for k in self.kinds)} · since "
            f"{self.since}\n\n{self.meaning}\n\n"
            f"**Why:** {self.why}\n\n**What to do:** {self.cure}\n\n```text\n{self.example}\n```\n"
        )


@dataclass(frozen=True, slots=True)
class Area:
    """One file: its title, its introduction (`words`), and its entries."""

    name: str
    title: str
    words: str
    entries: tuple[Entry, ...]

    def text(self) -> str:
        """Return the file as Markdown."""
        return f"# {self.title}\n\n{self.words}\n\n" + "\n".join(e.text() for e in self.entries)


def read(name: str) -> Area:
    """Read one area of the catalogue."""
    text = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    title, words, _ = text.removeprefix("# ").split("\n\n", 2)
    return Area(name, title, words, tuple(_entry(m, name) for m in _ENTRY.finditer(text)))


def _entry(found: re.Match[str], area: str) -> Entry:
    kinds = tuple(re.findall(r"`(\w+)`", found["kinds"]))
    meaning, why, cure = (found[part].strip() for part in ("meaning", "why", "cure"))
    return Entry(found["code"], found["title"], kinds, found["since"], meaning, why, cure, found["example"][:-1], area)


@functools.cache
def areas() -> tuple[Area, ...]:
    """Read the whole catalogue."""
    return tuple(read(name) for name in AREAS)


@functools.cache
def entries() -> Mapping[str, Entry]:
    """Return every entry by its code."""
    return MappingProxyType({e.code: e for area in areas() for e in area.entries})


def find(text: str) -> Entry:
    """Return the entry of a code; `TW0101`, `tw101` and `101` are equivalent. Raises `OptionError` with the nearest
    codes."""
    known = entries()
    if (
        digits := re.fullmatch(r"(?:tw)?(\d{1,4})", text.strip().lower())
    ) and (code := f"TW{int(digits[1]):04d}") in known:
        return known[code]
    near: list[str] = []
    if digits:
        number = int(digits[1])
        near = sorted(known, key=lambda c: (c[2:4] != f"{number:04d}"[:2], abs(int(c[2:]) - number)))[:3]
    hint = "the nearest are " + ", ".join(
        f"{c} ({known[c].title})" for c in near
    ) if near else "a code is TW and four digits, such as TW0101"
    raise OptionError(f"there is no error '{text}'; {hint}; without a code, all are listed", code="TW0203")
