"""Rewrite equivalent forms of a call to one form.

    nn.bias_add(%x, b, axis=1)
        -> add(%x, b')                 b' has an axis of size 1 for each later axis, so that it broadcasts

In the compiler's form also:

    add(const, %x)                   -> add(%x, const)
    subtract(%x, const)              -> add(%x, -const)             floats
    layout_transform(%x, "NCHW", "NHWC") -> transpose(%x, [0, 2, 3, 1])
    nn.batch_flatten, squeeze, expand_dims of a known shape -> reshape
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.base.types import TensorType
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.expr import Call, Constant, Expr, Function
from tilewright.relay.op.blocks import LayoutTransform
from tilewright.relay.op.broadcast import Add, Multiply, Subtract
from tilewright.relay.op.nn_matmul import BiasAdd
from tilewright.relay.op.registry import Op
from tilewright.relay.op.shaping import ExpandDims, Reshape
from tilewright.relay.op.transform import Transpose
from tilewright.relay.transform.permutations import reshaped
from tilewright.relay.visitor import rewrite


@dataclass(frozen=True)
class CanonicalizeOps(FunctionPass):
    """Rewrite bias additions to additions of `expand_dims(bias)`. Needs known types.

    Without `biases_only`, the compiler's form: biases are reshaped, constants are on the right, and views are reshapes.
    """

    biases_only: bool = True
    kind: ClassVar[type] = Function
    required: ClassVar[tuple[str, ...]] = ("InferType",)

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        return rewrite(function, expanded_bias if self.biases_only else canonical)


def expanded_bias(e: Expr) -> Expr | None:
    """Return the addition for a call of `nn.bias_add`; None for other calls."""
    if not isinstance(e, Call) or not isinstance(e.op, BiasAdd) or e.known_type() is None:
        return None
    x, bias = e.args
    behind = x.tensor_type.ndim - 1 - e.op.axis % x.tensor_type.ndim
    wide = Call(ExpandDims(axis=1, num_newaxis=behind), [bias], span=e.span) if behind else bias
    return Call(Add(), [x, wide], span=e.span)


def canonical(e: Expr) -> Expr | None:
    """Return the canonical form of a call; None if it is already canonical."""
    if not isinstance(e, Call) or not isinstance(e.op, Op) or e.known_type() is None:
        return None
    if isinstance(e.op, BiasAdd):
        x, bias = e.args
        axis = e.op.axis % x.tensor_type.ndim
        behind = x.tensor_type.ndim - 1 - axis
        wide = reshaped(bias, (*bias.tensor_type.shape, *(1,) * behind)) if behind else bias
        return Call(Add(), [x, wide], span=e.span)
    if isinstance(e.op, (Add, Multiply)) and isinstance(e.args[0], Constant) and not isinstance(e.args[1], Constant):
        return Call(e.op, [e.args[1], e.args[0]], span=e.span)
    if isinstance(e.op, Subtract) and isinstance(e.args[1], Constant) and e.args[1].tensor_type.dtype.is_float:
        return Call(Add(), [e.args[0], Constant(-e.args[1].value, e.args[1].span)], span=e.span)
    if isinstance(e.op, LayoutTransform):
        return _turned(e, e.op)
    kind = e.known_type()
    if e.op.view and isinstance(kind, TensorType) and kind.is_static and not (isinstance(e.op, Reshape)
            and e.op.newshape == kind.shape):
        return reshaped(e.args[0], kind.shape)
    return None


def _turned(e: Call, op: LayoutTransform) -> Expr | None:
    """Return the transpose for a change of layout without blocks."""
    before, after = op.src_layout, op.dst_layout
    if not before.isalpha() or not after.isalpha() or sorted(before) != sorted(after) or before == after:
        return None
    return Call(Transpose(tuple(before.index(letter) for letter in after)), [e.args[0]], span=e.span)
