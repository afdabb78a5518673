"""Replace lets by sharing.

    let %v = nn.relu(%x); add(%v, %v) -> %0 = nn.relu(%x); add(%0, %0)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.expr import Expr, Function, Let, Var
from tilewright.relay.visitor import post_order, rewrite


@dataclass(frozen=True)
class ToGraphNormalForm(FunctionPass):
    """Leaves no let, in straight-line code, in branches and in functions that are called in place alike: values are pure, so where they are computed is free."""

    kind: ClassVar[type] = Function

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        lets: dict[Expr, Expr] = {e.var: e.value for e in post_order(function) if isinstance(e, Let)}
        if not lets:
            return function
        new: dict[Expr, Expr] = {}

        def rule(e: Expr) -> Expr | None:
            if isinstance(e, Let):
                return e.body
            return new[lets[e]] if isinstance(e, Var) and e in lets else None

        return rewrite(function, rule, inside=True, memo=new)
