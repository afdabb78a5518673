"""Random tensor expressions and random schedules of them, over any loop: fused spatial with reduction axes, marks on
all kinds of them.

Values are whole and small, so that results must be equal in whatever order sums are taken.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tilewright import te
from tilewright.base.errors import ScheduleError
from tilewright.tir.stmt import IterVar

Choose = random.Random


def best(n: int, dtype: str) -> Callable[..., Any]:
    """The reducer of a greatest value and the first place of it: the same in any order, as a reducer has to be."""

    def combine(x: Any, y: Any) -> Any:
        left = te.any(x[1] > y[1], te.all(x[1].equal(y[1]), x[0] <= y[0]))
        return te.if_then_else(left, x[0], y[0]), te.if_then_else(left, x[1], y[1])

    return te.comm_reducer(combine, lambda first, second: (te.const(n, first), te.min_value(second)), name="best")


class Expressions:
    """A chain of values over two inputs."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.dtype = self.choose.choice(["float32", "int32"])
        self.args = [te.placeholder((self.size(), self.size()), dtype=self.dtype, name=n) for n in ("P", "Q")]
        self.values = list(self.args)
        for k in range(self.choose.randint(1, 4)):
            made = self.choose.choice(
                [
                    self.pointwise, self.window, self.mirrored, self.gathered, self.rows, self.product, self.place,
                    self.steps
                ]
            )
            self.values.append(made(f"v{k}"))
        self.out = self.values[-1]
        self.args += self.out.op.outputs

    def size(self) -> int:
        return self.choose.randint(2, 7)

    def value(self) -> te.Tensor:
        return self.values[-1] if self.choose.random() < 0.7 else self.choose.choice(self.values)

    def number(self) -> Any:
        return te.const(self.choose.randint(-2, 2), self.dtype)

    def small(self, e: Any) -> Any:
        """`e`, and 9 where it is greater."""
        return te.if_then_else(e > te.const(9, self.dtype), te.const(9, self.dtype), e)

    def pointwise(self, name: str) -> te.Tensor:
        a, number = self.value(), self.number()
        b = self.choose.choice([v for v in self.values if v.shape == a.shape])
        found: te.Tensor = te.compute(a.shape, lambda i, j: self.small(a[i, j] * number) + b[i, j], name=name)
        return found

    def window(self, name: str) -> te.Tensor:
        a, at = self.value(), self.choose.randint(-2, 2)
        m, n = a.shape
        return te.compute(
            (m, n),
            lambda i, j: te.if_then_else(te.all(j + at >= 0, j + at < n), a[i, j + at], te.const(0, self.dtype)),
            name=name
        )

    def mirrored(self, name: str) -> te.Tensor:
        a = self.value()
        m, n = a.shape
        made: te.Tensor = te.compute((n, m), lambda i, j: a[j, n - 1 - i], name=name)
        return made

    def gathered(self, name: str) -> te.Tensor:
        a = self.value()
        m, n = a.shape
        made: te.Tensor = te.compute((m, n), lambda i, j: a[(i * j + i) % m, j // 2], name=name)
        return made

    def rows(self, name: str) -> te.Tensor:
        a, reduce = self.value(), self.choose.choice([te.sum, te.max, te.min])
        m, n = a.shape
        k = te.reduce_axis((0, n), f"{name}k")
        return te.compute((m, 2), lambda i, j: reduce(a[i, k], axis=k), name=name)

    def product(self, name: str) -> te.Tensor:
        a = self.value()
        m, depth = a.shape
        b = self.choose.choice([v for v in self.values if v.shape[1] == depth])
        k = te.reduce_axis((0, depth), f"{name}k")
        return te.compute((m, b.shape[0]), lambda i, j: te.sum(self.small(a[i, k]) * b[j, k], axis=k), name=name)

    def place(self, name: str) -> te.Tensor:
        a = self.value()
        m, n = a.shape
        k = te.reduce_axis((0, n), f"{name}k")
        places: te.Tensor = te.compute(
            (m, 2), lambda i, j: best(a.extents[1], self.dtype)((k.var.astype(self.dtype), a[i, k]), axis=k), name=name
        )[0]
        return places

    def steps(self, name: str) -> te.Tensor:
        """A running sum along the rows."""
        a = self.value()
        m, n = a.shape
        state = te.placeholder((m, n), dtype=self.dtype, name=f"{name}_s")
        init = te.compute((1, n), lambda _, j: a[0, j], name=f"{name}_i")
        update = te.compute((m, n), lambda t, j: self.small(state[t - 1, j] + a[t, j]), name=f"{name}_u")
        return te.scan(init, update, state, name=name)


def shape_loops(stage: te.Stage, choose: Choose) -> None:
    for _ in range(choose.randrange(4)):
        leaves = list(stage.leaf_iter_vars)
        match choose.randrange(3):
            case 0:
                stage.split(choose.choice(leaves), **{choose.choice(["factor", "nparts"]): choose.randrange(1, 5)})
            case 1 if len(leaves) > 1:
                at = choose.randrange(len(leaves) - 1)
                stage.fuse(leaves[at], leaves[at + 1])
            case _:
                stage.reorder(*choose.sample(leaves, len(leaves)))


def mark_loops(stage: te.Stage, choose: Choose) -> None:
    for axis in stage.leaf_iter_vars:
        if choose.random() < 0.2:
            marks: list[Callable[[IterVar], None]] = [
                stage.vectorize, stage.unroll, stage.parallel, lambda a: stage.bind(a, te.thread_axis("vthread"))
            ]
            choose.choice(marks)(axis)


def compute_somewhere(stage: te.Stage, user: te.Stage, choose: Choose) -> None:
    stage.compute_at(user, choose.choice(user.leaf_iter_vars))


def rewritten(s: te.Schedule, e: Expressions, choose: Choose) -> None:
    """Stages that copy, or that compute a reduction in two."""
    value = choose.choice(e.values[2:])
    if not isinstance(value.op, te.ComputeOp) or len(value.op.outputs) > 1:
        return
    match choose.randrange(4):
        case 0:
            s.cache_write(value, choose.choice(["global", "local"]))
        case 1 if value.op.reduce_axis:
            _, inner = s[value].split(value.op.reduce_axis[0], choose.randrange(1, 5))
            s.rfactor(value, inner, choose.randrange(3))
        case 2:
            source = choose.choice(value.op.inputs)
            s.cache_read(source, "local", [value])
        case _:
            pass


def scheduled(seed: int) -> tuple[te.Schedule, list[te.Tensor]]:
    """A schedule whose steps are asked for one by one; those that are refused at once are left out."""
    choose, e = random.Random(seed), Expressions(seed)
    s = te.create_schedule(e.out.op)
    attempt(lambda: rewritten(s, e, choose))
    computed = [x for x in s.stages if isinstance(x.op, te.ComputeOp)]
    for stage in computed:
        attempt(partial(shape_loops, stage, choose))
    for stage in computed[:-1]:
        where = choose.random()
        if where < 0.15:
            attempt(stage.compute_inline)
        elif where < 0.5:
            readers = [x for x in computed if any(t in x.op.inputs for t in stage.op.outputs) and not x.inlined]
            if readers:
                user = choose.choice(readers)
                attempt(partial(compute_somewhere, stage, user, choose))
    for stage in computed:
        attempt(partial(mark_loops, stage, choose))
    return s, list(e.args)


def attempt(step: Callable[[], object]) -> None:
    with contextlib.suppress(ScheduleError):
        step()


def unscheduled(seed: int) -> tuple[te.Schedule, Sequence[te.Tensor]]:
    """The same program without a step."""
    e = Expressions(seed)
    return te.create_schedule(e.out.op), list(e.args)
