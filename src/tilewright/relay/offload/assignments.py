"""The target that a partition assigns to each operator. The partition runs on a copy whose calls have numbered origins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.base.errors import OptionError, Origin
from tilewright.base.settings import nearest
from tilewright.ir.module import IRModule
from tilewright.ir.op_attributes import known_targets
from tilewright.ir.transform import Sequential
from tilewright.relay.expr import Call, Expr, Function
from tilewright.relay.op.contrib import PatternTable, get_pattern_table
from tilewright.relay.op.registry import Op
from tilewright.relay.transform.annotate_target import AnnotateTarget
from tilewright.relay.transform.merge_compiler_regions import MergeCompilerRegions
from tilewright.relay.transform.merge_composite import MergeComposite
from tilewright.relay.transform.partition_graph import PartitionGraph
from tilewright.relay.visitor import operands, post_order, with_operands

Partition = Callable[[IRModule], IRModule]
_MARK = "\0offload"


@dataclass(frozen=True, slots=True)
class Fate:
    """The target of an operator, empty for the CPU; `row` is the name of the composite function that contains it."""

    target: str
    row: str = ""


def table_of(target: str, tables: Mapping[str, PatternTable] | None = None) -> PatternTable:
    """Return the pattern table of a target; empty if it has none. Raises `OptionError` for an unknown target."""
    given = (tables or {}).get(target)
    table = given if given is not None else get_pattern_table(target)
    if table is None and target not in (known := known_targets()):
        raise OptionError(
            f"there is no accelerator '{target}'{nearest(target, known)}; it has no pattern table "
            "(relay.op.contrib.register_pattern_table), and no operator has an attribute "
            f"'target.{target}'; import the file that registers it (--plugin FILE), or install its "
            f"package; the known accelerators are: {', '.join(known)}", code="TW0901")
    return table or ()


def partition(mod: IRModule, targets: Sequence[str], tables: Mapping[str, PatternTable] | None = None) -> IRModule:
    """Return `mod` partitioned for one target after another: composites, marks, regions, functions."""
    for t in targets:
        rows = table_of(t, tables)
        passes = [MergeComposite(rows)] if rows else []
        mod = Sequential([*passes, AnnotateTarget(t), MergeCompilerRegions(), PartitionGraph()])(mod)
    return mod


def fates(mod: IRModule, divide: Partition) -> tuple[dict[Call, Fate], IRModule, dict[Expr, Call]]:
    """Return the fate of every operator call of `mod` under a partition, the partitioned module, and the original call
    of each call in it.

    A call that is absent afterwards was rewritten by the target that took it.
    """
    numbered: dict[str, Call] = {}
    marked = mod.map_functions(lambda f: _numbered(f, numbered) if "Compiler" not in f.attrs else f, Function)
    divided = divide(marked)
    found: dict[str, Fate] = {}
    for _, f in divided.items():
        if isinstance(f, Function):
            _note(f, f.attrs.get("Compiler", ""), found)
    taken = {t for t in (f.attrs.get("Compiler", "") for _, f in divided.items() if isinstance(f, Function)) if t}
    elsewhere = Fate(min(taken)) if taken else Fate("")
    origins: dict[Expr, Call] = {}
    restored = divided.map_functions(lambda f: _restored(f, numbered, origins), Function)
    return {call: found.get(name, elsewhere) for name, call in numbered.items()}, restored, origins


def _numbered(function: Function, numbered: dict[str, Call]) -> Function:
    new: dict[Expr, Expr] = {}
    for e in post_order(function):
        old = operands(e)
        now = [new.get(o, o) for o in old]
        if isinstance(e, Call) and isinstance(e.op, Op):
            name = f"{_MARK}{len(numbered)}"
            numbered[name] = e
            new[e] = Call(e.op, now, span=Origin(name))
        elif any(a is not b for a, b in zip(old, now, strict=True)):
            new[e] = with_operands(e, now)
    found = new.get(function, function)
    assert isinstance(found, Function)
    return found


def _note(function: Function, target: str, found: dict[str, Fate]) -> None:
    """Record the fates of the calls in a function. For a call in several functions, the CPU takes precedence over
    targets."""
    rows: dict[Expr, str] = {}
    order = post_order(function)
    for f in order:
        if isinstance(f, Function) and "Composite" in f.attrs:
            rows.update(dict.fromkeys(post_order(f.body), str(f.attrs["Composite"])))
    for e in order:
        if isinstance(e, Call) and isinstance(e.op, Op) and e.span is not None and e.span.name.startswith(_MARK):
            fate = Fate(target, rows.get(e, ""))
            if e.span.name not in found or not target:
                found[e.span.name] = fate


def _restored(function: Function, numbered: Mapping[str, Call], origins: dict[Expr, Call]) -> Function:
    """Return the function with the original origins of its calls, and fill `origins`."""
    new: dict[Expr, Expr] = {}
    for e in post_order(function):
        old = operands(e)
        now: Any = [new.get(o, o) for o in old]
        if isinstance(e, Call) and e.span is not None and e.span.name in numbered:
            before = numbered[e.span.name]
            new[e] = (Call(now[0], now[1:], span=before.span) if isinstance(e.op, Expr)
                      else Call(e.op, now, span=before.span))
            if isinstance(e.op, Op):
                origins[new[e]] = before
        elif any(a is not b for a, b in zip(old, now, strict=True)):
            new[e] = with_operands(e, now)
    found = new.get(function, function)
    assert isinstance(found, Function)
    return found
