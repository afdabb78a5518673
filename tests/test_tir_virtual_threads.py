"""Virtual threads that are executed in turn: before -> after, and random programs against the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from test_tir_public_passes import after, becomes, parsed
from tilewright.tir.interpreter import run
from tilewright.tir.stmt import THREAD, For, walk_stmt

NAME = "InjectVirtualThread"
PARAMS = 'A: T.Buffer((64,), "int32"), C: T.Buffer((64,), "int32")'


def check(before: str, wanted: str) -> None:
    becomes(NAME, before, wanted, params=PARAMS)


def test_statements_are_repeated_inside_of_common_loops() -> None:
    check("""
for v in T.thread_binding(2, "vthread"):
    B = T.allocate([4], "int32", "local")
    for i in range(4):
        B[i] = A[i * 2 + v]
    for i in range(4):
        C[i * 2 + v] = B[i]
""", """
B = T.allocate([8], "int32", "local")
for i in range(4):
    B[i] = A[i * 2]
    B[i + 4] = A[i * 2 + 1]
for i in range(4):
    C[i * 2] = B[i]
    C[i * 2 + 1] = B[i + 4]
""")


def test_memory_has_one_part_if_its_values_do_not_depend_on_the_thread() -> None:
    before = """
for v in T.thread_binding(2, "{}"):
    B = T.allocate([4, 2], "int32", "local")
    for i, j in T.grid(4, 2):
        B[i, j] = A[i]
    C[v] = B[v, 0]
"""
    check(before.format("vthread"), """
B = T.allocate([4, 2], "int32", "local")
for i, j in T.grid(4, 2):
    B[i, j] = A[i]
C[0] = B[0, 0]
C[1] = B[1, 0]
""")
    check(before.format("cthread"), """
B = T.allocate([2, 4, 2], "int32", "local")
for i, j in T.grid(4, 2):
    B[0, i, j] = A[i]
    B[1, i, j] = A[i]
C[0] = B[0, 0, 0]
C[1] = B[1, 1, 0]
""")


def test_memory_that_is_stored_under_a_condition_of_the_thread_has_parts() -> None:
    check("""
for v in T.thread_binding(2, "vthread"):
    B = T.allocate([1], "int32", "local")
    B[0] = 0
    if v == 1:
        B[0] = 5
    C[v] = B[0]
""", """
B = T.allocate([2], "int32", "local")
B[0] = 0
B[1] = 0
if 0 == 1:
    B[0] = 5
if 1 == 1:
    B[1] = 5
C[0] = B[0]
C[1] = B[1]
""")


def test_loops_whose_bounds_depend_on_the_thread_are_repeated_whole() -> None:
    check("""
for v in T.thread_binding(3, "vthread.x"):
    for i in range(v + 1):
        C[v * 4 + i] = A[i]
""", """
for v_s in range(3):
    for i in range(v_s + 1):
        C[v_s * 4 + i] = A[i]
""")


def test_many_threads_are_a_loop() -> None:
    check("""
for v in T.thread_binding(16, "vthread"):
    for i in range(4):
        C[v * 4 + i] = A[i]
""", """
for i in range(4):
    for v_s in range(16):
        C[v_s * 4 + i] = A[i]
""")


def test_vectors_stay_vectors() -> None:
    check("""
for v in T.thread_binding(2, "vthread"):
    B = T.allocate([4], "int32", "local")
    B[0:4] = T.broadcast(T.cast(v, "int32"), 4)
    C[v] = B[3]
""", """
B = T.allocate([8], "int32", "local")
B[0:4] = T.broadcast(0, 4)
B[4:8] = T.broadcast(1, 4)
C[0] = B[3]
C[1] = B[7]
""")


def test_programs_without_virtual_threads_stay() -> None:
    func = parsed("for i in T.thread_binding(4, \"threadIdx.x\"):\n    A[i] = 0", PARAMS)
    assert after(NAME, func).body is func.body


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("threads", [2, 4, 16])
def test_scheduled_threads_keep_their_results(axis: int, threads: int) -> None:
    sch = tvm.tir.Schedule(parsed("""
B = T.alloc_buffer((32, 32), "int64")
for i, j in T.grid(32, 32):
    with T.block("b"):
        vi, vj = T.axis.remap("SS", [i, j])
        B[vi, vj] = A[vi, vj] * 3 + vi
for i, j in T.grid(31, 32):
    with T.block("c"):
        vi, vj = T.axis.remap("SS", [i, j])
        C[vi, vj] = B[vi, vj] - B[vi + 1, vj]
""", 'A: T.Buffer((32, 32), "int64"), C: T.Buffer((31, 32), "int64")'))
    loops = sch.get_loops("c")
    outer, _ = sch.split(loops[axis], [threads, None])
    sch.bind(outer, "vthread")
    sch.compute_at("b", outer)
    func = sch.mod["main"]
    rng = np.random.default_rng(axis * 16 + threads)
    given = rng.integers(-9, 9, (32, 32))
    want, got = np.zeros((31, 32), "int64"), np.zeros((31, 32), "int64")
    run(func, [given, want])
    lowered = after(NAME, func)
    assert not any(isinstance(s, For) and THREAD in s.annotations for s in walk_stmt(lowered.body))
    run(lowered, [given.copy(), got])
    np.testing.assert_array_equal(got, want)
