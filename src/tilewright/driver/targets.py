"""Targets on both command lines: text, JSON or a JSON file after `--target`, and single options such as
`--target-llvm-mcpu=znver4`."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tilewright.backends.registry import backend_names
from tilewright.backends.targets.accelerators import parts
from tilewright.backends.targets.target import Target
from tilewright.base.errors import OptionError
from tilewright.base.settings import nearest
from tilewright.ir.op_attributes import known_targets

_PREFIX: Final = "--target-"
_OTHERS: Final = ("--target-host",)
"""Options of commands that begin like those of targets."""


@dataclass(frozen=True, slots=True)
class TargetOption:
    """`--target-<words>=<value>`: an option of one part of the target; the words begin with the name of the part."""

    words: str
    value: str

    def __str__(self) -> str:
        return f"{_PREFIX}{self.words}"

    def split(self, names: Iterable[str]) -> tuple[str, str]:
        """Return the part (the longest of `names` that fits) and the name of its option; empty if none fits."""
        part = max((n for n in names if self.words.startswith(f"{n}-") and self.words != f"{n}-"), key=len, default="")
        return part, self.words.removeprefix(f"{part}-")


def split_target_options(arguments: Sequence[str]) -> tuple[list[str], tuple[TargetOption, ...]]:
    """Separate the options of parts of the target from other arguments. Raises `OptionError` for one without a value.
    """
    rest: list[str] = []
    found: list[TargetOption] = []
    left = list(arguments)
    while left:
        word = left.pop(0)
        name, equals, value = word.partition("=")
        if word == "--":
            return [*rest, word, *left], tuple(found)
        if not name.startswith(_PREFIX) or name in _OTHERS:
            rest.append(word)
            continue
        if not equals and (not left or left[0].startswith("--")):
            raise OptionError(f"{name} has no value; write {name}=VALUE", code="TW0202")
        found.append(TargetOption(name.removeprefix(_PREFIX), value if equals else left.pop(0)))
    return rest, tuple(found)


def read_target(text: str, options: Sequence[TargetOption] = ()) -> Target:
    """Return the target of `--target` with further options of its parts.

    `text` is a target, JSON, or the path of a JSON file. Raises `TargetError`, and `OptionError` for an option of a
    part that the target lacks, or that is already set.
    """
    target = Target(_text(text))
    if not options:
        return target
    pieces = parts(str(target))
    names = [p.split(" ", maxsplit=1)[0] for p in pieces]
    for o in options:
        part, name = o.split(names)
        if not part:
            raise _absent(o, text)
        at = names.index(part)
        if any(word.lstrip("-").partition("=")[0] == name for word in shlex.split(pieces[at])[1:]):
            raise OptionError(f"{o}: the target '{pieces[at]}' already has {name}; give it once", code="TW0204")
        pieces[at] += f" -{name}={shlex.quote(o.value)}"
    return Target(", ".join(pieces))


def _absent(option: TargetOption, text: str) -> OptionError:
    """Return the error for an option of a part that the target does not have."""
    known = sorted({*backend_names(), *known_targets()})
    part, _ = option.split(known)
    if part:
        return OptionError(
            f"{option}: the target '{text}' has no {part}; name it in --target, or omit the option", code="TW0204")
    near = nearest(option.words.partition("-")[0], known)
    return OptionError(
        f"{option}: there is no target of that name{near}; write --target-<part>-<option>, where a part is one of "
        f"{', '.join(known)}",
        code="TW0204")


def _text(text: str) -> str:
    """Return the contents of a file if the text is its path."""
    path = Path(text)
    if path.suffix != ".json" or text.lstrip().startswith("{"):
        return text
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(
            f"--target: cannot read '{text}': {getattr(error, 'strerror', None) or error}", code="TW0205"
        ) from None
