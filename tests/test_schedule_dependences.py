"""Steps that would change what a program computes are refused, by name of the loop, the memory and both accesses; those
that do not are done."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import random_schedules
import tilewright as tvm
from tilewright import te, tir
from tilewright.base.errors import ScheduleError
from tilewright.tir.interpreter import run

Step = Callable[[tir.Schedule], Any]

# Each program has the parameters A (8, 8) and Z (9, 8) of int32.
HEAD = 'def f(A: T.Buffer((8, 8), "int32"), Z: T.Buffer((9, 8), "int32")):\n'
CARRIED = HEAD + """
    for i, j in T.grid(8, 8):
        with T.block("z"):
            vi, vj = T.axis.remap("SS", [i, j])
            Z[vi + 1, vj] = Z[vi + 1, vj] + Z[vi, vj]
"""
SKEWED = HEAD + """
    for i, j in T.grid(8, 7):
        with T.block("z"):
            vi, vj = T.axis.remap("SS", [i, j])
            Z[vi + 1, vj] = Z[vi, vj + 1] + A[vi, vj]
"""
SCATTER = HEAD + """
    for i, j in T.grid(8, 8):
        with T.block("z"):
            vi, vj = T.axis.remap("SS", [i, j])
            Z[vi // 2, vj] = A[vi, vj]
"""
INDIRECT = HEAD + """
    for i, j in T.grid(8, 8):
        with T.block("z"):
            vi, vj = T.axis.remap("SS", [i, j])
            Z[min(max(A[vi, 0], 0), 8), vj] = A[vi, vj]
"""
TRIANGLE = HEAD + """
    for i in range(8):
        for k in range(i + 1):
            with T.block("z"):
                vi = T.axis.spatial(8, i)
                vk = T.axis.reduce(8, k)
                with T.init():
                    Z[vi, 0] = 0
                Z[vi, 0] = Z[vi, 0] + A[vi, vk]
"""
TWICE = HEAD + """
    C = T.alloc_buffer((8,), "int32")
    for i, x in T.grid(8, 8):
        with T.block("c"):
            vi, vx = T.axis.remap("SR", [i, x])
            with T.init():
                C[vi] = 0
            C[vi] = C[vi] + A[vi, vx]
    for i in range(8):
        with T.block("z"):
            vi = T.axis.spatial(8, i)
            Z[vi, 0] = C[vi] + C[0]
"""
CHAIN = HEAD + """
    C = T.alloc_buffer((8, 8), "int32")
    for i, j in T.grid(8, 8):
        with T.block("c"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj] + Z[vi, vj]
    for i, j in T.grid(8, 8):
        with T.block("change"):
            vi, vj = T.axis.remap("SS", [i, j])
            Z[vi, vj] = 7
    for i, j in T.grid(8, 8):
        with T.block("z"):
            vi, vj = T.axis.remap("SS", [i, j])
            Z[vi, vj] = Z[vi, vj] * C[vi, vj]
"""
IN_PLACE = HEAD + """
    for i, j in T.grid(8, 8):
        with T.block("z"):
            vi, vj = T.axis.remap("SS", [i, j])
            Z[vi, vj] = Z[vi, vj] * 2 + A[vi, vj]
"""
PREFIX = HEAD + """
    C = T.alloc_buffer((8, 8), "int32")
    for i, j in T.grid(8, 8):
        with T.block("c"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj] + T.if_then_else(vj > 0, C[vi, vj - 1], 0)
    for i, j in T.grid(8, 8):
        with T.block("z"):
            vi, vj = T.axis.remap("SS", [i, j])
            Z[vi, vj] = C[vi, vj]
"""
PART = HEAD + """
    for i, j in T.grid(8, 8):
        with T.block("z"):
            vi, vj = T.axis.remap("SS", [i, j])
            Z[vi, vj] = A[vi, vj]
"""
RECURRENCE = HEAD + """
    for i, k, l in T.grid(8, 4, 2):
        with T.block("z"):
            vi, vk, vl = T.axis.remap("SRR", [i, k, l])
            with T.init():
                Z[vi, 0] = 0
            Z[vi, 0] = Z[vi, 0] * 2 + A[vi, vk * 2 + vl]
"""
TRANSPOSED = HEAD + """
    for j, k in T.grid(2, 3):
        with T.block("z"):
            vj, vk = T.axis.remap("SR", [j, k])
            with T.init():
                Z[0, vj] = 0
            Z[0, vj] = Z[0, vj] + A[vj, vk]
"""
BEFORE = HEAD + """
    C = T.alloc_buffer((8,), "int32")
    for i in range(8):
        for j in range(1):
            with T.block("c"):
                vi = T.axis.spatial(8, i)
                C[vi] = A[vi, 0]
            with T.block("z"):
                vi = T.axis.spatial(8, i)
                Z[vi, 0] = C[max(vi - 1, 0)]
"""
RUNNING = HEAD + """
    C = T.alloc_buffer((1,), "int32")
    for i in range(8):
        with T.block("c"):
            vi = T.axis.spatial(8, i)
            C[0] = A[vi, 0] + T.if_then_else(vi > 0, C[0], 0)
        with T.block("z"):
            vi = T.axis.spatial(8, i)
            Z[vi, 0] = C[0]
"""


def loops(s: tir.Schedule, block: str = "z") -> Any:
    return s.get_loops(block)


REFUSED: dict[str, tuple[str, Step, str]] = {
    "parallel": (
        CARRIED, lambda s: s.parallel(loops(s)[0]),
        r"loop 'i' cannot be parallel: 'Z' is written at Z\[\(i \+ 1\), j\] and read at Z\[i, j\]"
    ),
    "vectorize": (CARRIED, lambda s: s.vectorize(loops(s)[0]), "loop 'i' cannot be vectorized: 'Z'"),
    "sums out of their order": (
        TRANSPOSED, lambda s: s.reorder(*reversed(s.split(s.fuse(*loops(s)), [3, 2]))), "cannot run in the order"),
    "blockize of a mixed loop": (
        TRANSPOSED, lambda s: s.blockize(s.fuse(*loops(s))),
        "fuses a spatial and a reduction axis of block 'z'; call blockize before that fuse"
    ),
    "bind": (CARRIED, lambda s: s.bind(loops(s)[0], "threadIdx.x"), "loop 'i' cannot be bound to threads: 'Z'"),
    "parallel after a fuse": (CARRIED, lambda s: s.parallel(s.fuse(*loops(s))), "loop 'i_j' cannot be parallel: 'Z'"),
    "inner part of a split": (
        CARRIED, lambda s: s.vectorize(s.split(loops(s)[0], [None, 4])[1]), "loop 'i_1' cannot be vectorized"
    ),
    "reorder": (
        SKEWED, lambda s: s.reorder(*reversed(loops(s))),
        r"cannot run in the order j, i: 'Z' is written at Z\[\(i \+ 1\), j\] and read at Z\[i, \(j \+ 1\)\]"
    ),
    "tile": (
        SKEWED, lambda s: s.reorder(*reversed(s.split(loops(s)[1], [None, 2])), loops(s)[0]), "cannot run in the order"
    ),
    "several trips at one element": (SCATTER, lambda s: s.parallel(loops(s)[0]), "which may be one element"),
    "the last one counts": (
        SCATTER, lambda s: s.reorder(s.split(loops(s)[0], [None, 2])[1], loops(s)[0]), "cannot run in the order"
    ),
    "an index that is read": (
        INDIRECT, lambda s: s.parallel(loops(s)[0]), "may be one element in different iterations"
    ),
    "fuse of a triangle": (
        TRIANGLE, lambda s: s.fuse(*loops(s)), "loop 'k' goes from 0 for .* iterations, which depends on loop 'i'"
    ),
    "reorder of a triangle": (
        TRIANGLE, lambda s: s.reorder(*reversed(loops(s))),
        "loop 'k' goes from 0 for .* iterations, which depends on loop 'i', so it must stay inside"
    ),
    "rfactor of a triangle": (TRIANGLE, lambda s: s.rfactor(loops(s)[1], 0), "may cover only a part of its axes"),
    "decompose where points are visited again": (
        TWICE, lambda s: (s.compute_at("c", loops(s)[0]), s.decompose_reduction("c", loops(s)[0])),
        "loop 'i' recompute points of block 'c', each"),
    "compute_inline past a change": (
        CHAIN, lambda s: s.compute_inline("c"), "block 'c' cannot be computed in block 'z'"
    ),
    "compute_at past a change": (
        CHAIN, lambda s: s.compute_at("c", loops(s)[0]),
        "block 'c' reads Z.* and cannot move past block 'change', which writes"
    ),
    "cache_write in place": (
        IN_PLACE, lambda s: s.cache_write("z", 0, "local"), "block 'z' reads .* which it also writes"
    ),
    "reindex in place": (IN_PLACE, lambda s: s.reindex("z", ("write", 0)), "block 'z' reads .* which it also writes"),
    "compute_at of a running sum": (
        PREFIX, lambda s: s.compute_at("c", loops(s)[1]), "block 'c' reads .* which it also writes"
    ),
    "compute_inline of a running sum": (
        PREFIX, lambda s: s.compute_inline("c"), "block 'c' reads .* which it also writes"
    ),
    "transform_block_layout of a running sum": (
        PREFIX, lambda s: s.transform_block_layout("c", "lambda i, j: (j // 4, i, j % 4)"), "cannot go by"
    ),
    "cache_write of a part": (PART, lambda s: s.cache_write("z", 0, "local"), "for only a part of 'Z'"),
    "reduction in no known order": (RECURRENCE, lambda s: s.reorder(*loops(s)[:0:-1]), "cannot run in the order"),
    "a value of the trip before, around a loop of one trip": (
        BEFORE, lambda s: s.reorder(*[s.split(loops(s)[0], [None, 2])[1], loops(s)[2], loops(s)[0]]),
        "cannot run in the order .*: 'C'"),
    "a value kept from trip to trip": (RUNNING, lambda s: s.parallel(loops(s)[0]), "loop 'i' cannot be parallel: 'C'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    text, step, message = REFUSED[name]
    s = tir.Schedule(tir.parse(text))
    with pytest.raises(ScheduleError, match=message):
        step(s)


ACCEPTED: dict[str, tuple[str, Step]] = {
    "the loop that carries nothing": (CARRIED, lambda s: (s.vectorize(loops(s)[1]), s.unroll(loops(s)[0]))),
    "reorder that keeps the direction": (CARRIED, lambda s: s.reorder(*reversed(loops(s)))),
    "splits keep the order": (SKEWED, lambda s: (s.split(loops(s)[0], [None, 3]), s.split(loops(s)[2], [2, None]))),
    "fuse keeps the order": (SKEWED, lambda s: s.fuse(*loops(s))),
    "in place": (IN_PLACE, lambda s: (s.parallel(loops(s)[0]), s.vectorize(loops(s)[1]))),
    "a fused and split loop": (IN_PLACE, lambda s: s.parallel(s.split(s.fuse(*loops(s)), [None, 12])[0])),
    "rows of a triangle": (TRIANGLE, lambda s: (s.decompose_reduction("z", loops(s)[1]), s.parallel(loops(s)[0]))),
    "a value for each trip": (TWICE, lambda s: (s.compute_at("c", loops(s)[0]), s.parallel(loops(s)[0]))),
    "decompose inside of the trip": (
        TWICE, lambda s: (s.compute_at("c", loops(s)[0]), s.decompose_reduction("c", loops(s, "c")[1]))
    ),
    "columns of a running sum": (PREFIX, lambda s: s.reorder(*reversed(loops(s, "c")))),
    "a recurrence over rows": (RECURRENCE, lambda s: s.parallel(loops(s)[0])),
    "a recurrence around its rows": (RECURRENCE, lambda s: s.reorder(*loops(s)[1:], loops(s)[0])),
    "nothing": (RUNNING, lambda s: None),
    "unroll": (RUNNING, lambda s: s.unroll(loops(s)[0])),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name: str) -> None:
    text, step = ACCEPTED[name]
    func = tir.parse(text)
    numbers = np.random.default_rng(0)
    given = [numbers.integers(-4, 9, (8, 8)).astype("int32"), numbers.integers(-4, 9, (9, 8)).astype("int32")]
    want = [a.copy() for a in given]
    run(func, want)
    s = tir.Schedule(func)
    step(s)
    got = [a.copy() for a in given]
    run(tir.lower_blocks(s.mod["main"]), got)
    np.testing.assert_array_equal(got[1], want[1], err_msg=str(s.mod["main"]))
    got = [a.copy() for a in given]
    tvm.build(s.mod["main"], target="llvm")(*got)
    np.testing.assert_array_equal(got[1], want[1], err_msg=str(s.mod["main"]))


@pytest.mark.parametrize("kind", ["vectorize", "parallel"])
def test_a_loop_over_a_spatial_and_a_reduction_axis(kind: str) -> None:
    """It is a reduction loop: its iterations add to the same elements."""
    a, b = te.placeholder((32, 13), name="A"), te.placeholder((13, 16), name="B")
    k = te.reduce_axis((0, 13), "k")
    c = te.compute((32, 16), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c.op)
    getattr(s[c], kind)(s[c].fuse(c.op.axis[1], k))
    with pytest.raises(ScheduleError, match="block 'C'"):
        tvm.lower(s, [a, b, c])


@pytest.mark.slow
def test_random_schedules_of_the_day() -> None:
    """Whatever is accepted computes the same; `python tests/random_schedules.py 5000 0` does it for thousands."""
    first = datetime.date.today().toordinal() * 1000
    counts: Counter[str] = Counter()
    faults = random_schedules.some(range(first, first + 40), counts)
    assert not faults, f"seeds from {first}: " + "\n".join(faults)
    assert counts["accepted"] > 20
