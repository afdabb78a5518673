"""Reductions over threads, and software pipelines: before -> after, and what they refuse."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright.base.errors import CompileError
from tilewright.compat.testing.tir import mma_schedule
from tilewright.tir.interpreter import run
from tilewright.tir.tensor_intrin import cuda

tir: Any = tvm.tir
PARAMS = 'A: T.Buffer((16, 16), "float32"), C: T.Buffer((16,), "float32")'


def parsed(text: str, params: str = PARAMS) -> Any:
    return tir.parse(f"def f({params}):\n    " + text.strip("\n").replace("\n", "\n    "))


def after(name: str, func: Any, *args: object) -> Any:
    return getattr(tir.transform, name)(*args)(tvm.IRModule({"main": func}))["main"]


def becomes(name: str, before: str, wanted: str, *args: object, params: str = PARAMS) -> None:
    found, expected = after(name, parsed(before, params), *args), parsed(wanted, params)
    assert tvm.ir.structural_equal(found, expected), f"{found}\nis not\n{expected}"
    assert tvm.ir.structural_equal(tir.parse(str(found)), found)


def plain(func: Any) -> str:
    """Return the text of a function without the numbers of its names."""
    return re.sub(r"\b([A-Za-z]\w*?)_\d+\b", r"\1", str(func))


def refuses(name: str, message: str, before: str, *args: object, params: str = PARAMS) -> None:
    with pytest.raises(CompileError, match=re.escape(message)):
        after(name, parsed(before, params), *args)


# Reductions over threads.
SUM = """
for i, ko in T.grid(16, 4):
    for ki in T.thread_binding(4, thread="threadIdx.x"):
        with T.block("C"):
            vi, vk = T.axis.spatial(16, i), T.axis.reduce(16, ko * 4 + ki)
            with T.init():
                C[vi] = 0.0
            C[vi] = C[vi] + A[vi, vk]
""".replace("vi, vk = T.axis.spatial(16, i), T.axis.reduce(16, ko * 4 + ki)",
            "vi = T.axis.spatial(16, i)\n            vk = T.axis.reduce(16, ko * 4 + ki)")
REDUCE = """T.attr(T.comm_reducer(lambda x, y: {0}, [{1}]), "reduce_scope", T.reinterpret("handle", T.uint64(0)))
{indent}T.evaluate(T.tvm_thread_allreduce(T.uint32(1), {2}, True, total[0], {3}))"""


def reduction(combined: str, neutral: str, value: str, thread: str, indent: int) -> str:
    return REDUCE.format(combined, neutral, value, thread, indent=" " * indent)


def test_each_thread_sums_its_part_before_all_sums_are_added() -> None:
    becomes("LowerCrossThreadReduction", SUM, f"""
total = T.alloc_buffer((1,), "float32", scope="local")
part = T.alloc_buffer((1,), "float32", scope="local")
for i in T.serial(16):
    for ki in T.thread_binding(4, thread="threadIdx.x"):
        with T.block("C_in_thread_init"):
            part[0] = 0.0
        for ko in T.serial(4):
            with T.block("C_in_thread"):
                vi = T.axis.spatial(16, i)
                vk = T.axis.reduce(16, ko * 4 + ki)
                part[0] = part[0] + A[vi, vk]
        with T.block("C_cross_thread"):
            {reduction("x + y", "T.float32(0)", "part[0]", "ki", 12)}
        with T.block("C_write_back"):
            vi = T.axis.spatial(16, i)
            T.where(ki == 0)
            C[vi] = total[0]
