"""Conditions on sizes that decide the types of a branch: all answers are tried, and the only valid one is required.

    If(sr == 16000): y = If(n // 512 == 1): squeeze(x, 2) else: x;  lstm(y)
    ->  if sr == 16000: y = squeeze(x[:, :, 0:1], 2), which ends the run unless n // 512 == 1;  lstm(y)

Such a condition has no answer for all sizes, and a program has one type for each value. If the branch can be imported
with one answer only, other sizes are invalid in this branch. A check at run time refuses them when the branch is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from tilewright.base.errors import CompileError, ShapeError, UnequalSizesError
from tilewright.relay.expr import Expr
from tilewright.relay.frontend.core.known import has_unknown_sizes
from tilewright.scalar.arith.open_sizes import current

_MOST_IMPORTS: Final = 16
"""Number of imports of a branch, each with other answers."""
_INVALID: Final = (ShapeError.code, "TW0107")
"""Codes of the errors about invalid nodes."""


@dataclass(slots=True)
class SizeChoices:
    """Answers to the conditions on sizes of one import, in the order in which they are asked for; further ones are
    true."""

    answers: list[bool]
    asked: int = 0

    def answer(self) -> bool:
        """Return the answer to the next condition."""
        if self.asked == len(self.answers):
            self.answers.append(True)
        self.asked += 1
        return self.answers[self.asked - 1]


def only_valid(make: Callable[[SizeChoices], list[Expr]]) -> list[Expr] | None:
    """Return the values that `make` imports with the only valid answers.

    None if several answers are valid, if that depends on values, or if a type stays unknown. Raises the error of two
    sizes that must be equal for all answers that can be valid.
    """
    found: list[list[Expr]] = []
    unequal: dict[tuple[Any, Any], CompileError] = {}
    waiting: list[list[bool]] = [[]]
    for _ in range(_MOST_IMPORTS):
        if not waiting:
            break
        given = waiting.pop()
        choices = SizeChoices(list(given))
        try:
            with _attempt():
                made = make(choices)
            if any(map(has_unknown_sizes, made)):
                return None
            found.append(made)
        except CompileError as error:
            sizes = equation_of(error)
            if sizes is not None:
                unequal[sizes] = error
            elif not _is_certain(error):
                return None
        known = choices.answers
        waiting += [[*known[:k], not known[k]] for k in range(len(given), len(known))]
    if waiting or len(found) + len(unequal) != 1:
        return None
    if not found:
        raise next(iter(unequal.values()))
    return found[0]


def equation_of(error: BaseException | None) -> tuple[Any, Any] | None:
    """Return the two sizes that must be equal, if that is the reason of an error."""
    while error is not None:
        if isinstance(error, UnequalSizesError) and error.sizes is not None:
            return error.sizes
        error = error.__cause__
    return None


@contextmanager
def _attempt() -> Iterator[None]:
    """Within this context, an error discards the limits of sizes that were recorded before it."""
    known = current()
    kept = None if known is None else (dict(known.limits), dict(known.bounds))
    try:
        yield
    except CompileError:
        if known is not None and kept is not None:
            known.limits, known.bounds = kept
        raise


def _is_certain(error: BaseException | None) -> bool:
    """Whether an import failed by an invalid node, for all values and sizes."""
    while error is not None:
        if isinstance(error, UnequalSizesError) or getattr(error, "code", "") not in _INVALID:
            return False
        error = error.__cause__
    return True
