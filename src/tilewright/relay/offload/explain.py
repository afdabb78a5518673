"""Explains why an operator is not off-loaded: the nearest row of a pattern table, the differences, and the smallest
edit.

    report = explain_offload(mod, "npu")
    print(report)
    # conv1 (nn.conv2d, 118.01 MMAC): row 'npu.conv2d' wants a constant at nn.conv2d[1], and this is %w, a variable
    #   edit: bind %w to its value: relay.build_module.bind_params_by_name, or the params of relay.build
    mod = report[0].apply(params={"w": w})
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tilewright.base.errors import CompileError
from tilewright.base.types import TensorType
from tilewright.ir.module import IRModule
from tilewright.ir.op_attributes import op_attr
from tilewright.relay.analysis.features import known_mac_number
from tilewright.relay.dataflow_pattern.graph import Graph
from tilewright.relay.dataflow_pattern.group import group_at
from tilewright.relay.dataflow_pattern.match import Matcher
from tilewright.relay.dataflow_pattern.pattern import DFPattern, pattern_nodes
from tilewright.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem
from tilewright.relay.node_labels import short
from tilewright.relay.offload.assignments import Fate, Partition, fates, partition, table_of
from tilewright.relay.offload.changes import Change, Edit, changed
from tilewright.relay.offload.check_probe import NO_PROGRAM, Questions
from tilewright.relay.offload.difference import NO_EDIT, Difference, Kind, Way
from tilewright.relay.offload.edits import computed_in, edit_of, together
from tilewright.relay.offload.nearest_match import STEPS, Nearest
from tilewright.relay.offload.pattern_paths import depth_of, operators_of, path_of, tops_of
from tilewright.relay.offload.rejected_matches import Reason, refusal_edit, why_not_supported, why_not_taken
from tilewright.relay.offload.report import Offload, Record, Taken, one_after_another
from tilewright.relay.offload.target_preparation import divided, prepared
from tilewright.relay.op.annotation import Mark
from tilewright.relay.op.contrib import PatternTable, Refusal, has_partitioner
from tilewright.relay.op.registry import Op
from tilewright.relay.transform.infer_type import InferType
from tilewright.relay.visitor import operands

_KEPT: Final = 3
"""Number of differing rows, per end of a match, that are examined for an operator; the nearest with a proven edit is
reported."""
_REACH: Final = 16
"""Largest number of operators between a remaining operator and the end of a match that could contain it."""


def explain_offload(
    mod: IRModule, targets: str | Sequence[str], *, tables: Mapping[str, PatternTable] | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None
) -> Offload:
    """Report, for every operator of `mod` (with bound parameters), which of `targets`, in their order, computes it, or
    why none does.

    Targets are partitioned as by `relay.op.contrib.partition_for`, with their `options`. If a target first prepares a
    network (one form of quantized operators, other layouts), the report is about the prepared network, its `mod`.
    `tables` replaces registered pattern tables. Raises `OptionError` for an unknown target.
    """
    names = (targets,) if isinstance(targets, str) else tuple(targets)
    rows = {t: tuple(table_of(t, tables)) for t in names}
    mod = InferType()(mod)
    own = [t for t in names if t not in (tables or {}) and has_partitioner(t)]
    if not own:
        return _report(mod, names, rows, lambda m: partition(m, names, tables))
    reports: list[Offload] = []
    for t in names:
        given = (options or {}).get(t, {})
        whole = InferType()(prepared(t, mod, given)) if t in own else mod
        by_own_function = functools.partial(lambda target, options, m: divided(target, m, options), t, given)
        by_patterns = functools.partial(lambda target, m: partition(m, (target,), tables), t)
        divide: Partition = by_own_function if t in own else by_patterns
        reports.append(_report(whole, (t,), {t: rows[t]}, divide))
        mod = reports[-1].partitioned
    return one_after_another(names, reports)


def _report(mod: IRModule, names: tuple[str, ...], rows: Mapping[str, Sequence[tuple[Any, ...]]],
            divide: Partition) -> Offload:
    """Return the report of targets that match patterns in one module."""
    fate, partitioned, origins = fates(mod, divide)
    records: list[Record] = []
    taken: list[Taken] = []
    questions = Questions()
    for name, function in mod.items():
        if not isinstance(function, Function) or "Compiler" in function.attrs:
            continue
        explained = _Explained(mod, name, function, names, rows, fate, questions)
        records += explained.records()
        taken += explained.taken()
    records.sort(key=lambda r: -r.macs)
    return Offload(names, tuple(records), tuple(taken), mod, partitioned, origins)


@dataclass(frozen=True)
class _Candidate:
    """A row that could contain an operator, with its comparison."""

    target: str
    row: tuple[Any, ...]
    number: int
    anchor: Call
    way: Way

    @property
    def rank(self) -> tuple[int, ...]:
        return (*self.way.rank, self.number)


def _few(candidates: Iterable[_Candidate]) -> Iterator[_Candidate]:
    """Yield the nearest candidates: all that fit, and up to `_KEPT` others for each end of a match."""
    count: dict[Call, int] = {}
    for c in sorted(candidates, key=lambda c: c.rank):
        count[c.anchor] = count.get(c.anchor, 0) + bool(c.way.cost)
        if not c.way.cost or count[c.anchor] <= _KEPT:
            yield c


class _Explained:
    """The explanations of the operators of one function."""

    def __init__(
        self, mod: IRModule, name: str, function: Function, targets: Sequence[str],
        rows: Mapping[str, Sequence[tuple[Any, ...]]], fate: Mapping[Call, Fate],
        questions: Questions,
    ) -> None:
        self.mod, self.name, self.targets, self.rows, self.fate, self.questions = (mod, name, targets, rows, fate,
            questions)
        self.graph = Graph(function)
        closed = self.graph.closed
        self.calls = [e for e in self.graph.order if isinstance(e, Call) and e in fate and e not in closed
                      and not isinstance(e.op, Mark) and e.args]
        self.left = [e for e in self.calls if not fate[e].target]
        self.constant = _made_of_constants(self.graph)
        self.nearest = Nearest(self.graph, self.constant)
        self.names = self._names()
        self.verdicts: dict[tuple[int, str, Call], Record | None] = {}

    def _names(self) -> dict[Call, str]:
        """Return the model's name of each call, else its operator and a number."""
        count: dict[str, int] = {}
        found: dict[Call, str] = {}
        for e in self.calls:
            assert isinstance(e.op, Op)
            number = count[e.op.name] = count.get(e.op.name, -1) + 1
            found[e] = e.span.name if e.span is not None and e.span.name else f"{e.op.name}_{number}"
        return found

    def taken(self) -> list[Taken]:
        """Return the operators that targets compute."""
        return [Taken(self.names[e], e.op.name, known_mac_number(e), self.fate[e].target, self.fate[e].row, e)
                for e in self.calls if self.fate[e].target and isinstance(e.op, Op)]

    def records(self) -> Iterator[Record]:
        """Yield a record for each operator that stays on the CPU."""
        candidates = self._candidates()
        for e in self.left:
            assert isinstance(e.op, Op)
            plain = Record(self.names[e], e.op.name, e.span, self.name, known_mac_number(e), self.targets[0],
                           Kind.UNKNOWN, "", call=e, mod=self.mod)
            if e in self.constant:
                edit = edit_of(Way((Difference(Kind.CONSTANT, _ANY, e, "", "", wanted={"foldable": True}),)))
                yield replace(plain, kind=Kind.FOLDED, macs=0, edit=edit, proven=True,
                              why="all its inputs are constant, so it is computed at compile time")
                continue
            yield self._record(e, plain, candidates.get(e, []))

    def _record(self, e: Call, plain: Record, candidates: list[_Candidate]) -> Record:
        """Return the record of the first candidate with a proven edit, else of the nearest one, or of the operator's
        attributes if these are nearer."""
        asked = [r for t in self.targets if (r := self._asked(e, t, plain)) is not None]
        found: list[Record] = []
        fits: Record | None = None
        for c in candidates:
            if fits is not None and c.way.cost:
                break
            if asked and (c.way.cost > 1 or (c.way.cost == 1 and c.way.matched < 2)):
                break
            if found and c.way.cost > candidates[0].way.cost + 1:
                break
            record = self._judged(e, c, plain)
            if record.proven:
                return record
            found.append(record)
            if fits is None and not c.way.cost and (record.edit is not None or record.kind is not Kind.TAKEN):
                fits = record
        if fits is not None:
            return fits
        if asked or found:
            return (asked or found)[0] if not found or found[0].edit is None or asked else found[0]
        return self._unknown(e, plain)

    def _unknown(self, e: Call, plain: Record) -> Record:
        """Return the record of an operator without a row; it names a row with the corresponding quantized operator, if
        there is one."""
        assert isinstance(e.op, Op)
        of = ", ".join(self.targets)
        quantized = f"qnn.{e.op.name.removeprefix('nn.')}"
        row = next((r[0] for t in self.targets for r in self.rows[t]
                    if any(o.name == quantized for o in operators_of(r[1]) or ())), "")
        found = replace(plain, why=f"no row of {of} has {e.op.name}, and it has no attribute for the target",
                        expected=f"a row with {e.op.name}", found="none")
        if not row:
            return found
        return replace(found, row=row, why=f"no row of {of} has {e.op.name}; row '{row}' has {quantized}, "
                       "of quantized numbers", edit=Edit("quantize the network: tilewright.quantize(model, data)"))

    def _asked(self, e: Call, target: str, plain: Record) -> Record | None:
        """Return the record of a call from the operator's attribute `target.<name>`; None without one."""
        assert isinstance(e.op, Op)
        says = op_attr(e.op.name, f"target.{target}")
        if says is None:
            return None
        reason = why_not_supported(target, e, says, self.questions)
        return replace(
            plain, target=target, kind=reason.kind, why=reason.why, path=e.op.name, expected=reason.expected,
            found=reason.found, edit=reason.edit,
            proven=reason.edit is not None and reason.edit.can_apply)

    def _candidates(self) -> dict[Call, list[_Candidate]]:
        """Return the nearest rows that could contain each remaining operator."""
        left = set(self.left)
        near = self._near(left)
        kinds = {type(e.op) for e in left}
        found: dict[Call, list[_Candidate]] = {}
        for t in self.targets:
            for number, row in enumerate(self.rows[t]):
                mentioned, tops, deep = operators_of(row[1]), tops_of(row[1]), depth_of(row[1]) + STEPS
                if mentioned is not None and not mentioned & kinds:
                    continue
                for e, distance in near.items():
                    if distance > deep:
                        continue
                    if tops is None or type(e.op) in tops or any(isinstance(a, Call) and type(a.op) in tops
                            for a in e.args):
                        self._compare(_Candidate(t, row, number, e, self.nearest.way(row[1], e)), left, found)
        for candidates in found.values():
            candidates[:] = _few(candidates)
        return found

    def _compare(self, c: _Candidate, left: set[Call], found: dict[Call, list[_Candidate]]) -> None:
        if c.way.matched:
            between = {d.at for d in c.way.differences if d.kind is Kind.EXTRA}
            whole = c.way.calls
            kept_apart = c.way.cost < NO_EDIT and any(call in left and call not in between for call in whole)
            for call in whole:
                if call in left and (call not in between or kept_apart):
                    found.setdefault(call, []).append(c)

    def _near(self, left: set[Call]) -> dict[Call, int]:
        """Return the possible ends of a match with one of these operators, with their distances to the nearest one;
        users come first."""
        seen: dict[Expr, int] = dict.fromkeys(left, 0)
        layer: list[Expr] = list(left)
        for distance in range(1, _REACH):
            layer = [u for e in layer for u in self.graph.users.get(e, ()) if u not in seen
                     and not isinstance(u, Function)]
            seen.update(dict.fromkeys(layer, distance))
        return {e: seen[e] for e in reversed(self.calls) if e in seen}

    def _judged(self, e: Call, c: _Candidate, plain: Record) -> Record:
        """Return the record of an operator for one row."""
        key = (c.number, c.target, c.anchor)
        if key not in self.verdicts:
            self.verdicts[key] = self._fits(c, plain) if not c.way.cost else self._differs(c, plain)
        verdict = self.verdicts[key]
        assert verdict is not None
        between = next((d for d in c.way.differences if d.at is e and d.kind is Kind.EXTRA), None)
        why = (f"it is between the operators of row '{c.row[0]}': {verdict.why}" if between is not None
               else verdict.why)
        return replace(verdict, node=plain.node, operator=plain.operator, span=plain.span, macs=plain.macs, call=e,
                       why=why)

    def _fits(self, c: _Candidate, plain: Record) -> Record:
        """Return the record of a row whose pattern fits completely."""
        node_map = Matcher(self.graph).match(c.row[1], c.anchor)
        if node_map is None:
            reason = Reason(Kind.OTHER, f"row '{c.row[0]}' would fit, but the matcher takes the first alternative that "
                            "fits, and the rest of the pattern does not fit it", "another order of alternatives",
                            "this one")
        else:
            reason = why_not_taken(c.target, c.row, self.rows[c.target],
                                   group_at(c.anchor, node_map, pattern_nodes(c.row[1])), self.graph, self.fate,
                                   self.questions)
        edit = reason.edit
        return replace(
            plain, target=c.target, row=c.row[0], kind=reason.kind, why=reason.why, path=path_of(c.row[1], c.row[1]),
            expected=reason.expected, found=reason.found,
            edit=edit, proven=edit is not None and (edit.can_apply or edit.table is not None))

    def _differs(self, c: _Candidate, plain: Record) -> Record:
        """Return the record of a row that differs: the first difference is the reason, and the edit removes all of
        them."""
        first, *more = c.way.differences
        edit = edit_of(c.way)
        proven = False
        problems: list[str] = []
        if edit is not None:
            edit, proven, problems = self._tried(c, edit)
        return replace(
            plain, target=c.target, row=c.row[0], kind=first.kind, why=_sentence(f"row '{c.row[0]}'", c.row[1], first),
            path=path_of(c.row[1], first.pattern),
            expected=first.expected, found=first.found, more=(*(_sentence("it", c.row[1], d) for d in more), *problems),
            edit=edit, proven=proven)

    def _tried(self, c: _Candidate, edit: Edit, again: bool = False) -> tuple[Edit | None, bool, list[str]]:
        """Try the edit on the match alone, then extend it as the check requires. Return it, whether it is proven, and
        the remaining problems."""
        if edit.passes or not (edit.changes or edit.needs):
            return edit, False, []
        inside = set(c.way.calls)
        leaves = list(dict.fromkeys(o for e in inside for o in operands(e) if o not in inside))
        try:
            root = changed(c.anchor, (*edit.changes, *_trial(edit, leaves)), leaves)
        except CompileError as error:
            of_type = next((d for d in c.way.differences if d.kind is Kind.DTYPE), None)
            if of_type is not None and not again and isinstance(before := of_type.at.known_type(), TensorType):
                return self._tried(
                    c, computed_in(c.way.calls, c.way.pairs[0][1], of_type.wanted["dtype"], before.dtype), again=True)
            return None, False, ["with the required edit, the program fails type inference: "
                                 f"{error.message.rpartition('): ')[2]}"]
        fitting = next((r for r in (root, *operands(root)) if Matcher(r).match(c.row[1], r) is not None), None)
        if fitting is None:
            return edit, False, []
        try:
            answer = c.row[2](fitting) if len(c.row) == 3 else True
        except NO_PROGRAM:  # the check cannot handle the placeholder of an input
            return edit, False, []
        if answer:
            return edit, True, []
        rule = "after that, its check rejects it" + (f": {answer.rule}" if isinstance(answer, Refusal) else "")
        further = refusal_edit(answer, c.anchor)
        return (together([edit, further]) if further is not None else edit), False, [rule]


