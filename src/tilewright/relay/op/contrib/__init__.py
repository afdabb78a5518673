"""Pattern tables of targets by name, for `MergeComposite`, and the assignment of calls to targets."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tilewright.base.errors import OptionError
from tilewright.base.plugins import FIELD_TARGETS, declared_accelerator, find_accelerator, list_offloads
from tilewright.base.settings import nearest
from tilewright.ir.module import IRModule
from tilewright.ir.op_attributes import known_targets, op_attr
from tilewright.relay.expr import Call, Function
from tilewright.relay.op.registry import Op

PatternTable = Sequence[tuple[Any, ...]]
"""Rows `(name, pattern)` or `(name, pattern, check)`, in matching order."""


@dataclass(frozen=True)
class Refusal:
    """A rejection by a check, usable in place of False: the violated rule, and the smallest edit of the model that
    satisfies it.

    `change` performs the edit: it maps the match to its replacement.
    """

    rule: str
    edit: str = ""
    change: Callable[[Any], Any] | None = None

    def __bool__(self) -> bool:
        return False


Partitioner = Callable[..., IRModule]
"""`(mod, params, **options) -> mod`."""

_PARTITIONERS: Final[dict[str, Partitioner]] = {}
_TABLES: Final[dict[str, PatternTable]] = {}
_TAKEN: Final[dict[str, Any]] = {}
"""Accelerators whose tables and partitioners are registered because they were requested by name."""


list_offloads(_TABLES)
list_offloads(_PARTITIONERS)


def register_pattern_table(compiler: str, table: Callable[[], PatternTable] | None = None) -> Callable[..., Any]:
    """Register the table that a function returns for `compiler`; without `table`, return a decorator."""

    def register(make: Callable[[], PatternTable]) -> Callable[[], PatternTable]:
        _TABLES[compiler] = make()
        return make

    return register if table is None else register(table)


def get_pattern_table(compiler: str) -> PatternTable | None:
    """The table of `compiler`, or None."""
    if compiler not in _TABLES and compiler in FIELD_TARGETS:
        importlib.import_module(f"{__name__}.{FIELD_TARGETS[compiler]}")
    declared = declared_accelerator(compiler)
    if compiler not in _TABLES or (declared is not None and declared is not _TAKEN.get(compiler)):
        _take_plugin(compiler)
    return _TABLES.get(compiler)


def _take_plugin(compiler: str) -> None:
    """Register the table and partitioner of an accelerator by name, replacing those of an earlier accelerator."""
    found = find_accelerator(compiler)
    if compiler in _TAKEN and found is not _TAKEN[compiler]:
        _TABLES.pop(compiler, None)
        _PARTITIONERS.pop(compiler, None)
    if found is not None:
        _TAKEN[compiler] = found
    if found is not None and hasattr(found, "pattern_table"):
        _TABLES.setdefault(compiler, found.pattern_table())
    if found is not None and hasattr(found, "partition_for"):
        _PARTITIONERS.setdefault(compiler, found.partition_for)


def register_partitioner(compiler: str, function: Partitioner | None = None) -> Any:
    """Register the function that `partition_for` runs for `compiler`; without `function`, return a decorator."""

    def register(given: Partitioner) -> Partitioner:
        _PARTITIONERS[compiler] = given
        return given

    return register if function is None else register(function)


def has_partitioner(compiler: str) -> bool:
    """Return whether `compiler` has a registered partition function."""
    get_pattern_table(compiler)  # brings what is registered when it is first asked for
    return compiler in _PARTITIONERS


def option_names(compiler: str) -> tuple[str, ...]:
    """Return the names of the options that the partition function of `compiler` takes, apart from module, parameters
    and name."""
    get_pattern_table(compiler)
    function = _PARTITIONERS.get(compiler)
    if function is None:
        return ()
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    named = [p.name for p in inspect.signature(function).parameters.values() if p.kind in kinds]
    return tuple(name for name in named if name not in ("mod", "params", "mod_name"))


def partition_for(compiler: str, mod: IRModule, params: Mapping[str, Any] | None = None, **options: Any) -> IRModule:
    """The module with the parts of `compiler` as separate functions: TVM's `partition_for_<compiler>`.

    A target without a registered function is partitioned by its pattern table and its operator attributes. `options`
    are specific to the target. Raises `OptionError` for an unknown target.
    """
    table = get_pattern_table(compiler)
    if compiler in _PARTITIONERS:
        return _PARTITIONERS[compiler](mod, params, **options)
    if table is None and compiler not in (known := known_targets()):
        raise OptionError(f"there is no target '{compiler}' to partition for{nearest(compiler, known)}; known targets: "
                          f"{', '.join(known)}", code="TW0901")
    from tilewright.relay.op.contrib.rules import partition_with

    return partition_with(table or (), compiler, mod, dict(params or {}), **options)


def __getattr__(name: str) -> Any:
    if name in FIELD_TARGETS.values() or name == "rules":
        return importlib.import_module(f"{__name__}.{name}")
    if name in ("ethosn_api_version", "ethosn_available"):
        return getattr(importlib.import_module(f"{__name__}.ethosn_passes"), name)
    target = name.removeprefix("partition_for_").rstrip("0123456789")
    if name.startswith("partition_for_") and target in FIELD_TARGETS.values():
        return getattr(importlib.import_module(f"{__name__}.{target}"), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'", name=name)


def supports(target: str, call: Call) -> bool:
    """Whether a target computes a call, by the operator attribute `target.<name>` or the name of a composite."""
    if isinstance(call.op, Op):
        says = op_attr(call.op.name, f"target.{target}")
        return says is not None and bool(says(call))
    name = call.op.attrs.get("Composite", "") if isinstance(call.op, Function) else ""
    return bool(name.partition(".")[0] == target) if "." in name else False
