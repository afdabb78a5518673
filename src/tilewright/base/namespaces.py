"""Public modules: their errors for missing names say why a name of TVM is not here."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any, Final

from tilewright.base import absent
from tilewright.base.public_names import FILE_OF, FILES, PACKAGES, PUBLIC, PUBLIC_OF

_PREFIX: Final = "tilewright."
_PLAIN: Final = "has no attribute"
"""A part of the errors of modules that do not know why a name is missing."""


class Namespace(ModuleType):
    """A public module."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'", name=name, obj=self)
        loader: Any = self.__spec__.loader if self.__spec__ else None
        if loader.package is not None and hasattr(package := importlib.import_module(_PREFIX + loader.package), name):
            return getattr(package, name)
        if f"{self.__name__.removeprefix(_PREFIX)}.{name}" in FILE_OF:
            return importlib.import_module(f"{self.__name__}.{name}")
        if loader.public.removeprefix(_PREFIX) + f".{name}" in PUBLIC:
            return importlib.import_module(f"{loader.public}.{name}")
        text = absent.message(f"{loader.public}.{name}")
        own = self.__dict__.get("__getattr__")
        if own is not None:
            try:
                return own(name)
            except AttributeError as error:
                if text is None or _PLAIN not in str(error):
                    raise
        raise AttributeError(text or f"module '{loader.public}' has no attribute '{name}'", name=name, obj=self)

    def __setattr__(self, name: str, value: object) -> None:
        """Set an attribute, but let no second name of this package hide a function of the same name: after an import of
        `topi.nn.conv2d`, `topi.nn.conv2d` is still the function."""
        if value is not self or not hasattr(self, name):
            super().__setattr__(name, value)


class _Loader(SourceFileLoader):
    """Loads a public module, under its public name in messages."""

    public = ""
    package: str | None = None
    """The package that has the other names of TVM's file of this name."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return Namespace(spec.name)


class AbsentFinder(MetaPathFinder):
    """Finds nothing: as the last finder, it says why a module of TVM is not here."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.startswith((_PREFIX, "tvm.")) and (text := absent.message(fullname)) is not None:
            raise ModuleNotFoundError(text, name=fullname)
        return None


def find(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """Return how to load a module of this package if it is public or named like a file of TVM; None if it is not."""
    inner = name.removeprefix(_PREFIX)
    public = public_name(inner)
    if public is None:
        return None
    spec = PathFinder.find_spec(name, path)
    if spec is None or not isinstance(spec.loader, SourceFileLoader):
        return spec
    if spec.submodule_search_locations is None and (public in FILES or public in PACKAGES):
        spec.submodule_search_locations = []
    spec.loader = _Loader(name, spec.loader.path)
    spec.loader.public, spec.loader.package = _PREFIX + public, FILE_OF.get(inner)
    return spec


def public_name(name: str) -> str | None:
    """Return the public name of a module, both without `tilewright.`; None if it has none."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        if found := PUBLIC_OF.get(".".join(parts[:count])):
            return ".".join([found, *parts[count:]])
    return None
