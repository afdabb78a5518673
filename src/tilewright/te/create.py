"""Converts tensor expressions to a schedulable program: one loop nest with one block per computation, producers first.

    C = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
      ->
    for i in range(m):
        for j in range(n):
            for r in range(k):
                with block("C", i=i, j=j, r=r reduce):
                    init: C[i, j] = 0
                    C[i, j] = fma(A[i, r], B[r, j], C[i, j])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tilewright.base.errors import CompileError, Origin
from tilewright.base.types import BOOL
from tilewright.scalar.expr import Buffer, Call, IntImm, Load, Mul, PrimExpr, Select, Var, const, number_of
from tilewright.scalar.intrinsics import ACCUMULATING, fma
from tilewright.scalar.walk import rewrite, substitute
from tilewright.te.extern import ExternOp
from tilewright.te.free_layouts import with_free_layouts
from tilewright.te.scan import ScanOp
from tilewright.te.scan_loops import compute_in_steps, join_steps
from tilewright.te.tensor import SUM, Combiner, ComputeOp, Operation, PlaceholderOp, Reduce, Tensor, TensorElem
from tilewright.tir.block_rewrites import reduction_step
from tilewright.tir.stmt import SERIAL, Block, For, IfThenElse, PrimFunc, Reducer, Stmt, Store, redirect, seq

_TRUE = IntImm(BOOL, 1)


def create_prim_func(
    args: Sequence[Tensor], outputs: Sequence[Tensor], name: str = "main", origin: Origin | None = None,
    origins: Mapping[Operation, Origin] | None = None, binds: Mapping[Tensor, Buffer] | None = None,
    storage: Mapping[Tensor, Sequence[int]] | None = None,
) -> PrimFunc:
    """Return the program that computes `outputs` from `args` (placeholders, or computed tensors that the caller
    provides).

    Parameters are `args` then `outputs`; intermediate values are listed in `attrs["intermediates"]` until blocks are
    lowered. `storage` gives the shapes of larger arrays whose first corner holds a tensor; the parameter's buffer has
    that shape. There is one block for each of `computations`, in that order. Raises `CompileError` if a tensor is
    neither given nor computed.
    """
    return create_blocks(args, outputs, name, origin, origins, binds, storage)[0]


def create_blocks(
    args: Sequence[Tensor], outputs: Sequence[Tensor], name: str = "main", origin: Origin | None = None,
    origins: Mapping[Operation, Origin] | None = None, binds: Mapping[Tensor, Buffer] | None = None,
    storage: Mapping[Tensor, Sequence[int]] | None = None,
) -> tuple[PrimFunc, dict[Operation, str]]:
    """Return the program, and the block of each computation. A scan has only the blocks of its `init` and `update`."""
    buffers: dict[Tensor, Buffer] = {}
    names: set[str] = set()
    for t in (*args, *outputs):
        if t not in buffers:
            larger = (storage or {}).get(t)
            buffers[t] = _bound(t, binds[t], larger) if binds and t in binds else _buffer(t, names, larger)
    ops = computations(args, outputs)
    scans = [op for op in ops if isinstance(op, ScanOp)]
    inner = _share_memory(scans, buffers, names)
    nests: dict[Operation, Stmt] = {}
    blocks: dict[Operation, str] = {}
    taken: set[str] = set()
    for op in ops:
        if isinstance(op, ScanOp):
            nests[op] = join_steps(op, [nests.pop(u) for u in dict.fromkeys(t.op for t in op.update)])
            continue
        for t in op.outputs:
            if t not in buffers:
                buffers[t] = _buffer(t, names)
                inner.append(buffers[t])
        make = _extern if isinstance(op, ExternOp) else _nest
        blocks[op] = _unique(op.name, taken)
        nests[op] = make(op, buffers, blocks[op], (origins or {}).get(op))  # type: ignore[arg-type]
    params = [buffers[t] for t in args] + [buffers[t] for t in outputs]
    func = PrimFunc(name, tuple(params), seq(*nests.values()), {"intermediates": tuple(inner)}, origin)
    for scan in reversed(scans):
        func = compute_in_steps(func, scan, ops, blocks)
    return func, blocks


def tensors_as_prim_func(
    ops: Sequence[Any], index_dtype_override: str | None = None, *, name: str = "main"
) -> PrimFunc:
    """Return the program over tensors (placeholders and results, in parameter order) and `te.var` scalars:
    `te.create_prim_func`.

    Indices and loop variables are int64. Raises `CompileError` for another `index_dtype_override`.
    """
    if index_dtype_override not in (None, "int64"):
        raise CompileError(
            f"index_dtype_override={index_dtype_override!r}: indices and loop variables are int64; leave it out",
            code="TW0614")
    tensors = [a for a in ops if not isinstance(a, Var)]
    if not tensors or not all(isinstance(t, Tensor) for t in tensors):
        raise CompileError(
            f"create_prim_func takes a list of tensors, inputs and results, not {ops!r}", code="TW0614"
        )
    inputs = [t for t in tensors if isinstance(t.op, PlaceholderOp)]
    outputs = [t for t in tensors if not isinstance(t.op, PlaceholderOp)]
    func, blocks = create_blocks(inputs, outputs, name)
    buffers = dict(zip([*inputs, *outputs], func.buffers, strict=True))
    func = replace(func, params=tuple(a if isinstance(a, Var) else buffers[a] for a in ops))
    return with_free_layouts(func, blocks, buffers)


def _share_memory(scans: Sequence[ScanOp], buffers: dict[Tensor, Buffer], names: set[str]) -> list[Buffer]:
    """Bind the state, the start and the updates of scans to the buffers of their results. Return the buffers that are
    not parameters."""
    inner: list[Buffer] = []
    for scan in scans:
        for result, parts in zip(scan.outputs, zip(scan.init, scan.update, scan.state, strict=True), strict=True):
            if result not in buffers:
                buffers[result] = _buffer(result, names)
                inner.append(buffers[result])
            for t in parts:
                if t in buffers:
                    raise CompileError(
                        f"'{t.name}' belongs to scan '{scan.name}', so it cannot be an argument or "
                        f"belong to another scan; use '{result.name}'", code="TW0614")
                buffers[t] = buffers[result]
    return inner


def computations(args: Sequence[Tensor], outputs: Sequence[Tensor]) -> list[Operation]:
    """Return the operations between `args` and `outputs`, producers first."""
    given = {t.op for t in args}
    order: list[Operation] = []
    done: set[int] = set()
    stack: list[tuple[Any, bool]] = [(t.op, False) for t in reversed(outputs)]
    while stack:
        op, expanded = stack.pop()
        if op in given or id(op) in done:
            continue
        if isinstance(op, PlaceholderOp):
            raise CompileError(f"placeholder '{op.name}' is missing from the arguments", code="TW0614")
        if expanded:
            done.add(id(op))
            order.append(op)
        else:
            if isinstance(op, ScanOp):
                given.update(t.op for t in op.state)
            stack.append((op, True))
            stack.extend((t.op, False) for t in reversed(op.inputs))
    return order


def _unique(name: str, taken: set[str]) -> str:
    found, k = name, 1
    while found in taken:
        found, k = f"{name}_{k}", k + 1
    taken.add(found)
    return found


def _buffer(t: Tensor, names: set[str], shape: Sequence[int] | None = None) -> Buffer:
    return Buffer(_unique(t.name.replace(".", "_"), names), t.shape if shape is None else shape, t.dtype)


def _bound(t: Tensor, buffer: Buffer, larger: Sequence[int] | None = None) -> Buffer:
    """Return the caller's buffer for a tensor. It must have the shape of the tensor, unless a `larger` array contains
    the tensor."""
    if larger is not None:
        return buffer
    shape = [d.value if isinstance(d, IntImm) else d for d in t.shape]
    if not isinstance(buffer, Buffer):
        raise CompileError(
            f"binds: '{t.name}' is bound to a {type(buffer).__name__}; create a buffer with "
            f"tir.decl_buffer({t.name}.shape, {t.name}.dtype, …)", code="TW0614")
    if buffer.dtype is not t.dtype or len(buffer.shape) != len(shape) or any(
        a is not b and not (isinstance(a, int) and a == b) for a, b in zip(buffer.shape, shape, strict=True)
    ):
        raise CompileError(
            f"binds: buffer '{buffer!r}' does not match {t!r}; create it with "
            f"tir.decl_buffer({t.name}.shape, {t.name}.dtype, …)", code="TW0614")
    return buffer


def _nest(op: ComputeOp, buffers: dict[Tensor, Buffer], name: str, origin: Origin | None) -> Stmt:
    def load(e: PrimExpr) -> PrimExpr | None:
        return Load(buffers[e.tensor], e.indices) if isinstance(e, TensorElem) else None

    memo: dict[PrimExpr, PrimExpr] = {}
    at = tuple(a.var for a in op.axis)
    targets = [buffers[t] for t in op.outputs]
    reduce = op.body[0] if isinstance(op.body[0], Reduce) else None
    init: Stmt | None = None
    notes: dict[str, Any] = {}
    if reduce is None:
        body = seq(*(Store(b, rewrite(v, load, memo), at) for b, v in zip(targets, op.body, strict=True)))
    else:
        sources = tuple(rewrite(s, load, memo) for s in reduce.sources)
        identity = reduce.combiner.identity(tuple(s.dtype for s in sources))
        first = tuple(rewrite(e, load, memo) for e in reduce.init)
        init = seq(*(Store(b, v, at) for b, v in zip(targets, first or identity, strict=True)))
        body = _update(reduce, sources, targets, at)
        notes["combiner"] = _reducer(reduce.combiner, identity)
    iters = tuple(
        i if isinstance(i.extent, (IntImm, Var)) else replace(i, extent=rewrite(i.extent, load, memo))
        for i in (*op.axis, *op.reduce_axis))
    loops = [Var(i.var.name) for i in iters]
    points: dict[PrimExpr, PrimExpr] = dict(zip((i.var for i in iters), loops, strict=True))
    nest: Stmt = Block(name, iters, tuple(loops), _TRUE, init, body, notes, origin)
    for var, it in zip(reversed(loops), reversed(iters), strict=True):
        nest = For(var, const(0, "int64"), substitute(it.extent, points), SERIAL, nest, origin=origin)
    return nest


def _extern(op: ExternOp, buffers: dict[Tensor, Buffer], name: str, origin: Origin | None) -> Stmt:
    """Return a block without axes, which contains the loops of an extern operation."""
    body = op.body
    for t, inner in zip((*op.arguments, *op.outputs), (*op.input_buffers, *op.output_buffers), strict=True):
        body = redirect(body, inner, buffers[t])
    return Block(name, (), (), _TRUE, None, body, {}, origin)


def _reducer(combiner: Combiner, neutral: tuple[PrimExpr, ...]) -> Reducer:
    """Return a combiner as expressions over variables of the types of `neutral`."""
    old, new = (tuple(Var(f"{letter}{k if k else ''}", n.dtype) for k, n in enumerate(neutral)) for letter in "xy")
    return Reducer(combiner.name, (*old, *new), combiner.combine(old, new), neutral)


def _update(reduce: Reduce, sources: tuple[PrimExpr, ...], targets: list[Buffer], at: tuple[PrimExpr, ...]) -> Stmt:
    """Return one reduction step. A guarded term (`select(c, x, identity)`) becomes a guarded step, and a product a
    multiply-add."""
    if len(sources) > 1:
        return reduction_step(reduce.combiner, targets, at, sources)
    source = sources[0]
    (identity,) = reduce.combiner.identity((source.dtype,))
    if isinstance(source, Select) and number_of(source.false_value) == number_of(identity):
        return IfThenElse(source.condition, _update(reduce, (source.true_value,), targets, at))
    return Store(targets[0], combine_step(reduce.combiner, Load(targets[0], at), source), at)


def combine_step(combiner: Any, old: PrimExpr, source: PrimExpr) -> PrimExpr:
    """Return `old` combined with one more term."""
    if isinstance(source, Mul) and source.dtype.is_float and combiner is SUM:
        return fma(source.a, source.b, old)
    if isinstance(source, Call) and source.op in ACCUMULATING and combiner is SUM and number_of(source.args[2]) == 0:
        return source.with_operands([*source.args[:2], old])
    result: PrimExpr = combiner.combine((old,), (source,))[0]
    return result

