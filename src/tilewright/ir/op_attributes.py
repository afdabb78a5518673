"""Attributes of operators that programs register, by the operator's name: whether a target computes it, what a pass should know.

    @register_op_attr("nn.conv2d", "target.npu")
    def conv2d_on_npu(expr): ...

An attribute has a level; a registration replaces one of a lower level.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tilewright.errors import OptionError

_ATTRIBUTES: Final[dict[tuple[str, str], tuple[int, Any]]] = {}


def register_op_attr(op_name: str, attr_key: str, value: Any = None, level: int = 10) -> Callable[[Any], Any] | Any:
    """Set the attribute `attr_key` of an operator; without `value`, a decorator of the value.

    Raises `OptionError` when the operator has this attribute with the same level or a higher one.
    """

    def register(given: Any) -> Any:
        known = _ATTRIBUTES.get((op_name, attr_key))
        if known is not None and known[0] >= level:
            raise OptionError(
                f"the attribute '{attr_key}' of {op_name} is registered already, with level {known[0]}; "
                f"give a level above it, or take it back with reset_op_attr({op_name!r}, {attr_key!r})"
            )
        _ATTRIBUTES[op_name, attr_key] = (level, given)
        return given

    return register if value is None else register(value)


def reset_op_attr(op_name: str, attr_key: str) -> None:
    """Take a registered attribute back; nothing happens when there is none."""
    _ATTRIBUTES.pop((op_name, attr_key), None)


def op_attr(op_name: str, attr_key: str) -> Any:
    """A registered attribute of an operator, or None."""
    known = _ATTRIBUTES.get((op_name, attr_key))
    return None if known is None else known[1]
