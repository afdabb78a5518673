"""Per-kernel overrides of the analytical schedule, taken from tuning records.

    with autotvm.apply_history_best(file): relay.build(…)          the context is an `Advisor`

This module imports nothing of the compiler, so that a program from the cache is loaded without it; `compiler/tuned.py`
lowers kernels under an advisor.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

if TYPE_CHECKING:
    from tilewright.backends.targets.target import Target
    from tilewright.compiler.kernel import Found
    from tilewright.relay.expr import Function


class Innermost:
    """The class attribute `current`: the innermost advisor of that class in this thread, or `outermost`."""

    def __get__(self, instance: object, owner: type[Advisor]) -> Any:
        kind = next(c for c in owner.__mro__ if "current" in vars(c))
        return current(kind) or owner.outermost


class Advisor(ABC):
    """Chooses how kernels are compiled; entered with `with`. An inner advisor may ask the outer ones."""

    current: ClassVar[Any]
    outermost: ClassVar[Any] = None

    @abstractmethod
    def decisions(
        self, function: Function, constants: Sequence[bool], target: Target
    ) -> Mapping[str, int | str] | None:
        """Return the decisions for a fused function (`backends/decisions.py`); None: the analytical model's.

        Argument k is known at compile time if `constants[k]` is true.
        """

    def arrangement(self, target: Target) -> Found | None:
        """Return a function that arranges the loops of kernels; None: kernels keep their own schedules."""
        return None

    def seconds(self, target: Target, workload: tuple[Any, ...]) -> float | None:
        """Return the measured time of a tuning task of a program; None if there is no record."""
        return None

    @property
    @abstractmethod
    def identity(self) -> str:
        """A digest that is equal for advisors which give the same advice: part of the key of the compilation cache."""

    def around(self, kind: type[Any] = object) -> Any:
        """Return the innermost advisor of a class that was entered before this one, or None."""
        entered = _ENTERED.get()
        return _innermost(entered[: entered.index(self)] if self in entered else (), kind)

    def __enter__(self) -> Self:
        _ENTERED.set((*_ENTERED.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        _ENTERED.set(_ENTERED.get()[:-1])


_ENTERED: Final[ContextVar[tuple[Any, ...]]] = ContextVar("advisors", default=())


def current(kind: type[Any] = object) -> Any:
    """Return the innermost advisor of a class, or None."""
    return _innermost(_ENTERED.get(), kind)


def _innermost(entered: tuple[Any, ...], kind: type[Any]) -> Any:
    return next((a for a in reversed(entered) if isinstance(a, kind)), None)


@contextmanager
def using(advisor: Advisor | None) -> Iterator[None]:
    """Ask `advisor`, or none, inside the `with` block."""
    token = _ENTERED.set((*_ENTERED.get(), advisor))
    try:
        yield
    finally:
        _ENTERED.reset(token)
