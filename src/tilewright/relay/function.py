"""TVM's `relay.function`: functions, and copies with replaced fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.base.errors import Origin
from tilewright.base.types import Type, TypeVar
from tilewright.relay.expr import Expr, Function, Var

__all__ = ["Function", "FunctionWithFields"]


def FunctionWithFields(
    function: Function, params: Sequence[Var] | None = None, body: Expr | None = None, ret_type: Type | None = None,
    ty_params: Sequence[TypeVar] | None = None, attrs: Mapping[str, Any] | None = None, virtual_device: None = None,
    span: Origin | None = None,
) -> Function:
    """Return `function` with the given fields replaced. Devices are marked by operators (`on_device`), so
    `virtual_device` is None.
    """
    return Function(
        function.params if params is None else params, function.body if body is None else body,
        function.declared_ret_type if ret_type is None else ret_type, function.type_params if ty_params is None
        else ty_params,
        function.attrs if attrs is None else attrs, function.span if span is None else span)
