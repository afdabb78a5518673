"""Features of each store: arithmetic, loops, reuse of memory, intensities and allocations, and where to get them."""

from __future__ import annotations

import json
from math import log2
from pathlib import Path

import numpy as np
import pytest

import tilewright as tvm
from tilewright import auto_scheduler, te, tir
from tilewright import meta_schedule as ms
from tilewright.base.errors import OptionError
from tilewright.search import store_features

PRODUCT = tir.parse("""
@T.prim_func
def product(A: T.Buffer((64, 64), "float32"), B: T.Buffer((64, 64), "float32"), C: T.Buffer((64, 64), "float32")):
    for i, j, k in T.grid(64, 64, 64):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
""")


def named(func: tir.PrimFunc, row: int = 0, **options: bool) -> dict[str, float]:
    found = store_features.of_stores(func, log_scale=False, **options)
    return dict(zip(store_features.names(), found[row].tolist(), strict=True))


def tiled() -> tir.Schedule:
    """for i_0 (parallel): for j_0: for k (unrolled): for j_1 (vectorized): for i_1"""
    sch = tir.Schedule(PRODUCT)
    i, j, k = sch.get_loops("C")
    (i_0, i_1), (j_0, j_1) = sch.split(i, [None, 4]), sch.split(j, [None, 8])
    sch.reorder(i_0, j_0, k, j_1, i_1)
    sch.vectorize(j_1)
    sch.parallel(i_0)
    sch.unroll(k)
    return sch


def test_names_are_as_many_as_the_features() -> None:
    assert len(store_features.names()) == len(set(store_features.names())) == 164
    assert store_features.of_stores(PRODUCT).shape == (1, 164)
    assert store_features.of_stores(PRODUCT, max_buffers=2).shape == (1, 164 - 3 * 18)


def test_arithmetic_counts_each_use_of_an_operand() -> None:
    found = named(tiled().mod["main"])
    assert found["float_addsub"] == found["float_mul"] == 64**3
    assert found["int_addsub"] == found["int_mul"] == 4 * 64**3  # C[i, j], A[i, k] and B[k, j], two and one and one
    assert found["float_mad"] == found["select_op"] == 0


def test_loops_of_each_kind() -> None:
    found = named(tiled().mod["main"])
    assert [found[f"vec_{n}"] for n in ("num", "prod", "len", "type.kPosMixed", "type.kPosNone")] == [1, 8, 8, 1, 0]
    assert [found[f"unroll_{n}"] for n in ("num", "prod", "len")] == [1, 64, 64]
    assert [found[f"parallel_{n}"] for n in ("num", "prod", "len")] == [1, 16, 16]
    assert [found[n] for n in ("is_gpu", "blockIdx_x_len", "vthread_len", "num_loops")] == [0, 1, 1, 5]


def test_memory_and_its_reuse_in_loops() -> None:
    """The largest buffers come first: those of most cache lines."""
    found = named(tiled().mod["main"])
    a, c, b = ({n[3:]: x for n, x in found.items() if n.startswith(f"B{k}.")} for k in range(3))
    assert (a["acc_type.kRead"], c["acc_type.kReadWrite"], b["acc_type.kRead"]) == (1, 1, 1)
    assert a["bytes"] == b["bytes"] == c["bytes"] == 4 * 64**3
    assert a["unique_bytes"] == 4 * 64**2 and a["unique_lines"] == 4 * 64**2 / 64
    assert (a["stride"], c["stride"], b["stride"]) == (64, 64, 0)
    assert (a["lines"], b["lines"]) == (64**3, 64**3 / 4 * 4 / 64)
    assert [c[f"reuse_{n}"] for n in ("type.kLoopMultipleRead", "dis_iter", "ct")] == [1, 32, 64]
    assert c["reuse_dis_bytes"] == 4 * (4 * 8 + 4 + 8)  # one step of k: C, A and B
    assert (a["reuse_ct"], a["reuse_dis_iter"], a["reuse_dis_bytes"]) == (8, 4, 4 * (4 + 4 + 1))
    assert (b["reuse_ct"], b["reuse_dis_iter"], b["reuse_dis_bytes"]) == (4, 1, 12)
    assert c["bytes_d_reuse_ct"] == c["bytes"] / 64
    assert not any(x for n, x in found.items() if n.startswith(("B3.", "B4.")))


def test_intensity_ends_with_the_operations_per_byte_of_all_loops() -> None:
    curve = [x for n, x in named(tiled().mod["main"]).items() if n.startswith("arith")]
    assert curve == sorted(curve)
    assert curve[-1] == pytest.approx(2 * 64**3 / (3 * 4 * 64**2))


