"""Passes over the threads of a GPU and the memory that they share, under TVM's names: before -> after, and what they
refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright.base.errors import CompileError, ScheduleError
from tilewright.tir.interpreter import run
from tilewright.tir.stmt import Allocate, walk_stmt

tir: Any = tvm.tir
PARAMS = 'A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32"), n: T.int32'


def parsed(text: str, params: str = PARAMS) -> Any:
    return tir.parse(f"def f({params}):\n    " + text.strip("\n").replace("\n", "\n    "))


def after(name: str, func: Any, *args: object) -> Any:
    return getattr(tir.transform, name)(*args)(tvm.IRModule({"main": func}))["main"]


def becomes(name: str, before: str, wanted: str, *args: object, params: str = PARAMS, **attrs: object) -> None:
    func, expected = (parsed(text, params).with_attr(attrs) for text in (before, wanted))
    found = after(name, func, *args)
    assert tvm.ir.structural_equal(found, expected), f"{found}\nis not\n{expected}"


# Rolling buffers.
ROLLING = """
for i in T.serial(8):
    W = T.allocate([10], "float32", "global")
    T.attr(W, "rolling_buffer_scope", True)
    for x in T.serial(3):
        W[i + x] = A[i + x] * T.float32(2)
    B[i] = W[i] + W[i + 2]
"""


def test_a_marked_buffer_becomes_a_ring() -> None:
    becomes("InjectRollingBuffer", ROLLING, """
W = T.allocate([3], "float32", "global")
for i in T.serial(8):
    for x in T.serial(3):
        if i < 1 or x >= 2:
            W[(i + x) % 3] = A[i + x] * T.float32(2)
    B[i] = W[i % 3] + W[(i + 2) % 3]
""")


def test_a_ring_has_the_same_values() -> None:
    func = after("InjectRollingBuffer", parsed(ROLLING, PARAMS.removesuffix(", n: T.int32")))
    a, b = np.arange(64, dtype="float32"), np.zeros(64, "float32")
    run(func, [a, b])
    np.testing.assert_array_equal(b[:8], 2 * a[:8] + 2 * a[2:10])


@pytest.mark.parametrize(("old", "new", "reason"), [
    ("for i in T.serial(8)", "for i in T.parallel(8)", "have no order, but a rolling buffer passes data"),
    ("W[i + x]", "W[i * 3 + x]", "does not overlap that of the next iteration|used in loop"),
    ("for i in T.serial(8)", "if n > 0", "'W' is not allocated in a loop"),
])
def test_faults_of_rings(old: str, new: str, reason: str) -> None:
    text = ROLLING.replace(old, new)
    if "if n" in new:
        text = text.replace("[i", "[n").replace("A[n", "A[n")
    with pytest.raises(ScheduleError, match=reason):
        after("InjectRollingBuffer", parsed(text.replace("W[i] + W[i + 2]", "W[i * 3] + W[i * 3 + 2]")
                                            if "* 3" in new else text))


# Barriers.
@pytest.mark.parametrize(("before", "wanted"), [
    # another thread's element
    ("S[tx] = A[tx]\n    B[tx] = S[(tx + 1) % 32]",
     'S[tx] = A[tx]\n    T.tvm_storage_sync("shared")\n    B[tx] = S[(tx + 1) % 32]'),
    # each thread has its own element
    ("S[tx] = A[tx]\n    B[tx] = S[tx]", "S[tx] = A[tx]\n    B[tx] = S[tx]"),
    # the next trip stores what other threads read in this one
    ("for i in T.serial(2):\n        S[tx] = A[i * 32 + tx]\n        B[i * 32 + tx] = S[31 - tx]",
     'for i in T.serial(2):\n        T.tvm_storage_sync("shared")\n        S[tx] = A[i * 32 + tx]\n'
     '        T.tvm_storage_sync("shared")\n        B[i * 32 + tx] = S[31 - tx]'),
    # elements of different trips
    ("for i in T.serial(2):\n        if tx < 1:\n            S[i] = A[i]",
     "for i in T.serial(2):\n        if tx < 1:\n            S[i] = A[i]"),
    # the barrier is before the branch
    ("S[tx] = A[tx]\n    if tx < 1:\n        B[0] = S[1]",
     'S[tx] = A[tx]\n    T.tvm_storage_sync("shared")\n    if tx < 1:\n        B[0] = S[1]'),
    # all threads take the branch
    ("if n > 0:\n        S[tx] = A[tx]\n        B[tx] = S[31 - tx]",
     'if n > 0:\n        S[tx] = A[tx]\n        T.tvm_storage_sync("shared")\n        B[tx] = S[31 - tx]'),
    # a barrier that is there already
    ('S[tx] = A[tx]\n    T.tvm_storage_sync("shared")\n    B[tx] = S[31 - tx]',
     'S[tx] = A[tx]\n    T.tvm_storage_sync("shared")\n    B[tx] = S[31 - tx]'),
    # lanes of vectors
    ("S[T.ramp(tx * 2, 1, 2)] = A[T.ramp(tx * 2, 1, 2)]\n    B[T.ramp(tx * 2, 1, 2)] = S[T.ramp(tx * 2, 1, 2)]",
     "S[T.ramp(tx * 2, 1, 2)] = A[T.ramp(tx * 2, 1, 2)]\n    B[T.ramp(tx * 2, 1, 2)] = S[T.ramp(tx * 2, 1, 2)]"),
])
def test_barriers(before: str, wanted: str) -> None:
    around = 'for tx in T.thread_binding(32, "threadIdx.x"):\n    S = T.allocate([64], "float32", "shared")\n    {}'
    becomes("ThreadSync", around.format(before), around.format(wanted), "shared")


def test_barriers_count_the_threads_of_a_block() -> None:
    around = ('for bx in T.thread_binding(2, "blockIdx.x"):\n    for ty in T.thread_binding(4, "threadIdx.y"):\n'
              '        for tx in T.thread_binding(8, "threadIdx.x"):\n'
              '            S = T.allocate([32], "float32", "shared.dyn")\n            {}')
    own = "S[ty * 8 + tx] = A[bx * 32 + ty * 8 + tx]\n            B[bx * 32 + ty * 8 + tx] = S[ty * 8 + tx]"
    becomes("ThreadSync", around.format(own), around.format(own), "shared.dyn")
    row = "S[tx] = A[tx]\n            B[tx] = S[tx]"  # threads with other ty store the same elements
    becomes("ThreadSync", around.format(row), around.format(row.replace(
        "\n", '\n            T.tvm_storage_sync("shared.dyn")\n', 1)), "shared.dyn")


def test_faults_of_barriers() -> None:
    func = parsed("""
