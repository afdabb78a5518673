"""TVM's `tvm.tir.schedule._type_checker`: functions that check their arguments against their annotations."""

from __future__ import annotations

import collections.abc
import functools
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["type_checked"]

F = TypeVar("F", bound=Callable[..., Any])


def type_checked(func: F) -> F:
    """Return the function with a check of its arguments, which raises `TypeError` for the first one that does not have
    the type of its annotation.

    Checked are classes, unions, and the elements of lists, dictionaries and tuples. A tuple is accepted as a list. Of a
    `Callable`, the signature is not checked.
    """
    signature = inspect.signature(func)
    hints = typing.get_type_hints(func)

    @functools.wraps(func)
    def checked(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            if name in hints and not _is_a(value, hints[name]):
                raise TypeError(
                    f"argument '{name}' of {func.__name__} is {value!r}; it must be {_text(hints[name])}")
        return func(*args, **kwargs)

    return typing.cast(F, checked)


def _is_a(value: Any, kind: Any) -> bool:
    """Whether a value has the type of an annotation; true for annotations that are not checked."""
    origin, of = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any or isinstance(kind, TypeVar):
        return True
    if origin is None:
        return value is None if kind is None else not isinstance(kind, type) or isinstance(value, kind)
    if origin in (typing.Union, types.UnionType):
        return any(_is_a(value, k) for k in of)
    if origin is list:
        return isinstance(value, (list, tuple)) and all(_is_a(v, k) for v in value for k in of)
    if origin is tuple:
        if len(of) == 2 and of[1] is Ellipsis:
            return isinstance(value, tuple) and all(_is_a(v, of[0]) for v in value)
        return isinstance(value, tuple) and len(value) == len(of) and all(map(_is_a, value, of))
    if origin is dict:
        return isinstance(value, dict) and all(_is_a(k, of[0]) and _is_a(v, of[1]) for k, v in value.items())
    if origin is collections.abc.Callable:
        return callable(value)
    return not isinstance(origin, type) or isinstance(value, origin)


def _text(kind: Any) -> str:
    """Return an annotation as it is written."""
    return kind.__name__ if isinstance(kind, type) and not typing.get_args(kind) else str(kind).replace("typing.", "")
