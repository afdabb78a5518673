"""Explains why operators stay on the CPU although the pattern of a row matches."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tilewright.relay.dataflow_pattern.graph import Graph
from tilewright.relay.dataflow_pattern.group import Group, escapes, own_nodes
from tilewright.relay.dataflow_pattern.match import Matcher
from tilewright.relay.dataflow_pattern.pattern import DFPattern
from tilewright.relay.expr import Call, Expr
from tilewright.relay.node_labels import short
from tilewright.relay.offload.assignments import Fate
from tilewright.relay.offload.changes import Change, Edit, changed, node_change
from tilewright.relay.offload.check_probe import NO_PROGRAM, Questions, probe
from tilewright.relay.offload.difference import Kind
from tilewright.relay.offload.edits import once_more
from tilewright.relay.op.contrib import Refusal
from tilewright.relay.op.registry import Op
from tilewright.relay.visitor import operands

_REFUSALS: Final = 4
"""Largest number of successive refusals of one match that are followed."""


@dataclass(frozen=True)
class Reason:
    """A kind, a sentence, the expected and found values, and the edit."""

    kind: Kind
    why: str
    expected: str = ""
    found: str = ""
    edit: Edit | None = None


def why_not_taken(
    target: str, row: tuple[Any, ...], rows: Sequence[tuple[Any, ...]], group: Group, graph: Graph,
    fate: Mapping[Call, Fate], questions: Questions
) -> Reason:
    """Return why the match `group` of a row was not assigned to the target."""
    name = row[0]
    gone = [(e, fate[e]) for e in own_nodes(group) if isinstance(e, Call) and e in fate and fate[e].target]
    if gone:
        return _taken(target, row, rows, *gone[0])
    leaving = escapes(group, graph)
    if leaving:
        value, user = leaving[0]
        edit = once_more(group.inside, leaving, operands)
        return Reason(Kind.ESCAPE, f"row '{name}' fits, but {short(value)} inside the match is also used outside it, "
                      f"by {_user(user)}", "a value that only the match uses", f"used by {_user(user)}", edit)
    check = row[2] if len(row) == 3 else None
    answer = check(group.root) if check is not None else True
    if not answer:
        assert check is not None
        return _refused(f"row '{name}' fits, but its check, {place_of(check)},", check, answer, group.root,
                        group.inside, group.inputs, Kind.CHECK, questions, row[1])
    if name.partition(".")[0] != target or "." not in name:
        return Reason(
            Kind.NAME, f"row '{name}' fits, but {target} takes only rows whose names begin with '{target}.'",
            f"{target}.…", name,
            Edit(f"call the row '{target}.{name.rpartition('.')[2]}'", True, table=lambda table: [
                (f"{target}.{r[0].rpartition('.')[2]}", *r[1:]) if r[0] == name else tuple(r) for r in table]))
    return Reason(Kind.REGION, f"row '{name}' fits, but the partitioner for {target} rejected the region",
                  "a part of a region", "none", None)


def why_not_supported(target: str, call: Call, says: Callable[[Any], Any], questions: Questions) -> Reason:
    """Return why the function of the attribute `target.<name>` rejects a call."""
    assert isinstance(call.op, Op)
    what = f"the attribute 'target.{target}' of {call.op.name}, {place_of(says)},"
    answer = says(call)
    if answer:
        return Reason(Kind.REGION, f"{what} accepts it, but the partitioner for {target} rejected the region",
                      "a part of a region", "none", None)
    return _refused(what, says, answer, call, (call,), call.args, Kind.SUPPORT, questions)


def refusal_edit(answer: Any, root: Expr) -> Edit | None:
    """Return the edit attached to a refusal, or None."""
    if not isinstance(answer, Refusal) or not answer.edit:
        return None
    change = answer.change
    return Edit(answer.edit, False, () if change is None else (node_change(root, change),))


def _refused(
    what: str, check: Callable[[Any], Any], answer: Any, root: Expr, inside: Sequence[Expr], inputs: Sequence[Expr],
    kind: Kind, questions: Questions,
    pattern: DFPattern | None = None,
) -> Reason:
    def fits(e: Expr) -> bool:
        return bool(pattern is None or Matcher(e).match(pattern, e) is not None) and bool(check(e))

    edit = _until_it_agrees(check, answer, root, inputs)
    if edit is None or not edit.can_apply:
        tried = probe(fits, root, inside, inputs, questions)
        if tried is not None:
            edit = tried if edit is None else replace(tried, text=edit.text)
    rule = answer.rule if isinstance(answer, Refusal) else ""
    return Reason(kind, f"{what} rejects it" + (f": {rule}" if rule else ""), rule or "yes", "no", edit)


def _until_it_agrees(check: Callable[[Any], Any], answer: Any, root: Expr, inputs: Sequence[Expr]) -> Edit | None:
    """Apply the edits of successive refusals until the check accepts. If it never does, the returned edit is only a
    description."""
    made: list[Change] = []
    texts: list[str] = []
    for _ in range(_REFUSALS):
        edit = refusal_edit(answer, root)
        if edit is None:
            break
        texts.append(edit.text)
        if not edit.can_apply:
            break
        made += edit.changes
        try:
            answer = check(changed(root, made, inputs))
        except NO_PROGRAM:  # the check fails on the result of its own change
            return Edit("; ".join(dict.fromkeys(texts)), False, tuple(made))
        if answer:
            return Edit("; ".join(dict.fromkeys(texts)), False, tuple(made))
    return Edit("; ".join(dict.fromkeys(texts))) if texts else None


def _taken(target: str, row: tuple[Any, ...], rows: Sequence[tuple[Any, ...]], call: Call, fate: Fate) -> Reason:
    name = row[0]
    if fate.target != target:
        why = f"row '{name}' of {target} fits, but {fate.target} took {short(call)}"
        return Reason(Kind.TAKEN, why, f"{short(call)} free", f"taken by {fate.target}",
                      Edit(f"name {target} before {fate.target}"))
    names = [r[0] for r in rows]
    earlier = names.index(fate.row) if fate.row in names else -1
    mine = next(i for i, r in enumerate(rows) if r is row)
    if not fate.row or earlier < 0 or earlier >= mine:
        by = f"another match of row '{fate.row}'" if fate.row else f"{target}, by itself,"
        return Reason(Kind.TAKEN, f"row '{name}' fits, but {by} took {short(call)}", f"{short(call)} free",
                      f"taken by {fate.row or target}", None)

    def moved(table: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        before = next((i for i, r in enumerate(table) if r[0] == fate.row), 0)
        own = [r for r in table if r[0] == name and r[1] is row[1]] or [r for r in table if r[0] == name]
        rest = [r for r in table if r not in own]
        return [*rest[:before], *own, *rest[before:]]

    why = f"row '{name}' fits, but row '{fate.row}', which is tried before it, took {short(call)}"
    return Reason(Kind.TAKEN, why, f"{short(call)} free", f"taken by row '{fate.row}'",
                  Edit(f"put row '{name}' before row '{fate.row}'", True, table=moved))


def _user(e: Expr) -> str:
    return "the result of the function" if not isinstance(e, Call) else str(e.span or short(e))


def place_of(function: Callable[..., Any]) -> str:
    """Return the name and source location of a function."""
    inner: Any = inspect.unwrap(function)
    while hasattr(inner, "func"):
        inner = inner.func
    code = getattr(inner, "__code__", None) or getattr(vars(type(inner)).get("__call__"), "__code__", None)
    name = getattr(inner, "__qualname__", type(inner).__name__).rpartition("<locals>.")[2]
    return f"{name} ({code.co_filename.rpartition('/')[2]}:{code.co_firstlineno})" if code is not None else name
