"""MetaSchedule's rules for GPUs and for instructions: loops bound to threads, shared copies, sums across threads.

No code is generated for them; results of the programs are checked by the interpreter, which runs threads as loops.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import meta_schedule as ms
from tilewright import te, tir
from tilewright.base.errors import OptionError
from tilewright.scalar.expr import number_of
from tilewright.search.meta_schedule.testing.space_generation import generate_design_space
from tilewright.tir.interpreter import run
from tilewright.tir.stmt import THREAD, Block, For, PrimFunc, walk_stmt

GPU = "cuda -max_threads_per_block=1024 -thread_warp_size=32"


def product(n: int = 16) -> PrimFunc:
    a, b = (te.placeholder((n, n), name=name) for name in "AB")
    k = te.reduce_axis((0, n), name="k")
    return te.create_prim_func([a, b, te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")])


elementwise = tir.parse("""
@T.prim_func
def elementwise(A: T.Buffer((512, 512), "float32"), B: T.Buffer((512, 512), "float32")):
    for i, j in T.grid(512, 512):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] + T.float32(1)
""")

softmax = tir.parse("""
@T.prim_func
def softmax(A: T.Buffer((4, 64), "float32"), D: T.Buffer((4, 64), "float32")):
    C = T.alloc_buffer((4,), "float32")
    for i, k in T.grid(4, 64):
        with T.block("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = T.float32(0)
            C[vi] = C[vi] + A[vi, vk]
    for i, j in T.grid(4, 64):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = A[vi, vj] / C[vi]
""")


def threads(func: PrimFunc) -> list[tuple[str, int]]:
    loops = [s for s in walk_stmt(func.body) if isinstance(s, For)]
    return [(str(f.annotations[THREAD]), int(number_of(f.extent) or 0)) for f in loops if THREAD in f.annotations]


def space(func: PrimFunc, *rules: Any) -> list[tir.Schedule]:
    return generate_design_space("cuda", func, GPU, None, list(rules))


def same_results(func: PrimFunc, sch: tir.Schedule) -> None:
    rng = np.random.default_rng(0)
    args = [rng.random([int(d) for d in b.shape], np.float32) for b in func.buffers]
    wanted, got = [a.copy() for a in args], [a.copy() for a in args]
    run(func, wanted)
    run(sch.mod["main"], got)
    np.testing.assert_allclose(got[-1], wanted[-1], rtol=1e-5)


def test_loops_are_bound_to_blocks_and_threads() -> None:
    (sch,) = space(elementwise, ms.schedule_rule.AutoBind())
    (sample,) = [i for i in sch.trace.insts if i.kind.name == "SampleCategorical"]
    assert sample.attrs[0] == [32, 64, 128, 256, 512, 1024]
    assert [tag for tag, _ in threads(sch.mod["main"])] == ["blockIdx.x", "threadIdx.x"]
    (one,) = space(elementwise, ms.schedule_rule.AutoBind(4096, [64]))
    assert threads(one.mod["main"]) == [("blockIdx.x", 4096), ("threadIdx.x", 64)]
    with pytest.raises(OptionError, match="attribute 'max_threads_per_block', but 'cuda"):
        generate_design_space("cuda", elementwise, "cuda", None, [ms.schedule_rule.AutoBind()])


def test_more_iterations_than_threads_become_a_loop() -> None:
    sch, post = tir.Schedule(elementwise), ms.postproc.RewriteUnboundBlock(max_threadblocks=8)
    post._initialize_with_tune_context(ms.TuneContext(elementwise, target=GPU))
    assert post.apply(sch) and post.apply(sch)
    assert threads(sch.mod["main"]) == [("blockIdx.x", 8), ("threadIdx.x", 1024)]
    same = tir.Schedule(softmax)
    assert post.apply(same)
    assert threads(same.mod["main"]) == [("blockIdx.x", 1), ("threadIdx.x", 4), ("blockIdx.x", 1), ("threadIdx.x", 256)]
    same_results(softmax, same)


def test_tiles_are_bound_and_inputs_are_shared() -> None:
    func = product()
    rule = next(r for r in ms.ScheduleRule.create("cuda") if isinstance(r, ms.schedule_rule.MultiLevelTiling))
    (sch,) = space(func, rule)
    tags = [tag for tag, _ in threads(sch.mod["main"])]
    assert tags == ["blockIdx.x", "vthread.x", "threadIdx.x"]
    blocks = {s.name: s for s in walk_stmt(sch.mod["main"].body) if isinstance(s, Block)}
    assert set(blocks) == {"A_shared", "B_shared", "C", "C_local"}
    assert blocks["C"].annotations["meta_schedule.thread_extent_high_inclusive"] == 1024
    assert all("meta_schedule.cooperative_fetch" in blocks[n].annotations for n in ("A_shared", "B_shared"))
    same_results(func, sch)
    ms.postproc.RewriteCooperativeFetch().apply(sch)
    assert [tag for tag, _ in threads(sch.mod["main"])] == [*tags, "threadIdx.x", "threadIdx.x"]
    same_results(func, sch)


def test_a_shared_copy_covers_all_threads_of_a_block() -> None:
    sch = tir.Schedule(elementwise)
    copy = sch.cache_read("B", 0, "shared")
    _, j = sch.get_loops("B")
    inner = sch.split(j, [None, 8])[1]
    sch.bind(inner, "threadIdx.x")
    sch.compute_at(copy, inner, preserve_unit_loops=True)
    assert [number_of(sch.get(v).extent) for v in sch.get_loops(copy)][-1] == 8
    plain = tir.Schedule(elementwise)
    copy = plain.cache_read("B", 0, "local")
    inner = plain.split(plain.get_loops("B")[1], [None, 8])[1]
    plain.bind(inner, "threadIdx.x")
    plain.compute_at(copy, inner, preserve_unit_loops=True)
    assert [number_of(plain.get(v).extent) for v in plain.get_loops(copy)][-1] == 1


def test_sums_are_computed_by_several_threads() -> None:
    old, new = sorted(
        space(softmax, ms.schedule_rule.CrossThreadReduction([8])), key=lambda s: len(threads(s.mod["main"])))
    assert not threads(old.mod["main"])
    assert threads(new.mod["main"]) == [("threadIdx.x", 8), ("threadIdx.x", 8)]
    same_results(softmax, new)
    assert ms.postproc.RewriteReductionBlock().apply(new)
    assert "C_init" not in str(new.mod)  # a sum of several threads keeps its initialization
    assert len(space(product(), ms.schedule_rule.CrossThreadReduction([8]))) == 1  # enough sums for all threads


def test_the_number_of_threads_is_mutated() -> None:
    (sch,) = space(elementwise, ms.schedule_rule.AutoBind())
    mutator = ms.mutator.MutateThreadBinding()
    (sample,) = [i for i in sch.trace.insts if i.kind.name == "SampleCategorical"]
    before = sch.trace.decisions[sample]
    changed = [mutator.apply(sch.trace) for _ in range(50)]
    assert {trace.decisions[sample] for trace in changed if trace is not None} == {0, 1, 2, 3, 4, 5} - {before}
    assert mutator.apply(tir.Schedule(elementwise).trace) is None


def test_parts_for_gpus_are_chosen_by_the_target() -> None:
    context = ms.TuneContext(elementwise, target=GPU, space_generator="post-order-apply")
    generator: Any = context.space_generator
    assert any(isinstance(r, ms.schedule_rule.AutoBind) for r in generator.sch_rules)
    assert any(isinstance(p, ms.postproc.RewriteUnboundBlock) for p in generator.postprocs)
    assert any(isinstance(m, ms.mutator.MutateThreadBinding) for m in generator.mutator_probs)
    (sch,) = context.generate_design_space()
    sch.enter_postproc()
    assert all(p.apply(sch) for p in generator.postprocs)
