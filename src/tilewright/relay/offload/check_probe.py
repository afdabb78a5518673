"""Finds a single change for which a check accepts a match: the check is called with one attribute, batch or type
changed.

A check is a function by the accelerator's author that rejects without a reason. An accepted neighbour of the match
reveals the reason.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tilewright.base.errors import CompileError
from tilewright.base.types import DataType, TensorType
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Call, Constant, Expr, Function, Tuple, Var
from tilewright.relay.offload.changes import Change, Edit, changed, node_change
from tilewright.relay.offload.edits import all_cast, batch_of, computed_in, converted, with_attributes
from tilewright.relay.op.registry import Op
from tilewright.relay.transform.infer_type import InferType
from tilewright.relay.visitor import operands

_MOST: Final = 200
"""Largest number of calls of a check for one match."""


@dataclass
class Questions:
    """The number of calls of checks left for one report. A call may take milliseconds, and every match may be rejected.
    """

    left: int = 2_000


NO_PROGRAM: Final = (CompileError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Errors of a type rule or a check for attributes that occur in no program; they do not count as answers."""
_LAYOUTS: Final = ("NCHW", "NHWC")
_MOVES: Final = ("transpose", "layout_transform")
_TYPES: Final = ("int8", "uint8", "int16", "int32", "float16", "float32")


def probe(check: Callable[[Any], Any], root: Expr, inside: Sequence[Expr], inputs: Sequence[Expr],
          questions: Questions) -> Edit | None:
    """Return the first change of the match with the root `root` that the check accepts, or None. Changes are: one
    attribute of a call in `inside`, the batch of program inputs, the type of the whole computation."""
    tries = itertools.chain(_attributes(inside), _batches(inputs), _types(root, inside))
    for trial, edit in itertools.islice(tries, min(_MOST, questions.left)):
        questions.left -= 1
        try:
            agrees = bool(check(changed(root, trial, inputs)))
        except NO_PROGRAM:
            continue
        if agrees:
            return edit
    return _layouts(check, root, inside, inputs, questions)


def _layouts(check: Callable[[Any], Any], root: Expr, inside: Sequence[Expr], inputs: Sequence[Expr],
             questions: Questions) -> Edit | None:
    """Return another layout of an operator of the match, if the check accepts the result of `ConvertLayout`."""
    for call in inside:
        if not isinstance(call, Call) or not isinstance(call.op, Op):
            continue
        attributes = call.op.attributes()
        found = attributes.get("data_layout", attributes.get("layout"))
        for wanted in (n for n in _LAYOUTS if found in _LAYOUTS and n != found):
            if not questions.left:
                return None
            questions.left -= 1
            edit = converted(call, {"data_layout": wanted})
            try:
                agrees = bool(check(_converted(root, inputs, edit)))
            except NO_PROGRAM:
                continue
            if agrees:
                return edit
    return None


def _converted(root: Expr, inputs: Sequence[Expr], edit: Edit) -> Expr:
    """Return the match alone after the passes of an edit, without the conversion of its result back."""
    variables = {e: Var(f"input{i}", e.known_type()) for i, e in enumerate(inputs) if not isinstance(e, Constant)}
    body = changed(root, [node_change(e, lambda old, v=v: v) for e, v in variables.items()],  # type: ignore[misc]
                   variables)
    mod = IRModule({"main": Function(list(variables.values()), body)})
    for p in edit.passes:
        mod = p(mod)
    main = InferType()(mod)["main"]
    assert isinstance(main, Function)
    whole = main.body
    while isinstance(whole, Call) and isinstance(whole.op, Op) and whole.op.name in _MOVES:
        whole = whole.args[0]
    return whole


Trial = tuple[Sequence[Change], Edit]
"""The changes inside the match to be checked, and the corresponding edit."""


def _attributes(inside: Sequence[Expr]) -> Iterator[Trial]:
    for call in reversed(inside):
        if isinstance(call, Call) and isinstance(call.op, Op):
            for name, value in call.op.attributes().items():
                for other in _others(call.op, name, value):
                    change = _setting(call, name, other)
                    yield (change,), Edit(f"set {name} = {other!r} of {call.op.name} (it is {value!r})", False,
                                          (change,))


def _batches(inputs: Sequence[Expr]) -> Iterator[Trial]:
    variables = [v for v in inputs if isinstance(v, Var) and isinstance(t := v.known_type(), TensorType) and t.shape
                 and t.shape[0] != 1]
    edit = batch_of(variables, variables[0].tensor_type.shape[0], 1) if variables else None
    if edit is not None:
        yield edit.changes, edit


def _types(root: Expr, inside: Sequence[Expr]) -> Iterator[Trial]:
    calls = [e for e in inside if isinstance(e, Call)]
    known = root.known_type()
    readers = [*calls, *(o for e in calls for o in operands(e) if isinstance(o, Tuple))]
    for before in dict.fromkeys(t.dtype for e in readers for o in operands(e)
                                if isinstance(t := o.known_type(), TensorType)) if isinstance(known,
                                        TensorType) else ():
        for wanted in _TYPES:
            if before != wanted:
                yield all_cast(calls, DataType(wanted), before), computed_in(calls, root, DataType(wanted), before)


def _setting(call: Call, name: str, value: Any) -> Change:
    return node_change(call, lambda e: with_attributes(e, {name: value}))  # type: ignore[arg-type]


def _others(op: Op, name: str, value: Any) -> Iterator[Any]:
    """Yield other values of an attribute, simplest first: its default, a smaller number, one value for all axes, the
    negated flag, another type."""
    seen = [value]
    for other in _candidates(op, name, value):
        if other not in seen:
            seen.append(other)
            yield other


def _candidates(op: Op, name: str, value: Any) -> Iterator[Any]:
    if name in op.attribute_defaults and op.attribute_defaults[name] is not None:
        yield op.attribute_defaults[name]
    match value:
        case bool():
            yield not value
        case int():
            yield from (1, 0, -1, 2, 3)
        case float():
            yield from (0.0, 1.0, 6.0)
        case tuple() if value and all(type(v) is int for v in value):
            yield from ((n,) * len(value) for n in (1, 0, 2, 3))
        case str() if "dtype" in name:
            yield from _TYPES
        case _:
            return