""")


ONE_LOOP = """
for i in T.serial(16):
    for k in T.thread_binding(16, thread="threadIdx.x"):
        with T.block("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = T.float32(-3)
            C[vi] = {}
"""


def test_threads_combine_the_terms_where_they_are_the_only_loops() -> None:
    becomes("LowerCrossThreadReduction", ONE_LOOP.format("T.max(C[vi], A[vi, vk])"), f"""
total = T.alloc_buffer((1,), "float32", scope="local")
for i in T.serial(16):
    for k in T.thread_binding(16, thread="threadIdx.x"):
        with T.block("C_cross_thread"):
            vi, vk = T.axis.remap("SR", [i, k])
            {reduction("T.max(x, y)", "T.float32(-3)", "A[vi, vk]", "k", 12)}
        with T.block("C_write_back"):
            vi = T.axis.spatial(16, i)
            T.where(k == 0)
            C[vi] = total[0]
""")


def test_every_thread_stores_a_result_in_its_own_memory() -> None:
    made = after("LowerCrossThreadReduction", parsed(
        'D = T.alloc_buffer((16,), "float32", scope="local")\n' + SUM.replace("C[vi]", "D[vi]")))
    assert "D[vi] = cross_thread_D[0]" in plain(made)
    assert "T.where" not in plain(made)


def test_the_condition_of_results_stays_and_that_of_terms_needs_parts() -> None:
    made = plain(after("LowerCrossThreadReduction", parsed(SUM.replace(
        "            with T.init", "            T.where(i < 12 and ko * 4 + ki < 13)\n            with T.init"))))
    assert "T.where(i < 12 and ki == 0)" in made
    assert "T.where(i < 12 and ko * 4 + ki < 13)" in made


ARGMAX = """
for i in T.serial(16):
    for k in T.thread_binding(16, thread="threadIdx.x"):
        with T.block("best"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                V[vi] = T.float32(-9)
                P[vi] = -1
            p: T.int32 = T.Select(V[vi] >= A[vi, vk], P[vi], T.cast(vk, "int32"))
            v: T.float32 = T.Select(V[vi] >= A[vi, vk], V[vi], A[vi, vk])
            V[vi] = v
            P[vi] = p
"""
BEST = 'A: T.Buffer((16, 16), "float32"), V: T.Buffer((16,), "float32"), P: T.Buffer((16,), "int32")'


def test_the_position_of_a_maximum_is_chosen_with_the_maximum() -> None:
    made = plain(after("LowerCrossThreadReduction", parsed(ARGMAX, BEST)))
    assert (
        "lambda x0, x1, y0, y1: (T.if_then_else(x1 >= y1, x0, y0), "
        "T.if_then_else(x1 >= y1, x1, y1),), [T.int32(-1)") in made
    assert "P[vi] = cross_thread_P[0]\n" in made
    refuses("LowerCrossThreadReduction", "is not a sum", ARGMAX.replace("P[vi], T.cast", "P[vi] + 1, T.cast"),
            params=BEST)


@pytest.mark.parametrize(("value", "reason"), [
    ("C[vi] - A[vi, vk]", "is not a sum, a product"),
    ("C[vi] + A[vi, vk]", "begins with its neutral value"),
    ("C[vi] + C[vk]", "is not a sum, a product"),
])
def test_reductions_of_another_form_are_refused(value: str, reason: str) -> None:
    refuses("LowerCrossThreadReduction", reason, ONE_LOOP.format(value))


@pytest.mark.parametrize(("old", "new", "reason"), [
    ('"threadIdx.x"', '"blockIdx.x"', "reduces over 'blockIdx.x', but only the threads of one block"),
    ("for i, ko in T.grid(16, 4):", "for ko, i in T.grid(4, 16):", "has loop 'i', which does not reduce, inside"),
    ("T.axis.spatial(16, i)", "T.axis.spatial(16, (i + ki) % 16)", "has the axis 'vi' over loops that reduce, too"),
])
def test_loops_over_threads_only_reduce(old: str, new: str, reason: str) -> None:
    refuses("LowerCrossThreadReduction", reason, SUM.replace(old, new))


# Pipelines.
PIPELINE = """
B = T.alloc_buffer((1,), "float32", scope="shared")
for i in T.serial(16, annotations={{"software_pipeline_stage": {0}, "software_pipeline_order": {1}, "note": 1}}):
    with T.block(""):
        with T.block(""):
            B[0] = A[0, i] * 2.0
        with T.block(""):
            C[i] = B[0] + 1.0
"""


def test_a_pipeline_computes_the_next_value_before_it_uses_the_last_one() -> None:
    func = after("InjectSoftwarePipeline", parsed(PIPELINE.format([0, 1], [0, 1])))
    wanted = parsed("""
B = T.alloc_buffer((2, 1), "float32", scope="shared")
with T.block(""):
    with T.block(""):
        B[0, 0] = A[0, 0] * 2.0
    with T.block(""):
        for i in T.serial(15, annotations={"note": 1}):
            with T.block(""):
                B[(i + 1) % 2, 0] = A[0, i + 1] * 2.0
            with T.block(""):
                C[i] = B[i % 2, 0] + 1.0
    with T.block(""):
        C[15] = B[1, 0] + 1.0
""")
    found = after("Simplify", func)
    assert tvm.ir.structural_equal(found, wanted), str(found)


def test_one_copy_is_enough_if_the_old_value_is_read_first() -> None:
    found = after("Simplify", after("InjectSoftwarePipeline", parsed(PIPELINE.format([0, 1], [1, 0]))))
    assert "B = T.alloc_buffer((1,)" in str(found)
    assert str(found).index("C[i] = B[0] + 1.0") < str(found).index("B[0] = A[0, i + 1] * 2.0")


def test_stages_that_are_not_reached_have_conditions() -> None:
    text = plain(after("Simplify", after("InjectSoftwarePipeline", parsed(PIPELINE.format([0, 3], [0, 1])))))
    assert "B = T.alloc_buffer((4, 1)" in text
    assert "for i in T.unrolled(3):" in text
    assert "C[i + 13] = B[i + 1, 0] + 1.0" in text


def test_asynchronous_stages_have_queues() -> None:
    text = plain(after("InjectSoftwarePipeline", parsed(PIPELINE.format([0, 2], [0, 1]).replace(
        '"note": 1', '"software_pipeline_async_stages": [0]'))))
    assert text.count('T.attr(0, "async_commit_queue_scope", 0)') == 2
    assert text.count('T.attr(0, "async_wait_queue_scope", 0)') == 2
    assert 'T.attr(0, "async_wait_inflight_count", 2)' in text
    assert 'T.attr(0, "async_wait_inflight_count", 1 - i)' in text


TWO = PIPELINE.replace("B = T", 'D = T.alloc_buffer((1,), "float32", scope="shared")\nB = T').replace(
    "        with T.block(\"\"):\n            C[i] = B[0] + 1.0",
    "        with T.block(\"\"):\n            D[0] = A[1, i]\n"
    "        with T.block(\"\"):\n            C[i] = B[0] + D[0]")


def test_groups_of_a_queue_are_the_same_in_every_phase() -> None:
    """The two groups of a trip are separate before the loop, too, so that five unfinished ones are the younger ones."""
    text = plain(after("InjectSoftwarePipeline", parsed(TWO.format([0, 0, 3], [0, 2, 1]).replace(
        '"note": 1', '"software_pipeline_async_stages": [0]'))))
    assert text.count('T.attr(0, "async_commit_queue_scope", 0)') == 4
    assert 'T.attr(0, "async_wait_inflight_count", 5)' in text
    together = plain(after("InjectSoftwarePipeline", parsed(TWO.format([0, 0, 3], [0, 1, 2]).replace(
        '"note": 1', '"software_pipeline_async_stages": [0]'))))
    assert together.count('T.attr(0, "async_commit_queue_scope", 0)') == 2
    assert 'T.attr(0, "async_wait_inflight_count", 3)' in together


@pytest.mark.parametrize(("stages", "order", "reason"), [
    ("[0, 1]", "[1, 1]", "has one place for several statements"),
    ("[0]", "[0, 1]", "software_pipeline_stage is [0], but must be a list of 2 numbers"),
    ("[1, 0]", "[0, 1]", "'B' is written in stage 1, but read in stage 0"),
    ("[0, 0]", "[1, 0]", "'B' is used first in stage 0, place 1 and then in stage 0, place 0"),
    ("[0, 17]", "[0, 1]", "it has 16 trips, but a pipeline whose last stage is 17 needs as many at least"),
])
def test_pipelines_that_would_change_values_are_refused(stages: str, order: str, reason: str) -> None:
    refuses("InjectSoftwarePipeline", reason, PIPELINE.format(stages, order))


def test_values_used_outside_of_a_pipeline_keep_their_order() -> None:
    text = PIPELINE.format([0, 1], [0, 1])
    refuses("InjectSoftwarePipeline", "'B' is used first in stage 0, place 0", f"{text}C[0] = B[0]")


def test_pipelines_are_loops_over_several_statements() -> None:
    text = PIPELINE.format([0, 1], [0, 1])
    refuses("InjectSoftwarePipeline", "a pipeline needs a serial loop", text.replace("serial", "parallel"))
    refuses("InjectSoftwarePipeline", "its body is one statement", text.replace(
        '        with T.block(""):\n            C[i] = B[0] + 1.0\n', ""))


def test_copies_of_a_value_keep_its_alignment_its_strides_and_its_addresses() -> None:
    text = plain(after("InjectSoftwarePipeline", parsed("""
B = T.alloc_buffer((2, 4), "float32", scope="shared")
for i in T.serial(16, annotations={"software_pipeline_stage": [0, 1], "software_pipeline_order": [0, 1]}):
    with T.block(""):
        with T.block("B"):
            T.block_attr({"buffer_dim_align": ((0, 0, 32, 8),)})
            B[0, 0] = A[0, i] * 2.0
        with T.block(""):
            T.call_extern("int32", "f", T.address_of(B[0, 0], 1, 2, 4), T.stride_of(B[0, 0], 0, dtype="int64"))
""")))
    assert '"buffer_dim_align": ((0, 1, 32, 8),)' in text
    assert "T.address_of(B[(i - 1 + 1) % 2, 0, 0], 1, 1, 2, 4" in text
    assert "T.stride_of(B[(i - 1 + 1) % 2, 0, 0], 1," in text


def test_tiles_of_tensor_cores_are_scheduled_and_pipelined() -> None:
    n, kinds = 64, [1, 1, 1, 2, 2]
    a, b = tvm.te.placeholder((n, n), "float16", name="A"), tvm.te.placeholder((n, n), "float16", name="B")
    k = tvm.te.reduce_axis((0, n), "k")
    c = tvm.te.compute(
        (n, n), lambda i, j: tvm.te.sum(a[i, k].astype("float32") * b[k, j].astype("float32"), axis=k), name="C")
    of_warp = cuda.shared_16x16_to_ldmatrix_32x8_layout
    assert len({of_warp(i, j) for i in range(16) for j in range(16)}) == 256
    sch = mma_schedule(
        tvm.te.create_prim_func([a, b, c]), 16, "float16", False, kinds, kinds, [2, 2, 1], of_warp, of_warp, of_warp,
        cuda.LDMATRIX_16x16_A_INTRIN, cuda.LDMATRIX_16x16_B_INTRIN, cuda.MMA_f16f16f32_INTRIN,
        cuda.MMA_fill_16x16_f32_INTRIN, cuda.MMA_store_16x16_f32_global_INTRIN)
    text = plain(sch.mod)
    assert "T.stride_of(A_shared[ax0_o * 16, ax1_o * 16], 0" in text  # the stride of the program, not that of a tile
    assert [text.count(f) for f in ("ptx_ldmatrix", "ptx_mma", "mma_fill", "mma_store")] == [2, 2, 1, 1]
    loop = sch.get_loops(sch.get_block("C_o"))[3]
    sch.annotate(loop, "software_pipeline_stage", [0, 0, 1])
    sch.annotate(loop, "software_pipeline_order", [0, 1, 2])
    mod = sch.mod
    for name in (
        "PlanAndUpdateBufferAllocationLocation", "ConvertBlocksToOpaque", "UnifyThreadBinding", "InjectSoftwarePipeline"
    ):
        mod = getattr(tir.transform, name)()(mod)
    assert plain(mod).count("ptx_mma") == 4


def test_unnamed_blocks_of_a_schedule_are_numbered() -> None:
    text = PIPELINE.format([0, 1], [0, 1]).replace('T.block("")', "T.block()", 1).replace('""', '"block"')
    sch = tir.Schedule(parsed(text))
    assert [sch.get(sch.get_block(b)).name_hint for b in ("block", "block_1", "block_2")] == [
        "block", "block_1", "block_2"]


def test_equal_values_may_be_ordered_by_another_one() -> None:
    first = "V[vi] > A[vi, vk] or (V[vi] == A[vi, vk] and P[vi] < T.cast(vk, \"int32\"))"
    made = plain(after("LowerCrossThreadReduction", parsed(ARGMAX.replace("V[vi] >= A[vi, vk]", first), BEST)))
    assert "T.if_then_else(x1 > y1 or x1 == y1 and x0 < y0, x0, y0)" in made
    other = first.replace("V[vi] ==", "V[vi] !=")
    refuses("LowerCrossThreadReduction", "is not a sum", ARGMAX.replace("V[vi] >= A[vi, vk]", other), params=BEST)


def test_several_values_are_summed_at_once() -> None:
    two = 'A: T.Buffer((16, 16), "float32"), C: T.Buffer((16,), "float32"), D: T.Buffer((16,), "float32")'
    made = plain(after("LowerCrossThreadReduction", parsed("""
for i in T.serial(16):
    for k in T.thread_binding(16, thread="threadIdx.x"):
        with T.block("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = 0.0
                D[vi] = 0.0
            c: T.float32 = C[vi] + A[vi, vk]
            d: T.float32 = D[vi] + A[vi, vk] * A[vi, vk]
            C[vi] = c
            D[vi] = d
""", two)))
    assert "lambda x0, x1, y0, y1: (x0 + y0, x1 + y1,)" in made
    assert "T.tvm_thread_allreduce(T.uint32(2), A[vi, vk], A[vi, vk] * A[vi, vk], True, cross_thread_C[0]" in made


THREE = """
B = T.alloc_buffer((2,), "float32", scope="shared")
D = T.alloc_buffer((1,), "float32", scope="shared")
for i in T.serial({first}, {end}, annotations={{
    "software_pipeline_stage": {stages}, "software_pipeline_order": {order}}}):
    with T.block(""):
        for j in T.serial(2):
            with T.block(""):
                B[j] = A[j, i] * 2.0
        with T.block(""):
            D[0] = B[0] + B[1]
        with T.block(""):
            C[i] = D[0] + B[1]
"""


@pytest.mark.parametrize("first", [0, 3])
@pytest.mark.parametrize(("stages", "order"), [
    ([0, 0, 0], [0, 1, 2]), ([0, 1, 2], [0, 1, 2]), ([0, 1, 2], [2, 1, 0]), ([0, 0, 1], [1, 2, 0]),
    ([0, 2, 2], [2, 0, 1]),
    ([0, 1, 3], [1, 0, 2]),
])
def test_pipelines_keep_all_values(first: int, stages: list[int], order: list[int]) -> None:
    func = parsed(THREE.format(first=first, end=16, stages=stages, order=order))
    a = np.arange(256, dtype=np.float32).reshape(16, 16)
    found, wanted = np.zeros(16, np.float32), np.zeros(16, np.float32)
    run(after("Simplify", after("InjectSoftwarePipeline", func)), [a, found])
    run(func, [a, wanted])
    assert found.tolist() == wanted.tolist()
    assert wanted[first:].all()
