"""Back ends by the kind of a target: those of this package, and those of installed packages.

    [project.entry-points."tilewright.backends"]
    narrow_cpu = "narrow_cpu.backend:NARROW_CPU"

An entry point names a `Backend` object; its module is imported when a target of that kind is first used.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Final

from tilewright.backends.base import Backend
from tilewright.backends.targets.described import is_described
from tilewright.base.errors import TargetError
from tilewright.base.plugins import import_plugin, installed

GROUP: Final = "tilewright.backends"
BUILT_IN: Final[Mapping[str, str]] = {
    "llvm": "tilewright.backends.cpu.llvm.backend:LLVM", "c": "tilewright.backends.cpu.c.backend:C"
}
"""The back ends of this package, which are found without the metadata of an installation."""


def backend_names() -> list[str]:
    """Return the kinds of target that have a back end, sorted."""
    return sorted({*BUILT_IN, *_installed()})


@functools.cache
def _installed() -> Mapping[str, str]:
    return installed(GROUP)


def has_backend(name: str) -> bool:
    """Return whether a kind of target has a back end."""
    return name in BUILT_IN or name in _installed()


@functools.cache
def find_backend(name: str) -> Backend:
    """Return the back end of a kind of target.

    Raises `TargetError` if there is none, or its package cannot be imported.
    """
    value = BUILT_IN.get(name) or _installed().get(name)
    if value is None and is_described(name):
        raise TargetError(
            f"'{name}' is not a kind of target for which code is generated; use one of {', '.join(backend_names())}",
            code="TW0502")
    if value is None:
        raise TargetError(
            f"'{name}' is not a kind of target; the known kinds are {', '.join(backend_names())}", code="TW0502")
    found = import_plugin("back end", name, value)
    if not isinstance(found, Backend) or found.name != name:
        raise TargetError(
            f"the entry point '{name}' of {GROUP} is not a Backend of that name: {value}; repair or remove its package",
            code="TW0502")
    return found


def forget() -> None:
    """Clear the cached entry points and back ends, after packages were installed or removed."""
    for cached in (_installed, find_backend):
        cached.cache_clear()