for tx in T.thread_binding(32, "threadIdx.x"):
    S = T.allocate([64], "float32", "shared")
    if tx < 16:
        S[tx] = A[tx]
        B[tx] = S[15 - tx]
""")
    with pytest.raises(CompileError, match="needs a barrier inside a branch or a loop that depends on the thread"):
        after("ThreadSync", func, "shared")
    with pytest.raises(CompileError, match=r"ThreadSync takes the scope .* or 'warp', not 'global'"):
        after("ThreadSync", func, "global")


# Reductions over threads.
ALLREDUCE = """
for ty in T.thread_binding(2, "threadIdx.y"):
    for tx in T.thread_binding({size}, "threadIdx.x"):
        r = T.allocate([1], "float32", "local")
        with T.attr(T.comm_reducer(lambda x, y: x + y, [T.float32(0)]), "reduce_scope", 0):
            T.tvm_thread_allreduce(T.uint32(1), A[tx], {condition}, r[0], tx)
        B[ty] = r[0]
"""


def test_threads_of_a_warp_exchange_values() -> None:
    wanted = ALLREDUCE.replace(
        "            T.tvm_thread_allreduce(T.uint32(1), A[tx], {condition}, r[0], tx)\n", """\
            mask = T.allocate([1], "uint32", "local")
            t = T.allocate([1], "float32", "local")
            r[0] = A[tx]
            mask[0] = T.tvm_warp_activemask()
            t[0] = T.tvm_warp_shuffle_down(mask[0], r[0], 2, 4, 32)
            r[0] = r[0] + t[0]
            t[0] = T.tvm_warp_shuffle_down(mask[0], r[0], 1, 4, 32)
            r[0] = r[0] + t[0]
            r[0] = T.tvm_warp_shuffle(mask[0], r[0], 0, 4, 32)
""")
    target = tvm.target.Target("cuda")
    becomes("LowerThreadAllreduce", ALLREDUCE.format(size=4, condition="True"), wanted.format(size=4), target=target)


@pytest.mark.parametrize(("size", "condition"), [(3, "True"), (3, "tx < n")])
def test_threads_reduce_in_shared_memory(size: int, condition: str) -> None:
    value = "A[tx]" if condition == "True" else f"T.if_then_else({condition}, A[tx], T.float32(0))"
    wanted = ALLREDUCE.replace(
        "            T.tvm_thread_allreduce(T.uint32(1), A[tx], {condition}, r[0], tx)\n", f"""\
            red = T.allocate([6], "float32", "shared")
            red[ty * 3 + tx] = {value}
            T.tvm_storage_sync("shared")
            if tx < 1:
                red[ty * 3 + tx] = red[ty * 3 + tx] + red[ty * 3 + tx + 2]
            T.tvm_storage_sync("shared")
            if tx < 1:
                red[ty * 3 + tx] = red[ty * 3 + tx] + red[ty * 3 + tx + 1]
            T.tvm_storage_sync("shared")
            r[0] = red[ty * 3]
            T.tvm_storage_sync("shared")
