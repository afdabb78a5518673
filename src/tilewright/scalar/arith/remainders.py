"""Comparisons of sizes with numbers whose answers depend on a remainder: `n % 8 < 4`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tilewright.scalar.arith.evaluate import evaluate
from tilewright.scalar.expr import PrimExpr
from tilewright.scalar.walk import free_vars

_COUNT: Final = 12
"""Number of consecutive sizes for which a comparison of a remainder with a number must have the same answer."""
_LARGE: Final = 1 << 20
"""A size so large that expressions that grow with it are far larger than remainders."""


def depends_on_remainder(e: PrimExpr, answer: Callable[[int], bool], known: dict[PrimExpr, Sequence[int]]) -> bool:
    """Return whether a size that does not grow with its variables gives different answers. `known` keeps the values of
    `e` at consecutive large values of its variables."""
    values = known.get(e)
    if values is None:
        variables = list(free_vars(e))
        values = known[e] = [
            int(evaluate(e, {v: _LARGE + step * (k + 1) for k, v in enumerate(variables)})) for step in range(_COUNT)]
    return max(map(abs, values)) < _LARGE // 1024 and len({answer(n) for n in values}) > 1
