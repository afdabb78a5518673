"""Compute chosen operators in another type, and convert their results back.

    nn.conv2d(%x, w) -> cast(nn.conv2d(cast(%x, "int8"), cast(w, "int8"), out_dtype="int32"), "float32")
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.base.errors import OptionError
from tilewright.base.types import DataType
from tilewright.relay.expr import Call, Expr, Tuple
from tilewright.relay.op.elementwise import Cast
from tilewright.relay.op.registry import Op, get
from tilewright.relay.visitor import post_order, rewrite


def recast(expr: Expr, dtype: str, out_dtype: str, ops: Sequence[str] | None = None, skip_layers: Sequence[int]
           | None = None) -> Expr:
    """Cast the arguments of every call of `ops` (default: `["nn.conv2d"]`) to `dtype`; sums are in `out_dtype`, if the
    operator has this attribute.

    Calls are counted in program order, and those in `skip_layers` stay; -1 is the last. Raises `OptionError` for a
    layer that does not exist, and `CompileError` for an operator that is unknown or does not take `dtype`.
    """
    kinds = tuple(get(name) for name in (ops or ["nn.conv2d"]))
    chosen = [e for e in post_order(expr) if isinstance(e, Call) and type(e.op) in kinds]
    for k in skip_layers or ():
        if not -len(chosen) <= k < len(chosen):
            raise OptionError(f"skip_layers contains layer {k}, but there are only {len(chosen)} calls "
                              f"of {', '.join(kind.name for kind in kinds)}", code="TW0408")
    left = {k % len(chosen) for k in skip_layers or ()}
    seen = 0

    def rule(e: Expr) -> Expr | None:
        nonlocal seen
        if not (isinstance(e, Call) and isinstance(e.op, Op) and type(e.op) in kinds):
            return None
        seen += 1
        if seen - 1 in left:
            return None
        sums = {"out_dtype": out_dtype} if "out_dtype" in e.op.attribute_names else {}
        made = Call(type(e.op)(**{**e.op.attributes(), **sums}), [_cast(a, dtype) for a in e.args], span=e.span)
        return _cast(made, e.tensor_type.dtype)

    return rewrite(expr, rule, inside=True)


def _cast(e: Expr, dtype: str | DataType) -> Expr:
    if isinstance(e, Tuple):
        return Tuple(tuple(_cast(f, dtype) for f in e.fields), e.span)
    return e if e.tensor_type.dtype == dtype else Call(Cast(str(dtype)), [e], span=e.span)
