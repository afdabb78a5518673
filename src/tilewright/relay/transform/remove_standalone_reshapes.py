"""Move primitive functions that only reshape into the functions that read their results.

    %1 = @reshape_only(%x); %2 = @conv(%1, w)  ->  %2 = @conv'(%x, w)        conv' reshapes its first parameter itself

A result of `main` that is reshaped, alone or in a tuple, stays a call. All types stay the same, so the module can still
be verified.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.base.types import TensorType
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.expr import Call, Expr, Function, Var
from tilewright.relay.op.shaping import Reshape
from tilewright.relay.visitor import rewrite


@dataclass(frozen=True)
class RemoveStandaloneReshapes(FunctionPass):
    """Move reshapes into the kernels that read them. Run it after `FuseOps`. Results of `main` stay; all types are
    kept.
    """

    kind: ClassVar[type] = Function

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        return rewrite(function, _into_reader)


def _into_reader(e: Expr) -> Expr | None:
    if not isinstance(e, Call) or not isinstance(e.op, Function) or not e.op.attrs.get("Primitive"):
        return None
    sources = [_source(a) for a in e.args]
    if all(s is None for s in sources):
        return None
    params, seen = list(e.op.params), {}
    for k, (p, s) in enumerate(zip(e.op.params, sources, strict=True)):
        if s is not None:
            params[k] = Var(p.name_hint, s.checked_type, p.span)
            seen[p] = Reshape(p.tensor_type.shape, allowzero=True)(params[k], span=e.span)
    body = rewrite(e.op.body, lambda x: seen.get(x) if isinstance(x, Var) else None)
    reader = Function(params, body, e.op.declared_ret_type, e.op.type_params, e.op.attrs, e.op.span)
    return Call(reader, [a if s is None else s for a, s in zip(e.args, sources, strict=True)], span=e.span)


def _source(e: Expr) -> Expr | None:
    """Return the argument of a call of a function that only reshapes; None for other calls."""
    if not (isinstance(e, Call) and isinstance(e.op, Function) and e.op.attrs.get("reshape_only") and len(e.args) == 1):
        return None
    kind = e.known_type()
    return e.args[0] if isinstance(kind, TensorType) and kind.is_static else None
