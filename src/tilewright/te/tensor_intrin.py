"""Declarations of hardware instructions: `te.decl_tensor_intrin`, for `Stage.tensorize`.

    c = te.compute((m,), lambda i: te.sum(a[k] * b[i, k], axis=k), name="c")
    gemv = te.decl_tensor_intrin(c.op, intrin_func, binds={a: Ab, b: Bb, c: Cb})

    C = te.compute((n, m), lambda i: gemv(A[i, 0:l], B[i, 0:m, 0:l]))       # or call it within a computation

The computation defines the meaning of the instruction; `intrin_func(ins, outs)` returns the statements that perform it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.base.errors import CompileError
from tilewright.base.node import node
from tilewright.scalar.arith import Ranges, simplify
from tilewright.scalar.expr import Buffer, PrimExpr, Var, number_of, sub
from tilewright.scalar.walk import rewrite, substitute
from tilewright.te.create import create_prim_func
from tilewright.te.tensor import (
    ComputeOp,
    Instruction,
    InstructionCall,
    Operation,
    PlaceholderOp,
    Reduce,
    Tensor,
    TensorElem,
    TensorRegion,
)
from tilewright.tir.buffers import decl_buffer
from tilewright.tir.packed_calls import with_access
from tilewright.tir.stmt import Block, Evaluate, IterVar, Stmt, walk_stmt
from tilewright.tir.tensorize import TensorIntrin


@node
class CallableIntrin(TensorIntrin):
    """An instruction that is also called in `te.compute`; `op` is the computation that it performs."""

    op: ComputeOp | None = None

    def __call__(self, *args: Tensor | TensorRegion, reduce_axis: Any = ()) -> InstructionCall:
        """Return the call with regions of tensors, or whole tensors, in the order of the inputs of `op`.

        `reduce_axis` are further reduction axes, over which the results of several calls are accumulated. Raises
        `CompileError` if the shapes or types do not fit.
        """
        assert self.op is not None
        regions = [a if isinstance(a, TensorRegion) else TensorRegion.of(a, [slice(None)] * len(a.shape)) for a in args]
        if len(regions) != len(self.op.inputs):
            raise CompileError(
                f"the instruction '{self.name}' takes {len(self.op.inputs)} tensors, but was given {len(regions)}",
                code="TW0607")
        for x, r in zip(self.op.inputs, regions, strict=True):
            if x.dtype is not r.tensor.dtype or not _same_sizes(x.shape, r.shape):
                raise CompileError(
                    f"input '{x.name}' of the instruction '{self.name}' is {x.dtype}[{_listed(x.shape)}], but was "
                    f"given {r.tensor.dtype}[{_listed(r.shape)}] of '{r.tensor.name}'", code="TW0607")
        outer = (reduce_axis,) if isinstance(reduce_axis, IterVar) else tuple(reduce_axis or ())
        if outer and not self.op.reduce_axis:
            raise CompileError(
                f"the instruction '{self.name}' is not a reduction, so it takes no reduce_axis", code="TW0607")
        return IntrinCall(self, self.op, tuple(regions), outer)


class IntrinCall(InstructionCall):
    """A call of `intrin`, which performs `op` on regions of tensors, accumulated over the reduction axes `outer`."""

    __slots__ = ("intrin", "op", "outer", "regions")

    def __init__(
        self, intrin: TensorIntrin, op: ComputeOp, regions: tuple[TensorRegion, ...], outer: tuple[IterVar, ...]
    ) -> None:
        self.intrin, self.op, self.regions, self.outer = intrin, op, regions, outer

    def computed(self, name: str, axis: Sequence[IterVar]) -> tuple[tuple[PrimExpr, ...], Instruction]:
        own = self.op.axis
        made, left = ([a.extent for a in axes] for axes in (own, axis))
        if not _same_sizes(made, left):
            raise CompileError(
                f"the instruction '{self.intrin.name}' computes the dimensions ({_listed(made)}), but the last "
                f"dimensions of '{name}' are ({_listed(left)})", code="TW0607")
        inner = tuple(IterVar(Var(a.var.name), a.extent, "reduce") for a in self.op.reduce_axis)
        points: dict[PrimExpr, PrimExpr] = {
            a.var: b.var for a, b in zip((*own, *self.op.reduce_axis), (*axis, *inner), strict=True)}
        regions = dict(zip(self.op.inputs, self.regions, strict=True))

        def moved(e: PrimExpr) -> PrimExpr:
            return regions[e.tensor][e.indices] if isinstance(e, TensorElem) else e

        def placed(e: PrimExpr) -> PrimExpr:
            if isinstance(e, Reduce):
                sources, first = tuple(map(placed, e.sources)), tuple(map(placed, e.init))
                return Reduce(e.combiner, sources, (*self.outer, *inner), e.index, first)
            return rewrite(substitute(e, points), moved)

        return tuple(map(placed, self.op.body)), Instruction(self.intrin, len(own), len(inner))


def _same_sizes(a: Sequence[PrimExpr], b: Sequence[PrimExpr]) -> bool:
    return len(a) == len(b) and all(
        number_of(simplify(sub(x, y), Ranges())) == 0 for x, y in zip(a, b, strict=True))


def _listed(sizes: Sequence[PrimExpr]) -> str:
    return ", ".join(map(str, sizes))


def decl_tensor_intrin(
    op: Operation, fcompute: Callable[[list[Buffer], list[Buffer]], Any], name: str = "tensor_intrin",
    binds: Mapping[Tensor, Buffer] | None = None, scalar_params: Any = None,
    default_buffer_params: Mapping[str, Any] | None = None,
) -> CallableIntrin:
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
    ins, outs = func.buffers[: len(op.inputs)], func.buffers[len(op.inputs) :]
    made = fcompute(list(ins), list(outs))
    parts = tuple(made) if isinstance(made, (tuple, list)) else (made,)
    if len(parts) not in (1, 3) or (len(parts) == 1 and parts[0] is None):
        raise CompileError(
            f"the function of tensor intrinsic '{name}' must return one statement, or (body, reduce_reset, "
            "reduce_update)",
            code="TW0607")
    statements = [_statement(name, p) for p in parts]
    body, *others = (
        p if p is None else with_access(p, ins, outs, updates=k == 2) for k, p in enumerate(statements))
    reset, update = others or (None, None)
    return CallableIntrin(name, pattern, body, reset, update, op=op)


def _statement(name: str, made: Any) -> Stmt | None:
    if made is None or isinstance(made, Stmt):
        return made
    if isinstance(made, PrimExpr):
        return Evaluate(made)
    raise CompileError(
        f"the function of tensor intrinsic '{name}' must return statements, not a "
        f"{type(made).__name__}; end it with `return ib.get()`", code="TW0607")
