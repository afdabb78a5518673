"""Computations with explicit loops: sorts, scans, scatters, box suppression.

Each is one `te.extern`: its loops are written with the IR builder, access tensors by flat index, and declare their
independent pieces of work, which a back end may run on several threads.
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
    """A tensor viewed along one axis: `outer` x `length` x `inner` elements."""

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
        """Return the flat index of element `k` of row `row`; rows are numbered outer first."""
        if self.inner == 1:
            return E.as_expr(row) * self.length + k
        outer, inner = E.floordiv(row, self.inner), E.floormod(row, self.inner)
        return (outer * self.length + k) * self.inner + inner


class Loops(IRBuilder):
    """An IR builder with helpers for variables, and for loops that threads may share."""

    def variable(self, name: str, dtype: str | DataType, value: Value) -> BufferVar:
        """Declare a variable `v[0]` for the rest of the block, with the initial value `value`."""
        cell = self.allocate(dtype, 1, name, "local")
        cell[0] = E.cast(dtype, value) if isinstance(value, PrimExpr) else value
        return cell

    @contextmanager
    def shared(self, trips: int, steps: float, step: Step, name: str = "row") -> Iterator[PrimExpr]:
        """Loop over `trips` independent pieces with `steps` steps of one kind in total."""
        with self.for_range(0, trips, name, annotations={WORK: (step, steps, trips)}) as i:
            yield i


Body = Callable[..., None]
"""A function `body(loops, inputs…, outputs…)` on buffers."""


Output = tuple[Sequence[Any], str | DataType]
"""The shape and the dtype of a result."""


def loops(name: str, inputs: Sequence[te.Tensor], outputs: Sequence[Output], body: Body) -> tuple[te.Tensor, ...]:
    """Return the tensors that `body` computes from `inputs`, one for each of `outputs`."""

    def build(ins: list[E.Buffer], outs: list[E.Buffer]) -> Any:
        builder = Loops()
        body(builder, *map(builder.buffer_ptr, ins), *map(builder.buffer_ptr, outs))
        return builder.get()

    return tuple(te.extern([tuple(s) for s, _ in outputs], inputs, build, name, [d for _, d in outputs]))


def before(x: PrimExpr, y: PrimExpr, ascending: bool) -> PrimExpr:
    """Return whether `x` precedes `y` strictly. NaN is greater than all numbers, as in numpy's sorts."""
    low, high = (x, y) if ascending else (y, x)
    less = low < high
    if not x.dtype.is_float:
        return less
    return E.logical_or(less, E.logical_and(E.compare(E.NE, high, high), E.compare(E.EQ, low, low)))


def from_end(index: PrimExpr, size: int) -> PrimExpr:
    """Return an index clamped to `[0, size)`, so that no access is out of bounds; a negative one counts from the end.
    """
    position = E.cast("int64", index)
    return held(
        E.if_then_else(position < 0, position + size, position) if index.dtype.code == "int" else position, size
    )


def held(index: PrimExpr, size: int) -> PrimExpr:
    """Return an index clamped to `[0, size)`."""
    return E.maximum(E.minimum(E.cast("int64", index), size - 1), 0)
