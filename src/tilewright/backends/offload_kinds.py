"""Kinds of targets that compute only parts of a network: their names, and their attributes with default values.

    register_offload_kind("my_npu", {"variant": "v1", "local_memory_size": 131072})
    Target("my_npu -variant=v2", host="llvm").attrs    ->   {"variant": "v2", "local_memory_size": 131072}

Beside a processor, such a target gives options to the code generator of the parts: `relay.build(mod, [llvm, my_npu])`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tilewright.base.errors import OptionError, TargetError
from tilewright.base.settings import nearest

COMMON: Final = ("keys", "host", "model", "device", "libs", "tag", "mcpu", "mattr", "mtriple")
"""Attributes that each target has, so that no kind can declare them."""
OFFLOAD_MODULES: Final = ("ccompiler",)
"""Accelerators of this package that register a kind when they are imported."""
_KINDS: Final[dict[str, Mapping[str, Any]]] = {}


def register_offload_kind(name: str, attributes: Mapping[str, str | int | bool]) -> None:
    """Register a kind with the defaults of its attributes; a repeated registration of the same kind has no effect.

    Raises `OptionError` for a kind that has other attributes, for an attribute that each target has, and for a default
    that is no text, integer or bool.
    """
    for key, value in attributes.items():
        if key in COMMON:
            raise OptionError(
                f"Attribute is already registered: each target has '{key}', so '{name}' cannot declare it; give it "
                "another name", code="TW0212")
        if not isinstance(value, (str, int, bool)):
            raise OptionError(
                f"the default of the attribute '{key}' of '{name}' is {value!r}; it must be text, an integer or a bool",
                code="TW0215")
    if _KINDS.get(name, attributes) != attributes:
        raise OptionError(
            f"the target kind '{name}' is registered with other attributes: {', '.join(_KINDS[name]) or 'none'}",
            code="TW0212")
    _KINDS[name] = dict(attributes)


def offload_kinds() -> list[str]:
    """Return the names of the registered kinds, sorted."""
    return sorted(_KINDS)


def is_offload_kind(name: str) -> bool:
    """Return whether a kind is registered."""
    return name in _KINDS


def offload_attributes(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a target: those of its kind, with the given values. Raises `TargetError` for an unknown
    attribute, and for a value of another type."""
    found = dict(_KINDS[name])
    for key, value in given.items():
        if key not in found:
            raise TargetError(
                f"'-{key}' is not an option of the target '{name}'{nearest(key, found)}; it has "
                f"{', '.join(found) or 'none'}", code="TW0502")
        found[key] = _as(type(found[key]), key, value)
    return found


def offload_options(name: str, attributes: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the attributes that differ from the defaults of their kind, as text."""
    defaults = _KINDS[name]
    return tuple((k, str(v)) for k, v in attributes.items() if v != defaults.get(k))


def _as(kind: type, key: str, value: Any) -> Any:
    """Return a value, given as text, as the type of the default."""
    if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return value
    text = str(value)
    if kind is bool and text.lower() in ("0", "1", "true", "false"):
        return text.lower() in ("1", "true")
    if kind is int and text.lstrip("-").isdecimal():
        return int(text)
    if kind is str:
        return text
    raise TargetError(f"the target's option '-{key}' is '{value}'; it must be of the type {kind.__name__}",
                      code="TW0501")