""")
    becomes("LowerThreadAllreduce", ALLREDUCE.format(size=size, condition=condition), wanted.format(size=size))


def test_a_reduction_of_two_values() -> None:
    func = parsed("""
for tx in T.thread_binding(2, "threadIdx.x"):
    v = T.allocate([1], "float32", "local")
    i = T.allocate([1], "int64", "local")
    with T.attr(T.comm_reducer(lambda i0, v0, i1, v1: (T.Select(v0 >= v1, i0, i1), T.Select(v0 >= v1, v0, v1)),
                               [T.int64(-1), T.float32(0)]), "reduce_scope", 0):
        T.tvm_thread_allreduce(T.uint32(2), tx, A[tx], True, i[0], v[0], tx)
    B[0] = v[0]
""").with_attr("target", tvm.target.Target("cuda"))
    text = str(after("LowerThreadAllreduce", func))
    assert text.index("combined1 = ") < text.index("i[0] = combined0") < text.index("v[0] = combined1")


@pytest.mark.parametrize(("old", "new", "reason"), [
    ("r[0], tx)", "r[0], n)", "is over a variable that is not a thread of a block"),
    ("{size}", "n", "is over an unknown number of threads"),
    ('"reduce_scope"', '"other"', "is not in an attribute 'reduce_scope' with a reduction"),
    ("r[0], tx)", "1, tx)", "needs 1 results"),
])
def test_faults_of_reductions_over_threads(old: str, new: str, reason: str) -> None:
    with pytest.raises(CompileError, match=reason):
        after("LowerThreadAllreduce", parsed(ALLREDUCE.replace(old, new).format(size=3, condition="True")))


# Dynamic shared memory.
def test_dynamic_shared_memory_is_one_allocation() -> None:
    becomes("MergeDynamicSharedMemoryAllocations", """
for tx in T.thread_binding(32, "threadIdx.x"):
    S = T.allocate([32], "float32", "shared.dyn")
    U = T.allocate([32], "float32", "shared.dyn")
    V = T.allocate([32], "float32", "shared.dyn")
    W = T.allocate([n], "float32", "shared.dyn")
    S[tx] = A[tx]
    U[tx] = S[31 - tx]
    V[tx] = U[31 - tx]
    W[tx] = V[tx]
    B[tx] = W[tx]
""", """
for tx in T.thread_binding(32, "threadIdx.x"):
    m = T.allocate([n + 64], "float32", "shared.dyn")
    m[tx] = A[tx]
    m[tx + 32] = m[31 - tx]
    m[tx] = m[31 - tx + 32]
    m[tx + 64] = m[tx]
    B[tx] = m[tx + 64]
""", params=PARAMS.replace("int32", "int64"))


def test_elements_of_several_types_are_composed_of_bytes() -> None:
    text = """
for i in T.serial(4):
    S = T.allocate([4], "float32", "shared.dyn")
    U = T.allocate([4], "int16", "shared.dyn")
    S[i] = A[i]
    U[i] = T.cast(A[i] * T.float32(3), "int16")
    B[i] = S[i] + T.cast(U[i], "float32")
"""
    func = parsed(text, PARAMS.removesuffix(", n: T.int32"))
    found = after("MergeDynamicSharedMemoryAllocations", func)
    (whole,) = [s.buffer for s in walk_stmt(found.body) if isinstance(s, Allocate)]
    assert (str(whole.dtype), whole.shape) == ("uint8", (24,))
    a, results = np.arange(64, dtype="float32"), [np.zeros(64, "float32") for _ in range(2)]
    for f, b in zip((func, found), results, strict=True):
        run(f, [a, b])
    np.testing.assert_array_equal(results[0], results[1])
    assert results[0][3] == 12


def test_one_allocation_stays() -> None:
    text = """
for tx in T.thread_binding(32, "threadIdx.x"):
    S = T.allocate([32], "float32", "shared.dyn")
    S[tx] = A[tx]
    B[tx] = S[31 - tx]
"""
    becomes("MergeDynamicSharedMemoryAllocations", text, text)


# Stages in registers.
def test_a_copy_by_way_of_registers() -> None:
    before = """
S = T.alloc_buffer((64,), "float32", scope="shared")
for tx in T.thread_binding(2, "threadIdx.x"):
    for i in T.serial(1, 33):
        with T.block("S"):
            {axes}{note}S[{at}] = A[{at}]
    for i in T.serial(32):
        with T.block("B"):
            B[i * 2 + tx] = S[i * 2 + tx]
