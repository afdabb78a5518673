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
from typing import Any

from tilewright.errors import CompileError
from tilewright.expr import Buffer
from tilewright.node import node
from tilewright.te.tensor import Operation, Tensor
from tilewright.tir.stmt import Stmt
from tilewright.types import DataType


@node
class ExternOp(Operation):
    """`body` computes the whole of `output_buffers` from `input_buffers`, which stand for `inputs`."""

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


def extern(
    shape: Sequence[Any], inputs: Sequence[Tensor], fcompute: Callable[[list[Buffer], list[Buffer]], Stmt], name: str = "extern", dtype: Any = None,
) -> Any:
    """The tensor (or, for a list of shapes, the tensors) that the statement `fcompute(in_buffers, out_buffers)` computes.

    `dtype` is one type, or one for each output; without it, the type that all inputs have.
    """
    several = bool(shape) and isinstance(shape[0], (list, tuple))
    shapes = [tuple(s) for s in shape] if several else [tuple(shape)]
    dtypes = _dtypes(name, dtype, len(shapes), inputs)
    ins = [Buffer(t.name, t.shape, t.dtype) for t in inputs]
    outs = [Buffer(name if len(shapes) == 1 else f"{name}.v{k}", s, d) for k, (s, d) in enumerate(zip(shapes, dtypes, strict=True))]
    body = fcompute(ins, outs)
    if not isinstance(body, Stmt):
        raise CompileError(f"the body of te.extern '{name}' is a statement, and fcompute returned {type(body).__name__}; end it with `return irb.get()`")
    op = ExternOp(name, tuple(inputs), body, tuple(ins), tuple(outs))
    op.tensors.extend(Tensor(op, k, s, d) for k, (s, d) in enumerate(zip(shapes, dtypes, strict=True)))
    return list(op.tensors) if several else op.tensors[0]


def _dtypes(name: str, dtype: Any, count: int, inputs: Sequence[Tensor]) -> list[DataType]:
    if dtype is None:
        types = {t.dtype for t in inputs}
        if len(types) != 1:
            raise CompileError(f"te.extern '{name}' needs dtype=: its inputs have {', '.join(sorted(types)) or 'no types'}, so it does not follow from them")
        return [next(iter(types))] * count
    given = list(dtype) if isinstance(dtype, (list, tuple)) else [dtype] * count
    if len(given) != count:
        raise CompileError(f"te.extern '{name}' has {count} outputs and was given {len(given)} types")
    return [DataType(d) for d in given]
