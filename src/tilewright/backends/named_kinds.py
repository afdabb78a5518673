"""Kinds of targets that can only be named: programs describe devices by them, but no code is made for them.

    Target("cuda -arch=sm_80").keys    ->    ("cuda", "gpu")
    Target("cuda").backend             ->    TargetError

`tvm.device("cuda")` names such a device in the same way. The passes that place values on devices use both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

NAMED_KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "cuda": ("cuda", "gpu"), "nvptx": ("cuda", "gpu"), "rocm": ("rocm", "gpu"), "opencl": ("opencl", "gpu"),
    "metal": ("metal", "gpu"), "vulkan": ("vulkan", "gpu"), "webgpu": ("webgpu", "gpu"), "hexagon": ("hexagon",),
}
"""Kind of target -> the keys of such targets."""
_LISTS: Final = frozenset({"keys", "libs", "mattr"})


def named_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of such a target. They are kept as given; only numbers and lists are recognized."""
    return {name: _value(name, value) for name, value in given.items()}


def _value(name: str, value: Any) -> Any:
    if name in _LISTS:
        return tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else tuple(map(str, value))
    return int(value) if isinstance(value, str) and value.isdecimal() else value