"""
    note = 'T.block_attr({"tir.manifest_shared_memory_local_stage": 1})\n            '
    plain = before.format(axes="", note=note, at="i * 2 + tx - 2")
    found = str(after("ManifestSharedMemoryLocalStage", parsed(plain)))
    assert "S_local[i - 1] = A[" in found and "= S_local[i" in found and "manifest" not in found
    axes = "v = T.axis.spatial(64, i * 2 + tx - 2)\n            "
    func = after("ManifestSharedMemoryLocalStage", parsed(before.format(axes=axes, note=note, at="v")))
    assert tir.analysis.verify_ssa(func) and tir.analysis.verify_well_formed(func)


def test_faults_of_stages_in_registers() -> None:
    func = parsed("""
with T.block("S"):
    T.block_attr({"tir.manifest_shared_memory_local_stage": 1})
    A[0] = T.float32(0)
    B[0] = T.float32(0)
""")
    with pytest.raises(ScheduleError, match="block 'S' is not a single store"):
        after("ManifestSharedMemoryLocalStage", func)


# Memory of a warp.
WARP = """
for tx in T.thread_binding(32, "threadIdx.x"):
    W = T.allocate([64], "float32", "warp")
    for i in T.serial(2):
        W[i * 32 + tx] = A[i * 32 + tx]
    B[tx] = W[{at}]
"""


@pytest.mark.parametrize(("at", "value"), [
    ("tx + 32", "W[1]"),
    ("(tx + 1) % 32", "T.tvm_warp_shuffle(T.tvm_warp_activemask(), W[0], (tx + 1) % 32, 32, 32)"),
])
def test_memory_of_a_warp_is_in_registers(at: str, value: str) -> None:
    becomes("LowerWarpMemory", WARP.format(at=at), f"""
for tx in T.thread_binding(32, "threadIdx.x"):
    W = T.allocate([2], "float32", "local")
    for i in T.serial(2):
        W[i] = A[i * 32 + tx]
    B[tx] = {value}
""", target=tvm.target.Target("cuda"))


@pytest.mark.parametrize(("old", "new", "reason"), [
    ("W[i * 32 + tx]", "W[i * 32 + 31 - tx]", "is stored at no distance between threads"),
    ("W[i * 32 + tx]", "W[i * 32 + tx + 1]", "a thread can only store elements of its own"),
    ("W[i * 32 + tx]", "W[i * 32 + tx % 4]", "is not a multiple of the thread plus a number"),
    ("T.thread_binding(32,", "T.thread_binding(24,", "needs a known number of threads .* a warp of 32"),
    ("W[{at}]", "W[tx * 32]", "in another register in each thread"),
])
def test_faults_of_memory_of_a_warp(old: str, new: str, reason: str) -> None:
    func = parsed(WARP.replace(old, new).format(at="tx")).with_attr("target", tvm.target.Target("cuda"))
    with pytest.raises(CompileError, match=reason):
        after("LowerWarpMemory", func)


# Copies that a script replaces.
COPY = """
for k in T.serial(4):
    for i in T.serial(18, annotations={{"pragma_memcpy": 1}}):
        B[k * 16 + i] = {value}
"""


def test_copies_become_what_a_script_returns() -> None:
    seen: list[Any] = []

    def copy(src: Any, dst: Any, before: Any, after: Any, value: Any) -> Any:
        seen.append((src, dst, before, after, value))
        return tir.call_extern("int32", "copy", src.access_ptr("r"), dst.access_ptr("w"))

    func = parsed(COPY.format(value="T.if_then_else(i >= 1 and i < 17, A[k * 8 + i - 1], T.float32(2))"))
    found = after("InjectCopyIntrin", func, "memcpy", copy)
    ((src, dst, before, rest, value),) = seen
    assert [*map(str, (src.shape[0], dst.shape[0], src.elem_offset, dst.elem_offset))] == [
        "16", "18", "(k * 8)", "(k * 16)"]
    assert (before[0].value, rest[0].value, value.value, src.strides[0].value) == (1, 1, 2.0, 1)
    assert "call_extern" in str(found) and "B[" not in str(found).replace("T.address_of(B[", "")


@pytest.mark.parametrize(("value", "reason"), [
    ("A[i] + A[k]", "does not copy elements of a buffer"),
    ("A[i * i]", "the position of 'A' is not linear in the loops of the copy"),
    ("T.if_then_else(i * i < n, A[i], T.float32(0))", "the condition of the copy is not a limit of each of its loops"),
])
def test_faults_of_copies(value: str, reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason):
        after("InjectCopyIntrin", parsed(COPY.format(value=value)), "memcpy", lambda *parts: None)
