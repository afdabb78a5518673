"""How types match: patterns with variables, the type that joins two others, and shapes that may be equal."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from tilewright.base.types import (
    FuncType,
    TensorType,
    Type,
    TypeCall,
    same_shape,
    substitute_type,
    type_children,
    with_type_children,
)


def bind_types(pattern: Type, given: Type, variables: AbstractSet[Type], bound: dict[Type, Type]) -> bool:
    """Match `given` against `pattern`, add the types found for `variables` to `bound`, and return whether it matches.

    A dimension that is not static matches any dimension.
    """
    if pattern in variables:
        return bound.setdefault(pattern, given) == given
    if isinstance(pattern, TensorType) and isinstance(given, TensorType):
        return pattern.dtype is given.dtype and sizes_fit(pattern.shape, given.shape)
    if isinstance(pattern, FuncType) and isinstance(given, FuncType) and given.type_params and not pattern.type_params:
        return _bind_generic(pattern, given, variables, bound)
    ours, theirs = type_children(pattern), type_children(given)
    if type(pattern) is not type(given) or len(ours) != len(theirs):
        return False
    if isinstance(pattern, TypeCall) and isinstance(given, TypeCall) and pattern.func != given.func:
        return False
    return (bool(ours) or pattern == given) and all(
        bind_types(p, g, variables, bound) for p, g in zip(ours, theirs, strict=True))


def _bind_generic(
        pattern: FuncType, given: FuncType, variables: AbstractSet[Type], bound: dict[Type, Type]) -> bool:
    """Match a generic function: the arguments of `pattern` bind its type variables, and its result `variables`."""
    own: dict[Type, Type] = {}
    params, wanted = frozenset(given.type_params), [substitute_type(p, bound) for p in pattern.arg_types]
    if len(wanted) != len(given.arg_types) or not all(
            bind_types(g, p, params, own) for g, p in zip(given.arg_types, wanted, strict=True)):
        return False
    if any(v not in own for v in params):
        return bind_types(given.ret_type, substitute_type(pattern.ret_type, bound), params, own)
    return bind_types(pattern.ret_type, substitute_type(given.ret_type, own), variables, bound)


def join_types(a: Type, b: Type) -> Type | None:
    """Return the type of a value that has one of two types; dimensions that differ because one is unknown become
    unknown.

    Returns None if the types differ in other ways.
    """
    if a == b:
        return a
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        if a.dtype is not b.dtype or not sizes_fit(a.shape, b.shape):
            return None
        return TensorType([x if same_shape((x,), (y,)) else (y if isinstance(x, int) else x)
                           for x, y in zip(a.shape, b.shape, strict=True)], a.dtype)
    ours, theirs = type_children(a), type_children(b)
    if type(a) is not type(b) or not ours or len(ours) != len(theirs) or getattr(
        a, "func", None
    ) != getattr(b, "func", None):
        return None
    joined = [join_types(x, y) for x, y in zip(ours, theirs, strict=True)]
    return None if any(j is None for j in joined) else with_type_children(a, [j for j in joined if j is not None])


def sizes_fit(wanted: Sequence[Any], given: Sequence[Any]) -> bool:
    """Whether two shapes may be equal: a dimension that is not static matches any."""
    return len(wanted) == len(given) and all(
        not isinstance(w, int) or not isinstance(g, int) or w == g for w, g in zip(wanted, given, strict=True))
