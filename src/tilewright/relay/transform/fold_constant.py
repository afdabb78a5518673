"""Evaluate constant expressions.

    add(const, const) -> const;   shape_of(%x) -> const when the shape is known
    let %c = const; e -> e with the constant in place of %c;   if (const) { a } else { b } -> a or b
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tilewright.base.types import OpenSize, TensorType, TupleType, Type
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.expr import Call, Constant, Expr, Function, If, Let, Tuple, TupleGetItem, Var
from tilewright.relay.interpreter import apply_op
from tilewright.relay.op.nn_norm import Dropout
from tilewright.relay.op.registry import Op
from tilewright.relay.visitor import post_order, rewrite
from tilewright.scalar.arith.open_sizes import takes_open


@dataclass(frozen=True)
class FoldConstant(FunctionPass):
    """Evaluate calls whose arguments are all constants, by the reference of the operator. Large results stay calls.

    Operators that carry information for quantization passes (the qnn dialect, `Op.telling`) are evaluated with
    `fold_qnn` only. Dropout stays, for `SimplifyInference`.
    """

    fold_qnn: bool = False
    kind: ClassVar[type] = Function
    required: ClassVar[tuple[str, ...]] = ("InferType",)

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        limit = context.get("relay.FoldConstant.max_bytes")
        bound = {e.var: e.value for e in post_order(function) if isinstance(e, Let)}
        new: dict[Expr, Expr] = {}

        def folded(e: Expr) -> Expr | None:
            if isinstance(e, Var):
                value = new.get(bound[e]) if e in bound else None
                return value if isinstance(value, Constant) else None
            return None if _tells(e) and not self.fold_qnn else fold(e, limit)

        return rewrite(function, folded, memo=new)


def _tells(e: Expr) -> bool:
    return isinstance(e, Call) and isinstance(e.op, Op) and (e.op.telling or e.op.name.startswith("qnn."))


def fold(e: Expr, limit: int = 256 << 20) -> Expr | None:
    """A call of an operator on constants -> its value, if that has at most `limit` bytes."""
    if isinstance(e, TupleGetItem) and isinstance(e.tuple_value, Tuple):
        return e.tuple_value.fields[e.index]
    if isinstance(e, Let) and isinstance(e.value, Constant):
        return e.body
    if isinstance(e, If) and isinstance(e.cond, Constant):
        return e.true_branch if e.cond.value else e.false_branch
    if not (isinstance(e, Call) and isinstance(e.op, Op) and e.op.pure) or isinstance(e.op, Dropout):
        return None
    if (size := _known_size(e)) is not None:
        return size
    args = [_value(a) for a in e.args]
    if any(a is None for a in args) or not _fits(e.checked_type, limit) or (takes_open() and _takes_sizes(e.op)):
        return None
    result = apply_op(e, args)
    if isinstance(result, tuple):
        return Tuple(tuple(Constant(r, e.span) for r in result), e.span)
    return Constant(result, e.span)


def _known_size(e: Call) -> Constant | None:
    """Return the value of `shape_of` and `ndarray_size` for a tensor of known shape."""
    if e.op.name not in ("shape_of", "ndarray_size"):
        return None
    kind = e.args[0].known_type()
    if not isinstance(kind, TensorType) or not kind.is_static or kind.is_open:
        return None
    value = kind.shape if e.op.name == "shape_of" else kind.size
    return Constant(np.asarray(value, e.tensor_type.dtype.numpy()), e.span)


def _takes_sizes(op: Op) -> bool:
    """Whether an attribute is a dynamic size: the result then depends on the call, even if its type does not."""
    return any(
        isinstance(x, OpenSize) for value in op.attributes().values()
        for x in (value if isinstance(value, tuple) else (value,)))


def _value(e: Expr) -> Any:
    """Return the value of a constant or of a tuple of constants, else None."""
    if isinstance(e, Constant):
        return e.value
    if isinstance(e, Tuple) and all(isinstance(f, Constant) for f in e.fields):
        return tuple(f.value for f in e.fields if isinstance(f, Constant))
    return None


def _fits(kind: Type, limit: int) -> bool:
    if isinstance(kind, TupleType):
        return all(_fits(f, limit) for f in kind.fields)
    return (isinstance(kind, TensorType) and kind.is_static and not kind.is_open and not kind.dtype.is_object
            and kind.nbytes <= limit)
