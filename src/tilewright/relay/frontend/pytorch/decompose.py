"""Decomposes operators without a converter, or whose converter refuses a call, into supported operators.

The decompositions are torch's own. Other operators are kept, so converters take precedence over decompositions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final

from tilewright.base.errors import CompileError, InternalError

Missing = Callable[[str, str], bool]
"""Whether an operator, by name and overload, must be decomposed."""
Table = tuple[tuple[Any, str, str, Callable[..., Any]], ...]
"""Operators with their names, overloads and decompositions."""
MOST_ROUNDS: Final = 8
"""Largest number of decomposition rounds."""


def decompositions(missing: Missing, with_composites: bool = False) -> dict[Any, Callable[..., Any]]:
    """Torch's decompositions of the operators that are `missing`.

    `with_composites` adds the operators that torch implements by others (`CompositeImplicitAutograd`). A graph contains
    them if it was traced before torch's dispatch.
    """
    from torch._decomp import decomposition_table

    tables = ((_composites(), _table(len(decomposition_table))) if with_composites
              else (_table(len(decomposition_table)),))
    return {operator: function for table in tables for operator, name, overload, function in table
            if missing(name, overload)}


@functools.lru_cache(maxsize=1)
def _table(size: int) -> Table:
    """Torch's decompositions. `size`, the number of registered ones, invalidates the cached table when it changes."""
    import torch
    from torch._decomp import decomposition_table

    # the second has composite operators, and takes precedence
    both = {**decomposition_table, **torch.export.default_decompositions()}
    return _named(both)


@functools.lru_cache(maxsize=1)
def _composites() -> Table:
    """Torch's operators that are implemented by others."""
    import torch

    found = {}
    for full in torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd"):
        name, _, overload = full.removeprefix("aten::").partition(".")
        packet = getattr(torch.ops.aten, name, None) if full.startswith("aten::") else None
        operator = getattr(packet, overload or "default", None)
        if operator is not None:
            found[operator] = operator.decompose
    return _named(found)


def _named(table: Mapping[Any, Callable[..., Any]]) -> Table:
    schemas = ((operator, getattr(operator, "_schema", None), function) for operator, function in table.items())
    return tuple((operator, str(schema.name), str(schema.overload_name), function)
                 for operator, schema, function in schemas if schema is not None)


def with_decompositions(convert: Callable[[], Any], again: Callable[[set[str]], Any]) -> Any:
    """The result of `convert`. While operators are refused, call `again` with the set of their names to decompose.

    Raises the first `CompileError` if decomposing does not help.
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


def holds_for_the_sample_alone(model: Any) -> bool:
    """Return whether conditions on symbolic sizes were added to an exported program after the first question, by
    decompositions that take the path of the sample's sizes."""
    for node in model.graph.nodes:
        mode = getattr(node.meta.get("val"), "fake_mode", None)
        if mode is not None and mode.shape_env is not None:
            known: int = vars(mode.shape_env).setdefault("tilewright_conditions", len(mode.shape_env.guards))
            return len(mode.shape_env.guards) > known
    return False
