"""Know every type, or say which call's is not known.

Calls infer their types when they are built; this pass is for graphs made of variables that were annotated later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.expr import Function, GlobalVar
from tilewright.relay.visitor import post_order


@dataclass(frozen=True)
class InferType(FunctionPass):
    """Raises `CompileError` at the first value whose type is not known; changes nothing."""

    kind: ClassVar[type] = Function

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        for e in post_order(function):
            if isinstance(e, GlobalVar) and e in mod:
                continue
            _ = e.checked_type
        return function
