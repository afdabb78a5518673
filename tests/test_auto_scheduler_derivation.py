"""Sketches that rules derive: their structure on CPUs and GPUs, and random lengths, which compute the same."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from auto_scheduler_workloads import MACHINE, arrays, small_matmul, softmax, total
from tilewright import te
from tilewright.base.errors import ScheduleError
from tilewright.compat.testing.auto_scheduler import (
    conv2d_nchw_bn_relu_auto_scheduler_test,
    conv2d_winograd_nhwc_auto_scheduler_test,
    max_pool2d_auto_scheduler_test,
)
from tilewright.search import auto_scheduler
from tilewright.search.auto_scheduler.derivation import MAX_STATES, derive
from tilewright.search.auto_scheduler.derived_sketch import DerivedSketch, lengths, sketches_of
from tilewright.search.auto_scheduler.loop_state import Stage, State
from tilewright.search.auto_scheduler.sketch_rules import cpu_shape, default_rules, gpu_shape
from tilewright.search.auto_scheduler.stage_facts import has_cache_read, has_cache_write, has_rfactor, is_tiled
from tilewright.te.tensor import Tensor

CPU, GPU = cpu_shape(4), gpu_shape(1024, 32)


def states(tensors: list[Tensor], shape: Any = CPU) -> list[State]:
    dag = auto_scheduler.ComputeDAG(tensors)
    return [d.state for d in derive(None, dag.init_state, default_rules(shape))]


def result(dag: auto_scheduler.ComputeDAG, state: State) -> Any:
    data = [tvm.nd.array(a) for a in arrays(dag.tensors)]
    tvm.build(dag.func(state), target="llvm")(*data)
    return data[-1].numpy()


def steps(state: State) -> list[str]:
    return [s.code for s in state.transform_steps]


def test_a_product_is_tiled_alone_or_in_a_copy_of_the_result() -> None:
    alone, *written = states(small_matmul(512, 512, 512))
    assert steps(alone) == ["SP", "SP", "SP", "RE"]
    assert [i.name for i in alone[2].iters] == [
        "i.0", "j.0", "i.1", "j.1", "k.0", "i.2", "j.2", "k.1", "i.3", "j.3"]
    assert [steps(s)[-1] for s in written] == ["CA", "CA"]
    assert [s.transform_steps[-1].target_iter_id for s in written] == [1, 3]
    assert all(has_cache_write(s, 2) and is_tiled(s[2]) for s in written)


def test_a_copied_result_has_the_loops_of_its_axes() -> None:
    state = auto_scheduler.ComputeDAG(small_matmul(8, 8, 8)).get_init_state()
    state.cache_write(2, "local")
    assert not is_tiled(state[2]) and not is_tiled(state[3])


def test_long_sums_are_computed_in_parts() -> None:
    outer, inner, *tiled = states(small_matmul(8, 8, 512))
    assert has_rfactor(outer, 2) and has_rfactor(inner, 2) and outer != inner
    assert len(tiled) == 3
    assert [len(steps(s)) for s in states(total(256))][-1] == 0
    assert len(states(softmax(1, 256))) == 9


def test_an_elementwise_reader_takes_a_sum_into_its_tiles() -> None:
    found = states(conv2d_nchw_bn_relu_auto_scheduler_test(1, 56, 56, 512, 512, 3, 1, 1))
    places = Stage.COMPUTE_AT_TRANS_TABLE
    assert [s[3].compute_at for s in found] == [places["iter"], places["iter"], places["root"]]
    assert [s[k].compute_at for s in found for k in (5, 7, 9)] == [places["inlined"]] * 9
    assert [is_tiled(s[10]) for s in found] == [True, True, False]


def test_indices_of_constant_matrices_are_unrolled() -> None:
    plain, *_ = states(conv2d_winograd_nhwc_auto_scheduler_test(1, 28, 28, 128, 128, 3, 1, 1))
    assert [i.name for i in plain[4].iters] == ["p.0", "i.0", "p.1", "i.1", "y", "x", "a", "b"]
    assert [i.annotation for i in plain[4].iters] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert plain[3].compute_at == plain[7].compute_at == Stage.COMPUTE_AT_TRANS_TABLE["inlined"]


def test_blocks_of_a_gpu_copy_their_inputs() -> None:
    (found,) = states(small_matmul(512, 512, 512), GPU)
    assert has_cache_read(found, 0) and has_cache_read(found, 2) and has_cache_write(found, 4)
    assert [s.code for s in found.transform_steps if s.code in ("CHR", "CHW")] == ["CHW", "CHR", "CHR"]
    shared, _ = states(total(256), GPU)
    assert [i.annotation for i in shared[1].iters] == [0, 0, 6]
    (pool,) = states(max_pool2d_auto_scheduler_test(1, 8, 8, 4, 0), GPU)
    assert not pool.transform_steps


def test_open_lengths_are_not_run() -> None:
    tiled = states(small_matmul(16, 16, 16))[0]
    with pytest.raises(ScheduleError, match=r"\['SP', 2, 0, 16, \[None, None, None\], 1\], has open lengths"):
        tiled.compute_dag.func(tiled)


def test_many_sketches_are_cut() -> None:
    a = te.placeholder((64, 64), name="A")
    for n in range(4):
        k = te.reduce_axis((0, 64), "k")
        a = te.compute((64, 64), lambda i, j, a=a, k=k: te.sum(a[i, k] * a[k, j], axis=k), name=f"B{n}")
    assert len(states([a])) == MAX_STATES


def test_lengths_divide_the_extent() -> None:
    assert lengths(6, 1) == ((1,), (2,), (3,), (6,))
    assert lengths(4, 2) == ((1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (4, 1))
    assert max(last for *_, last in lengths(1024, 2)) == 64


@pytest.mark.parametrize(
    "tensors", [
        pytest.param(small_matmul(12, 16, 20), id="matmul"),
        pytest.param(total(64), id="total"),
        pytest.param(max_pool2d_auto_scheduler_test(1, 6, 6, 4, 1), id="pool"),
        *(pytest.param(tensors, id=name, marks=pytest.mark.slow) for name, tensors in (
            ("softmax", softmax(6, 16)),
            ("convolution", conv2d_nchw_bn_relu_auto_scheduler_test(1, 6, 6, 4, 8, 3, 1, 1)),
            ("winograd", conv2d_winograd_nhwc_auto_scheduler_test(1, 8, 8, 4, 4, 3, 1, 1))))])
def test_random_lengths_compute_the_same(tensors: list[Tensor]) -> None:
    dag = auto_scheduler.ComputeDAG(tensors)
    wanted = result(dag, dag.init_state)
    choose, count = random.Random(0), 0
    for sketch in sketches_of(derive(None, dag.init_state, default_rules(CPU)), MACHINE)[:3]:
        assert isinstance(sketch, DerivedSketch)
        state = sketch.state(sketch.sample(choose))
        np.testing.assert_allclose(result(dag, state), wanted, rtol=1e-4, atol=1e-5)
        count += 1
    assert count
