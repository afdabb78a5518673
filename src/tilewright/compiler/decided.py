"""Who knows better than the model of the machine: measurements, which are asked for each kernel while a program is built.

    with using(records): relay.build(…)          autotvm.apply_history_best(file) is such a context

This module imports nothing of the compiler, so that a program from the cache is loaded without it; `compiler/tuned.py` makes kernels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tilewright.backends.target import Target
    from tilewright.compiler.kernel import Found
    from tilewright.relay.expr import Function


class Advisor(ABC):
    """Says how kernels are made."""

    @abstractmethod
    def decisions(self, function: Function, constants: Sequence[bool], target: Target) -> Mapping[str, int | str] | None:
        """The decisions for a fused function (`topi/decisions.py`), argument k of which is known while compiling where `constants[k]`; None: the model's."""

    def arrangement(self, target: Target) -> Found | None:
        """Who arranges the loops of kernels that are known; None: their own schedules do."""
        return None

    def seconds(self, target: Target, workload: tuple[Any, ...]) -> float | None:
        """Return the measured time of a tuning task of a program; None where there is no record."""
        return None

    @property
    @abstractmethod
    def identity(self) -> str:
        """The same for advisors that say the same: part of the key of what the cache keeps."""


_CURRENT: Final[ContextVar[tuple[Any, ...]]] = ContextVar("advisors", default=())


def current() -> Any:
    """The innermost advisor, or None."""
    entered = _CURRENT.get()
    return entered[-1] if entered else None


def around(advisor: Any) -> Any:
    """The advisor that was entered before this one, or None."""
    entered = _CURRENT.get()
    at = entered.index(advisor) if advisor in entered else 0
    return entered[at - 1] if at else None


def enter(advisor: Any) -> None:
    """Ask `advisor` until `leave`."""
    _CURRENT.set((*_CURRENT.get(), advisor))


def leave() -> None:
    """Go back to the advisor before."""
    _CURRENT.set(_CURRENT.get()[:-1])


@contextmanager
def using(advisor: Any) -> Iterator[None]:
    """Ask `advisor` (None: nobody) inside the `with` block."""
    enter(advisor)
    try:
        yield
    finally:
        leave()
