"""Bind the values that several scopes use before the first of these scopes; each scope remains a graph.

    if (%c) { nn.relu(%0) } else { tanh(%0) } with %0 = exp(%x)
      -> let %x1 = exp(%x); if (%c) { nn.relu(%x1) } else { tanh(%x1) }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.analysis.purity import Effect, Effects
from tilewright.relay.expr import Function
from tilewright.relay.scopes import Scopes
from tilewright.relay.transform.to_a_normal_form import Sequencer


@dataclass(frozen=True)
class ToBasicBlockNormalForm(FunctionPass):
    """Bind values used in several scopes to names, and accesses to references where their order matters."""

    kind: ClassVar[type] = Function

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        if not Scopes(function).hoisted:
            return function
        effects = Effects(function, mod)
        return Sequencer(function, lambda e: effects.own(e) is not Effect.NONE).function(function)
