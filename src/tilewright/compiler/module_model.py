"""`tilewright.compile` of a relay module or function: the same `Model`, over a program that is in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.compiler.build import build_module
from tilewright.compiler.cache import Cache
from tilewright.compiler.model import Model
from tilewright.compiler.report import Report
from tilewright.errors import CompileError
from tilewright.ir.module import IRModule
from tilewright.relay.transform.infer_type import InferType
from tilewright.runtime.artifact import Artifact
from tilewright.types import TensorType


class ModuleModel(Model):
    """A compiled module. The program is not kept in the cache, its kernels are."""

    def _module(self) -> IRModule:
        given = self._source
        return given if isinstance(given, IRModule) else IRModule.from_expr(given)

    def _read_signature(self) -> None:
        self._source = InferType()(self._module())
        for p in self._source["main"].params:
            kind = p.checked_type
            if not isinstance(kind, TensorType) or not kind.is_static:
                raise CompileError(
                    f"input '{p.name_hint}' of @main is {kind!r}, and a compiled program takes tensors of known sizes; "
                    "give the tensors in it as inputs of their own, with sizes", p.span
                )
            self._signature.append((p.name_hint, list(kind.concrete_shape), str(kind.dtype)))

    def _cached_or_built(self, shapes: Sequence[tuple[int, ...]]) -> Artifact:
        return self._build(shapes, self.report, self._cache)

    def _build(self, shapes: Sequence[tuple[int, ...]], report: Report, cache: Cache) -> Artifact:
        with self._options.context():
            return build_module(self._source, self.target, self._name(), report, cache)

    def _name(self) -> str:
        name: Any = self._source.attrs.get("mod_name", "default")
        return str(name)
