"""Replace training operators by their inference forms: batch norm -> scale and shift, dropout -> its input.

    %0 = nn.batch_norm(%x, gamma, beta, mean, var); %0.0 -> add(multiply(%x, scale), shift)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.expr import Call, Expr, Function, Tuple, TupleGetItem
from tilewright.relay.op.registry import Op
from tilewright.relay.visitor import rewrite


@dataclass(frozen=True)
class SimplifyInference(FunctionPass):
    """Apply `Op.simplify` to every call and to its results, until nothing changes. Needs known types."""

    kind: ClassVar[type] = Function
    required: ClassVar[tuple[str, ...]] = ("InferType",)

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        while (new := rewrite(function, simplify_call)) is not function:
            function = new
        return function


def simplify_call(e: Expr) -> Expr | None:
    """An operator -> the simpler graph that it declares, repeatedly."""
    if isinstance(e, TupleGetItem) and isinstance(e.tuple_value, Tuple):
        return e.tuple_value.fields[e.index]
    found: Expr | None = None
    now: Expr | None = e
    while isinstance(now, Call) and isinstance(now.op, Op):
        now = now.op.simplify(now)
        found = found if now is None else now
    return found
