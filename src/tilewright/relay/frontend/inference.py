"""TVM's `relay.frontend.common`: types and values of expressions, for importers that programs write.

    infer_shape(x), infer_type(x).checked_type, infer_value(relay.add(x, one), {"x": array})
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.base.nd import NDArray, array
from tilewright.base.types import TupleType
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Expr, Function, Var, var
from tilewright.relay.interpreter import evaluate
from tilewright.relay.op.registry import tensors
from tilewright.relay.transform.bind_params import bind_params_by_name
from tilewright.relay.transform.infer_type import InferType
from tilewright.relay.visitor import free_vars

__all__ = ["infer_channels", "infer_shape", "infer_type", "infer_value", "new_var"]


def infer_type(node: Expr, mod: IRModule | None = None) -> Any:
    """Return `node` with its types inferred, among the functions of `mod`."""
    whole = IRModule() if mod is None else mod.copy()
    whole["main"] = node if isinstance(node, Function) else Function(free_vars(node), node)
    done = InferType()(whole)["main"]
    return done if isinstance(node, Function) else done.body


def infer_shape(inputs: Expr, mod: IRModule | None = None) -> Any:
    """Return the shape of an expression; for a tuple, the shapes of its fields."""
    found = infer_type(inputs, mod).checked_type
    if isinstance(found, TupleType):
        return [t.shape for t in tensors(*found.fields)]
    return tensors(found)[0].shape


def infer_channels(inputs: Expr, transpose: bool = False) -> int:
    """Return the number of channels of weights: the first dimension, or the second of transposed ones."""
    return int(infer_shape(inputs)[1 if transpose else 0])


def infer_value(input_val: Expr, params: Mapping[str, Any], mod: IRModule | None = None) -> NDArray:
    """Return the value of an expression over the parameters `params`, by name."""
    bound = bind_params_by_name(Function(free_vars(input_val), input_val), params)
    return array(evaluate(infer_type(bound, mod)))


def new_var(name_hint: str, type_annotation: Any = None, shape: Any = None, dtype: str = "float32") -> Var:
    """Return a variable, as `relay.var`."""
    return var(name_hint, type_annotation, shape, dtype)
