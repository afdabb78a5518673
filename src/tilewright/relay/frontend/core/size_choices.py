"""Conditions on sizes that decide the types of a branch: all answers are tried, and the only valid one is required.

    If(sr == 16000): y = If(n // 512 == 1): squeeze(x, 2) else: x;  lstm(y)
    ->  if sr == 16000: y = squeeze(x[:, :, 0:1], 2), which ends the run unless n // 512 == 1;  lstm(y)

Such a condition has no answer for all sizes, and a program has one type for each value. If the branch can be imported
with one answer only, other sizes are invalid in this branch. A check at run time refuses them when the branch is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from tilewright.base.errors import CompileError, ShapeError, UnequalSizesError
from tilewright.base.types import TensorType
from tilewright.relay.expr import Expr
from tilewright.relay.frontend.core.known import has_unknown_sizes
from tilewright.relay.frontend.operators import op
from tilewright.relay.types_of import scalar
from tilewright.scalar.arith.open_sizes import current
from tilewright.topi.shapes import is_number, same

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
    equal: list[tuple[Any, int]] = field(default_factory=list)
    """Sizes with the numbers that they must equal by the answers."""
    is_early: bool = False
    """Whether these numbers are in all types of the branch from the start."""

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
    found: list[tuple[list[Expr], SizeChoices]] = []
    unequal: dict[tuple[Any, Any], CompileError] = {}
    waiting: list[list[bool]] = [[]]
    for _ in range(_MOST_IMPORTS):
        if not waiting:
            break
        given = waiting.pop()
        choices = SizeChoices(list(given))
        try:
            with attempt():
                made = make(choices)
            if any(map(has_unknown_sizes, made)):
                return None
            found.append((made, choices))
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
    return _with_early_numbers(make, *found[0])


def _with_early_numbers(
    make: Callable[[SizeChoices], list[Expr]], made: list[Expr], choices: SizeChoices
) -> list[Expr]:
    """Return the values `made` with these choices, imported again with numbers where sizes must equal them, if that
    decides all conditions."""
    if len(choices.equal) != len(choices.answers):
        return made
    early = SizeChoices([], equal=choices.equal, is_early=True)
    try:
        with attempt():
            again = make(early)
    except CompileError:
        return made
    same_types = all(
        a.known_type() == b.known_type() and not has_unknown_sizes(b) for a, b in zip(made, again, strict=True))
    return again if same_types and not early.asked else made


def with_number(x: Expr, size: Any, number: int, message: str) -> Expr:
    """Return `x` with a number in the place of each dimension that must equal it; other sizes end the run."""
    kind = x.known_type()
    if not isinstance(kind, TensorType):
        return x
    for axis, d in enumerate(kind.shape):
        if same(d, size) and not is_number(d):
            own = op.strided_slice(op.shape_of(x, dtype="int64"), begin=(axis,), end=(axis + 1,), strides=(1,))
            wrong = op.outside(op.subtract(own, scalar(number, own)), sizes=(1,), negative=False)
            first = op.strided_slice(x, begin=(0,), end=(number,), strides=(1,), axes=(axis,))
            x = op.require_zero(first, wrong, message=message)
    return x


def rule_of(origin: Any, rule: str) -> str:
    """Return the error of a call that takes a branch with invalid sizes."""
    return f"{origin}: {rule} where this branch is taken, because no other size is valid there; give other inputs"


def equation_of(error: BaseException | None) -> tuple[Any, Any] | None:
    """Return the two sizes that must be equal, if that is the reason of an error."""
    while error is not None:
        if isinstance(error, UnequalSizesError) and error.sizes is not None:
            return error.sizes
        error = error.__cause__
    return None


@contextmanager
def attempt() -> Iterator[None]:
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
