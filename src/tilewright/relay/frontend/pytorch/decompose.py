"""Decomposes operators that have no converter, or whose converter refuses a call, into operators that have one.

The decompositions are torch's own. All other operators stay as they are, so that a converter always comes before a decomposition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tilewright.errors import CompileError, InternalError

Missing = Callable[[str, str], bool]
"""Whether an operator, by name and overload, must be decomposed."""
MOST_ROUNDS: Final = 8
"""Largest number of times that a program is decomposed further."""


def decompositions(missing: Missing) -> dict[Any, Callable[..., Any]]:
    """The functions by which torch decomposes the operators that are `missing`."""
    import torch
    from torch._decomp import decomposition_table

    found: dict[Any, Callable[..., Any]] = {}
    for table in (decomposition_table, torch.export.default_decompositions()):  # the second has the composite operators, and wins
        for operator, function in table.items():
            schema = getattr(operator, "_schema", None)
            if schema is not None and missing(str(schema.name), str(schema.overload_name)):
                found[operator] = function
    return found


def with_decompositions(convert: Callable[[], Any], again: Callable[[set[str]], Any]) -> Any:
    """The result of `convert`, or of `again` with the names of operators to decompose for as long as others are refused.

    Raises the first `CompileError` where decomposing does not help.
    """
    try:
        return convert()
    except InternalError:
        raise
    except CompileError as error:
        first, refused = error, set[str]()
        last: CompileError = error
    for _ in range(MOST_ROUNDS):
        kind = last.origin.kind if last.origin is not None else ""
        if kind in refused:
            raise first
        refused.add(kind)
        try:
            return again(refused)
        except InternalError:
            raise
        except CompileError as error:
            last = error
        except Exception as error:  # torch cannot decompose this program
            raise first from error
    raise first
