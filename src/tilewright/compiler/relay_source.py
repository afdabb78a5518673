"""A relay module or function as what is compiled: a program that is in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.compiler.growth import signature_of, typed, with_main
from tilewright.compiler.model_source import ModelSource
from tilewright.compiler.report import Report
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Function


class RelaySource(ModelSource):
    """A module. There is no digest of it that is quicker to make than its program, so only its kernels are in the cache."""

    content = ""

    def __init__(self, given: IRModule | Function) -> None:
        self._module = typed(given if isinstance(given, IRModule) else IRModule.from_expr(given))
        self.signature = signature_of(self._module["main"])
        name: Any = self._module.attrs.get("mod_name", "default")
        self.name = str(name)

    def read(self, shapes: Mapping[str, Any], report: Report) -> IRModule:
        return self._module

    def module_of(self, function: Function) -> IRModule:
        return with_main(self._module, function)
