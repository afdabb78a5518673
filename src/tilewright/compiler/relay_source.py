"""A Relay module or function as the source of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.base.types import INT64, TensorType
from tilewright.compiler.flow import needs_control
from tilewright.compiler.model_source import ModelSource
from tilewright.compiler.report import BuildReport
from tilewright.compiler.stage_growth import signature_of, typed, with_main
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Function
from tilewright.relay.transform.open_sizes import symbols_of, with_samples
from tilewright.scalar.expr import PrimExpr, as_expr
from tilewright.scalar.expr import Var as Symbol


class RelaySource(ModelSource):
    """A module in memory. A digest of it would take as long as compiling, so the cache has only its kernels."""

    content = ""

    def __init__(self, given: IRModule | Function) -> None:
        self._module = typed(given if isinstance(given, IRModule) else IRModule.from_expr(given))
        self.signature = signature_of(self._module["main"])
        name: Any = self._module.attrs.get("mod_name", "default")
        self.name = str(name)

    def read(self, shapes: Mapping[str, Any], report: BuildReport) -> IRModule:
        """Return the module, with static sizes if `shapes` determines all symbols of a straight-line program."""
        main = self._module["main"]
        symbols, known = symbols_of(main), dict[Symbol, PrimExpr]()
        for p in main.params if symbols else ():
            dims = p.tensor_type.shape if isinstance(p.known_type(), TensorType) else ()
            given = zip(dims, shapes.get(p.name_hint, dims), strict=False)
            known |= {d: as_expr(n, INT64) for d, n in given if isinstance(d, Symbol) and isinstance(n, int)}
        if not symbols or not known.keys() >= set(symbols) or needs_control(main):
            return self._module
        return with_main(self._module, with_samples(main, known))

    def module_of(self, function: Function) -> IRModule:
        return with_main(self._module, function)
