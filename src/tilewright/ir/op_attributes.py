"""Attributes of operators that programs register by the operator's name: support by a target, information for passes.

    @register_op_attr("nn.conv2d", "target.npu")
    def conv2d_on_npu(expr): ...

An attribute has a level; a registration replaces one of a lower level.
`relay.op.get("nn.conv2d").get_attr("target.npu")` reads it.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final, TypeVar, overload

from tilewright.base.errors import OptionError, UnknownOperatorWarning
from tilewright.base.plugins import offload_names
from tilewright.ir import dialects

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Registered:
    """A registered attribute: its value, its level, and the file and line of the registration."""

    value: Any
    level: int
    place: str


OP_ATTRIBUTES: Final[dict[tuple[str, str], Registered]] = {}
"""The attributes by operator and key."""


@overload
def register_op_attr(op_name: str, attr_key: str, value: None = None, level: int = 10) -> Callable[[T], T]: ...


@overload
def register_op_attr(op_name: str, attr_key: str, value: T, level: int = 10) -> T: ...


def register_op_attr(op_name: str, attr_key: str, value: Any = None, level: int = 10) -> Any:
    """Set the attribute `attr_key` of an operator; without `value`, a decorator of the value.

    Raises `OptionError` when the operator has this attribute with the same level or a higher one. Warns
    (`UnknownOperatorWarning`) where there is no operator of that name, which a program may still register.
    """
    frame: FrameType | None = sys._getframe(1)
    # the functions that register one particular key
    while frame is not None and frame.f_globals.get("__name__", "").startswith("tilewright."):
        frame = frame.f_back
    place = f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""

    def register(given: Any) -> Any:
        _tell_unknown(op_name, attr_key, place)
        known = OP_ATTRIBUTES.get((op_name, attr_key))
        if known is not None and known.level >= level:
            raise OptionError(
                f"the attribute '{attr_key}' of {op_name} is already registered with level {known.level}; give a "
                f"higher level, or remove it with reset_op_attr({op_name!r}, {attr_key!r}) (registered at "
                f"{known.place})",
                code="TW0212")
        OP_ATTRIBUTES[op_name, attr_key] = Registered(given, level, place)
        return given

    return register if value is None else register(value)


def known_targets() -> list[str]:
    """Return the names of the targets that take parts of graphs: recorded ones, accelerators, and those in attributes
    of operators."""
    named = {key.removeprefix("target.") for _, key in OP_ATTRIBUTES if key.startswith("target.")}
    return sorted({*offload_names(), *named})


def _tell_unknown(op_name: str, attr_key: str, place: str) -> None:
    """Warn of a name that is neither an operator of Relay nor of TVM."""
    hint = dialects.unknown_operator(op_name)
    if hint is not None:
        warnings.warn(
            f"there is no operator '{op_name}'{hint}; its attribute '{attr_key}' has no effect; register an operator "
            f"of that name with relay.op.register (the attribute is at {place})", UnknownOperatorWarning, stacklevel=2)


def reset_op_attr(op_name: str, attr_key: str) -> None:
    """Remove a registered attribute if it exists."""
    OP_ATTRIBUTES.pop((op_name, attr_key), None)


@contextmanager
def registrations() -> Iterator[None]:
    """A scope of registrations: at its end, all attributes are as they were at its beginning."""
    before = dict(OP_ATTRIBUTES)
    try:
        yield
    finally:
        OP_ATTRIBUTES.clear()
        OP_ATTRIBUTES.update(before)


def op_attr(op_name: str, attr_key: str) -> Any:
    """Return a registered attribute of an operator, or None."""
    known = OP_ATTRIBUTES.get((op_name, attr_key))
    return None if known is None else known.value
