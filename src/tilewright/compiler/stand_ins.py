"""Stand-ins for a library of C functions that is not there: its calls become kernels of ours, each under the name of the call it stands for.

    def @main(%x) { @bnns_0(%x) }
    def @bnns_0(%p, Compiler="bnns", …) { (fn (%a, Composite="bnns.conv2d_bias") { nn.bias_add(nn.conv2d(%a, w), b) })(%p) }
    -> def @main(%x) { (fn (%a, %c0, %c1, Primitive=1, StandIn="bnns.conv2d_bias") { nn.bias_add(nn.conv2d(%a, %c0), %c1) })(%x, w, b) }

The layouts, the fusion and the order are those that the library was given, so what the partition says stays to be seen in the program. It
says nothing of the library's speed. Only where `relay.library_calls.stand_in` asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tilewright.ir.module import IRModule
from tilewright.ir.transform import PassContext
from tilewright.relay.expr import Call, Constant, Expr, Function, GlobalVar, Var
from tilewright.relay.transform.infer_type import InferType
from tilewright.relay.visitor import post_order, rewrite, substitute

LIBRARIES: Final = ("bnns",)
"""The libraries whose calls have stand-ins: those of float operators, which are kernels as they are."""
STAND_IN: Final = "StandIn"
"""The attribute of a primitive function that stands for a call: the name of the row of the pattern table."""


def with_stand_ins(mod: IRModule) -> IRModule:
    """`mod`, with kernels in the place of its functions for `LIBRARIES`, where the context asks for them; else as it is."""
    if not PassContext.current().get("relay.library_calls.stand_in"):
        return mod
    parts = {n: f for n, f in mod.items() if isinstance(f, Function) and f.attrs.get("Compiler") in LIBRARIES}
    if not parts:
        return mod
    rest = mod.copy()
    for name in parts:
        rest.remove(name)
    return InferType()(rest.map_functions(lambda f: rewrite(f, lambda e: _inlined(e, parts)), Function))


def _inlined(e: Expr, parts: Mapping[str, Function]) -> Expr | None:
    """What a part computes, in the place of its call."""
    if not (isinstance(e, Call) and isinstance(e.op, GlobalVar) and e.op.name_hint in parts):
        return None
    part = parts[e.op.name_hint]
    body = rewrite(part.body, _kernel)
    return substitute(body, dict(zip(part.params, e.args, strict=True)))


def _kernel(e: Expr) -> Expr | None:
    """A call of a composite function as one of a primitive function, its constants among the arguments."""
    if not (isinstance(e, Call) and isinstance(e.op, Function) and "Composite" in e.op.attrs):
        return None
    constants = [c for c in post_order(e.op.body) if isinstance(c, Constant)]
    params = {c: Var(f"constant_{k}", c.checked_type) for k, c in enumerate(constants)}
    body = rewrite(e.op.body, lambda c: params.get(c) if isinstance(c, Constant) else None)
    function = Function((*e.op.params, *params.values()), body, attrs={"Primitive": 1, STAND_IN: e.op.attrs["Composite"]}, span=e.op.span)
    return Call(function, (*e.args, *constants), span=e.span)
