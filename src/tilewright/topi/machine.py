"""What computations and schedules need to know of the processor, without knowing targets.

The build sets the machine from its `Target`; the default is a plain 128-bit machine, so that everything here also works
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

    def lanes(self, dtype: str | DataType = "float32") -> int:
        """How many values of a type fit in one vector register."""
        return max(1, self.vector_bits // max(8, DataType(dtype).bits))


_PLAIN: Final = Machine()
_CURRENT: ContextVar[Machine] = ContextVar("machine")


def current() -> Machine:
    return _CURRENT.get(_PLAIN)


@contextmanager
def use(machine: Machine) -> Iterator[None]:
    """Compute and schedule for `machine` inside the `with` block."""
    token = _CURRENT.set(machine)
    try:
        yield
    finally:
        _CURRENT.reset(token)
