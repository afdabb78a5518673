"""Accelerators by name: those that a file declared in this process, and those of the entry points
`tilewright.accelerators`, imported when asked for.

    [project.entry-points."tilewright.accelerators"]
    mine = "my_package.mine:accelerator"

What the entry point names is imported, and registers itself: its code generator, and the kind of its modules. Nothing
of ours is edited for it. A file names a kind of module, and a kind is only ever read by an entry point of that name
that whoever installed packages put there.
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


FIELD_TARGETS: Final[Mapping[str, str]] = {
    "arm_compute_lib": "arm_compute_lib", "bnns": "bnns", "cmsis-nn": "cmsisnn", "compute-library": "arm_compute_lib",
    "dnnl": "dnnl", "ethos-n": "ethosn", "ethos-u": "ethosu",
}
"""The targets of TVM that take parts of graphs, each with the module of `relay.op.contrib` that has its pattern table.
"""

_DECLARED: Final[dict[str, Any]] = {}
_OFFLOADS: Final[list[Mapping[str, Any]]] = [FIELD_TARGETS]


def declare_accelerator(name: str, accelerator: Any) -> None:
    """Have the name stand for this accelerator in this process, before entry points of the name."""
    _DECLARED[name] = accelerator


def declared_accelerator(name: str) -> Any | None:
    """What was declared under the name last; None for what only an entry point brings."""
    return _DECLARED.get(name)


def list_offloads(table: Mapping[str, Any]) -> None:
    """Add a table whose keys are names of targets that take parts of graphs to those that `offload_names` reads."""
    _OFFLOADS.append(table)


def offload_names() -> set[str]:
    """Return the names of all targets that take parts of graphs: those of listed tables, and accelerators."""
    return {*accelerator_names(), *(name for table in _OFFLOADS for name in table)}


def accelerator_names() -> list[str]:
    """The names of all accelerators that were declared or that entry points bring, sorted."""
    return sorted({*BUILT_IN, *_DECLARED, *installed(GROUP)})


def installed(group: str) -> dict[str, str]:
    """Return the values of the entry points of installed packages in a group, by name."""
    # takes 20 ms, and is only needed where a name is not one of this package
    from importlib.metadata import entry_points

    return {e.name: e.value for e in entry_points(group=group)}


def import_value(value: str) -> Any:
    """Return the object that an entry point names as `module:attribute`. Raises `ImportError` and `AttributeError`."""
    module, _, attribute = value.partition(":")
    found: Any = importlib.import_module(module.strip())
    for part in filter(None, attribute.strip().split(".")):
        found = getattr(found, part)
    return found


def find_accelerator(name: str) -> Any | None:
    """What was declared under the name, or what its entry point is, imported; None without either.

    Raises `TargetError` where that fails.
    """
    if name in _DECLARED:
        return _DECLARED[name]
    value = installed(GROUP).get(name) or BUILT_IN.get(name)
    if value is None:
        return None
    try:
        return import_value(value)
    except (ImportError, AttributeError) as error:
        raise TargetError(
            f"the accelerator '{name}' cannot be imported from {value}: {error}; mend or remove the package that has "
            "this entry point",
            code="TW0901"
        ) from error


def run_plugin(path: str) -> None:
    """Run a Python file, or import a module, which registers what it brings.

    Raises `OptionError` where it is not there.
    """
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
        raise OptionError(
            f"--plugin: there is no module '{path}'; give a module that can be imported, or a file that ends in .py",
            code="TW0205"
        ) from None
