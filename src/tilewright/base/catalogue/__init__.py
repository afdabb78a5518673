"""The catalogue of errors: what each code means, why it happens, what to do. One file of this folder is one area, to read and to edit by hand:

    ## TW0101 A model's file cannot be opened
    `InputError`, `ModelError` · since 0.1.0

    What it means.

    **Why:** what brings it about.

    **What to do:** the cure.

    ```text
    a message, as it is made by the test of the code
    ```

`tests/test_error_catalogue.py` holds each code to what is raised, and writes the line of classes, the messages and docs/errors.md when it
is run as a program. Who raises an error is told its code there when none, or a wrong one, is given. Nothing here is read before it is asked for.
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
    "models", "options", "shapes", "programs", "targets", "loops", "running", "artifacts", "accelerators", "quantization", "tuning", "devices", "compiler",
)
"""The files, in the order of their codes: those of the first begin with TW01."""
_ENTRY: Final = re.compile(
    r"^## (?P<code>TW\d{4}) (?P<title>.+)\n(?P<kinds>`.+`) · since (?P<since>\S+)\n\n(?P<meaning>(?:.+\n)+)\n"
    r"\*\*Why:\*\* (?P<why>(?:.+\n)+)\n\*\*What to do:\*\* (?P<cure>(?:.+\n)+)\n```text\n(?P<example>(?:.*\n)*?)```\n", re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One code: `kinds` are the classes that have it, `example` is a message that a test provokes, `since` a version of this package."""

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
        """The page of this code, as Markdown."""
        return (
            f"## {self.code} {self.title}\n{', '.join(f'`{k}`' for k in self.kinds)} · since {self.since}\n\n{self.meaning}\n\n"
            f"**Why:** {self.why}\n\n**What to do:** {self.cure}\n\n```text\n{self.example}\n```\n"
        )


@dataclass(frozen=True, slots=True)
class Area:
    """One file: its title, what it says of all of its codes, and these."""

    name: str
    title: str
    words: str
    entries: tuple[Entry, ...]

    def text(self) -> str:
        """The file."""
        return f"# {self.title}\n\n{self.words}\n\n" + "\n".join(e.text() for e in self.entries)


def read(name: str) -> Area:
    """One area of the catalogue."""
    text = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    title, words, _ = text.removeprefix("# ").split("\n\n", 2)
    return Area(name, title, words, tuple(_entry(m, name) for m in _ENTRY.finditer(text)))


def _entry(found: re.Match[str], area: str) -> Entry:
    kinds = tuple(re.findall(r"`(\w+)`", found["kinds"]))
    meaning, why, cure = (found[part].strip() for part in ("meaning", "why", "cure"))
    return Entry(found["code"], found["title"], kinds, found["since"], meaning, why, cure, found["example"][:-1], area)


@functools.cache
def areas() -> tuple[Area, ...]:
    """The whole catalogue."""
    return tuple(read(name) for name in AREAS)


@functools.cache
def entries() -> Mapping[str, Entry]:
    """Every code with its page, by the code."""
    return MappingProxyType({e.code: e for area in areas() for e in area.entries})


def find(text: str) -> Entry:
    """The page of a code, which may be written short: `TW0101`, `tw101` and `101` are one. Raises `OptionError` with the nearest codes."""
    known = entries()
    if (digits := re.fullmatch(r"(?:tw)?(\d{1,4})", text.strip().lower())) and (code := f"TW{int(digits[1]):04d}") in known:
        return known[code]
    near: list[str] = []
    if digits:
        number = int(digits[1])
        near = sorted(known, key=lambda c: (c[2:4] != f"{number:04d}"[:2], abs(int(c[2:]) - number)))[:3]
    hint = "the nearest are " + ", ".join(f"{c} ({known[c].title})" for c in near) if near else "a code is TW and four digits, such as TW0101"
    raise OptionError(f"there is no error '{text}'; {hint}; without a code, all are listed", code="TW0203")
