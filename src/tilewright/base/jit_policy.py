"""Decides when to compile a shape: once the time spent interpreting it exceeds the expected compile time.

    a key is interpreted: 5 ms, 5 ms, 5 ms …             compiling takes 0.8 s  ->  compiled after 160 calls
    the four keys before it occurred 900 times each      2 * 900 * 5 ms > 0.8 s ->  compiled at its second call

This is the ski-rental rule. The total time is at most twice that of an oracle that knows the number of occurrences
(Karlin, Manasse, Rudolph and Sleator, "Competitive snoopy caching", 1988). If the previous keys recurred often, a new
key is compiled early; a key that occurs once is never compiled. The rule also applies to other preparation that saves
time later.
"""

from __future__ import annotations

import time
from typing import Final

clock = time.perf_counter
"""The clock for all measurements of this policy, in seconds."""
ALIKE: Final = 4
"""Number of recent keys used to predict reuse; the prediction is twice the least frequent."""
_OPERATORS: Final = 50
"""Weight of the initial estimate, as a number of operators."""


class Times:
    """A running estimate of the seconds per operator that a kind of work takes."""

    def __init__(self, seconds: float) -> None:
        """Start with an estimate of `seconds` per operator."""
        self._operators, self._seconds = float(_OPERATORS), _OPERATORS * seconds

    def took(self, operators: int, seconds: float) -> None:
        """Record a measurement: `seconds` for a program of `operators` operators."""
        self._operators += operators
        self._seconds += seconds

    def of(self, operators: int) -> float:
        """Return the expected seconds for a program of `operators` operators."""
        return self._seconds / self._operators * operators


COMPILING: Final = Times(0.01)
"""The measured time of compiling in this process."""
RESOLVING: Final = Times(0.0003)
"""The time to evaluate a part of a program for known values (`relay/dynamic_interpreter.py`)."""


class Use:
    """Number of occurrences of a key, and the time of its interpreted calls."""

    __slots__ = ("met", "quickest", "seconds")

    def __init__(self) -> None:
        self.met = 0
        self.seconds = 0.0
        self.quickest = 0.0

    def ran(self, seconds: float) -> None:
        """Record an interpreted call that took `seconds`."""
        self.quickest = min(self.quickest, seconds) if self.seconds else seconds
        self.seconds += seconds


class Uses:
    """The most recent keys at one point of a program."""

    def __init__(self) -> None:
        self._last: tuple[Use, ...] = ()  # replaced, never changed: other threads read it

    def meet(self, use: Use) -> None:
        """Record an occurrence of a key."""
        use.met += 1
        last = self._last
        if not last or last[-1] is not use:
            self._last = (*[u for u in last if u is not use][-ALIKE:], use)

    def pays(self, use: Use, seconds: float) -> bool:
        """Whether to compile code for this key now, which takes `seconds` and then replaces its interpretation."""
        expected = 2 * min([u.met for u in self._last if u is not use], default=0)
        return max(use.seconds, expected * use.quickest) >= seconds
