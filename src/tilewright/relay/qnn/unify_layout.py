"""Store all images of a quantized network, including inputs and results, in one layout.

    fn (%x: (1, 224, 224, 3)) { qnn.conv2d(%x, w, …, data_layout="NHWC", kernel_layout="HWIO") }
    -> fn (%x: (1, 3, 224, 224)) { qnn.conv2d(%x, w', …) }

    qnn.dense(reshape(transpose(%x, axes=[0, 2, 3, 1]), newshape=[1, 100]), w)
      -> qnn.dense(reshape(%x, newshape=[1, 100]), w')

Weights are reordered at compile time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from tilewright.base.errors import OptionError
from tilewright.base.types import TensorType
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.expr import Call, Constant, Expr, Function, Tuple, Var
from tilewright.relay.op.nn_conv import Conv2d, Convolution
from tilewright.relay.op.registry import Op, Relaid
from tilewright.relay.op.shaping import Reshape, sized
from tilewright.relay.op.transform import Transpose
from tilewright.relay.qnn.arithmetic import QnnAdd, QnnMul, QnnSubtract
from tilewright.relay.qnn.functions import QnnAvgPool2d, QnnSoftmax
from tilewright.relay.qnn.products import QnnConv2d, QnnDense
from tilewright.relay.transform.chosen_layouts import default_kernel_layout, in_layouts
from tilewright.relay.transform.chosen_sweep import ChosenSweep
from tilewright.relay.transform.layout_sweep import Stored
from tilewright.relay.transform.permutations import Perm, axes_of
from tilewright.relay.visitor import post_order, rewrite
from tilewright.topi.orders import order_of

LAYOUTS: Final = ("NCHW", "NHWC")


@dataclass(frozen=True)
class UnifyLayout(FunctionPass):
    """Store all images in `layout`, "NCHW" or "NHWC". Needs known types.

    Images are the four-dimensional inputs and results of a `main` whose convolutions have one layout. With
    `keep_signature` they keep their order, and transposes are inserted at the borders. Raises `OptionError` for other
    layouts.
    """

    layout: str = "NCHW"
    keep_signature: bool = False
    kind: ClassVar[type] = Function

    def __post_init__(self) -> None:
        if self.layout not in LAYOUTS:
            raise OptionError(f"layout {self.layout} is not supported for a quantized network; it must be NCHW or "
                              "NHWC", code="TW0410")

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        order = post_order(function.body, inside=False)
        if not any(isinstance(e, Call) and isinstance(e.op, (QnnConv2d, QnnAvgPool2d)) for e in order):
            return function
        is_main = "main" in mod and mod["main"] is function
        made = _in_layout(function, order, self.layout, self.keep_signature or not is_main)
        return rewrite(made, turned_weight)


def _in_layout(function: Function, order: Sequence[Expr], wanted: str, keep: bool) -> Function:
    known = {e.op.data_layout for e in order if isinstance(e, Call) and isinstance(e.op, (Conv2d, QnnConv2d))}
    known |= {e.op.layout for e in order if isinstance(e, Call) and isinstance(e.op, QnnAvgPool2d)}
    if not known <= set(LAYOUTS):
        return function
    sweep = _Sweep(order, wanted)
    if known == {_other(wanted)}:
        sweep.perm = order_of(_other(wanted), wanted)
    new: dict[Expr, Var] = {}
    for e in order:
        if isinstance(e, Var) and sweep.perm is not None and e in function.params and _is_image(e):
            inner: Expr = Call(Transpose(sweep.perm), [e])
            if not keep:
                kind = e.tensor_type
                new[e] = Var(e.name_hint, TensorType(tuple(kind.shape[p] for p in sweep.perm), kind.dtype), e.span)
                inner = new[e]
            sweep.stored[e] = Stored(inner, sweep.perm)
        else:
            sweep.visit(e)
    body = _results(function.body, sweep, keep)
    if body is function.body and not new:
        return function
    params = [new.get(p, p) for p in function.params]
    return Function(params, body, None, function.type_params, function.attrs, function.span)


def _other(name: str) -> str:
    return LAYOUTS[1 - LAYOUTS.index(name)]


def _is_image(e: Expr) -> bool:
    kind = e.known_type()
    return isinstance(kind, TensorType) and kind.ndim == 4


def _results(body: Expr, sweep: _Sweep, keep: bool) -> Expr:
    """The results: images in the stored order, all others in their original order."""
    fields = body.fields if isinstance(body, Tuple) else (body,)
    found = [sweep.stored[f].expr if not keep and _is_image(f) and sweep.stored[f].perm == sweep.perm
             else sweep.logical(f) for f in fields]
    if all(a is b for a, b in zip(found, fields, strict=True)):
        return body
    return Tuple(tuple(found), body.span) if isinstance(body, Tuple) else found[0]


class _Sweep(ChosenSweep):
    """The layout sweep over convolutions, pools, and the operators of the dialect that follow."""

    def __init__(self, order: Sequence[Expr], wanted: str) -> None:
        super().__init__(order, self._chosen)
        self.wanted = wanted
        self.perm: Perm | None = None

    def _chosen(self, e: Call) -> Op | None:
        how: Any = e.op
        attrs = how.attributes()
        name = "data_layout" if isinstance(how, Convolution) else "layout"
        if attrs.get(name) not in LAYOUTS or attrs.get("out_layout"):
            return None
        if "kernel_layout" not in attrs:
            return in_layouts(how, [self.wanted])
        return in_layouts(how, [self.wanted, default_kernel_layout(self.wanted, getattr(how, "transposed", False))])

    def rule(self, e: Call, perms: Sequence[Perm | None]) -> Relaid | None:
        perm = perms[0] if perms else None
        if isinstance(e.op, (QnnAdd, QnnSubtract, QnnMul)):
            perm = perm or perms[1]
            one = all(isinstance(a, Constant) and a.value.size == 1 for a in e.args[2:])
            if perm is None or not one or len({a.tensor_type.ndim for a in (*e.args[:2], e)}) != 1:
                return (e.op, (None,) * len(perms), None)
            return e.op, (perm, perm, *(None,) * 6), perm
        if isinstance(e.op, QnnSoftmax) and perm is not None:
            return QnnSoftmax(perm.index(e.op.axis % len(perm))), (perm, *(None,) * 4), perm
        return super().rule(e, perms)


def turned_weight(e: Expr) -> Expr | None:
    """A matrix product of a transposed image -> the product of the image with the weight's columns reordered."""
    if not (isinstance(e, Call) and isinstance(e.op, QnnDense) and isinstance(e.args[1], Constant)):
        return None
    view = e.args[0]
    if not (isinstance(view, Call) and isinstance(view.op, Reshape) and isinstance(view.args[0], Call)
            and isinstance(view.args[0].op, Transpose)):
        return None
    moved = view.args[0]
    axes, shape = axes_of(moved), moved.tensor_type.shape
    if (axes[0] != 0 or not all(isinstance(n, int) for n in shape)
            or view.tensor_type.shape != (shape[0], math.prod(shape[1:]))):
        return None
    back = [axes.index(k) - 1 for k in range(1, len(axes))]
    weight = e.args[1].value
    turned = weight.reshape(weight.shape[0], *shape[1:]).transpose(0, *(b + 1 for b in back)).reshape(weight.shape)
    data = Call(sized(view.tensor_type.shape), [moved.args[0]], span=view.span)
    return Call(e.op, [data, Constant(np.ascontiguousarray(turned), e.args[1].span), *e.args[2:]], span=e.span)
