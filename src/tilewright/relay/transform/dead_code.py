"""Remove what nothing reads: fields taken of literal tuples, variables that are bound and not used.

    (%a, %b).0 -> %a;   let %v = e1; e2 -> e2 when e2 does not use %v
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.expr import Expr, Function, Let, Tuple, TupleGetItem, Var
from tilewright.relay.visitor import post_order, rewrite


@dataclass(frozen=True)
class DeadCodeElimination(FunctionPass):
    """A graph holds no dead calls; what can be dead are lets and the fields of tuples."""

    kind: ClassVar[type] = Function
    opt_level: ClassVar[int] = 1

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        while True:
            used: set[Expr] = {e for e in post_order(function) if isinstance(e, Var)}
            new = rewrite(function, remove_dead(used))
            if new is function:
                return new
            function = new


def remove_dead(used: set[Expr]) -> Callable[[Expr], Expr | None]:
    """The rule, for a function that uses the variables `used`."""

    def rule(e: Expr) -> Expr | None:
        if isinstance(e, TupleGetItem) and isinstance(e.tuple_value, Tuple):
            return e.tuple_value.fields[e.index]
        if isinstance(e, Let) and e.var not in used:
            return e.body
        return None

    return rule
