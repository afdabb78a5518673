"""Sequences and optionals as inputs and outputs of a model: its program has tensors, its caller lists of them and None.

A model is specialised for the length of a sequence, its shapes, and the presence of an optional, as for the shape of a
tensor. In a signature such an input has the dimensions `...` and a type such as "seq(float32)".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.errors import InputError

Groups = Mapping[str, Any]
"""The shapes of the inputs that are sequences or optionals, by name: see `shape_of`."""

OPEN: Final = "..."
"""Dimensions of an input that is a sequence or an optional."""


def is_group(dims: Sequence[Any]) -> bool:
    """Whether an input of these dimensions is a sequence or an optional."""
    return list(dims) == [OPEN]


def shape_of(name: str, dtype: str, value: Any) -> Any:
    """Return the shapes that a model is specialised for: of the tensors in a list, of a tensor, or None. Raises
    `InputError` for a value of the wrong kind."""
    optional = dtype.startswith("optional(")
    sequence = dtype.removeprefix("optional(").startswith("seq(")
    if value is None and optional:
        return None
    if sequence != isinstance(value, (list, tuple)) or value is None:
        wanted = "a list of arrays" if sequence else "an array"
        raise InputError(
            f"input '{name}' is {dtype}, and takes {wanted}{', or None' if optional else ''}; it was given a "
            f"{type(value).__name__}", code="TW0703")
    return tuple(tuple(np.shape(v)) for v in value) if sequence else tuple(np.shape(value))


def tensors_of(name: str, dtype: str, shape: Any) -> list[tuple[str, tuple[int, ...], str]]:
    """Return the tensors of an input of such a shape, as inputs of the program: names, shapes, dtypes."""
    element = dtype.removeprefix("optional(").removeprefix("seq(").rstrip(")")
    if shape is None:
        return []
    if "seq(" in dtype:
        return [(f"{name}.{k}", tuple(s), element) for k, s in enumerate(shape)]
    return [(name, tuple(shape), element)]


def given_shape(shape: Any) -> Any:
    """Return a shape given by the user as tuples."""
    return None if shape is None else tuple(tuple(d) if isinstance(d, (list, tuple)) else d for d in shape)


def flat(values: Iterable[Any]) -> list[Any]:
    """Return the tensors of the inputs, in order."""
    found: list[Any] = []
    for v in values:
        if isinstance(v, (list, tuple)):
            found.extend(v)
        elif v is not None:
            found.append(v)
    return found


def grouped(results: Any, lists: Sequence[int | str | None]) -> Any:
    """Return the outputs as the model declares them: a single value, or a tuple."""
    left = iter(results if isinstance(results, (tuple, list)) else (results,))
    found = tuple(
        None if n is None else next(left) if isinstance(n, str) else [next(left) for _ in range(n)] for n in lists)
    return found[0] if len(found) == 1 else found
