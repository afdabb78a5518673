"""TVM's `relay.function`: functions, and copies with replaced fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.base.errors import Origin
from tilewright.base.types import Type, TypeVar
from tilewright.ir.virtual_device import VirtualDevice
from tilewright.relay.expr import Expr, Function, Var

__all__ = ["Function", "FunctionWithFields"]


def FunctionWithFields(
    function: Function, params: Sequence[Var] | None = None, body: Expr | None = None, ret_type: Type | None = None,
    ty_params: Sequence[TypeVar] | None = None, attrs: Mapping[str, Any] | None = None,
    virtual_device: VirtualDevice | None = None, span: Origin | None = None,
) -> Function:
    """Return `function` with the given fields replaced; `virtual_device`, the device of the result, is an attribute."""
    attrs = function.attrs if attrs is None else attrs
    if virtual_device is not None:
        attrs = {**attrs, "virtual_device": virtual_device}
    return Function(
        function.params if params is None else params, function.body if body is None else body,
        function.declared_ret_type if ret_type is None else ret_type, function.type_params if ty_params is None
        else ty_params,
        attrs, function.span if span is None else span)