def test_a_store_that_reads_what_another_stored_in_the_loop() -> None:
    func = tir.parse("""
    @T.prim_func
    def two(A: T.Buffer((64, 32), "float32"), B: T.Buffer((64, 32), "float32"), C: T.Buffer((64, 32), "float32")):
        for i, j in T.grid(64, 32):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj]
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vi, vj]
    """)
    first, second = named(func), named(func, 1)
    assert first["B0.reuse_type.kNoReuse"] == 1
    assert first["B0.bytes_d_reuse_ct"] == 2 * first["B0.bytes"]
    assert second["B0.reuse_type.kSerialMultipleReadWrite"] == 1
    assert [second[f"B0.reuse_{n}"] for n in ("dis_iter", "dis_bytes", "ct")] == [1, 16, 1]


def test_threads_are_counted_once_and_memory_is_that_of_a_trip() -> None:
    func = tir.parse("""
    @T.prim_func
    def threads(A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
        B = T.alloc_buffer((64,), "float32", scope="local")
        for i in T.thread_binding(8, thread="blockIdx.x"):
            for j in T.thread_binding(8, thread="threadIdx.x"):
                for k in range(1):
                    with T.block("B"):
                        v = T.axis.spatial(64, i * 8 + j + k)
                        B[v] = A[v]
                for l in T.thread_binding(8, thread="threadIdx.x"):
                    with T.block("C"):
                        v = T.axis.spatial(64, i * 8 + l)
                        C[v] = B[v] + T.float32(1)
    """)
    found = named(func, 1, is_gpu=True)
    assert [found[n] for n in ("is_gpu", "blockIdx_x_len", "threadIdx_x_len", "num_loops", "outer_prod")] == [
        1, 8, 8, 2, 64]


def test_constants_and_empty_loops() -> None:
    full = tir.parse("""
    @T.prim_func
    def full(A: T.Buffer((2, 3), "float32")):
        for i, j in T.grid(2, 3):
            with T.block("A"):
                vi, vj = T.axis.remap("SS", [i, j])
                A[vi, vj] = T.float32(1)
    """)
    assert store_features.of_stores(full).shape == (0, 164)
    assert auto_scheduler.feature.features_from_primfunc(full) is None
    assert auto_scheduler.feature.named_features_from_primfunc(full) is None
    empty = tir.parse("""
    @T.prim_func
    def empty(A: T.Buffer((1,), "float32")):
        for j in range(0, -1):
            A[j] = A[j] + T.float32(1)
    """)
    assert named(empty)["B0.unique_bytes"] == 0


def test_meta_schedule_extracts_them_on_a_logarithmic_scale() -> None:
    context = ms.TuneContext(target="llvm", num_threads=1)
    extractor = ms.feature_extractor.PerStoreFeature()
    (found,) = extractor.extract_from(context, [ms.MeasureCandidate(tiled(), [])])
    assert found.shape == (1, extractor.feature_vector_length)
    assert found.numpy()[0, 1] == pytest.approx(log2(64**3 + 1))
    with pytest.raises(OptionError, match="PerStoreFeature has 10 samples of the arithmetic intensity"):
        ms.feature_extractor.PerStoreFeature(arith_intensity_curve_num_samples=5)


@auto_scheduler.register_workload
def store_features_sum(n: int) -> list[te.Tensor]:
    a = te.placeholder((n, n), name="A")
    k = te.reduce_axis((0, n), name="k")
    return [a, te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="B")]


def test_auto_scheduler_extracts_them_from_states_and_records(tmp_path: Path) -> None:
    task = auto_scheduler.SearchTask(func=store_features_sum, args=(16,), target="llvm")
    state = task.compute_dag.get_init_state()
    names = auto_scheduler.feature.get_per_store_feature_names()
    (found,) = auto_scheduler.feature.get_per_store_features_from_states([state], task)
    assert found.shape == (1, len(names)) and found.dtype == np.float32
    inputs = [auto_scheduler.MeasureInput(task, state)] * 3
    results = [auto_scheduler.MeasureResult([0.2]), auto_scheduler.MeasureResult([0.1]),
               auto_scheduler.MeasureResult([0.1], 4, "failed")]
    path = tmp_path / "records.json"
    auto_scheduler.save_records(str(path), inputs, results)
    features, throughputs, ids = auto_scheduler.feature.get_per_store_features_from_file(path, 10)
    assert throughputs.tolist() == [0.5, 1, 0] and ids.tolist() == [0, 0, 0]
    np.testing.assert_array_equal(features[0], found)
    assert json.loads(path.read_text().splitlines()[0])
    skipped, *_ = auto_scheduler.feature.get_per_store_features_from_measure_pairs(inputs, results, 2)
    assert [f.shape[0] for f in skipped] == [0, 0, 1]


def test_lowered_functions_have_the_features_too() -> None:
    lowered = tvm.lower(PRODUCT)["main"]
    found = auto_scheduler.feature.named_features_from_primfunc(lowered)
    assert found is not None and found["float_addsub"].tolist() == [64**3]
