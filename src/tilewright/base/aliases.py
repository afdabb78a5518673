"""Second names of modules: those of TVM and ONNX Runtime, and those that this package used before its folders were
ordered.

    import tilewright.autotvm.task   ->   the module tilewright.search.autotvm.task, the same object under both names

A finder at the front of `sys.meta_path` resolves them, so that a module is never loaded twice.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import CodeType, ModuleType
from typing import Final

from tilewright.base.errors import MovedModuleWarning

PUBLIC: Final[Mapping[str, str]] = {
    "_ffi": "compat._ffi",
    "arith": "scalar.arith",
    "as_tvm": "compat.as_tvm",
    "auto_scheduler": "search.auto_scheduler",
    "autotvm": "search.autotvm",
    "contrib": "compat.contrib",
    "contrib.accelerator": "backends.accelerators.declared",
    "contrib.debugger": "runtime.debugger",
    "contrib.dnnl": "backends.accelerators.dnnl",
    "contrib.graph_executor": "runtime.graph_executor",
    "contrib.library_calls": "backends.accelerators.library_calls",
    "contrib.npu": "backends.accelerators.npu",
    "contrib.torch_backend": "compiler.torch_backend",
    "error": "compat.error",
    "errors": "base.errors",
    "exec": "compat.exec",
    "expr": "scalar.expr",
    "instrument": "compat.instrument",
    "logs": "base.logs",
    "micro": "compiler.micro",
    "nd": "base.nd",
    "onnx_backend": "compat.onnx_backend",
    "onnx_session": "compat.onnx_session",
    "params": "base.params",
    "parser": "compat.parser",
    "registry": "compat.registry",
    "relay.backend.vm": "compiler.vm",
    "rpc": "runtime.rpc",
    "script": "tir.script",
    "serialization": "relay.serialization",
    "settings": "base.settings",
    "target": "compat.target",
    "testing": "compat.testing",
    "transform": "compat.transform",
    "tvm": "compat.tvm",
    "utils": "compat.utils",
}
"""Public name -> module, both without `tilewright.`; a submodule is found through the name of its package."""
FORMER: Final[Mapping[str, str]] = {
    "contrib.gdb_printers": "driver.gdb_printers",
    "diagnosis": "driver.diagnosis",
    "forks": "base.forks",
    "global_functions": "base.global_functions",
    "intrinsics": "scalar.intrinsics",
    "limits": "base.limits",
    "node": "base.node",
    "plugins": "base.plugins",
    "relay.op.coupling": "relay.op.classic.coupling",
    "relay.op.dictionaries": "relay.op.classic.dictionaries",
    "relay.op.ensembles": "relay.op.classic.ensembles",
    "relay.op.native_texts": "relay.op.classic.native_texts",
    "relay.op.text": "relay.op.classic.text",
    "tuning": "search",
    "types": "base.types",
}
"""Names of earlier versions: they still work, with a `MovedModuleWarning`."""
_PREFIX: Final = "tilewright."


def real_name(name: str) -> str:
    """Return the real name of the module called `name`, both without `tilewright.`; `name` itself if it is not an
    alias."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        known = ".".join(parts[:count])
        if found := PUBLIC.get(known) or FORMER.get(known):
            return ".".join([found, *parts[count:]])
    return name


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
        if (real == name and not is_renamed) or (found := find_spec(_PREFIX + real)) is None:
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
