"""Decisions of a kernel: every choice that schedules make by the cost model, with the valid alternatives.

    rows, columns = options.decide(("tile_y", "tile_x"), (6, 32), lambda: [(r, c) for …])

Without decisions, the answer is that of the cost model, and the alternatives are not listed. With `Decisions({…})` in
its `KernelOptions`, the kernel follows the given decisions if they are among the options. A tuner lists the choices
(`noting`), tries alternatives, and a build applies the best. A choice sets one name or several together; not
all combinations of their values need to be valid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

Value = int | str
Option = tuple[Value, ...]
Options = Callable[[], Iterable[Option]]

BY_MODEL: Final = -1
"""Value of a choice whose analytical answer depends on other choices: use the answer of the cost model."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One choice of a kernel: a value for each of `names`. The value of `selects` determines which choices follow."""

    names: tuple[str, ...]
    default: Option
    options: tuple[Option, ...]
    selects: str = ""


@dataclass(slots=True)
class Decisions:
    """Answers by name, for one kernel. The cost model answers for absent names, and for values that are not among the
    options."""

    given: Mapping[str, Value] = field(default_factory=dict)
    noting: bool = False
    """Whether `choices` collects the choices of the kernel."""
    choices: list[Choice] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """Names whose given values are not options here."""
    taken: dict[str, Value] = field(default_factory=dict)
    """The answers given so far."""

    def decide(self, names: tuple[str, ...], default: Option, options: Options, selects: str) -> Option:
        """Return the answer to one choice. Repeated names are numbered."""
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
        """Return the given names that no choice has asked for."""
        return [n for n in self.given if n not in self.taken]
