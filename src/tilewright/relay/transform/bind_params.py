"""Variables of `main` become constants.

    def @main(%x, %w) { nn.dense(%x, %w) }   ->   def @main(%x) { nn.dense(%x, meta[relay.Constant][0]) }
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tilewright.errors import InputError
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Constant, Expr, Function, Var, const
from tilewright.relay.visitor import substitute


def bind_params(mod: IRModule, params: Mapping[str, Any]) -> IRModule:
    """`mod` with the parameters of `main` that `params` names bound to these arrays; raises `InputError` for other shapes or types."""
    main = mod["main"]
    mapping: dict[Expr, Expr] = {p: _value(p, params[p.name_hint]) for p in main.params if p.name_hint in params}
    if not mapping:
        return mod
    kept = tuple(p for p in main.params if p not in mapping)
    bound = mod.copy()
    bound["main"] = Function(kept, substitute(main.body, mapping), attrs=main.attrs, span=main.span)
    return bound


def _value(p: Var, value: Any) -> Constant:
    found = value if isinstance(value, Constant) else const(value)
    if p.type_annotation is not None and found.known_type() != p.type_annotation:
        raise InputError(f"parameter '{p.name_hint}' is {found.known_type()!r}, and the model declares {p.type_annotation!r}", p.span)
    return replace(found, span=p.span)
