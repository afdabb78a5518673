"""The edit that removes each kind of difference. Edits that only a person can make have no changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from tilewright.base.errors import CompileError
from tilewright.base.types import DataType, TensorType
from tilewright.ir.structural import structural_equal
from tilewright.ir.transform import Pass
from tilewright.relay.expr import Call, Constant, Expr, Tuple, TupleGetItem, Var
from tilewright.relay.interpreter import evaluate
from tilewright.relay.node_labels import short
from tilewright.relay.offload.changes import Change, Edit, Now, copied, node_change, operand_change
from tilewright.relay.offload.difference import NO_EDIT, Difference, Kind, Way
from tilewright.relay.offload.identity_operators import CHANGE_NOTHING, has_neutral, inserted, neutral_attributes
from tilewright.relay.op.registry import Fusion, Op, get
from tilewright.relay.transform.convert_layout import ConvertLayout
from tilewright.relay.transform.eliminate_common_subexpr import EliminateCommonSubexpr
from tilewright.relay.transform.fold_constant import FoldConstant
from tilewright.relay.visitor import operands, post_order

_LAYOUTS: Final = ("data_layout", "kernel_layout", "layout")
_OUT: Final = ("out_dtype", "dtype")
"""Attributes that determine the element type of a result."""


def edit_of(way: Way) -> Edit | None:
    """Return the edit that removes all differences; None if one has no edit, or if the edit is not small."""
    built = sum(d.kind in (Kind.EXTRA, Kind.MISSING, Kind.OPERATOR) for d in way.differences)
    heavy = any(isinstance(e.op, Op) and e.op.kind > Fusion.INJECTIVE for e in way.calls)
    if way.effort > NO_EDIT or (built > way.matched and not heavy):
        return None
    found: list[Edit] = []
    attributes: dict[Expr, dict[str, Any]] = {}
    for d in way.differences:
        if d.kind is Kind.ATTRIBUTE and d.cost < NO_EDIT and isinstance(d.at, Call):
            attributes.setdefault(d.at, {}).update(d.wanted)
    folded = [d for d in way.differences if d.kind is Kind.CONSTANT and d.wanted["foldable"]]
    found += [_folded(folded)] if folded else []
    for at, wanted in attributes.items():
        assert isinstance(at, Call)
        found.append(_attributes(at, wanted))
    for d in way.differences:
        if d in folded or (d.at in attributes and d.kind is Kind.ATTRIBUTE):
            continue
        make = _EDITS.get(d.kind)
        edit = None if make is None or d.cost >= NO_EDIT else make(d, way)
        if edit is None:
            return None
        found.append(edit)
    whole = together(found)
    if whole is not None and whole.changes and any(d.kind in (Kind.DTYPE, Kind.TYPE) for d in way.differences):
        whole = replace(whole, changes=(*whole.changes, _cast_back(way.pairs[0][1])))
    return whole


def together(edits: Iterable[Edit]) -> Edit | None:
    """Combine several edits into one; None for an empty sequence."""
    edits = list(edits)
    if len(edits) < 2:
        return edits[0] if edits else None
    text = "; ".join(dict.fromkeys(e.text for e in edits))
    if not all(e.can_apply or e.table is not None for e in edits):  # one of them needs a person
        return Edit(text, all(e.keeps_meaning for e in edits))
    passes = {repr(p): p for e in edits for p in e.passes}
    return Edit(
        text, all(e.keeps_meaning for e in edits), tuple(c for e in edits for c in e.changes), tuple(passes.values()),
        tuple(dict.fromkeys(n for e in edits for n in e.needs)), next((e.table for e in edits if e.table), None))


def at_use(d: Difference, make: Callable[[Expr], Expr]) -> Change:
    """Return a change of a value at its use by the match; if it is the result of the match, for all users."""
    return node_change(d.at, make) if d.user is None else operand_change(d.user, d.position, make)


def with_attributes(call: Call, wanted: Mapping[str, Any]) -> Call:
    """Return a call with other values of some attributes. Raises `CompileError` if its operator or type rule rejects
    them."""
    assert isinstance(call.op, Op)
    return type(call.op)(**{**call.op.attributes(), **wanted})(*call.args, span=call.span)


def _attributes(at: Call, wanted: dict[str, Any]) -> Edit:
    assert isinstance(at.op, Op)
    if all(k in _LAYOUTS for k in wanted):
        return converted(at, wanted)
    settings = ", ".join(f"{k} = {v!r} (it is {at.op.attributes().get(k)!r})" for k, v in wanted.items())
    return Edit(f"set {settings} of {at.op.name}", False,
                (node_change(at, lambda e: with_attributes(e, wanted)),))  # type: ignore[arg-type]


def converted(at: Call, wanted: Mapping[str, Any]) -> Edit:
    """Return the edit that gives an operator other layouts."""
    assert isinstance(at.op, Op)
    data = wanted.get("data_layout", wanted.get("layout"))
    layouts = [data or at.op.attributes().get("data_layout") or "default",
               wanted.get("kernel_layout", "default")][: 1 + ("kernel_layout" in at.op.attributes())]
    passes: tuple[Pass, ...] = (ConvertLayout({at.op.name: layouts}, keep_bias=True), FoldConstant())
    return Edit(
        f"change the layout: relay.transform.ConvertLayout({{{at.op.name!r}: {layouts}}}, keep_bias=True), then "
        "FoldConstant()", True, passes=passes)


def casted(e: Expr, dtype: DataType) -> Expr:
    """Return a value cast to another dtype; a constant is converted."""
    if isinstance(e, Constant):
        return Constant(e.value.astype(dtype.numpy()), e.span)
    return get("cast")(dtype=str(dtype))(e, span=e.span)


def _dtype(d: Difference, way: Way) -> Edit | None:
    wanted = DataType(d.wanted["dtype"])
    match d.at:
        case Constant(value=value):
            keeps = bool(np.array_equal(value.astype(wanted.numpy()).astype(value.dtype), value))
            return Edit(f"make the constant {wanted} (it is {d.found})", keeps,
                        (at_use(d, lambda e: casted(e, wanted)),))
        case Var():
            return Edit(f"cast %{d.at.name_hint} to {wanted} (it is {d.found})", False,
                        (at_use(d, lambda e: casted(e, wanted)),)) if not _is_var(d) else _retyped(d,
                            TensorType(d.at.tensor_type.shape, wanted))
        case Call(op=Op() as op) if named := next((n for n in _OUT if n in op.attributes()), ""):
            setting = str(wanted)
            return Edit(f"set {named} = {setting!r} of {op.name} (it gives {d.found})", False,
                        (node_change(d.at, lambda e: with_attributes(e, {named: setting})),))  # type: ignore[arg-type]
        case Call(op=Op()) if any(e is d.at and p in _parts_of_calls(d, way) for p, e in way.pairs):
            return _computed_in(d, way, wanted)
        case _:
            return Edit(f"cast {short(d.at)} to {wanted} (it is {d.found})", False,
                        (at_use(d, lambda e: casted(e, wanted)),))


def _is_var(d: Difference) -> bool:
    from tilewright.relay.dataflow_pattern.pattern import VarPattern, pattern_nodes

    return any(isinstance(p, VarPattern) for p in pattern_nodes(d.pattern))


def _parts_of_calls(d: Difference, way: Way) -> set[Any]:
    """Return the call patterns that the condition of a difference applies to."""
    from tilewright.relay.dataflow_pattern.pattern import CallPattern, pattern_nodes

    return {p for p in pattern_nodes(d.pattern) if isinstance(p, CallPattern)}


def _computed_in(d: Difference, way: Way, wanted: DataType) -> Edit:
    """Return the edit that casts the inputs of the subgraph below `d.at`."""
    inside, before = set(way.calls), d.at.tensor_type.dtype
    changes: list[Change] = []
    stack, seen = [d.at], {d.at}
    while stack:
        e = stack.pop()
        first = len(operands(e)) - len(e.args) if isinstance(e, Call) else 0
        for i, o in enumerate(operands(e)[first:], first):
            if o in inside:
                stack += [] if o in seen else [o]
                seen.add(o)
            elif isinstance(t := o.known_type(), TensorType) and t.dtype is before:
                changes.append(operand_change(e, i, lambda x: casted(x, wanted)))
    return Edit(f"compute {short(d.at, 0)} in {wanted} (it is {d.found}): cast what goes in, and the result back",
                False, tuple(changes))


def all_cast(calls: Sequence[Call], wanted: DataType, before: DataType) -> list[Change]:
    """Return changes that cast all inputs of the calls of a match."""
    inside = set(calls)
    readers: list[Expr] = [*calls, *dict.fromkeys(o for e in calls for o in operands(e) if isinstance(o, Tuple))]
    uses = [(e, i) for e in readers for i, o in enumerate(operands(e)) if o not in inside
            and isinstance(t := o.known_type(), TensorType) and t.dtype is before]
    return [operand_change(e, i, lambda x: casted(x, wanted)) for e, i in uses]


def computed_in(calls: Sequence[Call], root: Expr, wanted: DataType, before: DataType) -> Edit:
    """Return the edit that computes a match in another type."""
    changes = all_cast(calls, wanted, before)
    return Edit(f"compute it in {wanted} (it is {before}): cast what goes in, and the result back", False,
                (*changes, _cast_back(root)))


def _cast_back(root: Expr) -> Change:
    """Return a change that casts the result of a match back to its previous type for its users."""
    before = root.known_type()

    def step(e: Expr, now: Now) -> Expr:
        kind = e.known_type()
        if not isinstance(before, TensorType) or not isinstance(kind, TensorType) or kind.dtype is before.dtype:
            return e
        return get("cast")(dtype=str(before.dtype))(e, span=e.span)

    return Change(root, step)


def _retyped(d: Difference, wanted: TensorType) -> Edit | None:
    """Return the edit that changes the type of an input; None for other values."""
    at = d.at
    if not isinstance(at, Var):
        return None
    return Edit(f"make the input %{at.name_hint} a {wanted!r} (it is a {at.known_type()!r})", False,
                (node_change(at, lambda e: Var(at.name_hint, wanted, at.span)),))


def _shape(d: Difference, way: Way) -> Edit | None:
    known, wanted = d.at.known_type(), tuple(d.wanted["shape"])
    if not isinstance(known, TensorType) or not all(isinstance(n, int) for n in wanted):
        return None
    if isinstance(d.at, Var):
        return _retyped(d, TensorType(wanted, known.dtype))
    if wanted and known.shape[1:] == wanted[1:] and known.shape[0] != wanted[0]:
        return batch_of([d.at], known.shape[0], wanted[0])
    if known.is_static and int(np.prod(known.concrete_shape)) == int(np.prod(wanted)) and not any(
            p in _parts_of_calls(d, way) for p, e in way.pairs if e is d.at):
        return Edit(f"reshape {short(d.at)} to {wanted} (it is {known.concrete_shape})", False,
                    (at_use(d, lambda e: _reshaped(e, wanted)),))
    return None


def batch_of(values: Sequence[Expr], before: Any, wanted: int) -> Edit | None:
    """Return the edit that changes the batch of the inputs from which the values are computed; None without such
    inputs."""
    inputs = [(v, v.tensor_type) for v in post_order(*values) if isinstance(v, Var)
              and isinstance(v.known_type(), TensorType) and v.tensor_type.shape[:1] == (before,)]
    if not inputs:
        return None
    names = ", ".join(f"%{v.name_hint}" for v, _ in inputs)
    changes = (
        node_change(v, lambda e, v=v, t=t: Var(v.name_hint, TensorType((wanted, *t.shape[1:]), t.dtype),
            v.span))  # type: ignore[misc]
               for v, t in inputs)
    return Edit(f"give {names} a batch of {wanted} (it is {before})", False, tuple(changes))


def _reshaped(e: Expr, shape: tuple[int, ...]) -> Expr:
    return (Constant(e.value.reshape(shape), e.span) if isinstance(e, Constant)
            else get("reshape")(newshape=shape)(e, span=e.span))


def _type(d: Difference, way: Way) -> Edit | None:
    known, wanted = d.at.known_type(), d.wanted["type"]
    if not isinstance(known, TensorType) or not isinstance(wanted, TensorType):
        return None
    if isinstance(d.at, Var):
        return _retyped(d, wanted)
    if known.shape == wanted.shape:
        return _dtype(_asking(d, {"dtype": wanted.dtype}), way)
    return _shape(_asking(d, {"shape": wanted.shape}), way) if known.dtype is wanted.dtype else None


def _asking(d: Difference, wanted: Mapping[str, Any]) -> Difference:
    return Difference(d.kind, d.pattern, d.at, d.expected, d.found, d.cost, d.user, d.position, wanted)


def _folded(differences: Iterable[Difference]) -> Edit:
    """Return the edit that folds values computed from constants."""
    names = list(dict.fromkeys(short(d.at, 0) for d in differences))
    text = f"fold {' and '.join(names)}, computed from constants: relay.transform.FoldConstant(fold_qnn=True)"
    text += ", or relay.qnn.transform.Unify()" if "qnn." in text else ""
    return Edit(text, True, tuple(at_use(d, lambda e: Constant(np.asarray(evaluate(e)), e.span)) for d in differences))


def _constant(d: Difference, way: Way) -> Edit | None:
    if isinstance(d.at, Var):
        return Edit(f"bind %{d.at.name_hint} to its value: relay.build_module.bind_params_by_name, "
                    "or the params of relay.build", True, needs=(d.at.name_hint,))
    return None


def _variable(d: Difference, way: Way) -> Edit | None:
    name = getattr(d.pattern, "name", "") or (d.at.span.name if d.at.span else "") or "input"
    if isinstance(d.at, Var):
        at = d.at
        return Edit(f"call the variable %{at.name_hint} %{name}", True,
                    (node_change(at, lambda e: Var(name, at.type_annotation, at.span)),))
    kind = d.at.known_type()
    return Edit(f"make the constant an input, %{name}", False,
                (at_use(d, lambda e: Var(name, kind, e.span)),)) if isinstance(d.at, Constant) else None


def _value(d: Difference, way: Way) -> Edit | None:
    value = getattr(d.pattern, "expr", None)
    return Edit(f"make it {short(value)} (it is {short(d.at)})", False,
                (at_use(d, lambda e: value),)) if isinstance(value, Constant) else None


def _extra(d: Difference, way: Way) -> Edit | None:
    through = _through(d.at)
    if not isinstance(through, Call) or not isinstance(through.op, Op):
        return None
    operand, name = d.wanted["operand"], through.op.name
    known = through.args[operand].known_type()
    same = name in CHANGE_NOTHING or (name in ("cast", "reshape", "strided_slice") and known == d.at.known_type())
    return Edit(f"remove {name}" if not same else f"remove {name}, which changes nothing", same,
                (at_use(d, lambda e: _through(e).args[operand]),))  # type: ignore[attr-defined]


def _through(e: Expr) -> Expr:
    """Return the extra call, or the call whose field is taken."""
    return e.tuple_value if isinstance(e, TupleGetItem) else e


def _missing(d: Difference, way: Way) -> Edit | None:
    name, attrs = d.wanted["operator"], dict(d.wanted["attrs"])
    for k in d.wanted["dtypes"]:
        attrs.update({n: str(k) for n in _OUT if n in get(name).attribute_names})
    argument, count = d.wanted["argument"], d.wanted["count"]
    try:
        inserted(name, d.at, argument, count, attrs)
    except CompileError as error:
        return Edit(f"put {name} there: {error.message}")
    keeps = has_neutral(name) and not attrs
    what = f"{name} that changes nothing" if keeps else f"{name}({', '.join(f'{k}={v!r}' for k, v in attrs.items())})"
    return Edit(f"put a {what} after {short(d.at)}", keeps,
                (at_use(d, lambda e: inserted(name, e, argument, count, attrs)),))


def _operator(d: Difference, way: Way) -> Edit | None:
    cls = get(d.wanted["operator"])
    if not isinstance(d.at, Call) or not isinstance(d.at.op, Op):
        return None
    known = {**neutral_attributes(cls.name, d.at.known_type()), **d.at.op.attributes(), **d.wanted["attrs"]}
    attrs = {k: v for k, v in known.items() if k in cls.attribute_names}
    if any(n not in attrs and n not in cls.attribute_defaults for n in cls.attribute_names):
        return Edit(f"compute it with {cls.name}, not {d.at.op.name}")
    return Edit(f"compute it with {cls.name}, not {d.at.op.name}", False,
                (node_change(d.at, lambda e: cls(**attrs)(*e.args, span=e.span)),))  # type: ignore[attr-defined]


def _index(d: Difference, way: Way) -> Edit | None:
    index = d.wanted["index"]
    return Edit(f"take field {index} (it is {d.found})", False,
                (node_change(d.at, lambda e: TupleGetItem(e.tuple_value, index, e.span)),  # type: ignore[attr-defined]
                 ))


def _the_same(d: Difference, way: Way) -> Edit | None:
    if structural_equal(d.at, d.wanted["value"]):
        return Edit("compute equal values once: relay.transform.EliminateCommonSubexpr()", True,
                    passes=(EliminateCommonSubexpr(),))
    value = d.wanted["value"]
    uses = [(u, i) for u in way.calls for i, o in enumerate(operands(u)) if o is d.at]
    if d.at in set(way.calls) or d.at in set(post_order(value)):
        return None
    return Edit(f"use {short(value)} in the place of {short(d.at)}", False,
                tuple(Change(u, lambda e, now: now(value), i) for u, i in uses))


_EDITS: Final[dict[Kind, Callable[[Difference, Way], Edit | None]]] = {
    Kind.DTYPE: _dtype, Kind.SHAPE: _shape, Kind.TYPE: _type, Kind.CONSTANT: _constant, Kind.VARIABLE: _variable,
    Kind.VALUE: _value, Kind.EXTRA: _extra,
    Kind.MISSING: _missing, Kind.OPERATOR: _operator, Kind.INDEX: _index, Kind.SAME: _the_same,
}


def once_more(inside: Iterable[Expr], escaping: Iterable[tuple[Expr, Expr]],
              operands_of: Callable[[Expr], tuple[Expr, ...]]) -> Edit:
    """Return the edit that lets the users outside of a match recompute its inner values."""
    step = copied(list(inside))
    changes: list[Change] = []
    names: list[str] = []
    for e, user in escaping:
        names.append(short(e))
        changes += [step(user, i, e) for i, o in enumerate(operands_of(user)) if o is e]
    return Edit(f"compute {' and '.join(dict.fromkeys(names))} once more for those outside", True, tuple(changes))


__all__ = ["all_cast", "at_use", "batch_of", "casted", "computed_in", "edit_of", "once_more", "together",
           "with_attributes"]
