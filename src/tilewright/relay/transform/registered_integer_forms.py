"""Integer forms of float operators that programs register, for `FakeQuantizationToInteger`.

    @relay.op.register_fake_quantization_to_integer("my.scale")
    def scaled(expr, type_map):                     # expr: the call on the integers of its arguments
        given = type_map[expr.args[0]]              # scale and zero point of an argument: a TensorAffineType
        return [expr.args[0], TensorAffineType(given.scale * relay.const(2.0), given.zero_point, given.dtype)]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.errors import CompileError
from tilewright.ir.affine_type import AffineType, TensorAffineType, TupleAffineType
from tilewright.relay.expr import Call, Constant, Expr, Tuple
from tilewright.relay.op.registry import Array
from tilewright.relay.qnn.affine import Argument, Quantized
from tilewright.relay.transform.fold_constant import fold
from tilewright.relay.visitor import rewrite

REFUSALS: Final = (CompileError, AssertionError, KeyError, NotImplementedError)
"""Errors by which a registered form leaves an operator in floating point."""


def registered_form(form: Callable[..., Any], call: Call, args: Sequence[Argument]) -> Quantized | None:
    """Return the integers that a registered function gives for a call; None for a tuple with unquantized parts.

    Raises `CompileError` for a result that is not a pair of an expression and its `TensorAffineType`.
    """
    given: list[Expr] = [a.expr if isinstance(a, Quantized) else a for a in args]
    types: dict[Expr, AffineType] = {a.expr: _type_of(a) for a in args if isinstance(a, Quantized)}
    if isinstance(call.args[0], Tuple):
        if len(types) < len({*given}):
            return None
        whole = Tuple(tuple(given))
        types[whole] = TupleAffineType([_type_of(a) for a in args if isinstance(a, Quantized)])
        given = [whole]
    found = form(Call.untyped(call.op, given, call.span), types)
    if not isinstance(found, (list, tuple)) or len(found) != 2 or not isinstance(found[1], TensorAffineType):
        raise CompileError(
            f"the integer form of {call.op} returned a {type(found).__name__}; it must return a list of an expression "
            "and its TensorAffineType", call.span, code="TW1005")
    expr, kind = found
    return Quantized(expr, _number(kind.scale, "float32"), _number(kind.zero_point, "int32"), int(kind.axis))


def _type_of(q: Quantized) -> TensorAffineType:
    scale, zero_point = q.parameters()
    return TensorAffineType(scale, zero_point, str(q.expr.tensor_type.dtype), q.axis)


def _number(e: Expr, dtype: str) -> Array:
    """Return the value of a constant expression. Raises `CompileError` for another one."""
    value = rewrite(e, fold)
    if not isinstance(value, Constant):
        raise CompileError(
            "the scale and the zero point of an integer form must be constants; compute them from constants only",
            e.span, code="TW1005")
    return np.asarray(value.value, dtype)
