"""List the constants of all functions in an attribute of their module.

    K = T.allocate_const([1, 2], "int8", [2])
      ->
    K = T.allocate_const([1, 2], "int8", [2], annotations={"irmod_storage_idx": 0})       mod.attrs["constants"][0]

Equal constants of one type are listed once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from tilewright.base.nd import NDArray
from tilewright.ir.module import IRModule
from tilewright.tir.stmt import STORED, AllocateConst, PrimFunc, Stmt, map_bodies

CONSTANTS: Final = "constants"
"""Attribute of a module: its constants, arrays of one dimension."""


def extract_constants(mod: IRModule) -> IRModule:
    """Annotate the constants with their positions in the attribute `constants` of the module; a module without any
    stays."""
    found: list[NDArray] = list(mod.attrs.get(CONSTANTS, ()))
    places: dict[tuple[str, bytes], int] = {_key(a.numpy()): k for k, a in enumerate(found)}

    def place(s: AllocateConst) -> int:
        key = _key(s.values)
        if key not in places:
            places[key] = len(found)
            found.append(s.data)
        return places[key]

    def visit(s: Stmt) -> Stmt:
        inner = map_bodies(s, visit) or s
        if not isinstance(inner, AllocateConst):
            return inner
        return replace(inner, annotations={**inner.annotations, STORED: place(inner)})

    new = mod.map_functions(lambda f: f.with_body(visit(f.body)), PrimFunc)
    return new.with_attr(CONSTANTS, found) if found else new


def _key(values: Any) -> tuple[str, bytes]:
    return str(values.dtype), values.tobytes()
