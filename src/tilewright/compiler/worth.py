"""When compiling pays: what was met before is compiled once the calls that did without took as long as compiling does.

    a key runs on values: 5 ms, 5 ms, 5 ms …          compiling takes 0.8 s  ->  compiled behind 160 calls
    the four keys before it were met 900 times each   2 * 900 * 5 ms > 0.8 s ->  compiled when it comes back

So a program never takes more than twice the time that it would take if it were known how often each key comes (the rule of who rents skis
before buying them: Karlin, Manasse, Rudolph and Sleator, Competitive snoopy caching, 1988). Where the keys before it came back
often, this one will, and nothing is waited for; where every key is new, nothing is ever compiled. A key that is met once never is.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Final

clock = time.perf_counter
"""The seconds of all that is timed here."""
ALIKE: Final = 4
"""So many keys, those that were met before this one, tell how often it will come: as often as the rarest of them, and as often again."""
_SECONDS: Final = 0.01
"""What compiling an operator takes before that is known, and for how many operators' worth that counts."""
_OPERATORS: Final = 50


class CompileTimes:
    """What compiling takes for each operator of a program, learned from what it took."""

    def __init__(self) -> None:
        self._operators, self._seconds = float(_OPERATORS), _OPERATORS * _SECONDS

    def took(self, operators: int, seconds: float) -> None:
        """A program of so many operators was compiled in this time."""
        self._operators += operators
        self._seconds += seconds

    def of(self, operators: int) -> float:
        """The seconds that one of so many operators is expected to take."""
        return self._seconds / self._operators * operators


COMPILING: Final = CompileTimes()
"""Those of this process."""


class Use:
    """How often a key was met, and the time that the calls took which ran it on values."""

    __slots__ = ("met", "quickest", "seconds")

    def __init__(self) -> None:
        self.met = 0
        self.seconds = 0.0
        self.quickest = 0.0

    def ran(self, seconds: float) -> None:
        """A call ran on values in this time."""
        self.quickest = min(self.quickest, seconds) if self.seconds else seconds
        self.seconds += seconds


class Uses:
    """The keys that were met last, of all that lead on from one point."""

    def __init__(self) -> None:
        self._last: deque[Use] = deque(maxlen=ALIKE + 1)

    def meet(self, use: Use) -> None:
        """A key is met once more."""
        use.met += 1
        last = self._last
        if not last or last[-1] is not use:
            if use in last:
                last.remove(use)
            last.append(use)

    def pays(self, use: Use, operators: int) -> bool:
        """Whether to compile a key now that has so many operators behind it."""
        expected = 2 * min((u.met for u in self._last if u is not use), default=0)
        return max(use.seconds, expected * use.quickest) >= COMPILING.of(operators)
