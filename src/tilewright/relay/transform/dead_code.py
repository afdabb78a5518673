"""Remove values that are never read: unused fields of literal tuples, and unused variables.

    (%a, %b).0 -> %a;   let %v = e1; e2 -> e2 when e2 does not use %v
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.analysis.purity import Effect, Effects
from tilewright.relay.expr import Constant, Expr, Function, Let, Tuple, TupleGetItem, Var
from tilewright.relay.visitor import free_vars, operands, post_order, rewrite


@dataclass(frozen=True)
class DeadCodeElimination(FunctionPass):
    """Remove unused lets and fields of literal tuples (a graph contains no other dead values).

    A let whose value writes to a reference stays, unless `ignore_impurity`. With `inline_once`, a pure value that is
    used once, outside of inner functions, replaces its variable.
    """

    inline_once: bool = False
    ignore_impurity: bool = False
    kind: ClassVar[type] = Function
    opt_level: ClassVar[int] = 1

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        while True:
            order = post_order(function)
            effects = Effects(function, mod)
            kept = _live(function, effects, self.ignore_impurity)
            once = _used_once(order, effects) if self.inline_once else {}
            memo: dict[Expr, Expr] = {}
            dead = _removing(kept, once, memo, self.ignore_impurity or effects.free)
            new = rewrite(function, dead, inside=any(isinstance(e, Let) for e in order), memo=memo)
            if new is function:
                return new
            function = new


def _live(root: Expr, effects: Effects, ignore_impurity: bool) -> set[Expr]:
    """Return the variables that the value or the effects of `root` depend on."""
    values: dict[Expr, Expr] = {}
    wanted: set[Expr] = set()
    seen: set[Expr] = set()
    stack = [root]
    while stack:
        e = stack.pop()
        if e in seen:
            continue
        seen.add(e)
        if isinstance(e, Let):
            values[e.var] = e.value
            if not ignore_impurity and effects.of(e.value) is Effect.WRITE:
                wanted.add(e.var)
            if e.var in wanted:
                stack.append(e.value)
            stack.append(e.body)
        elif isinstance(e, Var):
            wanted.add(e)
            if e in values:
                stack.append(values[e])
        else:
            stack.extend(operands(e))
    return wanted


def _used_once(order: list[Expr], effects: Effects) -> dict[Expr, Expr]:
    """Return the pure values of variables with one use that inner functions do not capture."""
    values = {e.var: e.value for e in order if isinstance(e, Let) and effects.pure(e.value)}
    uses: dict[Expr, int] = {}
    for e in order:
        for o in operands(e):
            uses[o] = uses.get(o, 0) + 1
    inner = {v for f in order[:-1] if isinstance(f, Function) for v in free_vars(f)}
    return {v: value for v, value in values.items() if uses.get(v) == 1 and v not in inner}


def _removing(used: set[Expr], once: dict[Expr, Expr], new: dict[Expr, Expr],
              free: bool) -> Callable[[Expr], Expr | None]:
    """Return the rule for a function that uses the variables `used`; variables of `once` are replaced by their values
    in `new`. `free`: the function has no side effects."""

    def rule(e: Expr) -> Expr | None:
        if isinstance(e, TupleGetItem) and isinstance(e.tuple_value, Tuple):
            fields = e.tuple_value.fields
            return fields[e.index] if free or all(isinstance(f, (Var, Constant)) for f in fields) else None
        if isinstance(e, Let) and (e.var not in used or e.var in once):
            return e.body
        return new[once[e]] if e in once else None

    return rule
