"""What a kernel leaves open: every choice that schedules make by their model of the machine, beside the others that are
right too.

    rows, columns = options.decide(("tile_y", "tile_x"), (6, 32), lambda: [(r, c) for …])

Without decisions that is the first answer, the model's, and the others are not even listed. With `Decisions({…})` in
its `KernelOptions`, a kernel is made as the decisions say, where they are among the options; so a tuner finds out what
there is to choose (`noting`), tries it, and a build applies what was best. A choice is over one name or several, of
which not all combinations need to be there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

Value = int | str
Option = tuple[Value, ...]
Options = Callable[[], Iterable[Option]]

BY_MODEL: Final = -1
"""The value of a choice whose analytical answer depends on other choices: whatever the model then says."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One choice that a kernel asked for: a value for each of `names`. The value of `selects` decides which choices
    come after it."""

    names: tuple[str, ...]
    default: Option
    options: tuple[Option, ...]
    selects: str = ""


@dataclass(slots=True)
class Decisions:
    """Answers by name, for one kernel. The cost model answers for names that are not given, and for values that are not
    among the options."""

    given: Mapping[str, Value] = field(default_factory=dict)
    noting: bool = False
    """Whether `choices` collects the choices of the kernel."""
    choices: list[Choice] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """Names that were given values which are no options here."""
    taken: dict[str, Value] = field(default_factory=dict)
    """The answers that were given so far."""

    def decide(self, names: tuple[str, ...], default: Option, options: Options, selects: str) -> Option:
        """The answer to one choice. A name that a kernel asks for a second time is another one, numbered."""
        names = tuple(map(self._fresh, names))
        wanted = tuple(self.given.get(n, d) for n, d in zip(names, default, strict=True))
        answer = default
        if self.noting or wanted != default:
            listed = tuple(dict.fromkeys((default, *options())))
            if self.noting:
                self.choices.append(Choice(names, default, listed, selects))
            if wanted in listed:
                answer = wanted
            else:
                self.refused.extend(n for n in names if n in self.given)
        self.taken.update(zip(names, answer, strict=True))
        return answer

    def _fresh(self, name: str) -> str:
        fresh, count = name, 1
        while fresh in self.taken:
            count += 1
            fresh = f"{name}_{count}"
        return fresh

    @property
    def unused(self) -> list[str]:
        """Names that were given and never asked for."""
        return [n for n in self.given if n not in self.taken]
