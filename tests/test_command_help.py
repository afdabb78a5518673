"""The page of the command line shows the help of every command, as it is. `python tests/test_command_help.py` writes it
anew."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from tilewright.driver import main as tilewright
from tilewright.driver.tvmc import main as tvmc

PAGE = Path(__file__).parent.parent / "docs" / "command_line.md"
PROGRAMS: dict[str, Any] = {"tilewright": tilewright, "tvmc": tvmc}
_BLOCK = re.compile(r"^```text\n\$ (\S+) (?:([a-z -]+?) )?--help\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands() -> list[tuple[str, str]]:
    """Every program, and each of its commands; those of groups by two words."""
    found = []
    for name, module in PROGRAMS.items():
        group: Any = typer.main.get_command(module.app)
        found += [(name, ""), *((name, word) for command in group.commands.values() for word in _words(command))]
    return found


def _words(command: Any) -> list[str]:
    return [
        command.name,
        *(f"{command.name} {w}" for inner in getattr(command, "commands", {}).values() for w in _words(inner))
    ]


def shown(program: str, command: str) -> str:
    """The help of a command."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert PROGRAMS[program].main([*command.split(), "--help"]) == 0
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()).strip() + "\n"


def blocks() -> dict[tuple[str, str], str]:
    """The helps of the page."""
    return {
        (program, command or ""): text for program, command, text in _BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    }


def test_the_page_shows_every_command() -> None:
    assert sorted(blocks()) == sorted(commands())


@pytest.mark.parametrize(("program", "command"), commands())
def test_a_help_is_as_the_page_shows_it(program: str, command: str) -> None:
    assert blocks()[
        program, command
    ] == shown(program, command), f"write the page anew: python tests/{Path(__file__).name}"


def test_completion_knows_commands_and_options(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a shell asks for after a word is begun."""
    for words, wanted in (
        ("tvmc com", "compile"), ("tvmc compile --executor-aot-u", "--executor-aot-unpacked-api"),
        ("tvmc compile -f m", "mlf")
    ):
        monkeypatch.setenv("_TVMC_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
        with pytest.raises(SystemExit):
            tvmc.main([])
        assert capsys.readouterr().out.split() == [wanted]


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    made = _BLOCK.sub(
        lambda m: f"```text\n$ {m[1]} {m[2] + ' ' if m[2] else ''}--help\n{shown(m[1], m[2] or '')}```", text
    )
    PAGE.write_text(made, encoding="utf-8")
    print("missing:", sorted(set(commands()) - set(blocks())), file=sys.stderr)
