"""Declarations of hardware instructions: `te.decl_tensor_intrin`, for `Stage.tensorize`.

    c = te.compute((m,), lambda i: te.sum(a[k] * b[i, k], axis=k), name="c")
    gemv = te.decl_tensor_intrin(c.op, intrin_func, binds={a: Ab, b: Bb, c: Cb})

The computation defines the meaning of the instruction; `intrin_func(ins, outs)` returns the statements that perform it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright.base.errors import CompileError
from tilewright.scalar.expr import Buffer, PrimExpr
from tilewright.te.create import create_prim_func
from tilewright.te.tensor import ComputeOp, Operation, PlaceholderOp, Tensor
from tilewright.tir.buffers import DeclaredBuffer, decl_buffer
from tilewright.tir.packed_calls import with_access
from tilewright.tir.stmt import Block, Evaluate, Stmt, walk_stmt
from tilewright.tir.tensorize import TensorIntrin


def decl_tensor_intrin(
    op: Operation, fcompute: Callable[[list[DeclaredBuffer], list[DeclaredBuffer]], Any], name: str = "tensor_intrin",
    binds: Mapping[Tensor, Buffer] | None = None, scalar_params: Any = None,
    default_buffer_params: Mapping[str, Any] | None = None,
) -> TensorIntrin:
    """Declare the instruction that computes `op` from its input tensors, in order of first use.

    `fcompute(ins, outs)` returns its statement; for a reduction continued by loops outside of the instruction, it
    returns `(body, reduce_reset, reduce_update)`, where `body` may be None. `binds` are buffers made by
    `tir.decl_buffer`; their strides are numbers, or variables that match any strides. Raises `CompileError`.
    """
    if scalar_params:
        raise CompileError(
            f"decl_tensor_intrin '{name}': scalar_params are not supported; pass the number as a tensor of one element",
            code="TW0607")
    if not isinstance(op, ComputeOp) or any(not isinstance(t.op, PlaceholderOp) for t in op.inputs):
        raise CompileError(
            f"decl_tensor_intrin '{name}' needs the operation of a single te.compute over te.placeholder inputs",
            code="TW0607")
    given = dict(binds or {})
    for t in (*op.inputs, *op.outputs):
        given.setdefault(t, decl_buffer(t.shape, t.dtype, t.name, **(default_buffer_params or {})))
    func = create_prim_func(op.inputs, op.outputs, name, binds=given)
    (pattern,) = (s for s in walk_stmt(func.body) if isinstance(s, Block))
    ins, outs = func.params[: len(op.inputs)], func.params[len(op.inputs) :]
    made = fcompute(list(ins), list(outs))  # type: ignore[arg-type]
    parts = tuple(made) if isinstance(made, (tuple, list)) else (made,)
    if len(parts) not in (1, 3) or (len(parts) == 1 and parts[0] is None):
        raise CompileError(
            f"the function of tensor intrinsic '{name}' must return one statement, or (body, reduce_reset, "
            "reduce_update)",
            code="TW0607")
    statements = [_statement(name, p) for p in parts]
    return TensorIntrin(name, pattern, *(
        p if p is None else with_access(p, ins, outs, updates=k == 2) for k, p in enumerate(statements)))


def _statement(name: str, made: Any) -> Stmt | None:
    if made is None or isinstance(made, Stmt):
        return made
    if isinstance(made, PrimExpr):
        return Evaluate(made)
    raise CompileError(
        f"the function of tensor intrinsic '{name}' must return statements, not a "
        f"{type(made).__name__}; end it with `return ib.get()`", code="TW0607")
