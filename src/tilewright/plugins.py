"""Accelerators and frontends that packages bring by entry points; each is imported when it is first needed.

    [project.entry-points."tilewright.accelerators"]
    mine = "my_package.mine:accelerator"

    [project.entry-points."tilewright.frontends"]
    mine = "my_package.reader:FORMAT"

The object that an accelerator's entry point names registers itself: its code generator, and the kind of its modules. A
file names a kind of module, and a kind is only ever read by an installed entry point of that name. A frontend's object
is the `Format` of its files; its module registers how waiting nodes of the format are converted. An accelerator may
also be declared by a file in this process.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tilewright.errors import ModelError, OptionError, TargetError

GROUP: Final = "tilewright.accelerators"
FRONTENDS: Final = "tilewright.frontends"
BUILT_IN: Final[Mapping[str, str]] = {"dnnl": "tilewright.contrib.dnnl", "npu": "tilewright.contrib.npu:npu"}
"""The accelerators of this package, which an installation without its metadata has too."""
_CONVERTING: Final[Mapping[str, str]] = {
    "onnx": "tilewright.relay.frontend.onnx.deferred", "tflite": "tilewright.relay.frontend.tflite.deferred",
}
"""The modules of this package that convert waiting nodes, by format."""


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


def _installed(group: str = GROUP) -> dict[str, str]:
    """The entry points of installed packages, by name."""
    from importlib.metadata import entry_points  # 20 ms, for models and targets that are not built in

    return {e.name: e.value for e in entry_points(group=group)}


def find_accelerator(name: str) -> Any | None:
    """What was declared under the name, or what its entry point is, imported; None without either. Raises `TargetError`
    where that fails."""
    if name in _DECLARED:
        return _DECLARED[name]
    value = _installed().get(name) or BUILT_IN.get(name)
    if value is None:
        return None
    return _loaded("accelerator", name, value)


@functools.cache
def installed_frontends() -> tuple[Any, ...]:
    """The formats of installed frontends, imported. Raises `TargetError` where an import fails."""
    return tuple(_loaded("frontend", name, value) for name, value in sorted(_installed(FRONTENDS).items()))


def load_frontend(name: str) -> None:
    """Import the frontend of a format, which registers how its waiting nodes are converted. Raises `ModelError` where
    it is not installed."""
    value = _CONVERTING.get(name) or _installed(FRONTENDS).get(name)
    if value is None:
        raise ModelError(f"the program has nodes of the format '{name}', and no installed package reads it; install "
                         "its frontend", code="TW0102")
    _loaded("frontend", name, value)


def _loaded(kind: str, name: str, value: str) -> Any:
    """The object that an entry point names."""
    module, _, attribute = value.partition(":")
    try:
        found: Any = importlib.import_module(module.strip())
        for part in filter(None, attribute.strip().split(".")):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        why = (f"the {kind} '{name}' cannot be imported from {value}: {error}; mend or remove the package that has "
               "this entry point")
        raise TargetError(why, code="TW0901") from error
    return found


def run_plugin(path: str) -> None:
    """Run a Python file, or import a module, which registers what it brings. Raises `OptionError` where it is not
    there."""
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
        raise OptionError(f"--plugin: there is no module '{path}'; give a module that can be imported, or a file that "
                          "ends in .py", code="TW0205") from None
