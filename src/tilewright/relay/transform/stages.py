"""Split programs with dynamic shapes into stages, which are typed and compiled one after another.

    def @main(%x, %n) { relu(frontend.deferred(exp(%x), add(%n, 1))) }
    ->  stage       (%x, %n)  { (exp(%x), add(%n, 1)) }
        the rest    (%v0, %v1) { relu(frontend.deferred(%v0, %v1)) }

`resolve` sets the types of a program's parameters and resolves deferred operators whose operands are known. `cut`
separates everything with known sizes as a stage. The rest is processed again after the stage has run. Both are linear
in the graph.

Two analyses determine where to cut: that of known sizes in this module, and that of Python objects in
`object_boundaries.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tilewright.base.errors import CompileError
from tilewright.base.types import FuncType, TensorType, TupleType, Type, tensors_of
from tilewright.relay.adt import Match
from tilewright.relay.analysis.operation_counts import elements_of
from tilewright.relay.expr import Call, Constant, Expr, Function, GlobalVar, If, Let, Tuple, TupleGetItem, Var
from tilewright.relay.op.create import NdarraySize, ShapeOf
from tilewright.relay.op.deferred import Ask, pending
from tilewright.relay.op.registry import Fusion, Op
from tilewright.relay.qnn.sources import NUMERICS
from tilewright.relay.transform.fold_constant import fold
from tilewright.relay.transform.object_boundaries import (
    NOT_IN_STAGES,
    choices_of_objects,
    has_objects,
    held_back_by_objects,
)
from tilewright.relay.visitor import binders, free_vars, operands, post_order, rewrite, with_operands

Array = np.ndarray[Any, Any]

_FOLDED_BYTES: Final = 1 << 16
"""Largest constant, in bytes, that is folded here; larger ones are left to the passes of the stage."""
_OPAQUE: Final = 32
"""Approximate operations per input element of an opaque operator (a sort, box suppression)."""


def is_static(t: Type | None) -> bool:
    """Return whether a type is known with all dimensions."""
    if isinstance(t, TensorType):
        return t.is_static
    if isinstance(t, TupleType):
        return all(map(is_static, t.fields))
    if isinstance(t, FuncType):
        return all(map(is_static, t.arg_types)) and is_static(t.ret_type)
    return t is not None


def needs_stages(function: Function) -> bool:
    """Return whether a function has sizes that are unknown before it runs, or branches with objects that wait for their
    condition."""
    order = [e for e in post_order(function, inside=False) if not isinstance(e, Function)]
    return any(pending(e) or not is_static(e.known_type()) for e in order) or bool(choices_of_objects(order))


def is_known(t: Type | None) -> bool:
    """Return whether a type is known, with dimensions that are numbers or symbolic."""
    if isinstance(t, TensorType):
        return not any(getattr(d, "unknown", False) for d in t.shape)
    return all(map(is_known, t.fields)) if isinstance(t, TupleType) else is_static(t)


def resolve(
    function: Function, params: Sequence[Var], ask: Ask, is_typed: Callable[[Type | None], bool] = is_static
) -> Function:
    """Return `function` with these typed parameters, and with everything resolved whose values `ask` provides.

    `ask` gets expressions over the new parameters, and constants. `is_typed` accepts the types of operands that an
    operator needs to be resolved. Raises the errors of conversions and type inference, which name the node.
    """
    new: dict[Expr, Expr] = dict(zip(function.params, params, strict=True))
    _Resolver(new, ask, is_typed).run(function.body)
    return Function(params, new[function.body], None, function.type_params, function.attrs, function.span)


class _Resolver:
    """A walk over a body, operands first. Of a branch with a known condition, only the selected side is visited."""

    def __init__(self, new: dict[Expr, Expr], ask: Ask, is_typed: Callable[[Type | None], bool]) -> None:
        self.new, self.is_typed = new, is_typed
        self.ask: Ask = lambda e: e.value if isinstance(e, Constant) else ask(e)

    def run(self, body: Expr) -> None:
        stack: list[tuple[Expr, bool]] = [(body, False)]
        while stack:
            e, ready = stack.pop()
            if e in self.new:
                continue
            if isinstance(e, If) and not ready:
                stack += [(e, True), (e.cond, False)]
            elif isinstance(e, If):
                stack += self._branch(e)
            elif ready or not operands(e) or isinstance(e, (Function, Let, Match)):
                self.new[e] = self._rebuilt(e)
            else:
                stack.append((e, True))
                stack += [(o, False) for o in reversed(operands(e))]

    def _branch(self, e: If) -> list[tuple[Expr, bool]]:
        """Return what to visit next for a branch whose condition has been visited."""
        cond = self.new[e.cond]
        inside = any(
            pending(o) or not self.is_typed(o.known_type()) or has_objects(o)
            for o in post_order(e.true_branch, e.false_branch))
        value = self.ask(cond) if inside or isinstance(cond, Constant) else None
        if value is None:
            self.new[e] = rewrite(e, lambda _: None, inside=True, memo=dict(self.new))
            return []
        chosen = e.true_branch if bool(value) else e.false_branch
        if chosen in self.new:
            self.new[e] = self.new[chosen]
            return []
        return [(e, True), (chosen, False)]

    def _rebuilt(self, e: Expr) -> Expr:
        if isinstance(e, (Function, Let, Match)):
            return rewrite(e, lambda _: None, inside=True, memo=dict(self.new))
        old = operands(e)
        now = [self.new[o] for o in old]
        made = e if all(a is b for a, b in zip(old, now, strict=True)) else with_operands(e, now)
        if not isinstance(made, Call):
            return fold(made) or made
        if not all(self.is_typed(a.known_type()) for a in made.args):
            return made
        if pending(made):
            return self._resolved(made)
        if isinstance(made.op, (ShapeOf, NdarraySize)):
            return made.op.simplify(made) or made
        return made if e is made else fold(made, _FOLDED_BYTES) or made

    def _resolved(self, call: Call) -> Expr:
        """Return the replacement of a deferred operator, resolved recursively; the operator itself if it cannot be
        resolved yet."""
        found: Expr | None = call.op.resolve(call, self.ask)
        if found is None:
            return call
        new: dict[Expr, Expr] = {}
        for e in post_order(found, without=call.args):
            now = [new.get(o, o) for o in operands(e)]
            made = e if all(a is b for a, b in zip(operands(e), now, strict=True)) else with_operands(e, now)
            if isinstance(made, Call) and pending(made) and all(self.is_typed(a.known_type()) for a in made.args):
                made = self._resolved(made)
            new[e] = made
        return new.get(found, found)


@dataclass(frozen=True, slots=True)
class Cut:
    """A program in two parts: `stage` computes everything with known sizes, and `rest` continues with its results.

    The values of a run are numbered: the parameters, the results of the stage, then those of each of `sizers`. A sizer
    is a call of an operator with a data-dependent result size, with the numbers of its arguments. `takes` are the
    numbers of the stage's parameters. `gives` are those of the arguments of `rest`, or of the outputs if there is no
    rest.
    """

    stage: Function | None
    takes: tuple[int, ...]
    sizers: tuple[tuple[Call, tuple[int, ...]], ...]
    gives: tuple[int, ...]
    rest: Function | None


def cut(function: Function) -> Cut:
    """Cut a resolved function. Raises `CompileError` if no run can determine its sizes."""
    order = post_order(function.body)
    outside = post_order(function.body, inside=False)
    held_back = held_back_by_objects(outside) | choices_of_objects(outside)
    ready = _ready(order, function.params, held_back)
    if function.body in ready:
        count = len(function.params)
        return Cut(
            function, tuple(range(count)), (), tuple(range(count, count + len(tensors_of(function.ret_type)))), None)
    return _Cutter(function, ready, held_back).cut()


def _ready(order: Sequence[Expr], params: Sequence[Var], held_back: Container[Expr]) -> set[Expr]:
    """Return the values of known size that are not held back and depend only on such values."""
    found: set[Expr] = set()
    bound = set(params) | {v for e in order for v in binders(e)}
    for e in order:
        if isinstance(e, (GlobalVar, Var)):
            known = isinstance(e, GlobalVar) or e in bound
        else:
            known = not pending(e) and e not in held_back and all(o in found for o in operands(e))
        if known and is_static(e.known_type()):
            found.add(e)
    return found


class _Cutter:
    """The state of one cut."""

    def __init__(self, function: Function, ready: set[Expr], held_back: set[Expr]) -> None:
        self.function, self.ready, self.held_back = function, ready, held_back
        self.params: dict[Expr, int] = {p: k for k, p in enumerate(function.params)}
        self.outputs: dict[Expr, int] = {}
        self.fields: dict[Expr, tuple[Expr, ...]] = {}

    def cut(self) -> Cut:
        waiting, top = self._waiting()
        sized = [
            e for e in waiting if isinstance(e, Call) and self._makes_its_size(e)
            and all(o in self.ready for o in e.args)]
        arguments = [[self._number(f) for a in e.args for f in self._tensors(a)] for e in sized]
        final = self._leaves(self.function.body)
        done = {*sized, *(f for e in sized for f in self._tensors(e))}
        ended = all(_is_of(f, self.ready) or _is_of(f, done) for f in final)
        wanted = [f for f in final if not _is_of(f, done)] if ended else [t for e in top for t in self._tensors(e)]
        for t in wanted:
            self._number(t)
        numbers: dict[Expr, int] = {}
        for e in sized:
            for t in self._tensors(e):
                numbers[t] = len(self.params) + len(self.outputs) + len(numbers)
        sizers = tuple((e, tuple(places)) for e, places in zip(sized, arguments, strict=True))
        stage, takes = stage_of(self.function, list(self.outputs))
        if not ended:
            rest, gives = self._rest(wanted, sized, numbers)
            return Cut(stage, takes, sizers, gives, rest)
        found = [
            self.fields[f.tuple_value][f.index] if isinstance(f, TupleGetItem) and f.tuple_value in done else f
            for f in final]
        return Cut(stage, takes, sizers, tuple(numbers[f] if f in numbers else self._number(f) for f in found), None)

    def _makes_its_size(self, call: Call) -> bool:
        return isinstance(call.op, Op) and not pending(call) and call not in self.held_back

    def _waiting(self) -> tuple[list[Expr], list[Expr]]:
        """Return the values that are not ready, operands first, and the ready values that they need, in order."""
        order: list[Expr] = []
        top: dict[Expr, None] = {}
        seen: set[Expr] = set()
        stack: list[tuple[Expr, bool]] = [(self.function.body, False)]
        while stack:
            e, after = stack.pop()
            if after:
                order.append(e)
            elif e not in seen:
                seen.add(e)
                if isinstance(e, NOT_IN_STAGES):
                    what = f"the function @{e.name_hint}" if isinstance(e, GlobalVar) else f"a {type(e).__name__}"
                    raise CompileError(
                        f"{what} is not supported together with sizes known only at run time; give static sizes, or "
                        "evaluate the program with relay.create_executor('debug')",
                        getattr(e, "span", None), code="TW0403")
                if isinstance(e, Tuple) or e not in self.ready:
                    stack.append((e, True))
                    below = operands(e)
                    # functions stay unchanged, with their captured variables
                    if e in self.held_back and isinstance(e, Call):
                        below = e.args
                        top.update(
                            (v, None) for v in (free_vars(e.op) if isinstance(e.op, Expr) else ()) if v in self.ready)
                    stack += [(o, False) for o in reversed(below)]
                elif not isinstance(e, Constant):
                    top[e] = None
        return order, list(top)

    def _tensors(self, e: Expr) -> tuple[Expr, ...]:
        """Return the tensor fields of a value: itself, or the fields of a tuple."""
        t = e.known_type()
        if not isinstance(t, TupleType):
            return (e,)
        if e not in self.fields:
            self.fields[e] = e.fields if isinstance(e, Tuple) else tuple(
                TupleGetItem(e, k) for k in range(len(t.fields)))
        return self.fields[e]

    def _leaves(self, e: Expr) -> list[Expr]:
        """Return the tensors of a value in order, including those of nested tuples."""
        parts = self._tensors(e)
        return [e] if parts == (e,) else [leaf for p in parts for leaf in self._leaves(p)]

    def _number(self, e: Expr) -> int:
        """Return the number of a ready tensor; unless it is a parameter, it becomes an output of the stage."""
        found = self.params.get(e)
        return self.outputs.setdefault(e, len(self.params) + len(self.outputs)) if found is None else found

    def _rest(
        self, wanted: Sequence[Expr], sized: Sequence[Call], numbers: dict[Expr, int]
    ) -> tuple[Function, tuple[int, ...]]:
        """Return the rest of the program, and the numbers of the values that it takes."""
        new: dict[Expr, Expr] = {}
        params: list[Var] = []
        gives: list[int] = []
        for t in dict.fromkeys((*wanted, *numbers)):
            params.append(
                Var(t.name_hint if isinstance(t, Var) else f"v{len(params)}", t.known_type(), getattr(t, "span", None)))
            new[t] = params[-1]
            gives.append(numbers[t] if t in numbers else self._number(t))
        for e in (*sized, *self.fields):
            parts = self._tensors(e)
            if parts != (e,) and not isinstance(e, Tuple) and all(p in new for p in parts):
                new[e] = Tuple(tuple(new[p] for p in parts))
        body = rewrite(
            self.function.body, lambda e: fold(e) if isinstance(e, TupleGetItem) else None, inside=True, memo=new)
        return Function(params, body, attrs=self.function.attrs, span=self.function.span), tuple(gives)


def stage_of(function: Function, outputs: Sequence[Expr]) -> tuple[Function | None, tuple[int, ...]]:
    """Return the function that computes these values in the body of `function`, and the numbers of its parameters; None
    without values."""
    if not outputs:
        return None, ()
    numbers: dict[Expr, int] = {p: k for k, p in enumerate(function.params)}
    taken = [v for v in post_order(*outputs) if isinstance(v, Var) and v in numbers]
    body = Tuple(tuple(outputs)) if len(outputs) > 1 else outputs[0]
    attrs = {k: v for k, v in function.attrs.items() if k == NUMERICS}
    return Function(taken, body, attrs=attrs, span=function.span), tuple(numbers[v] for v in taken)


def _is_of(e: Expr, values: Container[Expr]) -> bool:
    """Return whether `e` is one of the values, or a field of one."""
    while e not in values:
        if not isinstance(e, TupleGetItem):
            return False
        e = e.tuple_value
    return True


def work(function: Function) -> float:
    """Estimate the average number of operations of an operator. It counts one for each element of a result, or for each
    term of a sum or product. An operator's compile time is constant, so this decides whether compiling pays."""
    each = [_operations(e) for e in post_order(function.body) if isinstance(e, Call) and isinstance(e.op, Op)]
    return sum(each) / max(1, len(each))


def _operations(call: Call) -> float:
    read = [float(elements_of(a.known_type())) for a in call.args]
    made = float(elements_of(call.known_type()))
    if call.op.kind <= Fusion.INJECTIVE or not read:
        return made
    if call.op.kind is Fusion.OUT_FUSABLE and len(read) > 1:
        return max(made, math.sqrt(made * read[0] * read[1]))  # exact for a product of matrices
    return made + (_OPAQUE if call.op.kind is Fusion.OPAQUE else 1) * sum(read)
