"""`tilewright.compile` of a relay module or function: the same `Model`, over a program that is in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.compiler.growth import signature_of, typed, with_main
from tilewright.compiler.model import Model
from tilewright.compiler.report import Report
from tilewright.compiler.staged import Key, Stages
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Function
from tilewright.runtime.artifact import Artifact


class ModuleModel(Model):
    """A compiled module. The program is not kept in the cache, its kernels are."""

    def _module(self) -> IRModule:
        given = self._source
        return given if isinstance(given, IRModule) else IRModule.from_expr(given)

    def _read_signature(self) -> None:
        self._source = typed(self._module())
        self._signature = signature_of(self._source["main"])

    def _imported(self, shapes: Mapping[str, Any], report: Report) -> IRModule:
        return self._source  # type: ignore[no-any-return]

    def _module_of(self, function: Function) -> IRModule:
        return with_main(self._source, function)

    def _known(self, tree: Stages, key: Key) -> None:
        return None

    def _stored(self, key: str) -> None:
        return None

    def _store(self, key: str, artifact: Artifact) -> None:
        """Nothing: there is no digest of a module that is quicker to make than the program."""

    def _name(self) -> str:
        name: Any = self._source.attrs.get("mod_name", "default")
        return str(name)
