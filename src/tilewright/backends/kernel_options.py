"""The options of one kernel: everything besides its operators and tensors on which strategies and schedules depend."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

from tilewright.backends.decisions import Decisions, Option, Options
from tilewright.backends.machine import GENERIC_MACHINE, Machine
from tilewright.ir.transform import PassContext

_WINOGRAD_LEVEL: Final = 3
"""Lowest optimization level at which the cost model may choose Winograd's algorithm, which rounds more."""


@dataclass(frozen=True, slots=True)
class KernelOptions:
    """The machine and the choices for one kernel. The default machine has vectors of 128 bits."""

    machine: Machine = GENERIC_MACHINE
    decisions: Decisions = field(default_factory=Decisions)
    """Choices of a tuner, instead of those of the cost model."""
    tile_height: int = 0
    winograd_tiles: str = "auto"
    """Tiles of Winograd's algorithm: "off", "2x2", "4x4", or "auto" for those that the cost model expects to pay."""
    alternative: str = ""
    """Another algorithm for weights that are packed for direct convolution: "winograd", for which the program
    transforms and keeps them, or "gathered", a matrix product."""
    asked: set[str] = field(default_factory=set, compare=False)
    """The name of `height`, once it was read: what was made without it is the same for all heights."""

    @property
    def height(self) -> int:
        """Height of tiles along an axis of symbolic size (`schedules/open_rows.py`); 0 for the tallest."""
        self.asked.add("height")
        return self.tile_height

    def decide(self, names: tuple[str, ...], default: Option, options: Options, selects: str = "") -> Option:
        """Return a value for each name: `default`, the cost model's choice, unless the decisions select another of the
        `options`."""
        return self.decisions.decide(names, default, options, selects)

    def decide_one(self, name: str, default: int, options: Options, selects: bool = False) -> int:
        """Decide a choice over one number."""
        (value,) = self.decide((name,), (default,), options, name if selects else "")
        return int(value)


def winograd_setting() -> str:
    """Return the tiles of Winograd's algorithm that the current pass context asks for; "auto" below optimization level
    3 is "off"."""
    context = PassContext.current()
    setting: str = context.get("relay.backend.winograd")
    return "off" if setting == "auto" and context.opt_level < _WINOGRAD_LEVEL else setting


_CURRENT: Final[ContextVar[tuple[KernelOptions, ...]]] = ContextVar("kernel_options", default=())


def current() -> KernelOptions:
    """Return the innermost entered options; by default, the default options.

    Functions with an interface of TVM read them, which has no argument for a machine: `topi.nn.conv2d`, the schedules
    of `topi.x86`, and computations that programs register. Strategies take them as an argument.
    """
    entered = _CURRENT.get()
    return entered[-1] if entered else KernelOptions()


def enter(options: KernelOptions) -> None:
    """Make `options` the current ones until `leave`."""
    _CURRENT.set((*_CURRENT.get(), options))


def leave() -> None:
    """Restore the options before the last `enter`."""
    _CURRENT.set(_CURRENT.get()[:-1])


@contextmanager
def use(options: KernelOptions) -> Iterator[KernelOptions]:
    """Make `options` the current ones inside the `with` block."""
    enter(options)
    try:
        yield options
    finally:
        leave()