def _trial(edit: Edit, leaves: Sequence[Expr]) -> list[Change]:
    """Return changes that replace each variable in `edit.needs` by ones, so that the edit can be tried without values.
    """
    import numpy as np

    found = []
    for v in leaves:
        kind = v.known_type()
        if getattr(v, "name_hint", "") in edit.needs and isinstance(kind, TensorType) and kind.is_static:
            ones = Constant(np.ones(kind.concrete_shape, kind.dtype.numpy()))
            found.append(Change(v, lambda e, now, ones=ones: ones))  # type: ignore[misc]
    return found


def _sentence(who: str, pattern: DFPattern, d: Difference) -> str:
    """Return the text of a difference."""
    path = path_of(pattern, d.pattern)
    match d.kind:
        case Kind.ATTRIBUTE:
            return f"{who} needs {d.expected} of {short(d.at, 0)} at {path}, but found {d.found}"
        case Kind.EXTRA:
            return f"{who} needs {d.expected} at {path}, but found {d.found}"
        case Kind.MISSING:
            return f"{who} needs {d.expected} at {path}, but found none"
        case Kind.SAME:
            return f"{who} needs {d.expected} again at {path}, but found {d.found}"
        case _:
            return f"{who} needs {d.expected} at {path}, but found {d.found}"


def _made_of_constants(graph: Graph) -> set[Expr]:
    """Return the expressions computed only from constants."""
    found: set[Expr] = set()
    for e in graph.order:
        if isinstance(e, Constant) or (isinstance(e, (Call, Tuple, TupleGetItem)) and (below := operands(e))
                                       and all(o in found for o in below) and _is_pure(e)):
            found.add(e)
    return found


def _is_pure(e: Expr) -> bool:
    return not isinstance(e, Call) or (isinstance(e.op, Op) and e.op.pure)


_ANY: Final = DFPattern()
