"""Replace lets by sharing.

    let %v = nn.relu(%x); add(%v, %v) -> %0 = nn.relu(%x); add(%0, %0)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.analysis.purity import Effects
from tilewright.relay.expr import Expr, Function, Let, Var
from tilewright.relay.visitor import free_vars, post_order, rewrite


@dataclass(frozen=True)
class ToGraphNormalForm(FunctionPass):
    """Replace lets of pure values by shared nodes, including in branches; accesses to references keep their order."""

    kind: ClassVar[type] = Function

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        lets: dict[Expr, Expr] = {e.var: e.value for e in post_order(function) if isinstance(e, Let)}
        if lets:
            effects = Effects(function, mod)
            lets = {v: value for v, value in lets.items() if effects.pure(value) and not _calls_itself(v, value)}
        if not lets:
            return function
        new: dict[Expr, Expr] = {}

        def rule(e: Expr) -> Expr | None:
            if isinstance(e, Let):
                return e.body if e.var in lets else None
            return new[lets[e]] if isinstance(e, Var) and e in lets else None

        return rewrite(function, rule, inside=True, memo=new)


def _calls_itself(var: Expr, value: Expr) -> bool:
    """Return whether a bound function is recursive."""
    return isinstance(value, Function) and var in free_vars(value)
