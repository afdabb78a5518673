"""Second names of modules: those of TVM and ONNX Runtime, and those that this package used before its folders were
ordered.

    import tilewright.autotvm.task   ->   the module tilewright.search.autotvm.task, the same object under both names

A finder at the front of `sys.meta_path` resolves them, so that a module is never loaded twice.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import CodeType, ModuleType
from typing import Final

from tilewright.base import namespaces
from tilewright.base.errors import MovedModuleWarning
from tilewright.base.public_names import FILE_OF, FORMER, real_name

_PREFIX: Final = "tilewright."


class _Alias(InspectLoader):
    """A loader that imports a module under its second name."""

    def __init__(self, real: str) -> None:
        self.real = real
        self.spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self.real)
        self.spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the specification of the module, which the import system replaced; the module ran under its real
        name."""
        module.__spec__ = self.spec

    def get_source(self, fullname: str) -> str | None:
        loader = self._loader()
        return loader.get_source(self.real)

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the code of the module, for `python -m` with its second name."""
        return self._loader().get_code(self.real)

    def is_package(self, fullname: str) -> bool:
        return self._loader().is_package(self.real)

    def _loader(self) -> InspectLoader:
        spec = find_spec(self.real)
        if spec is None or not isinstance(spec.loader, InspectLoader):
            raise ImportError(f"there is no module '{self.real}'", name=self.real)
        return spec.loader


class AliasFinder(MetaPathFinder):
    """Finds modules by their second names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top, _, name = fullname.partition(".")
        is_renamed = f"{top}." != _PREFIX  # a program may write `sys.modules["tvm"] = tilewright`
        if not name or (is_renamed and sys.modules.get(top) is not sys.modules[_PREFIX[:-1]]):
            return None
        real = real_name(name)
        if real == name and not is_renamed:
            spec = namespaces.find(fullname, path)
            if spec is not None or name not in FILE_OF:
                return spec
            real = real_name(FILE_OF[name])
        if (found := find_spec(_PREFIX + real)) is None:
            return None
        if name in FORMER:
            warnings.warn(f"'{fullname}' is now '{_PREFIX}{real}'", MovedModuleWarning, stacklevel=2)
        spec = ModuleSpec(
            fullname, _Alias(_PREFIX + real), origin=found.origin,
            is_package=found.submodule_search_locations is not None)
        if found.submodule_search_locations is not None:
            spec.submodule_search_locations = list(found.submodule_search_locations)
        return spec


def install() -> None:
    """Allow imports of modules by their second names. Repeated calls have no effect."""
    if not any(isinstance(finder, AliasFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, AliasFinder())
        sys.meta_path.append(namespaces.AbsentFinder())
