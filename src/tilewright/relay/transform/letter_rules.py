"""How operators work on values in another layout, beyond `Op.relayout`: for layouts that programs choose by name.

    nn.max_pool2d(%x, layout="NHWC") of %x stored as NCHW -> nn.max_pool2d(%x, layout="NCHW"), stored as NCHW
    nn.layer_norm(%x, g, b, axis=3) of %x stored as NCHW -> nn.layer_norm(%x, g, b, axis=1)

The compiler's own choice of layouts does not use these rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from tilewright.base.errors import CompileError
from tilewright.base.types import TensorType
from tilewright.relay.expr import Call
from tilewright.relay.op.registry import Op, Relaid
from tilewright.relay.transform.permutations import Perm
from tilewright.topi.orders import layout_of

Rule = Callable[[Call, Perm], "Relaid | None"]


def relaid(e: Call, perms: Sequence[Perm | None]) -> Relaid | None:
    """Return the operator for a first argument stored in a permuted order, and the orders of its arguments and of its
    result; None if there is no rule."""
    rule, perm = RULES.get(e.op.name), perms[0]
    if rule is None or perm is None or e.args[0].tensor_type.ndim != len(perm):
        return None
    try:
        how = rule(e, perm)
        if how is not None:
            op, orders, _ = how
            op.infer_call([t if p is None else TensorType([t.shape[d] for d in p], t.dtype)
                           for t, p in zip((a.tensor_type for a in e.args), orders, strict=True)], e.span)
    except CompileError:  # the operator does not have this layout
        return None
    return how


def _changed(op: Op, **attrs: Any) -> Op:
    return type(op)(**{**op.attributes(), **attrs})


def _moved(op: Op, e: Call, perm: Perm) -> Relaid:
    """Return `op` for a permuted first argument, with all others in their logical order."""
    return op, (perm, *(None,) * (len(e.args) - 1)), perm


def _layout(e: Call, perm: Perm) -> Relaid | None:
    """Permute the letters of `layout`."""
    own = e.op.layout
    if len(own) != len(perm) or e.op.attributes().get("out_layout"):
        return None
    return _moved(_changed(e.op, layout=layout_of(perm, own)), e, perm)


def _axis(e: Call, perm: Perm) -> Relaid:
    """Move `axis`, a number or several."""
    old = e.op.axis
    axes = tuple(perm.index(a % len(perm)) for a in ((old,) if isinstance(old, int) else old))
    return _moved(_changed(e.op, axis=axes[0] if isinstance(old, int) else axes), e, perm)


def _every_axis(e: Call, perm: Perm) -> Relaid | None:
    return None if e.op.axis is None else _axis(e, perm)


def _like(e: Call, perm: Perm) -> Relaid | None:
    """Move `axes` of two arguments of the same rank."""
    if e.op.axes is None or e.args[1].tensor_type.ndim != len(perm):
        return None
    return _changed(e.op, axes=tuple(perm.index(a % len(perm)) for a in e.op.axes)), (perm, perm), perm


def _quantized_binary(e: Call, perm: Perm) -> Relaid | None:
    """Move the axes of the scales of two arguments of the same rank."""
    lhs, rhs = e.args[:2]
    if lhs.tensor_type.ndim != rhs.tensor_type.ndim:
        return None
    if all(not a.tensor_type.shape for a in e.args[2:]):
        return e.op, (perm, perm, *(None,) * (len(e.args) - 2)), perm
    axes = {n: perm.index(getattr(e.op, n) % len(perm)) for n in ("lhs_axis", "rhs_axis")}
    return _changed(e.op, **axes), (perm, perm, *(None,) * (len(e.args) - 2)), perm


def _per_element(e: Call, perm: Perm) -> Relaid:
    return _moved(e.op, e, perm)


RULES: Final[dict[str, Rule]] = {
    **dict.fromkeys((
        *(f"nn.{kind}_pool{n}d" for kind in ("max", "avg", "adaptive_max", "adaptive_avg") for n in (1, 2, 3)),
        "nn.global_max_pool2d", "nn.global_avg_pool2d", "nn.upsampling", "nn.upsampling3d", "image.resize1d",
        "image.resize2d", "image.resize3d", "nn.depth_to_space", "nn.space_to_depth"), _layout),
    **dict.fromkeys(("nn.layer_norm", "nn.instance_norm", "nn.batch_norm", "nn.group_norm", "topk", "argsort", "sort",
                     "cumsum", "cumprod"), _axis),
    **dict.fromkeys(("qnn.add", "qnn.subtract", "qnn.mul"), _quantized_binary),
    "nn.l2_normalize": _every_axis, "slice_like": _like, "relay.op.annotation.simulated_quantize": _per_element,
}
