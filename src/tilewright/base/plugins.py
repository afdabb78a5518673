"""Accelerators by name: those that a file declared in this process, and those of the entry points `tilewright.accelerators`, imported when asked for.

    [project.entry-points."tilewright.accelerators"]
    mine = "my_package.mine:accelerator"

What the entry point names is imported, and registers itself: its code generator, and the kind of its modules. Nothing of ours is edited for it. A
file names a kind of module, and a kind is only ever read by an entry point of that name that whoever installed packages put there.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tilewright.base.errors import OptionError, TargetError

GROUP: Final = "tilewright.accelerators"
BUILT_IN: Final[Mapping[str, str]] = {"dnnl": "tilewright.backends.accelerators.dnnl", "npu": "tilewright.backends.accelerators.npu:npu"}
"""Those that come with this package, which an installation without its metadata has too."""


_DECLARED: Final[dict[str, Any]] = {}


def declare_accelerator(name: str, accelerator: Any) -> None:
    """Have the name stand for this accelerator in this process, before entry points of the name."""
    _DECLARED[name] = accelerator


def declared_accelerator(name: str) -> Any | None:
    """What was declared under the name last; None for what only an entry point brings."""
    return _DECLARED.get(name)


def accelerator_names() -> list[str]:
    """The names of all accelerators that were declared or that entry points bring, sorted."""
    return sorted({*BUILT_IN, *_DECLARED, *_installed()})


def _installed() -> dict[str, str]:
    """What installed packages have, by name."""
    from importlib.metadata import entry_points  # 20 ms, for those who name an accelerator

    return {e.name: e.value for e in entry_points(group=GROUP)}


def find_accelerator(name: str) -> Any | None:
    """What was declared under the name, or what its entry point is, imported; None without either. Raises `TargetError` where that fails."""
    if name in _DECLARED:
        return _DECLARED[name]
    value = _installed().get(name) or BUILT_IN.get(name)
    if value is None:
        return None
    module, _, attribute = value.partition(":")
    try:
        found: Any = importlib.import_module(module.strip())
        for part in filter(None, attribute.strip().split(".")):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise TargetError(f"the accelerator '{name}' cannot be imported from {value}: {error}; mend or remove the package that has this entry point", code="TW0901") from error
    return found


def run_plugin(path: str) -> None:
    """Run a Python file, or import a module, which registers what it brings. Raises `OptionError` where it is not there."""
    if path.endswith(".py"):
        file = Path(path)
        spec = importlib.util.spec_from_file_location(file.stem, file)
        if not file.is_file() or spec is None or spec.loader is None:
            raise OptionError(f"--plugin: there is no file '{path}'", code="TW0205")
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
        return
    try:
        importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name is None or not path.startswith(error.name):
            raise
        raise OptionError(f"--plugin: there is no module '{path}'; give a module that can be imported, or a file that ends in .py", code="TW0205") from None
