"""Functions of later layers that earlier layers call (`Hook`), and the accelerators and frontends of packages.

An accelerator is declared by a file in this process, or by an entry point; a frontend, by an entry point. The object of
an entry point is imported at its first use:

    [project.entry-points."tilewright.accelerators"]
    mine = "my_package.mine:accelerator"

    [project.entry-points."tilewright.frontends"]
    mine = "my_package.reader:FORMAT"

The module of an accelerator registers its code generator and its kind of modules on import, so this package needs no
edits. A file of an artifact names kinds of modules; only entry points of installed packages read them. The object of a
frontend is the `Format` of its files; its module registers how waiting nodes are converted.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Generic, ParamSpec, TypeVar

from tilewright.base.errors import ModelError, OptionError, TargetError

GROUP: Final = "tilewright.accelerators"
FRONTENDS: Final = "tilewright.frontends"
BUILT_IN: Final[Mapping[str, str]] = {
    "dnnl": "tilewright.backends.accelerators.dnnl", "npu": "tilewright.backends.accelerators.npu:npu"
}
"""The accelerators of this package, which are also found in an installation without metadata."""
_GENERATORS: Final[Mapping[str, str]] = {"ccompiler": "tilewright.backends.accelerators.ccompiler"}
"""Code generators of this package for functions that are marked by hand; they take no parts of graphs themselves."""
_CONVERTING: Final[Mapping[str, str]] = {
    "onnx": "tilewright.relay.frontend.onnx.deferred", "tflite": "tilewright.relay.frontend.tflite.deferred",
}
"""The modules of this package that convert deferred nodes, by format."""
P = ParamSpec("P")
R = TypeVar("R")


FIELD_TARGETS: Final[Mapping[str, str]] = {
    "arm_compute_lib": "arm_compute_lib", "bnns": "bnns", "cmsis-nn": "cmsisnn", "compute-library": "arm_compute_lib",
    "dnnl": "dnnl", "ethos-n": "ethosn", "ethos-u": "ethosu",
}
"""The targets of TVM that take parts of graphs, each with the module of `relay.op.contrib` that has its pattern table.
"""

_DECLARED: Final[dict[str, Any]] = {}
_OFFLOADS: Final[list[Mapping[str, Any]]] = [FIELD_TARGETS]


class Hook(Generic[P, R]):
    """A function that an earlier layer declares and calls, and that a later layer provides when it is imported.

        save: Final[Hook[[Artifact, Path], Path]] = Hook("tilewright.compiler.export")     # the earlier layer

        @hooks.save.provide                                                                # the later layer
        def save(artifact: Artifact, path: Path) -> Path: ...

    The first call imports the module `provider`. It raises `ImportError` if the module is not installed.
    """

    __slots__ = ("_function", "provider")

    def __init__(self, provider: str) -> None:
        self.provider = provider
        self._function: Callable[P, R] | None = None

    def provide(self, function: Callable[P, R]) -> Callable[P, R]:
        """Make `function` the function of this hook; a decorator."""
        self._function = function
        return function

    def function(self) -> Callable[P, R]:
        """Return the provided function; its module is imported first."""
        if self._function is None:
            importlib.import_module(self.provider)
        assert self._function is not None, f"{self.provider} provides no function for its hook"
        return self._function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function()(*args, **kwargs)


def declare_accelerator(name: str, accelerator: Any) -> None:
    """Register an accelerator under a name in this process; it takes precedence over an entry point of the same
    name."""
    _DECLARED[name] = accelerator


def declared_accelerator(name: str) -> Any | None:
    """Return the accelerator that was declared last under the name; None for accelerators of entry points."""
    return _DECLARED.get(name)


def list_offloads(table: Mapping[str, Any]) -> None:
    """Add a table, keyed by names of targets that take parts of graphs, to the tables that `offload_names` reads."""
    _OFFLOADS.append(table)


def offload_names() -> set[str]:
    """Return the names of all targets that take parts of graphs: those of listed tables, and accelerators."""
    return {*accelerator_names(), *(name for table in _OFFLOADS for name in table)}


def accelerator_names() -> list[str]:
    """Return the names of all declared and installed accelerators, sorted."""
    return sorted({*BUILT_IN, *_DECLARED, *installed(GROUP)})


def installed(group: str) -> dict[str, str]:
    """Return the values of the entry points of installed packages in a group, by name."""
    # takes 20 ms, and is needed only for names outside this package
    from importlib.metadata import entry_points

    return {e.name: e.value for e in entry_points(group=group)}


def find_accelerator(name: str) -> Any | None:
    """Return the accelerator of that name, declared or imported from its entry point, or None.

    Raises `TargetError` if the import fails.
    """
    if name in _DECLARED:
        return _DECLARED[name]
    value = installed(GROUP).get(name) or BUILT_IN.get(name) or _GENERATORS.get(name)
    if value is None:
        return None
    return import_plugin("accelerator", name, value)


@functools.cache
def installed_frontends() -> tuple[Any, ...]:
    """Return the formats of installed frontends, imported. Raises `TargetError` if an import fails."""
    return tuple(import_plugin("frontend", name, value) for name, value in sorted(installed(FRONTENDS).items()))


def load_frontend(name: str) -> None:
    """Import the frontend of a format, which registers its converter of deferred nodes. Raises `ModelError` if it is
    not installed."""
    value = _CONVERTING.get(name) or installed(FRONTENDS).get(name)
    if value is None:
        raise ModelError(
            f"the program has nodes of the format '{name}', which no installed package reads; install its "
            "frontend", code="TW0102")
    import_plugin("frontend", name, value)


def import_value(value: str) -> Any:
    """Return the object that `module:attribute` names. Raises `ImportError` and `AttributeError`."""
    module, _, attribute = value.partition(":")
    found: Any = importlib.import_module(module.strip())
    for part in filter(None, attribute.strip().split(".")):
        found = getattr(found, part)
    return found


def import_plugin(kind: str, name: str, value: str) -> Any:
    """Return the object that an entry point names as `module:attribute`. Raises `TargetError` if the import fails."""
    try:
        return import_value(value)
    except (ImportError, AttributeError) as error:
        why = (f"the {kind} '{name}' cannot be imported from {value}: {error}; repair or remove the package that has "
               "this entry point")
        raise TargetError(why, code="TW0901") from error


def run_plugin(path: str) -> None:
    """Run a Python file or import a module that registers plug-ins. Raises `OptionError` if it does not exist."""
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
