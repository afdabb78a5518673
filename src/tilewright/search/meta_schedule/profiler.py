"""Times of the parts of a search."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Self

_ENTERED: Final[ContextVar[tuple[Profiler, ...]]] = ContextVar("profilers", default=())


class Profiler:
    """Seconds of named parts while it is entered with `with`; `Total` is all of it."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._begin = 0.0

    def get(self) -> dict[str, float]:
        """Return the seconds of each part."""
        return dict(self._seconds)

    def table(self) -> str:
        """Return the seconds of each part as text, the longest first."""
        total = self._seconds.get("Total", 0.0) or 1.0
        rows = sorted(self._seconds.items(), key=lambda row: -row[1])
        return "\n".join(f"{name:30} {seconds:10.3f} s {100 * seconds / total:6.1f} %" for name, seconds in rows)

    def __enter__(self) -> Self:
        _ENTERED.set((*_ENTERED.get(), self))
        self._begin = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self._add("Total", time.perf_counter() - self._begin)
        _ENTERED.set(_ENTERED.get()[:-1])

    @staticmethod
    def current() -> Profiler | None:
        """Return the innermost profiler that is entered."""
        entered = _ENTERED.get()
        return entered[-1] if entered else None

    @staticmethod
    @contextmanager
    def timeit(name: str) -> Iterator[None]:
        """Add the seconds of the `with` block to a part of the current profiler, if there is one."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            found = Profiler.current()
            if found is not None:
                found._add(name, time.perf_counter() - begin)

    def _add(self, name: str, seconds: float) -> None:
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds
