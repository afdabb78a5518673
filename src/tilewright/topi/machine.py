"""What computations and schedules need to know of the processor, without knowing targets.

A build, and `with Target(…):`, set the machine; the default is a plain 128-bit machine, so that everything here also works
on its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from tilewright.types import DataType


@dataclass(frozen=True, slots=True)
class Machine:
    """A CPU as schedules see it: sizes in bits and bytes."""

    vector_bits: int = 128
    vector_registers: int = 16
    l1_bytes: int = 32 << 10
    l2_bytes: int = 512 << 10
    cores: int = 1
    scalar: bool = False
    """Whether loops stay over scalars, of which a compiler behind ours makes vectors; values are then multiplied one by one."""

    pipe_bits: int = 0
    """Bits of a vector that one unit multiplies at once, where that is less than `vector_bits`: wider vectors go through it in pieces. 0 where it is not."""

    backend: str = "llvm"
    """The name of the back end whose strategies and loop passes make kernels for the machine."""

    def lanes(self, dtype: str | DataType = "float32") -> int:
        """How many values of a type fit in one vector register."""
        return max(1, self.vector_bits // max(8, DataType(dtype).bits))


_PLAIN: Final = Machine()
_CURRENT: Final[ContextVar[tuple[Machine, ...]]] = ContextVar("machine", default=())


def current() -> Machine:
    """The innermost machine that was entered; the plain one outside."""
    entered = _CURRENT.get()
    return entered[-1] if entered else _PLAIN


def enter(machine: Machine) -> None:
    """Compute and schedule for `machine` until `leave`."""
    _CURRENT.set((*_CURRENT.get(), machine))


def leave() -> None:
    """Go back to the machine before."""
    _CURRENT.set(_CURRENT.get()[:-1])


@contextmanager
def use(machine: Machine) -> Iterator[None]:
    """Compute and schedule for `machine` inside the `with` block."""
    enter(machine)
    try:
        yield
    finally:
        leave()
