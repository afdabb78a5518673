"""Gradient rules of operators, by family, and of the operators that programs register.

    @relay.op.register_gradient("my.scale")
    def my_scale_gradient(orig, grad): return [grad * relay.const(2.0)]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tilewright.ir.op_attributes import op_attr
from tilewright.relay.expr import Call, Expr
from tilewright.relay.op.gradients import elementwise, layers, moves, products, reduction
from tilewright.relay.op.gradients.building import GradientRule
from tilewright.relay.op.hooks import GRADIENT

_RULES: Final[dict[str, GradientRule]] = {
    **elementwise.RULES, **reduction.RULES, **moves.RULES, **products.RULES, **layers.RULES,
}

__all__ = ["GradientRule", "expansion_of", "names_with_gradient", "rule_of"]


def rule_of(call: Call) -> GradientRule | None:
    """The registered rule of the operator of a call, or the rule of the package; None if there is neither."""
    registered: GradientRule | None = op_attr(call.op.name, GRADIENT)
    return registered or _RULES.get(call.op.name)


def expansion_of(call: Call) -> Expr | None:
    """A graph with the value of a call of an operator without a rule, made of simpler operators; None if unknown."""
    expand: Callable[[Call], Expr] | None = layers.EXPANSIONS.get(call.op.name)
    found: Expr | None = call.op.simplify(call) if expand is None else expand(call)
    return found


def names_with_gradient() -> list[str]:
    """Return the names of the operators with a rule or an expansion in the package."""
    return sorted({*_RULES, *layers.EXPANSIONS})
