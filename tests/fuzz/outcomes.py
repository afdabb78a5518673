"""The types that all kinds share: random numbers of a case, the outcome of a case, and the interface of a kind."""

from __future__ import annotations

import random
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np

from tilewright.base.errors import CompileError, InternalError

Array = np.ndarray[Any, Any]
AGREES: Final = "agrees"
REFUSED: Final = "refused"
EXPLAINED: Final = "explained"
INVALID: Final = "invalid"
WRONG: Final = "wrong"
FOREIGN: Final = "foreign"
CATEGORIES: Final = (AGREES, REFUSED, EXPLAINED, INVALID, WRONG, FOREIGN)
"""Agrees with a reference; refused with one of our errors; differs, and a rule explains why; refused or crashed by both
references; wrong; any other exception, a crash, a timeout or a memory limit."""
FINDINGS: Final = (WRONG, FOREIGN)
_PACKAGES: Final = ("/tilewright/", "/fuzz/")
_LONGEST: Final = 300


@dataclass(frozen=True)
class Outcome:
    """The outcome of one case. `label` groups equal outcomes in the report: a rule, a kind of message, or an exception
    with its place."""

    category: str
    label: str = ""
    detail: str = ""
    ours: Sequence[Any] = field(default=(), compare=False)
    references: dict[str, Sequence[Any]] = field(default_factory=dict, compare=False)

    @property
    def found(self) -> bool:
        return self.category in FINDINGS


class Draw:
    """The random numbers of one case, drawn from the seed of the run and the number of the case alone."""

    def __init__(self, seed: int, number: int) -> None:
        self.seed, self.number = seed, number
        self.random = random.Random(f"{seed}:{number}")
        self.numbers = np.random.default_rng([seed, number])

    def chance(self, p: float) -> bool:
        return self.random.random() < p

    def pick(self, choices: Sequence[Any]) -> Any:
        return self.random.choice(choices)

    def between(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        return self.random.randint(low, high)


class Kind(Protocol):
    """One kind of program: how a case is drawn, run, made smaller and written as a test."""

    name: str

    def prepare(self) -> None:
        """Read and import, before workers are forked, what takes its time."""

    def draw(self, draw: Draw) -> Any:
        """A case."""

    def run(self, case: Any, phase: Callable[[str], None]) -> Outcome:
        """Compare ours with the references. `phase` is told "reference" and "ours", so that a crash can be
        attributed."""

    def smaller(self, case: Any) -> Iterator[Any]:
        """Cases that are a step smaller, the boldest first."""

    def test(self, case: Any, outcome: Outcome) -> str:
        """The source of a test file that holds the case; its test fails while the finding stands."""


@runtime_checkable
class OwnShrinker(Protocol):
    """A kind that makes cases smaller in its own way first."""

    def made_smaller(self, case: Any, fails: Callable[[Any], bool]) -> Any:
        """The smallest case that fails."""


def silent(phase: str) -> None:
    """A `phase` for callers that do not need it."""


def raised(error: BaseException) -> Outcome:
    """The outcome for an exception out of our code: refused for a `CompileError`, a finding for all others."""
    if isinstance(error, CompileError) and not isinstance(error, InternalError):
        return Outcome(REFUSED, message_kind(error), str(error)[:_LONGEST])
    text = "".join(traceback.format_exception(error))
    return Outcome(FOREIGN, f"{type(error).__name__} {place(error)}", text[-4000:])


def message_kind(error: BaseException) -> str:
    """The class and the message of an error without its names and numbers."""
    text = str(getattr(error, "message", error))
    text = re.sub(r"'[^']*'|\"[^\"]*\"|`[^`]*`", "'…'", text.splitlines()[0] if text else "")
    text = re.sub(r"[\[(][-\d, ]*[\])]|-?\d+(\.\d+)?", "N", text)
    return f"{type(error).__name__}: {text[:100]}"


def place(error: BaseException) -> str:
    """The innermost function of our packages in the traceback, as file and function."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if any(p in f.filename for p in _PACKAGES)]
    if not frames:
        return "elsewhere"
    return f"{Path(frames[-1].filename).name}:{frames[-1].name}"
