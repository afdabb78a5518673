"""When making something pays: what was met before is compiled once the calls that did without took as long as compiling
does.

    a key runs on values: 5 ms, 5 ms, 5 ms …          compiling takes 0.8 s  ->  compiled behind 160 calls
    the four keys before it were met 900 times each   2 * 900 * 5 ms > 0.8 s ->  compiled when it comes back

So a program never takes more than twice the time that it would take if it were known how often each key comes (the rule
of who rents skis before buying them: Karlin, Manasse, Rudolph and Sleator, Competitive snoopy caching, 1988). Where the
keys before it came back often, this one will, and nothing is waited for; where every key is new, nothing is ever
compiled. A key that is met once never is. The same holds for whatever else takes time to be made and saves time from
then on.
"""

from __future__ import annotations

import time
from typing import Final

clock = time.perf_counter
"""The seconds of all that is timed here."""
ALIKE: Final = 4
"""So many keys, those that were met before this one, tell how often it will come: as often as the rarest of them, and
as often again."""
_OPERATORS: Final = 50
"""What is taken for granted before anything was made counts for so many operators."""


class Times:
    """What making something takes for each operator of a program, learned from what it took."""

    def __init__(self, seconds: float) -> None:
        """`seconds` is what it takes for an operator before that is known."""
        self._operators, self._seconds = float(_OPERATORS), _OPERATORS * seconds

    def took(self, operators: int, seconds: float) -> None:
        """For a program of so many operators it took this time."""
        self._operators += operators
        self._seconds += seconds

    def of(self, operators: int) -> float:
        """The seconds that one of so many operators is expected to take."""
        return self._seconds / self._operators * operators


COMPILING: Final = Times(0.01)
"""What compiling took in this process."""
RESOLVING: Final = Times(0.0003)
"""What finding out took what a part of a program is for known values (`relay/dynamic_interpreter.py`)."""


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
        self._last: tuple[Use, ...] = ()  # replaced as a whole: other threads read it

    def meet(self, use: Use) -> None:
        """A key is met once more."""
        use.met += 1
        last = self._last
        if not last or last[-1] is not use:
            self._last = (*[u for u in last if u is not use][-ALIKE:], use)

    def pays(self, use: Use, seconds: float) -> bool:
        """Whether to make now what takes so long and then saves the calls of a key their time on values."""
        expected = 2 * min([u.met for u in self._last if u is not use], default=0)
        return max(use.seconds, expected * use.quickest) >= seconds
