"""Replace products with sparse weights by operators that skip zeros: a parameter becomes its nonzero blocks and their
positions.

    nn.dense(%x, %w) -> nn.sparse_dense(%x, %w.data, %w.indices, %w.indptr)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tilewright.base.errors import OptionError
from tilewright.base.types import TensorType
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay.expr import Call, Expr, Function, Var, const
from tilewright.relay.op.nn_matmul import Dense
from tilewright.relay.op.nn_sparse import SparseDense, packed
from tilewright.relay.op.registry import Op
from tilewright.relay.visitor import consumers, post_order, rewrite

Parts = tuple[Any, Any, Any]
_PARTS = ("data", "indices", "indptr")


@dataclass(frozen=True)
class WeightsToSparse:
    """Part of the passes that replace the parameters `weight_name` of `main` by sparse ones, of three shapes
    `weight_shape` each.
    """

    weight_name: Sequence[str]
    weight_shape: Sequence[Sequence[Sequence[int]]]
    dense: ClassVar[type[Op]]
    """The operators whose weights become sparse."""

    def __post_init__(self) -> None:
        if len(self.weight_name) != len(self.weight_shape) or any(len(s) != 3 for s in self.weight_shape):
            raise OptionError("weight_shape needs three shapes for each entry of weight_name: data, "
                              "indices and indptr", code="TW0408")

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        main = mod["main"]
        shapes = dict(zip(self.weight_name, self.weight_shape, strict=True))
        new = {w: _parts(w, shapes[w.name_hint]) for w in self.weights(main) if w.name_hint in shapes}
        if not new:
            return mod

        def rule(e: Expr) -> Expr | None:
            weight = e.args[1] if isinstance(e, Call) and isinstance(e.op, self.dense) else None
            if not isinstance(e, Call) or not isinstance(weight, Var) or weight not in new:
                return None
            return Call(self.sparse(), [e.args[0], *new[weight]], span=e.span)

        done = mod.copy()
        params = [q for p in main.params for q in new.get(p, [p])]
        done["main"] = Function(params, rewrite(main.body, rule), main.declared_ret_type, main.type_params, main.attrs,
                                main.span)
        return done

    def weights(self, func: Function) -> list[Var]:
        """Return the parameters that may become sparse."""
        raise NotImplementedError

    def sparse(self) -> Op:
        """Return the operator that takes the place of `dense`."""
        raise NotImplementedError


@dataclass(frozen=True)
class DenseToSparse(WeightsToSparse, Pass):
    """Replace the parameters `weight_name` of `main`, which only `nn.dense` may read, by sparse ones, of three shapes
    `weight_shape` each.
    """

    dense = Dense

    def weights(self, func: Function) -> list[Var]:
        return search_dense_weights(func)

    def sparse(self) -> Op:
        return SparseDense()


def search_dense_weights(func: Function) -> list[Var]:
    """Return the parameters used only as the weight of `nn.dense`."""
    users = consumers(post_order(func))
    return [p for p in func.params if users.get(p)
            and all(isinstance(u, Call) and isinstance(u.op, Dense) and _is_weight(u, p) for u in users[p])]


def convert(func: Function, params: Mapping[str, Any], blocksize: tuple[int, int],
            sparsity_threshold: float) -> tuple[Function, dict[str, Any]]:
    """Make weights with a share of zeros of at least `sparsity_threshold` sparse, in blocks of `blocksize`. Return the
    function and its new parameters."""
    kept, new = with_sparse(params, search_dense_weights(func), lambda w: packed_rows(w, blocksize, sparsity_threshold))
    return DenseToSparse([*new], [*new.values()])(IRModule.from_expr(func))["main"], kept


def with_sparse(
    params: Mapping[str, Any], weights: Sequence[Var], pack: Callable[[Any], Parts | None],
) -> tuple[dict[str, Any], dict[str, list[tuple[int, ...]]]]:
    """The parameters with the parts of the weights that `pack` makes sparse, and by name the shapes of these parts."""
    kept, shapes = dict(params), dict[str, list[tuple[int, ...]]]()
    for name in (w.name_hint for w in weights if w.name_hint in params):
        parts = pack(const(params[name]).value)
        if parts is not None:
            shapes[name] = [a.shape for a in parts]
            del kept[name]
            kept.update({f"{name}.{p}": const(a).data for p, a in zip(_PARTS, parts, strict=True)})
    return kept, shapes


def packed_rows(rows: Any, blocksize: tuple[int, int], threshold: float) -> Parts | None:
    """The parts of a sparse matrix; None where it has too few zeros, or blocks do not divide it."""
    if (1 - np.count_nonzero(rows) / rows.size < threshold or rows.shape[0] % blocksize[0]
            or rows.shape[1] % blocksize[1]):
        return None
    return packed(rows, blocksize)


def _parts(w: Var, shapes: Sequence[Sequence[int]]) -> list[Var]:
    """Return the parameters of a sparse weight: values, columns and row starts."""
    return [_part(w, p, s) for p, s in zip(_PARTS, shapes, strict=True)]


def _part(w: Var, part: str, shape: Sequence[int]) -> Var:
    dtype = w.tensor_type.dtype if part == "data" else "int32"
    return Var(f"{w.name_hint}.{part}", TensorType(shape, dtype), w.span)


def _is_weight(call: Call, p: Var) -> bool:
    return (call.args[1] is p and call.args[0] is not p and call.args[0].tensor_type.ndim == 2
            and call.tensor_type.dtype is p.tensor_type.dtype)
