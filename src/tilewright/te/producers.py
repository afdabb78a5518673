"""Scheduled statements over tensors, before they are a function: `te.schedule.ScheduleOps`.

    bounds = te.schedule.InferBound(s)
    stmt = te.schedule.ScheduleOps(s, bounds)                                  loops over the axes of the stages
    func = te.schedule.SchedulePostProcToPrimFunc([A, B], stmt, None)          a function over their buffers

The statement has a `ProducerRealize` for the memory of each computed tensor. The memory of inputs is free in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tilewright.base.errors import ScheduleError
from tilewright.ir.module import IRModule
from tilewright.scalar.expr import Buffer, PrimExpr, Var
from tilewright.te.bounds import ends
from tilewright.te.create import create_blocks
from tilewright.te.resolve import Resolver, schedule_func
from tilewright.te.scan import ScanOp
from tilewright.te.schedule import Schedule
from tilewright.te.tensor import PlaceholderOp, Tensor
from tilewright.te.unroll_by_hint import unroll_by_hint
from tilewright.tir.buffers import decl_buffer
from tilewright.tir.stmt import (
    LEGACY,
    Allocate,
    For,
    IterVar,
    PrimFunc,
    ProducerRealize,
    Stmt,
    loaded_buffers,
    map_bodies,
    redirect,
    substitute_stmt,
    walk_stmt,
)
from tilewright.tir.transform.lower_blocks import lower_blocks
from tilewright.tir.transform.simplify import simplify


class InputBuffer(Buffer):
    """The memory of an input tensor in a statement of `ScheduleOps`."""

    __slots__ = ("tensor",)
    tensor: Tensor

    def __init__(self, tensor: Tensor, name: str) -> None:
        super().__init__(name, tensor.shape, tensor.dtype)
        self.tensor = tensor


def ScheduleOps(s: Schedule, bounds: Mapping[IterVar, Any], debug_keep_trivial_loop: bool = False) -> Stmt:
    """Return the scheduled program as a statement, whose loops have the variables of the axes of the stages.

    `bounds` are those of `InferBound` for this schedule. Loops of one trip are always kept, so
    `debug_keep_trivial_loop` has no effect. Raises `ScheduleError` if an axis has no bounds, or a step cannot be
    applied.
    """
    _check_bounds(s, bounds)
    args = ends(s)
    inputs = [t for t in args if isinstance(t.op, PlaceholderOp)]
    outputs = [t for t in args if not isinstance(t.op, PlaceholderOp)]
    func, blocks = create_blocks(inputs, outputs, binds=_inputs(inputs))
    buffers = dict(zip([*inputs, *outputs], func.buffers, strict=True))
    resolver = Resolver(s, func, {s[op]: block for op, block in blocks.items()}, buffers)
    resolver.resolve()
    made = _made(s, resolver)
    lowered = simplify(lower_blocks(unroll_by_hint(resolver.engine.func)))
    body = _realized(lowered.body, made, {loop: axis.var for axis, loop in resolver.loops.items()})
    for t in reversed(outputs):
        body = ProducerRealize(buffers[t], body, producer=t)
    return body


def SchedulePostProcToPrimFunc(
    arg_list: Sequence[Any], body: Stmt, extern_buffer: Mapping[Tensor, Buffer] | None = None
) -> PrimFunc:
    """Return the function `main` of a statement of `ScheduleOps`, with the parameters `arg_list`.

    An argument is a tensor, a buffer, or a `te.var` scalar. `extern_buffer` gives the buffers of some tensors. Other
    tensors are allocated. Raises `ScheduleError` for another argument.
    """
    known: dict[Tensor, Buffer] = {b.tensor: b for b in loaded_buffers(body) if isinstance(b, InputBuffer)}
    known |= {x.producer: x.buffer for x in walk_stmt(body) if isinstance(x, ProducerRealize)}
    for tensor, buffer in (extern_buffer or {}).items():
        if tensor in known:
            body = redirect(body, known[tensor], buffer)
        known[tensor] = buffer
    wrong = next((a for a in arg_list if not isinstance(a, (Tensor, Buffer, Var))), None)
    if wrong is not None:
        raise _not_an_argument(wrong)
    params = {a: known.get(a) or InputBuffer(a, a.name) for a in arg_list if isinstance(a, Tensor)}
    given = {*params.values(), *(extern_buffer or {}).values(), *(a for a in arg_list if isinstance(a, Buffer))}
    found = tuple(params[a] if isinstance(a, Tensor) else a for a in arg_list)
    return PrimFunc("main", found, _allocated(body, given), {LEGACY: True})


def schedule_to_module(
    sch: Schedule, args: Sequence[Any] | None = None, name: str = "main", binds: Mapping[Tensor, Buffer] | None = None
) -> IRModule:
    """Return the module of the loops of a te schedule over the tensors `args`, without blocks and before other passes.
    """
    func = simplify(lower_blocks(schedule_func(sch, ends(sch) if args is None else args, name, binds)))
    return IRModule({name: func.with_attr(LEGACY, True)})


def get_binds(
    args: Sequence[Any], compact: bool = False, binds: Mapping[Tensor, Buffer] | None = None
) -> tuple[dict[Tensor, Buffer], list[Buffer | Var]]:
    """Return a buffer for each tensor among `args`, that of `binds` if there is one, and the arguments with the buffers
    in place of the tensors. Buffers are always dense, so `compact` has no effect.

    Raises `ScheduleError` for an argument that is not a tensor, a buffer or a `te.var`.
    """
    found, arguments = dict(binds or {}), list[Buffer | Var]()
    for a in args:
        if isinstance(a, Tensor):
            arguments.append(found.setdefault(a, decl_buffer(a.shape, a.dtype, a.name)))
        elif isinstance(a, (Buffer, Var)):
            arguments.append(a)
        else:
            raise _not_an_argument(a)
    return found, arguments


def _not_an_argument(x: object) -> ScheduleError:
    return ScheduleError(
        f"an argument of a function must be a tensor, a buffer or a te.var; {x!r} is a {type(x).__name__}")


def _check_bounds(s: Schedule, bounds: Mapping[IterVar, Any]) -> None:
    """Raise `ScheduleError` unless there are bounds for each loop, or for the attributes of a function."""
    for stage in s.stages:
        if stage.imports:
            raise ScheduleError(
                f"pragma import_llvm of '{stage.op.name}' belongs to a function, and not to a statement; use tvm.lower")
        unknown = next((a for a in stage.leaf_iter_vars if a not in bounds and not stage.inlined), None)
        if unknown is not None:
            raise ScheduleError(
                f"axis '{unknown.var.name}' of '{stage.op.name}' has no bounds; call InferBound after the last step of "
                "the schedule")


def _inputs(tensors: Sequence[Tensor]) -> dict[Tensor, Buffer]:
    names: dict[str, int] = {}
    made: dict[Tensor, Buffer] = {}
    for t in tensors:
        count = names[t.name] = names.get(t.name, -1) + 1
        made[t] = InputBuffer(t, f"{t.name}_{count}" if count else t.name)
    return made


def _made(s: Schedule, resolver: Resolver) -> dict[str, Tensor]:
    """Return the tensor that each intermediate buffer of the program holds, by the name of the buffer."""
    found: dict[str, Tensor] = {}
    for stage in s.stages:
        if stage in resolver.blocks and not stage.inlined:
            found.update({resolver.buffer(t): t for t in stage.op.outputs})
    for op in (stage.op for stage in s.stages if isinstance(stage.op, ScanOp)):
        found.update({resolver.buffer(u): t for u, t in zip(op.update, op.outputs, strict=True)})
    return found


def _realized(s: Stmt, made: Mapping[str, Tensor], names: Mapping[Var, Var]) -> Stmt:
    """Return a statement with the memory of tensors as `ProducerRealize`, and loops under their new names."""

    def inside(x: Stmt) -> Stmt:
        x = map_bodies(x, inside) or x
        if isinstance(x, For) and x.var in names:
            return replace(x, var=names[x.var])
        if isinstance(x, Allocate) and x.buffer.name in made:
            return ProducerRealize(x.buffer, x.body, producer=made[x.buffer.name])
        return x

    new: dict[PrimExpr, PrimExpr] = dict(names.items())
    return substitute_stmt(inside(s), new)


def _allocated(s: Stmt, given: set[Buffer]) -> Stmt:
    """Return a statement with the memory of tensors allocated, without the buffers that are given."""
    body = map_bodies(s, lambda x: _allocated(x, given)) or s
    if not isinstance(body, ProducerRealize):
        return body
    return body.body if body.buffer in given else Allocate(body.buffer, body.body)
