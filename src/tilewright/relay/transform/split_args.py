"""Split concatenations of many tensors, since a kernel has a limited number of arguments.

    concatenate((%a, %b, %c, %d))
      -> concatenate((stop_fusion(concatenate((%a, %b))), stop_fusion(concatenate((%c, %d)))))   at most 3 arguments
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.base.errors import OptionError
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.expr import Call, Expr, Function, Tuple
from tilewright.relay.op.annotation import StopFusion
from tilewright.relay.op.transform import Concatenate
from tilewright.relay.visitor import rewrite


@dataclass(frozen=True)
class SplitArgs(FunctionPass):
    """Split concatenations whose kernels would have more than `max_function_args` arguments, the result included.

    The parts are not fused with each other. 0 and -1, the value of targets without a limit, mean no limit.
    """

    max_function_args: int
    kind: ClassVar[type] = Function
    required: ClassVar[tuple[str, ...]] = ("InferType",)
    opt_level: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if self.max_function_args < -1 or self.max_function_args in (1, 2):
            raise OptionError("max_function_args must be 0 or -1 (no limit), or 3 or more, not "
                              f"{self.max_function_args}", code="TW0408")

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        return rewrite(function, self._split) if self.max_function_args > 0 else function

    def _split(self, e: Expr) -> Expr | None:
        if not (isinstance(e, Call) and isinstance(e.op, Concatenate) and isinstance(e.args[0], Tuple)):
            return None
        parts: list[Expr] = list(e.args[0].fields)
        most = self.max_function_args - 1
        if len(parts) <= most:
            return None
        while len(parts) > most:
            groups = [parts[k : k + most] for k in range(0, len(parts), most)]
            parts = [g[0] if len(g) == 1 else self._part(e, g) for g in groups]
        return Call(e.op, [Tuple(tuple(parts))], span=e.span)

    def _part(self, e: Call, fields: list[Expr]) -> Expr:
        """Return the concatenation of some tensors as a kernel of its own."""
        return Call(StopFusion(), [Call(e.op, [Tuple(tuple(fields))], span=e.span)], span=e.span)
