"""Small workloads for the tests of template-free search, random ones among them, and an engine that times nothing."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import te
from tilewright.backends.machine import Machine
from tilewright.search import auto_scheduler
from tilewright.search.measure import Built, Candidate, Image, Measured, MeasureErrorNo
from tilewright.te.tensor import Tensor
from tilewright.tir.parser import parse

MACHINE = Machine(vector_bits=256, vector_registers=16, cores=2)


@auto_scheduler.register_workload
def small_matmul(n: int, m: int, k: int) -> list[Tensor]:
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), "k")
    return [a, b, te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")]


@auto_scheduler.register_workload
def matmul_add(n: int, m: int, k: int, dtype: str) -> list[Tensor]:
    a, b, c = te.placeholder(
        (n, k), dtype, name="A"
    ), te.placeholder((k, m), dtype, name="B"), te.placeholder((n, m), dtype, name="C")
    r = te.reduce_axis((0, k), "k")
    product = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="product")
    return [a, b, c, te.compute((n, m), lambda i, j: product[i, j] + c[i, j], name="out")]


@auto_scheduler.register_workload
def softmax(n: int, m: int) -> list[Tensor]:
    x = te.placeholder((n, m), name="X")
    k, r = te.reduce_axis((0, m), "k"), te.reduce_axis((0, m), "r")
    top = te.compute((n,), lambda i: te.max(x[i, k], axis=k), name="top")
    e = te.compute((n, m), lambda i, j: te.exp(x[i, j] - top[i]), name="E")
    total = te.compute((n,), lambda i: te.sum(e[i, r], axis=r), name="total")
    return [x, te.compute((n, m), lambda i, j: e[i, j] / total[i], name="Y")]


@auto_scheduler.register_workload
def window_sum(n: int, c: int) -> list[Tensor]:
    x, w = te.placeholder((n, n, c), name="X"), te.placeholder((3, 3, c), name="W")
    a, b = te.reduce_axis((0, 3), "a"), te.reduce_axis((0, 3), "b")
    padded = te.compute(
        (n + 2, n + 2, c),
        lambda y, z, d: te.if_then_else(te.all(y >= 1, y <= n, z >= 1, z <= n), x[y - 1, z - 1, d], 0.0), name="P"
    )
    return [
        x, w, te.compute((n, n, c), lambda y, z, d: te.sum(padded[y + a, z + b, d] * w[a, b, d], axis=[a, b]), name="D")
    ]


@auto_scheduler.register_workload
def total(n: int) -> list[Tensor]:
    x = te.placeholder((n, 16), name="X")
    a, b = te.reduce_axis((0, n), "a"), te.reduce_axis((0, 16), "b")
    return [x, te.compute((1,), lambda i: te.sum(x[a, b], axis=[a, b]), name="S")]


def random_workload(seed: int) -> list[Tensor]:
    """A chain of two to four computations over small whole numbers: products, window sums, row sums and plain
    arithmetic."""
    choose = random.Random(seed)
    value = te.placeholder((choose.randint(3, 12), choose.randint(3, 17)), name="P")
    inputs = [value]
    for step in range(choose.randint(2, 4)):
        m, n = (int(d) for d in value.extents)
        match choose.randrange(4):
            case 0:
                other = te.placeholder((n, choose.choice([5, 8, 16, 24])), name=f"Q{step}")
                inputs.append(other)
                k = te.reduce_axis((0, n), "k")
                value = te.compute(
                    (m, other.extents[1]), lambda i, j, v=value, o=other, k=k: te.sum(v[i, k] * o[k, j], axis=k),
                    name=f"M{step}"
                )
            case 1:
                k = te.reduce_axis((0, 2), "k")
                value = te.compute(
                    (m, n),
                    lambda i, j, v=value, k=k, n=n: te.sum(te.if_then_else(j + k < n, v[i, (j + k) % n], 0.0), axis=k),
                    name=f"W{step}"
                )
            case 2:
                k = te.reduce_axis((0, n), "k")
                row = te.compute((m,), lambda i, v=value, k=k: te.max(v[i, k], axis=k), name=f"R{step}")
                value = te.compute((m, n), lambda i, j, v=value, row=row: v[i, j] - row[i], name=f"D{step}")
            case _:
                value = te.compute(
                    (m, n), lambda i, j, v=value, c=float(choose.randint(-2, 2)): v[i, j] * c + 1.0, name=f"E{step}"
                )
    return [*inputs, value]


def arrays(tensors: Sequence[Tensor], seed: int = 0) -> list[np.ndarray[Any, Any]]:
    """Small whole numbers, so that sums are exact in any order."""
    numbers = np.random.default_rng(seed)
    return [numbers.integers(-2, 3, t.extents).astype(t.dtype.numpy()) for t in tensors]


class Pretended:
    """A builder and runner that lets the model of the processor say how long a program takes, and fails every
    `fails`-th."""

    def __init__(self, fails: int = 0) -> None:
        self.fails, self.seen, self.form = fails, [""], ".tar"

    def build(self, candidates: Sequence[Candidate], form: str = ".tar") -> list[Built]:
        return [Built(c, Image(b"", "")) for c in candidates]

    def run(self, built: Sequence[Built], on_measured: Any = None) -> list[Measured]:
        from tilewright.search import cycles, features

        results = []
        for k, b in enumerate(built):
            func = parse(b.candidate.script)  # type: ignore[attr-defined]
            self.seen.append(b.candidate.config)
            cost = sum(cycles.cycles(features.statements(func), MACHINE)) * 1e-9
            bad = self.fails and len(self.seen) % self.fails == 0
            results.append(Measured((), MeasureErrorNo.RUN_TIMEOUT, error="planted") if bad else Measured((cost,)))
            if on_measured is not None:
                on_measured(k, results[-1])
        return results
