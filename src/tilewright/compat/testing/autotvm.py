"""TVM's `tvm.testing.autotvm`: a small task of AutoTVM, results of it, and a runner that measures nothing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import te
from tilewright.backends.targets.target import Target
from tilewright.search import autotvm
from tilewright.search.autotvm.measure import MeasureInput, MeasureResult
from tilewright.search.autotvm.task.task import Task
from tilewright.search.measure import OnMeasured

__all__ = ["DummyRunner", "bad_matmul", "get_sample_records", "get_sample_task", "matmul"]


class DummyRunner:
    """A runner that answers with random costs, without running anything."""

    form = ".tar"

    def run(self, measure_inputs: Sequence[Any], build_results: Any = None) -> list[MeasureResult]:
        """Return a result for each input. A callable `build_results` is called with the number and the result of
        each, as by `search.measure.measure`."""
        results = [MeasureResult((float(np.random.random()),), 0, 0.2, time.time()) for _ in measure_inputs]
        if callable(build_results):
            told: OnMeasured = build_results
            for k, result in enumerate(results):
                told(k, result)
        return results

    def get_build_kwargs(self) -> dict[str, Any]:
        """Return the options of building: none."""
        return {}


@autotvm.template("testing/matmul")
def matmul(N: int, L: int, M: int, dtype: str) -> tuple[te.Schedule, list[te.Tensor]]:
    """A product of N x L and L x M, with both result axes split in two."""
    a, b = te.placeholder((N, L), dtype, name="A"), te.placeholder((L, M), dtype, name="B")
    k = te.reduce_axis((0, L), name="k")
    c = te.compute((N, M), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c.op)
    y, x = s[c].op.axis
    cfg = autotvm.get_config()
    cfg.define_split("tile_y", y, num_outputs=2)
    cfg.define_split("tile_x", x, num_outputs=2)
    yo, yi = cfg["tile_y"].apply(s, c, y)
    xo, xi = cfg["tile_x"].apply(s, c, x)
    s[c].reorder(yo, xo, k, yi, xi)
    return s, [a, b, c]


@autotvm.template("testing/bad_matmul")
def bad_matmul(N: int, L: int, M: int, dtype: str) -> tuple[te.Schedule, list[te.Tensor]]:
    """The same product, under another name: TVM's makes code for a GPU that does not run."""
    found: tuple[te.Schedule, list[te.Tensor]] = matmul(N, L, M, dtype)
    return found


def get_sample_task(n: int = 128) -> tuple[Task, Target]:
    """Return the task of a product of n x n matrices of float32, and its target."""
    target = Target("llvm")
    return autotvm.task.create("testing/matmul", args=(n, n, n, "float32"), target=target), target


def get_sample_records(n: int) -> list[tuple[MeasureInput, MeasureResult]]:
    """Return `n` inputs of the task with results: that of number k took k + 1 seconds."""
    task, target = get_sample_task()
    space = task.config_space
    return [
        (MeasureInput(target, task, space.get(k % len(space))), MeasureResult((k + 1,), 0, k, time.time()))
        for k in range(n)]
