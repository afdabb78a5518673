"""Makes a case smaller while it shows the same finding."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

Fails = Callable[[Any], bool]
Smaller = Callable[[Any], Iterator[Any]]
MOST: Final = 400
"""Cases that are tried at most."""


def shrink(
    case: Any, fails: Fails, smaller: Smaller, seconds: float, clock: Callable[[], float] = time.process_time
) -> Any:
    """The smallest case found in the given processor time: the first smaller one that fails is taken, and the search
    begins anew."""
    end, tried = clock() + seconds, 0
    again = True
    while again:
        again = False
        for candidate in guarded(smaller(case)):
            tried += 1
            if tried > MOST or clock() > end:
                return case
            if fails(candidate):
                case, again = candidate, True
                break
    return case


def guarded(candidates: Iterator[Any]) -> Iterator[Any]:
    """The candidates up to the first that cannot be built."""
    try:
        yield from candidates
    except (ValueError, TypeError, KeyError, IndexError):  # the change before makes no sense: there are no more of its kind  # noqa: E501
        return
