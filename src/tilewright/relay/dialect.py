"""Relay's part of `ir.IRModule`: text, parser, global variables, and functions made of bare expressions."""

from __future__ import annotations

from typing import Any

from tilewright.base.settings import nearest
from tilewright.base.types import FuncType
from tilewright.ir import dialects
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Expr, Function, GlobalVar
from tilewright.relay.op.registry import OPS
from tilewright.relay.op.unsupported import left_out
from tilewright.relay.printer import astext
from tilewright.relay.visitor import free_vars

dialects.astext.provide(astext)


@dialects.parse.provide
def _parse(text: str, source_name: str, module: IRModule) -> IRModule:
    from tilewright.relay.parser import parse

    return parse(text, source_name, init_module=module)


@dialects.as_function.provide
def _as_function(value: Any) -> Any:
    return (Function(tuple(free_vars(value)), value) if isinstance(value, Expr) and not isinstance(value, Function)
            else value)


@dialects.global_var.provide
def _global_var(name: str, function: Any) -> GlobalVar:
    known = function.known_type() if isinstance(function, Function) else None
    return GlobalVar(name, known if isinstance(known, FuncType) else None)


@dialects.unknown_operator.provide
def _unknown_operator(name: str) -> str | None:
    return None if name in OPS or left_out(name) is not None else nearest(name, OPS)
