"""Random tensor expressions, and steps of te schedules over any of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from tilewright import te
from tilewright.base.errors import ScheduleError

Choose = random.Random


class Expressions:
    """A chain of small computations over two parameters: whole numbers, so that results are equal in whatever order
    sums are taken."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.dtype = self.choose.choice(["float32", "float32", "int32"])
        self.parameters = [te.placeholder((self.size(), self.size()), self.dtype, name) for name in "PQ"]
        self.tensors = [*self.parameters]
        for k in range(self.choose.randint(1, 4)):
            self.tensors.append(
                self.choose.choice([self.pointwise, self.transposed, self.window, self.rows, self.product])(f"t{k}")
            )

    @property
    def result(self) -> te.Tensor:
        return self.tensors[-1]

    def size(self) -> int:
        return self.choose.randint(1, 9)

    def shape(self, t: te.Tensor) -> tuple[int, int]:
        rows, columns = t.extents
        return rows, columns

    def value(self) -> te.Tensor:
        return self.tensors[-1] if self.choose.random() < 0.7 else self.choose.choice(self.tensors)

    def number(self) -> Any:
        return te.const(self.choose.randint(-3, 3), self.dtype)

    def pointwise(self, name: str) -> te.Tensor:
        a, c, d = self.value(), self.number(), self.number()
        others = [t for t in self.tensors if self.shape(t) == self.shape(a)]
        b = self.choose.choice(others)
        if self.choose.random() < 0.3:
            return te.compute(self.shape(a), lambda i, j: te.if_then_else(a[i, j] > c, b[i, j], d), name)
        found: te.Tensor = te.compute(
            self.shape(a), lambda i, j: te.max(te.min(a[i, j], te.const(9, self.dtype)), c) - b[i, j] * d, name
        )
        return found

    def transposed(self, name: str) -> te.Tensor:
        a = self.value()
        m, n = self.shape(a)
        c = self.number()
        found: te.Tensor = te.compute((n, m), lambda i, j: a[j, i] + c, name)
        return found

    def window(self, name: str) -> te.Tensor:
        """A read that leaves the value, where it is zero."""
        a = self.value()
        m, n = self.shape(a)
        at = self.choose.randint(-2, 2)
        zero = te.const(0, self.dtype)
        return te.compute(
            (m, n + 1), lambda i, j: te.if_then_else(te.all(j + at >= 0, j + at < n), a[i, j + at], zero), name
        )

    def rows(self, name: str) -> te.Tensor:
        a = self.value()
        m, n = self.shape(a)
        k = te.reduce_axis((0, n), "k")
        fold = self.choose.choice([te.sum, te.max, te.min])
        return te.compute((m, 1), lambda i, j: fold(a[i, k], axis=k), name)

    def product(self, name: str) -> te.Tensor:
        a = self.value()
        m, depth = self.shape(a)
        fitting = [(t, turned) for t in self.tensors for turned in (0, 1) if self.shape(t)[turned] == depth] or [(a, 1)]
        b, turned = self.choose.choice(fitting)
        k = te.reduce_axis((0, depth), "k")
        low, high = te.const(-4, self.dtype), te.const(4, self.dtype)

        def term(i: Any, j: Any) -> Any:
            right = b[j, k] if turned else b[k, j]
            return te.sum(te.max(te.min(a[i, k], high), low) * te.max(te.min(right, high), low), axis=k)

        found: te.Tensor = te.compute((m, self.shape(b)[1 - turned]), term, name)
        return found


# Steps. Each takes the schedule, the expressions and its own random numbers.


def stage_of(s: te.Schedule, choose: Choose) -> te.Stage:
    return choose.choice([x for x in s.stages if not isinstance(x.op, te.PlaceholderOp)])


def axis_of(stage: te.Stage, choose: Choose) -> Any:
    return choose.choice(list(stage.leaf_iter_vars))


def split(s: te.Schedule, choose: Choose) -> None:
    stage = stage_of(s, choose)
    stage.split(axis_of(stage, choose), **{choose.choice(["factor", "nparts"]): choose.randint(1, 5)})


def fuse(s: te.Schedule, choose: Choose) -> None:
    stage = stage_of(s, choose)
    leaves = list(stage.leaf_iter_vars)
    at = choose.randrange(max(1, len(leaves) - 1))
    stage.fuse(*leaves[at:at + 2])


def reorder(s: te.Schedule, choose: Choose) -> None:
    stage = stage_of(s, choose)
    leaves = list(stage.leaf_iter_vars)
    stage.reorder(*choose.sample(leaves, choose.randint(1, len(leaves))))


def tile(s: te.Schedule, choose: Choose) -> None:
    stage = stage_of(s, choose)
    axes = stage.op.axis
    stage.tile(axes[0], axes[1], choose.randint(1, 4), choose.randint(1, 4))


def compute_at(s: te.Schedule, choose: Choose) -> None:
    stage = stage_of(s, choose)
    readers = [x for x in s.stages if stage.op.output(0) in x.op.inputs] or [stage_of(s, choose)]
    reader = choose.choice(readers)
    stage.compute_at(reader, axis_of(reader, choose))


def cache_write(s: te.Schedule, choose: Choose) -> None:
    stage = stage_of(s, choose)
    s.cache_write(stage.op.output(0), choose.choice(["global", "local"]))


def cache_read(s: te.Schedule, choose: Choose) -> None:
    stages = [x for x in s.stages if not x.is_output]
    source = choose.choice(stages).op.output(0)
    readers = [x.op for x in s.stages if source in x.op.inputs]
    if not readers:
        raise ScheduleError("nothing reads it")
    s.cache_read(source, choose.choice(["global", "local"]), choose.sample(readers, choose.randint(1, len(readers))))


def rfactor(s: te.Schedule, choose: Choose) -> None:
    stages = [x for x in s.stages if not isinstance(x.op, te.PlaceholderOp) and x.op.reduce_axis]
    if not stages:
        raise ScheduleError("no reduction")
    stage = choose.choice(stages)
    axis = choose.choice([a for a in stage.leaf_iter_vars if a.kind != "spatial"] or [None])
    if axis is None:
        raise ScheduleError("no axis of a reduction is left")
    s.rfactor(stage.op.output(0), axis, choose.randrange(3))


def mark(name: str) -> Callable[[te.Schedule, Choose], None]:
    """A step that says how a loop runs."""

    def marked(s: te.Schedule, choose: Choose) -> None:
        stage = stage_of(s, choose)
        getattr(stage, name)(axis_of(stage, choose))

    return marked


def align(s: te.Schedule, choose: Choose) -> None:
    stage = stage_of(s, choose)
    stage.storage_align(stage.op.axis[0], choose.choice([4, 8]), choose.randrange(4))


STEPS: Final[dict[str, Callable[[te.Schedule, Choose], None]]] = {
    "split": split, "fuse": fuse, "reorder": reorder, "tile": tile, "compute_at": compute_at,
    "cache_write": cache_write, "cache_read": cache_read,
    "rfactor": rfactor, "align": align, "compute_inline": lambda s, c: stage_of(s, c).compute_inline(),
    "vectorize": mark("vectorize"),
    "unroll": mark("unroll"), "parallel": mark("parallel"),
}
EARLY: Final = ("cache_write", "cache_read", "rfactor", "compute_inline")
"""Steps that change which stages there are, or which loops they have; they come first most of the time."""
