"""The accelerators before the processor in the text of a target: `npu -size=16, llvm -mcpu=znver4`.

A comma after a word, or within a word that is not an option, separates targets; a comma within an option, as in
`-mattr=+avx2,+fma`, belongs to the option.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Final

from tilewright.base.errors import TargetError
from tilewright.base.plugins import find_accelerator

_WORD: Final = re.compile(r"""(?:[^\s'"]|'[^']*'|"[^"]*")+|['"]""")
"""A word with its quoted parts; an unmatched quote is a separate word."""


@dataclass(frozen=True)
class Accelerator:
    """The name of an accelerator, and its options as pairs of a name and a value."""

    name: str
    options: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return " ".join([self.name, *(f"-{k}={shlex.quote(v)}" for k, v in self.options)])


def split_accelerators(text: str) -> tuple[tuple[Accelerator, ...], str]:
    """Return the accelerators of a target's text, and the processor's part.

    Raises `TargetError` for text that cannot be read.
    """
    *first, last = parts(text)
    return tuple(map(_accelerator, first)), last


def parts(text: str) -> list[str]:
    """Return the targets that commas separate."""
    found: list[list[str]] = [[]]
    for word in _WORD.findall(text):
        option = word.startswith("-") or "'" in word or '"' in word
        pieces = [word.removesuffix(","), *[""] * word.endswith(",")] if option else word.split(",")
        for k, piece in enumerate(pieces):
            if k:
                found.append([])
            if piece:
                found[-1].append(piece)
    targets = [" ".join(words) for words in found]
    if len(targets) > 1 and not all(targets):
        raise TargetError(
            f"the target '{text}' has an empty part before or after a comma; write for example 'npu, llvm'",
            code="TW0501")
    return targets


def _accelerator(text: str) -> Accelerator:
    try:
        name, *words = shlex.split(text)
    except ValueError as error:
        raise TargetError(f"the target '{text}' cannot be read: {error}", code="TW0501") from error
    options = []
    for word in words:
        key, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or not equals or not value:
            raise TargetError(f"'{word}' of the accelerator {name} is not an option; write -name=value", code="TW0902")
        options.append((key, value))
    return Accelerator(name, tuple(options))


def identity(accelerators: tuple[Accelerator, ...]) -> str:
    """Return the versions of the declarations of accelerators, for the key of the cache."""
    found = ((a.name, find_accelerator(a.name)) for a in accelerators)
    return " ".join(f"{name}:{getattr(f, 'version', '')}:{getattr(f, 'fingerprint', '')}" for name, f in found)
