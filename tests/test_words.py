"""The prose of the documentation: phrases that leave a reader guessing are found, with the words to use in their place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PHRASES = {
    r"\bthe field(?:'s)?\b(?! of)": "TVM, or the standard term",
    r"\b(?:some|no)body(?:'s)?\b": "a noun: a user, another program, a third party",
    r"\bwhoever\b": "a noun: the caller, the user",
    r"\bso many\b": "the number, or N",
    r"\b(?:is|are) none\b": "'is not', 'there is no …'",
    r"\bstands? (?:behind|beside|in the place of)\b": "'follows', 'is next to', 'replaces'",
    r"\bsizes? that (?:is|are) open\b|\bopen sizes?\b": "dynamic shape, symbolic dimension",
}
"""Patterns, and what to write in their place."""
NOT_YET = {"errors.md", "operators.md", "passes.md", "plan.md"}
"""Pages of `docs/` that still have such phrases. The set only shrinks: a page without them is taken out."""
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))]


def prose_of(text: str) -> list[tuple[int, str]]:
    """The numbered lines of a page without its code, which keeps its names."""
    found, in_code = [], False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code:
            found.append((number, re.sub(r"`[^`]*`|\]\([^)]*\)", "", line)))
    return found


def unclear_phrases(page: Path) -> list[str]:
    """Each phrase of a page with its line and what to write."""
    return [
        f"{page.name}:{number}: '{match.group()}': write {better}"
        for number, line in prose_of(page.read_text(encoding="utf-8"))
        for pattern, better in PHRASES.items()
        for match in re.finditer(pattern, line, re.IGNORECASE)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_says_it_plainly(page: Path) -> None:
    found = unclear_phrases(page)
    if page.name in NOT_YET:
        assert found, f"{page.name} has none of these phrases any more; take it out of NOT_YET"
    else:
        assert not found, "\n".join(found)


def test_pages_that_are_not_done_exist() -> None:
    assert {page.name for page in PAGES} >= NOT_YET


def test_code_and_links_are_no_prose(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Calls the field `nobody`.\n\n```python\nsomebody = 1\n```\n[a link](somebody.md)\n", encoding="utf-8")
    assert [found.partition(": ")[0] for found in unclear_phrases(page)] == ["page.md:1"]
