"""A pattern as the Python text that builds it: `is_op("nn.relu")(wildcard() | is_constant())`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tilewright.relay.dataflow_pattern.pattern import (
    AltPattern,
    AttrPattern,
    CallPattern,
    ConstantPattern,
    DataTypePattern,
    DFPattern,
    DominatorPattern,
    ExprPattern,
    FunctionPattern,
    IfPattern,
    LetPattern,
    ShapePattern,
    TupleGetItemPattern,
    TuplePattern,
    TypePattern,
    VarPattern,
    WildcardPattern,
)


def text_of(p: DFPattern) -> str:
    """Return the text of a pattern; a recursive reference is `...`."""
    return _text(p, ())


def _text(p: DFPattern, outer: tuple[DFPattern, ...]) -> str:
    if p in outer:
        return "..."
    inner = (*outer, p)
    return _TEXTS[type(p)](p, lambda q: _text(q, inner))


Inner = Callable[[DFPattern], str]


def _expr(p: ExprPattern, inner: Inner) -> str:
    if isinstance(p.expr, type):
        return f'is_op("{p.expr.name}")'
    return f"is_expr({p.expr!r})"


def _wildcard(p: WildcardPattern, inner: Inner) -> str:
    return "wildcard()" if p.redirected is None else inner(p.redirected)


def _call(p: CallPattern, inner: Inner) -> str:
    return f"{_grouped(p.op, inner)}({'None' if p.args is None else _list(p.args, inner)})"


def _function(p: FunctionPattern, inner: Inner) -> str:
    params = "None" if p.params is None else f"[{_list(p.params, inner)}]"
    return f"FunctionPattern({params}, {inner(p.body)})"


def _tuple(p: TuplePattern, inner: Inner) -> str:
    return "is_tuple(None)" if p.fields is None else f"is_tuple([{_list(p.fields, inner)}])"


def _item(p: TupleGetItemPattern, inner: Inner) -> str:
    return f"is_tuple_get_item({inner(p.tuple)}{'' if p.index is None else f', {p.index}'})"


def _attrs(p: AttrPattern, inner: Inner) -> str:
    attrs: Mapping[str, Any] = p.attrs
    return f"{_grouped(p.pattern, inner)}.has_attr({{{', '.join(f'{k!r}: {v!r}' for k, v in attrs.items())}}})"


def _list(patterns: Sequence[DFPattern], inner: Inner) -> str:
    return ", ".join(map(inner, patterns))


def _grouped(p: DFPattern, inner: Inner) -> str:
    """Return the text of a called pattern; alternatives get parentheses."""
    return f"({inner(p)})" if isinstance(p, AltPattern) else inner(p)


_TEXTS: Final[dict[type, Callable[[Any, Inner], str]]] = {
    ExprPattern: _expr,
    VarPattern: lambda p, inner: f"is_var({p.name!r})" if p.name else "is_var()",
    ConstantPattern: lambda p, inner: "is_constant()",
    WildcardPattern: _wildcard,
    CallPattern: _call,
    FunctionPattern: _function,
    IfPattern: lambda p, inner: f"is_if({_list(p.inside(), inner)})",
    LetPattern: lambda p, inner: f"is_let({_list(p.inside(), inner)})",
    TuplePattern: _tuple,
    TupleGetItemPattern: _item,
    AltPattern: lambda p, inner: f"{inner(p.left)} | {inner(p.right)}",
    TypePattern: lambda p, inner: f"{_grouped(p.pattern, inner)}.has_type({p.type!r})",
    DataTypePattern: lambda p, inner: f'{_grouped(p.pattern, inner)}.has_dtype("{p.dtype}")',
    ShapePattern: lambda p, inner: f"{_grouped(p.pattern, inner)}.has_shape({p.shape!r})",
    AttrPattern: _attrs,
    DominatorPattern: lambda p, inner: f"dominates({_list(p.inside(), inner)})",
}
