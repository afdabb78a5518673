"""TVM's `autotvm.measure.executor`: the interface of a program that runs functions elsewhere, and of their results.

    class Threads(Executor):
        def submit(self, func, *args, **kwargs):
            return ...                              # a Future

The measuring of this package uses its own worker processes (`search/local.py`), so that only other programs define
executors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

__all__ = ["ExecutionError", "Executor", "Future", "FutureError", "TimeoutError"]


class FutureError(RuntimeError):
    """A result cannot be had; the subclasses say why."""


class ExecutionError(FutureError):
    """The function raised an error."""


class TimeoutError(FutureError):  # TVM's name
    """The result is not there within the time."""


class Future(ABC):
    """A result that is there later."""

    @abstractmethod
    def done(self) -> bool:
        """Return whether the result is there."""

    @abstractmethod
    def get(self, timeout: float | None = None) -> Any:
        """Return the result. Raises `TimeoutError` after `timeout` seconds, and `ExecutionError` if the function
        failed."""


class Executor(ABC):
    """Runs functions, and gives their results later."""

    @abstractmethod
    def submit(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Future:
        """Begin `func(*args, **kwargs)`, and return its future result."""
