"""Every error has a code, every code a page, and every page a message that is made here. `python
tests/test_error_catalogue.py` writes what is derived: the classes and messages in the catalogue's files, and
docs/errors.md."""

from __future__ import annotations

import ast
import importlib
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tilewright.base import catalogue, errors
from tilewright.base.catalogue import AREAS, FOLDER, Entry, areas, entries
from tilewright.driver.main import main

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "tilewright"
PAGE = ROOT / "docs" / "errors.md"
_BASES = {"TVMError", "UserWarning", "DeprecationWarning"}
_ABSTRACT = {"TVMError", "WorkerError"}
_OUTSIDE = {"TW0201": "UsageError"}  # the class of the library that reads command lines
_MOST_LINES = 14
_HOW = (
    "say which family it belongs to: code=\"TW….\", of those in src/tilewright/catalogue (or write a new page there, "
    "and what provokes it in tests/error_examples)"
)


@cache
def nodes() -> tuple[tuple[str, ast.ClassDef | ast.Call], ...]:
    """Every class and every call of the sources, with its file."""
    files = [
        (str(p.relative_to(SOURCE)), ast.parse(p.read_text(encoding="utf-8"))) for p in sorted(SOURCE.rglob("*.py"))
    ]
    return tuple((path, n) for path, tree in files for n in ast.walk(tree) if isinstance(n, (ast.ClassDef, ast.Call)))


@cache
def classes() -> dict[str, str]:
    """The code of each class of errors and warnings, or of the class that it is made of; empty where it has none."""
    found = {n.name: n for _, n in nodes() if isinstance(n, ast.ClassDef)}

    def bases(name: str) -> list[str]:
        return [
            b for b in (ast.unparse(b).rpartition(".")[2] for b in found[name].bases) if b != name
        ] if name in found else []

    def is_error(name: str) -> bool:
        return name in _BASES or any(is_error(b) for b in bases(name))

    def code(name: str) -> str:
        own = [
            s.value.value for s in found[name].body if isinstance(s, ast.Assign)
            and ast.unparse(s.targets[0]) == "code" and isinstance(s.value, ast.Constant)
        ] if name in found else []
        return str(own[0]) if own else next(filter(None, map(code, bases(name))), "")

    return {name: code(name) for name in found if is_error(name)}


@cache
def made() -> tuple[tuple[str, str, ast.expr | None], ...]:
    """Where errors are made: place, class, and what is said as `code`."""
    known = classes()
    return tuple(
        (f"{path}:{n.lineno}", name, next((k.value for k in n.keywords if k.arg == "code"), None))
        for path, n in nodes() if isinstance(n, ast.Call) and (name := _last(n.func)) in known
    )


def _last(e: ast.expr) -> str:
    """The name that is called."""
    return e.id if isinstance(e, ast.Name) else e.attr if isinstance(e, ast.Attribute) else ""


@cache
def kinds() -> dict[str, set[str]]:
    """The classes with which each code is raised."""
    found: dict[str, set[str]] = {code: {name} for code, name in _OUTSIDE.items()}
    for name, code in classes().items():
        if code:
            found.setdefault(code, set()).add(name)
    for _, name, said in made():
        if isinstance(said, ast.Constant):
            found.setdefault(str(said.value), set()).add(name)
    return found


@pytest.mark.slow
def test_every_error_says_its_code() -> None:
    """Classes of one family have it; of the others, who raises says it, as a constant, so that a search for the code
    finds the place."""
    wrong = [
        f"{place}: {name} " + (
            "is raised without a code" if said is None
            else f"has the code {ast.unparse(said)}, which is none of the catalogue"
        )
        for place, name, said in made()
        if (said is None and not classes()[name]) or (isinstance(said, ast.Constant) and said.value not in entries())
    ]
    assert not wrong, "\n".join(wrong) + f"\n{_HOW}"


@pytest.mark.slow
def test_every_class_of_errors_is_of_the_catalogue() -> None:
    assert {c for c in classes().values() if c} <= set(entries())
    assert {name for name, code in classes().items() if not code} - _ABSTRACT == {
        "ArtifactError", "CompileError", "InputError", "ModelError", "OptionError", "RPCError", "RunError",
        "TargetError",
    }, "a class that derives of these has one code: code = \"TW….\" in its body"


@pytest.mark.slow
def test_every_warning_is_of_a_class_with_a_code() -> None:
    wrong = [
        f"{path}:{n.lineno}" for path, n in nodes()
        if isinstance(n, ast.Call) and _last(n.func) == "warn" and ast.unparse(n.func) == "warnings.warn"
        and not any(classes().get(x.id) for a in n.args for x in ast.walk(a) if isinstance(x, ast.Name))
    ]
    assert not wrong, f"{', '.join(wrong)}: warn with a class of errors.py that has a code"


@pytest.mark.slow
def test_pages_are_in_order_and_complete() -> None:
    for place, area in enumerate(areas(), 1):
        text = (FOLDER / f"{area.name}.md").read_text(encoding="utf-8")
        assert text == area.text(), f"{area.name}.md has a page that is not read: compare with the form at the top of catalogue/__init__.py"  # noqa: E501
        codes = [e.code for e in area.entries]
        assert codes == sorted(set(codes))
        assert all(c.startswith(f"TW{place:02d}") for c in codes)


@pytest.mark.slow
def test_every_code_is_raised_by_the_classes_that_its_page_names() -> None:
    found = kinds()
    assert {
        e.code: set(e.kinds) for e in entries().values()
    } == found, f"write the pages anew: python tests/{Path(__file__).name}"


@cache
def examples() -> dict[str, Callable[[], object]]:
    """What provokes each code: the functions of `error_examples`, by their names."""
    found: dict[str, Callable[[], object]] = {}
    for name in AREAS:
        module = importlib.import_module(f"error_examples.{name}")
        found |= {key.upper(): value for key, value in vars(module).items() if re.fullmatch(r"tw\d{4}", key)}
    return found


def provoke(code: str, folder: Path) -> tuple[str, str]:
    """Code and message of what the example of a code raises or warns of, run in an empty folder."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            examples()[code]()
    except (errors.TVMError, Warning, errors_of_usage()) as error:
        return getattr(error, "code", "TW0201"), shown(error, folder)
    finally:
        os.chdir(before)
    return "", "nothing was raised"


def errors_of_usage() -> type[Exception]:
    """What is raised for command lines that are not written right."""
    from tilewright.driver.application import UsageError

    return UsageError


def shown(error: BaseException, folder: Path) -> str:
    """A message without what differs from machine to machine: folders, and what is behind many lines."""
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    message = message.replace(
        str(folder.resolve()), "/work"
    ).replace(str(folder), "/work").replace(str(ROOT), "/tilewright")
    lines = [line.rstrip() for line in message.splitlines()]
    return "\n".join(lines if len(lines) <= _MOST_LINES else [*lines[:_MOST_LINES], "…"])


@pytest.mark.slow
def test_every_code_has_an_example() -> None:
    assert sorted(examples()) == sorted(entries())


@pytest.mark.parametrize("code", list(entries()))
def test_the_example_of_a_page_is_what_is_said(code: str, tmp_path: Path) -> None:
    assert provoke(code, tmp_path) == (
        code, entries()[code].example
    ), f"write the pages anew: python tests/{Path(__file__).name}"


def page() -> str:
    """docs/errors.md."""
    head = (
        "# Errors\n\nAfter reading this page you know the cause of an error, and what to do. Every error and every "
        "warning has a code: "
        "the command line shows it in brackets after the message,\nand Python has it as `error.code`. "
        "To read the entry of one code:\n\n```sh\ntilewright explain-error TW0101\n```\n\n"
        "A code stands for one cause and one remedy; the message adds the details of the case. "
        "`python tests/test_error_catalogue.py` writes this page.\n\n"
    )
    contents = "".join(
        f"- [{a.title}](#{_anchor(a.title)}): {a.entries[0].code} to {a.entries[-1].code}\n" for a in areas()
    )
    parts = [f"## {a.title}\n\n{a.words}\n\n" + "\n".join(f"#{e.text()}" for e in a.entries) for a in areas()]
    return head + contents + "\n" + "\n".join(parts)


def _anchor(title: str) -> str:
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def test_the_document_is_that_of_the_catalogue() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), f"write it anew: python tests/{Path(__file__).name}"


def test_command_lines_show_the_code_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.onnx").write_bytes(b"no model, but text")
    assert main(["compile", str(tmp_path / "m.onnx")]) == 1
    err = capsys.readouterr().err
    assert err.startswith("Error: ") and err.endswith(" [TW0102]\n") and err.count("\n") == 1
    assert main(["compile", "--nonsense"]) == 2
    assert capsys.readouterr().err.endswith(" [TW0201]\n")


@pytest.mark.parametrize("written", ["TW0101", "tw0101", "tw101", "101", "0101"])
def test_explain_error_prints_a_page(written: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain-error", written]) == 0
    assert capsys.readouterr().out == entries()["TW0101"].text()


def test_explain_error_lists_all_codes_by_area(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain-error"]) == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines() if line.startswith("  ")] == list(entries())
    assert all(a.title in out.splitlines() for a in areas())


def test_explain_error_of_no_code_tells_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain-error", "TW0119"]) == 2
    assert "there is no error 'TW0119'; the nearest are TW01" in capsys.readouterr().err
    assert main(["explain-error", "nonsense"]) == 2
    assert "a code is TW and four digits" in capsys.readouterr().err


def test_the_code_stays_when_an_error_is_told_its_node_or_another_process() -> None:
    import pickle

    error = errors.OptionError("a", errors.Origin("n", "Conv"), code="TW0203")
    again = pickle.loads(pickle.dumps(errors.ModelError("b", code="TW0103")))
    assert (
        error.code, str(error), again.code, errors.with_code(error)
    ) == ("TW0203", "Conv 'n': a", "TW0103", "Conv 'n': a [TW0203]")
    assert errors.ShapeError("c").code == "TW0301"
    assert errors.with_code(ValueError("plain")) == "plain"


def _written(entry: Entry, folder: Path) -> Entry:
    code, message = provoke(entry.code, folder) if entry.code in examples() else ("", "there is no example")
    if code != entry.code:
        print(f"{entry.code}: {code} {message}", file=sys.stderr)
    return replace(entry, kinds=tuple(sorted(kinds().get(entry.code, ()))), example=message)


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / name) for name in ("src", "examples", "")]
    only = sys.argv[1:]
    for area in areas():
        with tempfile.TemporaryDirectory() as folder:
            new = []
            for place, entry in enumerate(area.entries):
                (here := Path(folder) / str(place)).mkdir()
                new.append(_written(entry, here) if not only or area.name in only else entry)
        (FOLDER / f"{area.name}.md").write_text(replace(area, entries=tuple(new)).text(), encoding="utf-8")
    catalogue.areas.cache_clear()
    catalogue.entries.cache_clear()
    PAGE.write_text(page(), encoding="utf-8")
