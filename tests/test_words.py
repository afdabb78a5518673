"""The prose of pages and docstrings: phrases that leave a reader guessing, and sentences that are too long."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "tilewright"
CATALOGUE = SOURCE / "base" / "catalogue"
PHRASES = {
    r"\bthe field(?:'s)?\b(?! (?:of|before|CODE)\b)": "TVM, or the standard term",
    r"\b(?:some|no)body(?:'s)?\b": "a noun: a user, another program, a third party",
    r"\bwhoever\b": "a noun: the caller, the user",
    r"\bwhatever\b": "a noun with 'any' or 'every'",
    r"\bso many\b": "the number, or N",
    r"\bso much (?!as)(?:of|as that|memory)\b": "the amount",
    r"(?<!there )\b(?:is|are) (?-i:none)\b": "'is not', 'there is no …'",
    r"(?<!there )\bis no (?:\w+ "
    r")?(?:string|number|tensor|type|operator|file|vector|map|int|float|list|tuple|shape|name|part|power)\b": "'is not a …'",  # noqa: E501
    r"\bstands?\b(?! for\b|-in)": "'is', 'follows', 'is next to', 'replaces'; for text, 'contains'",
    r"\bsizes? that (?:is|are) open\b|\bopen sizes?\b": "dynamic shape, symbolic dimension",
    r"(?:^|[.;:] )(?:Who|What|Whose) (?!(?:is|are|was|to|the|a|does|do|can|if)\b[^.]*\?)": "a noun as the subject of the sentence",  # noqa: E501
    r"\b(?:says|knows|tells|asks|decides|remembers) (?:who|whose|what)\b": "name the thing",
    r"\bas often again\b|\bas many again\b": "'twice'",
    r"\bon the way\b(?!,? )[;.]": "name the stage",
    r"\bknows? better\b": "name the source of the information",
    r"\b(?:is|are|was|were) met\b": "'occurs', 'is satisfied'",
    r"\bthat is where\b|\bwherever\b": "'if', 'where', or the place",
    r"\bone of (?:its|their|your) own\b": "'its own …', 'a separate …'",
    r"\bof ours\b|\bours\b": "Tilewright's",
    r"\bas ever\b|\bfor ever\b": "a precise adverb, or none",
    r"\bgoes? on\b": "'continues'",
    r"\bnotwithstanding\b|\bwherein\b|\bthereof\b|\bwhereupon\b": "a plain word",
}
"""Patterns, and the words to write in their place."""
PAGES = [
    ROOT / "README.md", ROOT / "SECURITY.md", *sorted(ROOT.glob("CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")), *sorted(CATALOGUE.glob("*.md"))
]
MOST_WORDS = 25
"""In one sentence; names in code that follow each other count once."""
SHORT_PAGES = {"architecture.md": 2000}
"""Pages that are read as a whole, and the number of words that they may have."""


def prose_of(text: str) -> list[tuple[int, str]]:
    """Return the numbered lines of a page without its code, whose names are not prose."""
    found, in_code = [], False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code:
            found.append((number, re.sub(r"`[^`]*`|\]\([^)]*\)", "", line)))
    return found


def unclear_phrases(name: str, prose: list[tuple[int, str]]) -> list[str]:
    """Return each phrase of numbered lines of prose with the name of the file, its line and a better wording."""
    return [
        f"{name}:{number}: '{match.group()}': write {better}"
        for number, line in prose
        for pattern, better in PHRASES.items()
        for match in re.finditer(pattern, line, re.IGNORECASE if not pattern.startswith("(?:^") else 0)
    ]


def docstrings(tree: ast.AST) -> Iterator[ast.Constant]:
    """Yield the docstrings of modules, classes and functions, and the strings that document assignments."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else []:
            match statement:
                case ast.Expr(ast.Constant(str()) as text):
                    yield text


