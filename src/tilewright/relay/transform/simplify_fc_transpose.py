"""Transpose weight parameters once, outside of the program.

    nn.dense(%x, transpose(%w, axes=[1, 0]))
      -> nn.dense(%x, %w.T)         and the caller binds the transposed parameter
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.base.types import TensorType
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay.expr import Call, Expr, Function, Var, const
from tilewright.relay.op.nn_matmul import Dense
from tilewright.relay.op.transform import Transpose
from tilewright.relay.transform.permutations import axes_of
from tilewright.relay.visitor import consumers, post_order, rewrite


@dataclass(frozen=True)
class SimplifyFCTranspose(Pass):
    """Replace the weights `target_weight_name` of `main` that `nn.dense` reads transposed by parameters `NAME.T`."""

    target_weight_name: Sequence[str]

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        main = mod["main"]
        turned = {p: _turned(p) for p in main.params if p.name_hint in self.target_weight_name
                  and isinstance(p.type_annotation, TensorType)}
        users, read = consumers(post_order(main)), search_fc_transpose(main)
        new = {p: t for p, t in turned.items() if p in read and all(_transposes(u) for u in users[p])}
        if not new:
            return mod

        def rule(e: Expr) -> Expr | None:
            return new.get(e.args[0]) if isinstance(e, Call) and _transposes(e) else None

        done = mod.copy()
        body = rewrite(main.body, rule)
        done["main"] = Function([new.get(p, p) for p in main.params], body, main.declared_ret_type, main.type_params,
                                main.attrs, main.span)
        return done


def search_fc_transpose(expr: Expr) -> list[Var]:
    """Return the variables that `nn.dense` reads as a transposed weight."""
    found = [e.args[1].args[0] for e in post_order(expr) if isinstance(e, Call)  # type: ignore[attr-defined]
             and isinstance(e.op, Dense)
             and _transposes(e.args[1])]
    return list(dict.fromkeys(v for v in found if isinstance(v, Var)))


def convert(func: Function, params: Mapping[str, Any]) -> tuple[Function, dict[str, Any]]:
    """Transpose the weights of `func`; return the function and its parameters, with `NAME.T` in place of `NAME`."""
    names = [v.name_hint for v in search_fc_transpose(func) if v.name_hint in params]
    done = SimplifyFCTranspose(names)(IRModule.from_expr(func))["main"]
    left = {p.name_hint for p in done.params}
    new = dict(params)
    for name in names:
        if f"{name}.T" in left:
            new[f"{name}.T"] = const(np.ascontiguousarray(const(new.pop(name)).value.T)).data
    return done, new


def _turned(p: Var) -> Var:
    kind = p.tensor_type
    return Var(f"{p.name_hint}.T", TensorType(kind.shape[::-1], kind.dtype), p.span)


def _transposes(e: Expr) -> bool:
    return isinstance(e, Call) and isinstance(e.op, Transpose) and axes_of(e) == (1, 0)
