"""Inputs of a call, given by position, by name or in one mapping, in the order of a signature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.base.errors import InputError


def described(inputs: Sequence[Sequence[Any]]) -> str:
    """Return inputs, `(name, dimensions, …)` each, and their dimensions as text."""
    return ", ".join(f"{n}: ({', '.join(map(str, dims))})" for n, dims, *_ in inputs)


def in_order(inputs: Sequence[Sequence[Any]], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return the values given by position, by name or in one mapping, in the order of the inputs. Raises `InputError`
    where one is missing, unknown or given twice."""
    if len(args) == 1 and isinstance(args[0], Mapping):
        kwargs, args = {**args[0], **kwargs}, ()
    names = [i[0] for i in inputs]
    if unknown := [n for n in kwargs if n not in names]:
        raise InputError(f"the model has no input '{unknown[0]}'; its inputs are {', '.join(names)}", code="TW0702")
    given = dict(zip(names, args, strict=False))
    if twice := [n for n in kwargs if n in given]:
        raise InputError(f"input '{twice[0]}' was given twice: by position and by name", code="TW0701")
    given.update(kwargs)
    missing = [n for n in names if n not in given]
    if missing or len(args) > len(names):
        found = f"missing: {', '.join(missing)}" if missing else f"{len(args)} were given"
        raise InputError(f"the model takes {len(names)} inputs ({described(inputs)}); {found}", code="TW0701")
    return [given[n] for n in names]