def docstring_prose(docstring: ast.Constant) -> list[tuple[int, str]]:
    """Return the paragraphs of a docstring without code in backticks and indented examples, numbered by first lines."""
    found, paragraph, start = [], "", docstring.lineno
    first, *rest = str(docstring.value).split("\n")
    for number, line in enumerate([first, *(line[docstring.col_offset :] for line in rest), ""], docstring.lineno):
        if line.strip() and not line.startswith("    "):
            start, paragraph = (start, f"{paragraph} {line.strip()}") if paragraph else (number, line.strip())
        elif paragraph:
            found.append((start, re.sub(r"``?[^`]*``?", "CODE", paragraph)))
            paragraph = ""
    return found


def sentences(text: str) -> list[str]:
    """Return the sentences of paragraphs, list items and cells of tables; code in them counts as one word."""
    found: list[str] = []
    paragraph: list[str] = []

    def end() -> None:
        joined = " ".join(paragraph)
        found.extend(re.split(r"(?<=[.!?:;])(?:\*\*|\))?\s+", joined))
        paragraph.clear()

    in_code = False
    for line in text.splitlines():
        stripped = re.sub(r"`[^`]*`", "CODE", re.sub(r"\]\([^)]*\)", "]", line.strip()))
        if line.lstrip().startswith("```"):
            in_code = not in_code
            end()
        elif in_code:
            continue
        elif stripped.startswith("|"):
            end()
            for cell in stripped.strip("|").split("|"):
                paragraph.append(cell)
                end()
        else:
            if not stripped or re.match(r"#|[-*] |\d+\. ", stripped):
                end()
            paragraph.append(stripped)
    end()
    return found


def words(sentence: str) -> int:
    """Return the number of words of a sentence; names that follow each other in a list count once."""
    return len(re.findall(r"[^\s,]*\w[^\s,]*", re.sub(r"(?:\[?CODE\]?,? (?:and |or )?)+\[?CODE\]?", "CODE", sentence)))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_says_it_plainly(page: Path) -> None:
    found = unclear_phrases(page.name, prose_of(page.read_text(encoding="utf-8")))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("folder", sorted({path.relative_to(SOURCE).parts[0] for path in SOURCE.rglob("*.py")}))
def test_docstrings_say_it_plainly(folder: str) -> None:
    paths = sorted((SOURCE / folder).rglob("*.py")) or [SOURCE / folder]
    found = [
        text
        for path in paths
        for docstring in docstrings(ast.parse(path.read_text(encoding="utf-8")))
        for text in unclear_phrases(str(path.relative_to(SOURCE)), docstring_prose(docstring))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_sentences_are_short(page: Path) -> None:
    assert [s for s in sentences(page.read_text(encoding="utf-8")) if words(s) > MOST_WORDS] == []


@pytest.mark.parametrize("name", SHORT_PAGES)
def test_a_page_that_is_read_as_a_whole_is_short(name: str) -> None:
    assert len((ROOT / "docs" / name).read_text(encoding="utf-8").split()) <= SHORT_PAGES[name]


def test_code_and_links_are_not_prose(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "Calls the field `nobody`.\n\n```python\nsomebody = 1\n```\n[a link](somebody.md)\n", encoding="utf-8"
    )
    found = unclear_phrases(page.name, prose_of(page.read_text(encoding="utf-8")))
    assert [text.partition(": ")[0] for text in found] == ["page.md:1"]


def test_docstrings_are_prose_but_for_code_and_examples() -> None:
    tree = ast.parse('"""What `whoever` is\nnone.\n\n    nobody\n"""\nX = 1\n"""Whatever."""\n')
    found = [line for text in docstrings(tree) for line in docstring_prose(text)]
    assert found == [(1, "What CODE is none."), (7, "Whatever.")]
    assert [text[:6] for text in unclear_phrases("m.py", found)] == ["m.py:1", "m.py:1", "m.py:7"]


def test_a_sentence_ends_at_its_stop_and_at_the_end_of_a_cell() -> None:
    found = sentences("One `two` three. Four:\nfive\n\n| six seven | eight |\n```\nnine\n```\n- ten")
    assert [s.strip() for s in found if s] == ["One CODE three.", "Four:", "five", "six seven", "eight", "- ten"]
    assert words("`a`, `b` and `c` are, or not".replace("`a`, `b` and `c`", "CODE, CODE and CODE")) == 4
