"""Reverse-mode derivatives of a graph: gradients flow from the result to the values that it depends on.

    y = exp(a * b)      ->      dy/da = (dy * y) * b,   dy/db = (dy * y) * a

The graph consists of calls of operators, tuples and branches. The gradient of a branch is a branch on the same
condition, which computes the values of its side again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.base.errors import CompileError
from tilewright.base.graphs import post_order
from tilewright.base.type_matching import bind_types
from tilewright.base.types import TensorType, TupleType, Type
from tilewright.relay.expr import Call, Constant, Expr, Function, If, Tuple, TupleGetItem, Var
from tilewright.relay.node_labels import short
from tilewright.relay.op.broadcast import Add
from tilewright.relay.op.gradients import expansion_of, rule_of
from tilewright.relay.op.gradients.building import ones_like, zeros_like
from tilewright.relay.op.registry import Op
from tilewright.relay.scopes import Scopes
from tilewright.relay.transform.dedup import fresh_copy
from tilewright.relay.visitor import calls, free_vars, operands

Slope = Expr | tuple[Any, ...] | None
"""The gradient of a value: an expression, a tuple of the gradients of the fields, or None for zero."""


def gradients(y: Expr, xs: Sequence[Expr], head: Slope = None) -> list[Slope]:
    """Return the gradients of `y` with respect to the values `xs`, for the gradient `head` of `y`: by default ones for
    its first tensor.

    Raises `CompileError` for an operator without a gradient rule.
    """
    return _Reverse(y, xs).run(_ones(y) if head is None else head)


def zeros(x: Expr) -> Expr:
    """A tensor of zeros like `x`, or a tuple of them."""
    return Tuple([zeros(field) for field in x]) if isinstance(x.checked_type, TupleType) else zeros_like(x)


def filled(slope: Slope, x: Expr) -> Expr:
    """`slope`, the gradient of `x`, as one expression."""
    if slope is None:
        return zeros(x)
    if isinstance(slope, Expr):
        return slope
    return Tuple([filled(s, x[k]) for k, s in enumerate(slope)])


def _ones(y: Expr) -> Slope:
    """Ones for a tensor, or for the first tensor of a tuple."""
    if isinstance(t := y.checked_type, TupleType):
        return tuple(_ones(y[k]) if k == 0 else None for k in range(len(t.fields)))
    return ones_like(y) if _is_real(y.checked_type) else None


def _is_real(t: Type) -> bool:
    """Whether a value has elements of which derivatives exist."""
    return any(map(_is_real, t.fields)) if isinstance(t, TupleType) else isinstance(t, TensorType) and t.dtype.is_float


def _fields(slope: Slope, count: int) -> tuple[Slope, ...]:
    """The gradients of the fields of a tuple."""
    if isinstance(slope, Tuple):
        return slope.fields
    if isinstance(slope, Expr):
        return tuple(TupleGetItem(slope, k) for k in range(count))
    return (None,) * count if slope is None else tuple(slope)


def _sum(a: Slope, b: Slope, t: Type) -> Slope:
    """The sum of two gradients of a value of type `t`."""
    if a is None or b is None:
        return b if a is None else a
    if isinstance(t, TupleType):
        n = len(t.fields)
        return tuple(map(_sum, _fields(a, n), _fields(b, n), t.fields))
    return Add()(a, b)


class _Reverse:
    """One pass from a result `y` back to the values `xs`, which are leaves of the graph."""

    def __init__(self, y: Expr, xs: Sequence[Expr]) -> None:
        self.y, self.xs = y, xs
        self.leaves = set(xs)
        self.scopes: Scopes | None = None
        self.inputs: dict[Expr, tuple[Expr, ...]] = {}
        self.order = post_order([y], self.below)
        self.depending = set(self.leaves)
        for e in self.order:
            if any(o in self.depending for o in self.below(e)):
                self.depending.add(e)
        self.slopes: dict[Expr, Slope] = {}

    def below(self, e: Expr) -> tuple[Expr, ...]:
        """Return the operands of `e`; of a branch, the condition and the outer values that its sides use."""
        if e in self.leaves:
            return ()
        if not isinstance(e, If):
            return e.args if isinstance(e, Call) else operands(e)
        found = self.inputs.get(e)
        if found is None:
            self.scopes = self.scopes or Scopes(self.y)
            own = (v for side in (e.true_branch, e.false_branch) for v in free_vars(side))
            found = self.inputs[e] = tuple(dict.fromkeys((*self.scopes.hoisted.get(e, ()), *own)))
        return (e.cond, *found)

    def run(self, head: Slope) -> list[Slope]:
        self.give(self.y, head)
        for e in reversed(self.order):
            slope = self.slopes.get(e)
            if slope is not None and e not in self.leaves:
                self.step(e, slope)
        return [self.slopes.get(x) for x in self.xs]

    def give(self, e: Expr, slope: Slope) -> None:
        """Add to the gradient of `e`."""
        if slope is not None and e in self.depending and _is_real(e.checked_type):
            self.slopes[e] = _sum(self.slopes.get(e), slope, e.checked_type)

    def step(self, e: Expr, slope: Slope) -> None:
        """Pass the gradient of `e` on to its operands."""
        match e:
            case Tuple():
                for field, s in zip(e.fields, _fields(slope, len(e)), strict=True):
                    self.give(field, s)
            case TupleGetItem():
                count = len(e.tuple_value.checked_type.fields)  # type: ignore[attr-defined]
                self.give(e.tuple_value, tuple(slope if k == e.index else None for k in range(count)))
            case If():
                self.branch(e, slope)
            case Call() if isinstance(e.op, Op):
                self.call(e, slope)
            case _:
                raise CompileError(f"the gradient of {short(e)} is not supported; only calls of operators, tuples and "
                                   "branches have gradients", e.span, code="TW0313")

    def call(self, e: Call, slope: Slope) -> None:
        """Apply the rule of an operator, or the rules of the operators that it consists of."""
        rule = rule_of(e)
        expanded = expansion_of(e) if rule is None else None
        if rule is not None:
            found = tuple(rule(e, filled(slope, e)))
        elif expanded is not None:
            leaves = tuple(dict.fromkeys(e.args))
            each = dict(zip(leaves, gradients(expanded, leaves, slope), strict=True))
            found = tuple(each.pop(a, None) for a in e.args)
        else:
            raise CompileError(f"the operator '{e.op.name}' has no gradient; register one with relay.op."
                               f"register_gradient('{e.op.name}', …)", e.span, code="TW0313")
        if len(found) != len(e.args):
            raise CompileError(f"the gradient rule of '{e.op.name}' returned {len(found)} gradients, but the call has "
                               f"{len(e.args)} arguments; return one for each, or None for zero", e.span, code="TW0313")
        for argument, s in zip(e.args, found, strict=True):
            s = tuple(s) if isinstance(s, list) else s
            _require_type(e, argument, s)
            self.give(argument, s)

    def branch(self, e: If, slope: Slope) -> None:
        """Pass the gradient of a branch to the outer values that its sides use."""
        wanted = [v for v in self.below(e)[1:] if v in self.depending and _is_real(v.checked_type)]
        if not wanted:
            return
        head = filled(slope, e)
        found = If(e.cond, self.side(e.true_branch, wanted, head), self.side(e.false_branch, wanted, head), e.span)
        for k, v in enumerate(wanted):
            self.give(v, TupleGetItem(found, k))

    def side(self, body: Expr, wanted: Sequence[Expr], head: Expr) -> Expr:
        """The gradients of one side of a branch with respect to `wanted`, as a tuple."""
        if (impure := next((c for c in calls(body) if isinstance(c.op, Op) and not c.op.pure), None)) is not None:
            raise CompileError(f"the gradient of a branch that calls '{impure.op.name}' is not supported, because it "
                               "would compute another value; call it before the branch", impure.span, code="TW0313")
        own = fresh_copy(body, {v: v for v in wanted})
        return Tuple([filled(s, v) for s, v in zip(gradients(own, wanted, head), wanted, strict=True)])


def _require_type(e: Call, argument: Expr, slope: Slope) -> None:
    """Refuse the gradient of an argument that has another type."""
    wanted = argument.checked_type
    if not isinstance(slope, Expr) or not _is_real(wanted):
        return
    found = slope.known_type()
    if found is not None and not bind_types(wanted, found, frozenset(), {}):
        raise CompileError(f"the gradient rule of '{e.op.name}' returned a gradient of type {found!r} for an argument "
                           f"of type {wanted!r}; return one of the same type", e.span, code="TW0313")


def is_plain(function: Function) -> bool:
    """Whether the body consists of variables, constants, calls of operators, tuples and branches."""
    seen = post_order([function.body], operands)
    return all(isinstance(e, (Var, Constant, Tuple, TupleGetItem, If))
               or (isinstance(e, Call) and isinstance(e.op, Op)) for e in seen)
