"""Copies of nodes with replaced fields, and TVM's wrapper of tuples: names of TVM's `relay.expr`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.errors import OptionError, Origin
from tilewright.base.types import Type
from tilewright.ir.memory_info import MemoryInfo
from tilewright.ir.virtual_device import FREE, VirtualDevice
from tilewright.relay.expr import Attrs, Call, Constant, Expr, If, Let, Tuple, TupleGetItem, Var
from tilewright.scalar.expr import FloatImm, IntImm

__all__ = [
    "CallWithFields", "ConstantWithFields", "IfWithFields", "LetWithFields", "TupleGetItemWithFields",
    "TupleWithFields", "TupleWrapper", "VarWithFields", "make_node",
]


_MADE: Final = {"DictAttrs": Attrs, "FloatImm": FloatImm, "IntImm": IntImm, "MemoryInfo": MemoryInfo}


def make_node(type_key: str, **kwargs: Any) -> Any:
    """Create a node by TVM's name of its kind: attributes of a function or a call (`DictAttrs`), a number,
    or the description of a memory (`MemoryInfo`).

    Attributes of another kind (`attrs.…`) have its name as the last one, `attrs_type_key`. Raises `OptionError` for
    other names.
    """
    if type_key.startswith(("attrs.", "relay.attrs.")):
        return Attrs({**kwargs, "attrs_type_key": type_key})
    kind = _MADE.get(type_key)
    if kind is None:
        raise OptionError(
            f"a node '{type_key}' is not created by name; use its class, or one of {', '.join(_MADE)}", code="TW0210")
    return kind(kwargs) if kind is Attrs else kind(**{k: v for k, v in kwargs.items() if k != "span"})


class TupleWrapper:
    """A tuple value with a known number of fields, for scripts that create one: `TupleWrapper(call, 2)[1]`.

    Operators with several results return the call itself, which has the same methods.
    """

    def __init__(self, tuple_value: Expr, size: int) -> None:
        self.tuple_value = tuple_value
        self.size = size

    def astuple(self) -> Expr:
        """Return the tuple value."""
        return self.tuple_value

    def astext(self) -> str:
        """Return the tuple value as text."""
        return self.tuple_value.astext()

    def __getitem__(self, index: int) -> TupleGetItem:
        if not -self.size <= index < self.size:
            raise IndexError(f"field {index} is out of range for a tuple of {self.size} fields")
        return TupleGetItem(self.tuple_value, index % self.size)

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[TupleGetItem]:
        return (self[i] for i in range(self.size))


def _check_no_device(given: VirtualDevice | None) -> None:
    """Raise `OptionError` for the device of a node other than a variable."""
    if given is not None and given != FREE:
        raise OptionError(
            "virtual_device: only variables and functions have a device of their own; annotate the value with "
            "relay.annotation.on_device", code="TW0210")


def CallWithFields(
    call: Call, op: Any = None, args: Sequence[Expr] | None = None, attrs: Mapping[str, Any] | None = None,
    type_args: Sequence[Type] | None = None, virtual_device: VirtualDevice | None = None, span: Origin | None = None,
) -> Call:
    """Return `call` with the given fields replaced; the types of arguments are derived from them."""
    _check_no_device(virtual_device)
    return Call(call.op if op is None else op, call.args if args is None else args,
                call.attrs if attrs is None else attrs, span=call.span if span is None else span)


def VarWithFields(
    variable: Var, vid: str | Var | None = None, type_annotation: Type | None = None,
    virtual_device: VirtualDevice | None = None,
    span: Origin | None = None,
) -> Var:
    """Return a new variable, with the name, the type and the device of `variable` where none is given."""
    name = variable.name_hint if vid is None else vid if isinstance(vid, str) else vid.name_hint
    return Var(name, variable.type_annotation if type_annotation is None else type_annotation,
               variable.span if span is None else span,
               variable.virtual_device if virtual_device is None else virtual_device)


def ConstantWithFields(
    constant: Constant, data: Any = None, virtual_device: VirtualDevice | None = None, span: Origin | None = None,
) -> Constant:
    """Return `constant` with the given fields replaced."""
    _check_no_device(virtual_device)
    value: np.ndarray[Any, Any] = constant.value if data is None else data
    return Constant(value, constant.span if span is None else span)


def TupleWithFields(
    tuple_value: Tuple, fields: Sequence[Expr] | None = None,
    virtual_device: VirtualDevice | None = None, span: Origin | None = None,
) -> Tuple:
    """Return `tuple_value` with the given fields replaced."""
    _check_no_device(virtual_device)
    return Tuple(tuple_value.fields if fields is None else fields, tuple_value.span if span is None else span)


def TupleGetItemWithFields(
    tuple_get_item: TupleGetItem, tuple_value: Expr | None = None, index: int | None = None,
    virtual_device: VirtualDevice | None = None, span: Origin | None = None,
) -> TupleGetItem:
    """Return `tuple_get_item` with the given fields replaced."""
    _check_no_device(virtual_device)
    return TupleGetItem(
        tuple_get_item.tuple_value if tuple_value is None else tuple_value,
        tuple_get_item.index if index is None else index, tuple_get_item.span if span is None else span)


def LetWithFields(
    let: Let, var: Var | None = None, value: Expr | None = None, body: Expr | None = None,
    virtual_device: VirtualDevice | None = None,
    span: Origin | None = None,
) -> Let:
    """Return `let` with the given fields replaced."""
    _check_no_device(virtual_device)
    return Let(let.var if var is None else var, let.value if value is None else value,
               let.body if body is None else body, let.span if span is None else span)


def IfWithFields(
    if_expr: If, cond: Expr | None = None, true_branch: Expr | None = None, false_branch: Expr | None = None,
    virtual_device: VirtualDevice | None = None, span: Origin | None = None,
) -> If:
    """Return `if_expr` with the given fields replaced."""
    _check_no_device(virtual_device)
    return If(if_expr.cond if cond is None else cond, if_expr.true_branch if true_branch is None else true_branch,
              if_expr.false_branch if false_branch is None else false_branch, if_expr.span if span is None else span)
