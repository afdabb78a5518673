"""Inputs of a call, given by position, by name or in one mapping, in the order of a signature."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.base.errors import InputError


def described(inputs: Sequence[Sequence[Any]]) -> str:
    """Return inputs, `(name, dimensions, …)` each, and their dimensions as text."""
    return ", ".join(f"{n}: ({', '.join(map(str, dims))})" for n, dims, *_ in inputs)


def in_order(
    names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any], signature: Callable[[], str]
) -> Sequence[Any]:
    """Return the values given by position, by name or in one mapping, in the order of the names. Raises `InputError`
    where one is missing, unknown or given twice; its message has the text of `signature`."""
    first = args[0] if len(args) == 1 else None
    # the second test is fast, the third searches a registry
    if first is not None and (type(first) is dict or isinstance(first, Mapping)):
        args, kwargs = (), {**first, **kwargs}
    if not kwargs and len(args) == len(names):
        return args
    if len(args) > len(names):
        raise InputError(
            f"{len(args)} inputs were given, but the model has {len(names)}: {signature() or 'no inputs'}",
            code="TW0701")
    if not args and tuple(kwargs) == tuple(names):
        return list(kwargs.values())
    given = dict(zip(names, args, strict=False))
    for name, value in kwargs.items():
        if name not in names:
            raise InputError(
                f"the model has no input '{name}'; it has {signature() or 'no inputs'}", code="TW0702")
        if name in given:
            raise InputError(
                f"input '{name}' was given twice: by position {names.index(name)} and by name", code="TW0701")
        given[name] = value
    if missing := [n for n in names if n not in given]:
        raise InputError(
            f"missing input {', '.join(map(repr, missing))}; the model takes {signature()}", code="TW0701")
    return [given[n] for n in names]
