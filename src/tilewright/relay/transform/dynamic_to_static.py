"""Replace operators with computed attributes by static ones where the attributes are constant.

    dyn.reshape(%x, shape_of(%y)) -> reshape(%x, newshape=[…])         the shape of %y is known
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.adt import Match
from tilewright.relay.expr import Call, Expr, Function, If
from tilewright.relay.op.create import NdarraySize, ShapeOf
from tilewright.relay.op.dynamic import Dynamic
from tilewright.relay.transform.fold_constant import fold
from tilewright.relay.visitor import operands, post_order, with_operands


@dataclass(frozen=True)
class DynamicToStatic(FunctionPass):
    """Replace operators `dyn.*` by static ones where their attributes are computable at compile time. Types become more
    static."""

    kind: ClassVar[type] = Function
    required: ClassVar[tuple[str, ...]] = ("InferType",)
    opt_level: ClassVar[int] = 2

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        order = post_order(function.body, inside=False)
        if not any(isinstance(e, Call) and isinstance(e.op, Dynamic) for e in order):
            return function
        limit = context.get("relay.FoldConstant.max_bytes")
        new: dict[Expr, Expr] = {}
        for e in order:
            new[e] = _static(_over(e, [new.get(o, o) for o in operands(e)]), limit)
        body = new[function.body]
        return function if body is function.body else Function(function.params, body, None, function.type_params,
            function.attrs, function.span)


def _over(e: Expr, now: Sequence[Expr]) -> Expr:
    """Return `e` over other operands. Branches, whose types must agree, and functions keep operands whose type changed.
    """
    old = operands(e)
    if all(a is b for a, b in zip(old, now, strict=True)):
        return e
    if isinstance(e, (If, Match, Function)):
        now = [b if b.known_type() == a.known_type() else a for a, b in zip(old, now, strict=True)]
    return with_operands(e, now)


def _static(e: Expr, limit: int) -> Expr:
    """Return the static operator, or the folded constant of a shape computation."""
    if not isinstance(e, Call):
        return e
    if (isinstance(e.op, (Dynamic, ShapeOf, NdarraySize)) and e.known_type() is not None
            and all(a.known_type() is not None for a in e.args)):
        return e.op.simplify(e) or e
    return fold(e, limit) or e if e.known_type() is not None else e
