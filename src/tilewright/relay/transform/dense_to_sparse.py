"""Replace products with sparse weights by operators that skip zeros: a parameter becomes its nonzero blocks and their
positions.

    nn.dense(%x, %w) -> nn.sparse_dense(%x, %w.data, %w.indices, %w.indptr)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.base.errors import OptionError
from tilewright.base.types import TensorType
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay.expr import Call, Expr, Function, Var, const
from tilewright.relay.op.nn_matmul import Dense
from tilewright.relay.op.nn_sparse import SparseDense, packed
from tilewright.relay.visitor import consumers, post_order, rewrite

PARTS = ("data", "indices", "indptr")


@dataclass(frozen=True)
class DenseToSparse(Pass):
    """Replace the parameters `weight_name` of `main`, which only `nn.dense` may read, by sparse ones, of three shapes
    `weight_shape` each.
    """

    weight_name: Sequence[str]
    weight_shape: Sequence[Sequence[Sequence[int]]]

    def __post_init__(self) -> None:
        if len(self.weight_name) != len(self.weight_shape) or any(len(s) != 3 for s in self.weight_shape):
            raise OptionError("weight_shape has three shapes for each of weight_name: of the data, the indices and the "
                              "row starts", code="TW0408")

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        main = mod["main"]
        shapes = dict(zip(self.weight_name, self.weight_shape, strict=True))
        found = [w for w in search_dense_weights(main) if w.name_hint in shapes]
        new = {w: sparse_parts(w, shapes[w.name_hint]) for w in found}
        if not new:
            return mod

        def rule(e: Expr) -> Expr | None:
            parts = new.get(e.args[1]) if isinstance(e, Call) and isinstance(e.op,  # type: ignore[call-overload]
                Dense) else None
            return None if parts is None or not isinstance(e, Call) else Call(SparseDense(), [e.args[0], *parts],
                span=e.span)

        done = mod.copy()
        params = [q for p in main.params for q in new.get(p, [p])]
        done["main"] = Function(params, rewrite(main.body, rule), main.declared_ret_type, main.type_params, main.attrs,
                                main.span)
        return done


def search_dense_weights(func: Function) -> list[Var]:
    """Return the parameters used only as the weight of `nn.dense`."""
    users = consumers(post_order(func))
    return [p for p in func.params if users.get(p)
            and all(isinstance(u, Call) and isinstance(u.op, Dense) and _is_weight(u, p) for u in users[p])]


def convert(func: Function, params: Mapping[str, Any], blocksize: tuple[int, int],
            sparsity_threshold: float) -> tuple[Function, dict[str, Any]]:
    """Make weights with a share of zeros of at least `sparsity_threshold` sparse, in blocks of `blocksize`. Return the
    function and its new parameters."""
    kept, names, shapes = dict(params), [], []
    for w in search_dense_weights(func):
        value = const(params[w.name_hint]).value if w.name_hint in params else None
        if (value is None or 1 - np.count_nonzero(value) / value.size < sparsity_threshold
                or value.shape[0] % blocksize[0] or value.shape[1] % blocksize[1]):
            continue
        parts = packed(value, blocksize)
        names.append(w.name_hint)
        shapes.append([a.shape for a in parts])
        del kept[w.name_hint]
        kept.update({f"{w.name_hint}.{p}": const(a).data for p, a in zip(PARTS, parts, strict=True)})
    return DenseToSparse(names, shapes)(IRModule.from_expr(func))["main"], kept


def sparse_parts(w: Var, shapes: Sequence[Sequence[int]]) -> list[Var]:
    """Return the parameters of a sparse weight: values, columns and row starts."""
    return [_part(w, p, s) for p, s in zip(PARTS, shapes, strict=True)]


def _part(w: Var, part: str, shape: Sequence[int]) -> Var:
    dtype = w.tensor_type.dtype if part == "data" else "int32"
    return Var(f"{w.name_hint}.{part}", TensorType(shape, dtype), w.span)


def _is_weight(call: Call, p: Var) -> bool:
    return (call.args[1] is p and call.args[0] is not p and call.args[0].tensor_type.ndim == 2
            and call.tensor_type.dtype is p.tensor_type.dtype)
