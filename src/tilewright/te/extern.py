"""Computations written as loops: `te.extern`.

    def body(ins, outs):
        irb = tir.ir_builder.create()
        x, y = irb.buffer_ptr(ins[0]), irb.buffer_ptr(outs[0])
        with irb.for_range(0, 8, name="i") as i:
            y[i] = x[i] + 1.0
        return irb.get()

    B = te.extern((8,), [A], body, name="B", dtype="float32")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, TypeAlias, overload

from tilewright.base.errors import CompileError
from tilewright.base.node import node
from tilewright.base.types import DataType
from tilewright.scalar.expr import Buffer, IntImm, PrimExpr, Value
from tilewright.te.tensor import Operation, Tensor, dimension
from tilewright.tir.buffers import decl_buffer
from tilewright.tir.packed_calls import with_access
from tilewright.tir.stmt import Block, Evaluate, PrimFunc, Stmt, walk_stmt
from tilewright.tir.transform.lower_blocks import lower_blocks


@node
class ExternOp(Operation):
    """A computation of the whole `output_buffers` by the statement `body`, from `input_buffers`, which represent
    `inputs`."""

    name: str
    arguments: tuple[Tensor, ...]
    body: Stmt
    input_buffers: tuple[Buffer, ...]
    output_buffers: tuple[Buffer, ...]
    tensors: list[Tensor] = field(default_factory=list)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        return tuple(self.tensors)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return tuple(dict.fromkeys(self.arguments))


Body: TypeAlias = Callable[[list[Any], list[Any]], Any]
"""A function that makes the statement or call of a computation from the input buffers and the output buffers."""


@overload
def extern(
    shape: Sequence[Sequence[Any]], inputs: Sequence[Tensor], fcompute: Body, name: str = "extern", dtype: Any = None,
    in_buffers: Any = None, out_buffers: Any = None, tag: str = "", attrs: Any = None,
) -> list[Tensor]: ...
@overload
def extern(
    shape: Sequence[Value], inputs: Sequence[Tensor], fcompute: Body, name: str = "extern", dtype: Any = None,
    in_buffers: Any = None, out_buffers: Any = None, tag: str = "", attrs: Any = None,
) -> Tensor: ...
def extern(
    shape: Sequence[Any], inputs: Sequence[Tensor], fcompute: Body, name: str = "extern", dtype: Any = None,
    in_buffers: Any = None, out_buffers: Any = None, tag: str = "", attrs: Any = None,
) -> Tensor | list[Tensor]:
    """Return the tensor (a list of tensors for a list of shapes) that the statement `fcompute(in_buffers, out_buffers)`
    computes.

    `dtype` is one type, or one for each output; the default is the common type of the inputs. `in_buffers` and
    `out_buffers` (`tir.decl_buffer`) replace the default buffers of the inputs and outputs. `fcompute` may also return
    a call.
    """
    several = bool(shape) and isinstance(shape[0], (list, tuple))
    shapes = [tuple(map(dimension, s)) for s in shape] if several else [tuple(map(dimension, shape))]
    dtypes = [
        b.dtype for b in _listed(out_buffers)
    ] if out_buffers is not None and dtype is None else _dtypes(name, dtype, len(shapes), inputs)
    ins = _listed(in_buffers) if in_buffers is not None else [decl_buffer(t.shape, t.dtype, t.name) for t in inputs]
    named = [name] if len(shapes) == 1 else [f"{name}.v{k}" for k in range(len(shapes))]
    outs = _listed(out_buffers) if out_buffers is not None else [
        decl_buffer(s, d, n) for s, d, n in zip(shapes, dtypes, named, strict=True)]
    _check_buffers(name, ins, [(t.shape, t.dtype) for t in inputs])
    _check_buffers(name, outs, list(zip(shapes, dtypes, strict=True)))
    body = fcompute(list(ins), list(outs))
    if isinstance(body, PrimExpr):
        body = Evaluate(body)
    if not isinstance(body, Stmt):
        raise CompileError(
            f"fcompute of te.extern '{name}' must return a statement, not {type(body).__name__}; end "
            "it with `return irb.get()`", code="TW0603")
    op = ExternOp(name, tuple(inputs), with_access(body, ins, outs), tuple(ins), tuple(outs))
    op.tensors.extend(Tensor(op, k, s, d) for k, (s, d) in enumerate(zip(shapes, dtypes, strict=True)))
    return list(op.tensors) if several else op.tensors[0]


def extern_primfunc(input_tensors: Sequence[Tensor], primfunc: PrimFunc, **options: Any) -> Tensor | list[Tensor]:
    """Return the tensors that a TIR function computes: its first parameters are the inputs, the others the results."""
    n = len(input_tensors)
    outs = primfunc.buffers[n:]
    if not outs or primfunc.scalars:
        raise CompileError(
            f"extern_primfunc of '{primfunc.name}' needs a PrimFunc with {n} input buffers, at least "
            f"one result, and no scalar parameters; it has {len(primfunc.buffers)} buffers", code="TW0603")
    has_blocks = any(isinstance(s, Block) for s in walk_stmt(primfunc.body))
    body = lower_blocks(primfunc).body if has_blocks else primfunc.body
    shapes = [b.shape for b in outs]
    given: dict[str, Any] = {
        "name": primfunc.name, "dtype": [b.dtype for b in outs], "in_buffers": primfunc.buffers[:n],
        "out_buffers": outs, **options
    }
    made: list[Tensor] = extern(shapes, input_tensors, lambda *_: body, **given)
    return made[0] if len(made) == 1 else made


def _listed(buffers: Any) -> list[Buffer]:
    return list(buffers) if isinstance(buffers, (list, tuple)) else [buffers]


def _check_buffers(name: str, buffers: Sequence[Buffer], wanted: Sequence[tuple[Sequence[Any], DataType]]) -> None:
    if len(buffers) != len(wanted):
        raise CompileError(
            f"te.extern '{name}' has {len(wanted)} tensors, but was given {len(buffers)} buffers", code="TW0603"
        )
    for b, (shape, dtype) in zip(buffers, wanted, strict=True):
        dims = [d.value if isinstance(d, IntImm) else d for d in shape]
        if b.dtype is not dtype or len(b.shape) != len(dims) or any(
            x is not y and not (isinstance(x, int) and x == y) for x, y in zip(b.shape, dims, strict=True)
        ):
            raise CompileError(
                f"te.extern '{name}': buffer '{b!r}' does not fit {dtype}[{', '.join(map(str, dims))}]", code="TW0603")


def _dtypes(name: str, dtype: Any, count: int, inputs: Sequence[Tensor]) -> list[DataType]:
    if dtype is None:
        types = {t.dtype for t in inputs}
        if len(types) != 1:
            raise CompileError(
                f"te.extern '{name}' needs dtype=: its inputs have "
                f"{', '.join(sorted(types)) or 'no types'}, so the type cannot be inferred", code="TW0603")
        return [next(iter(types))] * count
    given = list(dtype) if isinstance(dtype, (list, tuple)) else [dtype] * count
    if len(given) != count:
        raise CompileError(f"te.extern '{name}' has {count} outputs, but was given {len(given)} types", code="TW0603")
    return [DataType(d) for d in given]
