"""Computations that are loops of their own: sorts, scans, scatters, suppression of boxes.

Such a computation is one `te.extern`: its loops are written with the IR builder, address tensors by flat position, and
declare the work whose pieces do not meet, so that a back end can share it among threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

from tilewright import te
from tilewright.base.types import DataType
from tilewright.scalar import expr as E
from tilewright.scalar.expr import PrimExpr, Value
from tilewright.tir.ir_builder import BufferVar, IRBuilder
from tilewright.topi.kinds import WORK, Step


@dataclass(frozen=True, slots=True)
class Rows:
    """A tensor seen along one axis: `outer` x `length` x `inner` elements."""

    outer: int
    length: int
    inner: int

    @staticmethod
    def of(shape: Sequence[int], axis: int) -> Rows:
        return Rows(prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :]))

    @property
    def count(self) -> int:
        return self.outer * self.inner

    def at(self, row: Value, k: Value) -> PrimExpr:
        """The flat position of element `k` of row `row`; rows are numbered outer first."""
        if self.inner == 1:
            return E.as_expr(row) * self.length + k
        outer, inner = E.floordiv(row, self.inner), E.floormod(row, self.inner)
        return (outer * self.length + k) * self.inner + inner


class Loops(IRBuilder):
    """An IR builder with the few forms that these computations share."""

    def variable(self, name: str, dtype: str | DataType, value: Value) -> BufferVar:
        """A variable `v[0]` for the rest of the block, `value` at first."""
        cell = self.allocate(dtype, 1, name, "local")
        cell[0] = E.cast(dtype, value) if isinstance(value, PrimExpr) else value
        return cell

    @contextmanager
    def shared(self, trips: int, steps: float, step: Step, name: str = "row") -> Iterator[PrimExpr]:
        """A loop over `trips` pieces that do not meet, of so many `steps` of a kind together."""
        with self.for_range(0, trips, name, annotations={WORK: (step, steps, trips)}) as i:
            yield i


Body = Callable[..., None]
"""`body(loops, inputs…, outputs…)` on buffers."""


Output = tuple[Sequence[Any], str | DataType]
"""The shape and the dtype of a result."""


def loops(name: str, inputs: Sequence[te.Tensor], outputs: Sequence[Output], body: Body) -> tuple[te.Tensor, ...]:
    """The tensors that `body` computes from `inputs`, one for each of `outputs`."""

    def build(ins: list[E.Buffer], outs: list[E.Buffer]) -> Any:
        builder = Loops()
        body(builder, *map(builder.buffer_ptr, ins), *map(builder.buffer_ptr, outs))
        return builder.get()

    return tuple(te.extern([tuple(s) for s, _ in outputs], inputs, build, name, [d for _, d in outputs]))


def before(x: PrimExpr, y: PrimExpr, ascending: bool) -> PrimExpr:
    """Does `x` come strictly before `y`? What is no number is greater than all numbers, as numpy sorts."""
    low, high = (x, y) if ascending else (y, x)
    less = low < high
    if not x.dtype.is_float:
        return less
    return E.logical_or(less, E.logical_and(E.compare(E.NE, high, high), E.compare(E.EQ, low, low)))


def from_end(index: PrimExpr, size: int) -> PrimExpr:
    """An index that counts from the end when it is negative, held in `[0, size)`: no value leads out of the memory of a
    tensor."""
    position = E.cast("int64", index)
    return held(
        E.if_then_else(position < 0, position + size, position) if index.dtype.code == "int" else position, size
    )


def held(index: PrimExpr, size: int) -> PrimExpr:
    """An index held in `[0, size)`."""
    return E.maximum(E.minimum(E.cast("int64", index), size - 1), 0)
