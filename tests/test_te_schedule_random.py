"""Random te schedules of one small program: whatever steps are accepted, the result stays."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import daily
import tilewright as tvm
from tilewright import te
from tilewright.scalar.expr import number_of
from tilewright.te.resolve import schedule_func
from tilewright.tir.interpreter import run
from tilewright.tir.transform.lower_blocks import lower_blocks
from tilewright.tir.transform.pipeline import lower_loops

pytestmark = pytest.mark.slow

M, N, K = 5, 6, 7
RNG = np.random.default_rng(0)
A, B = RNG.integers(-4, 5, (M, K)).astype("float32"), RNG.integers(-4, 5, (K, N + 1)).astype("float32")
WANT = np.maximum((A * 2) @ (B[:, :-1] + B[:, 1:]), 0) - 1


def program() -> tuple[te.Schedule, list[te.Tensor], list[te.Tensor]]:
    a, b = te.placeholder((M, K), name="A"), te.placeholder((K, N + 1), name="B")
    twice = te.compute((M, K), lambda i, j: a[i, j] * 2.0, name="twice")
    pairs = te.compute((K, N), lambda i, j: b[i, j] + b[i, j + 1], name="pairs")
    k = te.reduce_axis((0, K), "k")
    product = te.compute((M, N), lambda i, j: te.sum(twice[i, k] * pairs[k, j], axis=k), name="product")
    out = te.compute((M, N), lambda i, j: te.if_then_else(product[i, j] > 0.0, product[i, j], 0.0) - 1.0, name="out")
    return te.create_schedule(out.op), [a, b, out], [twice, pairs, product, out]


def shape_loops(stage: te.Stage, choose: random.Random) -> None:
    for _ in range(choose.randrange(4)):
        leaves = list(stage.leaf_iter_vars)
        match choose.randrange(3):
            case 0:
                stage.split(choose.choice(leaves), **{choose.choice(["factor", "nparts"]): choose.randrange(1, 5)})
            case 1:
                at = choose.randrange(len(leaves))
                if at + 1 < len(leaves) and leaves[at].kind == leaves[at + 1].kind:
                    stage.fuse(leaves[at], leaves[at + 1])
            case _:
                stage.reorder(*choose.sample(leaves, len(leaves)))


def mark_loops(stage: te.Stage, choose: random.Random) -> None:
    for axis in stage.leaf_iter_vars:
        if axis.kind == "spatial" and choose.random() < 0.4:
            marks: list[Callable[[Any], None]] = [
                stage.vectorize, stage.unroll, stage.parallel, lambda a: stage.bind(a, te.thread_axis("vthread"))
            ]
            choose.choice(marks)(axis)
    if choose.random() < 0.1:
        stage.pragma(stage.leaf_iter_vars[0], "auto_unroll_max_step", choose.choice([4, 16]))
        stage.pragma(stage.leaf_iter_vars[0], "unroll_explicit", True)
    axes = [a for a in stage.roots if a.kind == "spatial"]
    if len(axes) > 1 and not stage.is_output and choose.random() < 0.2:
        stage.storage_align(axes[-2], choose.choice([4, 8]), choose.randrange(4))
    if choose.random() < 0.1 and axes:
        stage.set_store_predicate(axes[0].var < axes[0].extent)


def lay_out(stage: te.Stage, choose: random.Random) -> None:
    """Another layout for a value of two dimensions: transposed, flat, or in slices of rows."""
    if isinstance(stage.op, te.ComputeOp) and len(stage.op.axis) == 2 and choose.random() < 0.2:
        rows, columns = (number_of(a.extent) for a in stage.op.axis)
        assert isinstance(rows, int)
        mappings: list[Callable[..., Any]] = [lambda i, j: (j, i), lambda i, j: (i * columns + j,)]
        if not rows % 2:
            mappings.append(lambda i, j: (i // 2, j, i % 2))
        stage.transform_layout(choose.choice(mappings))


def scheduled(seed: int) -> tuple[te.Schedule, list[te.Tensor]]:
    """A schedule in which each value is inlined, computed first, or computed in a loop of the stage that reads it."""
    choose = random.Random(seed)
    s, args, (twice, pairs, product, out) = program()
    users: dict[te.Tensor, te.Tensor] = {product: out, twice: product, pairs: product}
    if choose.random() < 0.4:
        made = s.cache_write(product, choose.choice(["global", "local"]))
        users.update({twice: made, pairs: made, made: product})
    elif choose.random() < 0.5:
        _, inner = s[product].split(s[product].op.reduce_axis[0], choose.randrange(1, 5))
        part = s.rfactor(product, inner, choose.randrange(3))
        users.update({twice: part, pairs: part, part: product})
    if choose.random() < 0.4:
        copy = s.cache_read(twice, "local", [users[twice]])
        users.update({copy: users[twice], twice: copy})
    for stage in s.stages:
        if not isinstance(stage.op, te.PlaceholderOp):
            if not stage.is_output:
                lay_out(stage, choose)
            shape_loops(stage, choose)
    for value, user in users.items():
        where = choose.random()
        if where < 0.2 and value in (twice, pairs):
            s[value].compute_inline()
        elif where < 0.7 and not s[user].inlined:
            s[value].compute_at(s[user], choose.choice(s[user].leaf_iter_vars))
    for stage in s.stages:
        if stage.attached and stage.attached[0].inlined:
            stage.compute_root()
        if not isinstance(stage.op, te.PlaceholderOp):
            mark_loops(stage, choose)
    assert s[out].op is out.op
    return s, args


def stays(seeds: Sequence[int]) -> None:
    for seed in seeds:
        s, args = scheduled(seed)
        func = schedule_func(s, args)
        lowered = lower_blocks(func)
        for program in (lowered, lower_loops(lowered)):
            out = np.full((M, N), np.nan, "float32")
            run(program, [x if program is lowered else x.reshape(-1) for x in (A, B, out)])
            np.testing.assert_array_equal(out, WANT, err_msg=f"seed {seed}\n{func}\n{lowered}")


def stays_native(seeds: Sequence[int]) -> None:
    """All of them in one library."""
    functions = {f"f{seed}": lower_blocks(schedule_func(*scheduled(seed), f"f{seed}")) for seed in seeds}
    module = tvm.build(tvm.IRModule(functions), target="llvm")
    for name, func in functions.items():
        out = np.full((M, N), np.nan, "float32")
        module[name](A, B, out)
        np.testing.assert_array_equal(out, WANT, err_msg=f"{name}\n{func}")


# 317: all lanes of a loop add to the same sums; 520: an unrolled loop around one that runs once in some of the copies.
@pytest.mark.parametrize(
    "seeds", [range(first, first + 10) for first in range(0, 80, 10)] + [(317, 520)], ids=lambda r: str(r[0])
)
def test_the_result_stays(seeds: Sequence[int]) -> None:
    stays(seeds)


def test_the_result_stays_native() -> None:
    stays_native(range(40))


@pytest.mark.slow
@pytest.mark.parametrize("first", daily.sample(range(80, 580, 50), 3, "schedules"))
def test_the_results_of_many_stay(first: int) -> None:
    stays(range(first, first + 50))
    stays_native(range(first, first + 50))
