"""The phases of a UMA backend, and the registration of its target."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

from tilewright.backends.offload_kinds import is_offload_kind, register_offload_kind
from tilewright.backends.registry import has_backend
from tilewright.base.errors import OptionError
from tilewright.base.global_functions import register_func

__all__ = ["PassPhase", "register_target", "uma_available"]


class PassPhase(Enum):
    """When a pass of a backend runs: before and after the partitioning of graphs, or over loop programs."""

    PRE_PARTITIONING = auto()
    POST_PARTITIONING_0 = auto()
    POST_PARTITIONING_1 = auto()
    TIR_PHASE_0 = auto()
    TIR_PHASE_1 = auto()
    TIR_PHASE_2 = auto()
    TIR_PHASE_3 = auto()


class UnsupportedAttributeError(OptionError, TypeError):
    """A target's attribute has a default that is no text, integer or bool."""

    code = "TW0215"


def uma_available() -> bool:
    """Return True: the interface is always here."""
    return True


def register_target(target_name: str, target_attrs: Mapping[str, Any]) -> bool:
    """Register a kind of target with the defaults of its attributes. Returns True.

    Raises `OptionError` for a kind or attribute that exists, and `UnsupportedAttributeError`, also a `TypeError`, for a
    default that is no text, integer or bool.
    """
    if has_backend(target_name) or is_offload_kind(target_name):
        raise OptionError(
            f"TVM UMA Error: Target is already registered: '{target_name}'; give the target another name",
            code="TW0212")
    for name, value in target_attrs.items():
        if not isinstance(value, (str, int, bool)):
            raise UnsupportedAttributeError(
                f"Only String, Integer, or Bool are supported. The attribute '{name}' of '{target_name}' is {value!r}")
    register_offload_kind(target_name, target_attrs)
    return True


register_func("relay.backend.contrib.uma.RegisterTarget", register_target, override=True)
