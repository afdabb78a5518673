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

from tilewright.base.errors import ModelError, OptionError, TargetError

GROUP: Final = "tilewright.accelerators"
FRONTENDS: Final = "tilewright.frontends"
BUILT_IN: Final[Mapping[str, str]] = {"dnnl": "tilewright.backends.accelerators.dnnl", "npu": "tilewright.backends.accelerators.npu:npu"}
"""The accelerators of this package, which an installation without its metadata has too."""
_CONVERTING: Final[Mapping[str, str]] = {
    "onnx": "tilewright.relay.frontend.onnx.deferred", "tflite": "tilewright.relay.frontend.tflite.deferred",
}
"""The modules of this package that convert waiting nodes, by format."""


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
    return _loaded("accelerator", name, value)


@functools.cache
def installed_frontends() -> tuple[Any, ...]:
    """The formats of installed frontends, imported. Raises `TargetError` where an import fails."""
    return tuple(_loaded("frontend", name, value) for name, value in sorted(installed(FRONTENDS).items()))


def load_frontend(name: str) -> None:
    """Import the frontend of a format, which registers how its waiting nodes are converted. Raises `ModelError` where
    it is not installed."""
    value = _CONVERTING.get(name) or installed(FRONTENDS).get(name)
    if value is None:
        raise ModelError(f"the program has nodes of the format '{name}', and no installed package reads it; install "
                         "its frontend", code="TW0102")
    _loaded("frontend", name, value)


def _loaded(kind: str, name: str, value: str) -> Any:
    """The object that an entry point names. Raises `TargetError` where it cannot be imported."""
    try:
        return import_value(value)
    except (ImportError, AttributeError) as error:
        why = (f"the {kind} '{name}' cannot be imported from {value}: {error}; mend or remove the package that has "
               "this entry point")
        raise TargetError(why, code="TW0901") from error


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
