"""Parts of MetaSchedule: builders and runners, databases, cost models, and the parts that programs extend."""

from __future__ import annotations

import re
import sys
import time
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from small_schedules import PROGRAMS
from tilewright import meta_schedule as ms
from tilewright import te, tir
from tilewright.base.errors import ModelError, OptionError, ScheduleError
from tilewright.compat.testing.relay_workload import get_network
from tilewright.compat.testing.tlcbench import load_quantized_bert_base
from tilewright.search.meta_schedule.runner.local_runner import default_alloc_argument
from tilewright.search.meta_schedule.testing import te_workload
from tilewright.search.meta_schedule.testing.custom_builder_runner import run_module_via_rpc
from tilewright.search.meta_schedule.testing.local_rpc import LocalRPC
from tilewright.search.meta_schedule.utils import in_child
from tilewright.tir.interpreter import run
from tilewright.tir.transform.lower_blocks import lower_blocks

Array = np.ndarray[Any, Any]
TARGET = tvm.target.Target("llvm")


add = tir.parse("""
@T.prim_func
def add(A: T.Buffer((32,), "float32"), B: T.Buffer((32,), "float32"), C: T.Buffer((32,), "float32")):
    for i in range(32):
        with T.block("add"):
            vi = T.axis.spatial(32, i)
            C[vi] = A[vi] + B[vi]
""")


MODULE = tvm.IRModule({"main": add})
ARGUMENTS = ms.arg_info.ArgInfo.from_prim_func(add)
QUICK = ms.runner.EvaluatorConfig(1, 1, 0)


def built(**options: Any) -> ms.builder.BuilderResult:
    (found,) = ms.builder.LocalBuilder(**options).build([ms.builder.BuilderInput(MODULE, TARGET)])
    return found


def ran(path: str | None, **options: Any) -> ms.runner.RunnerResult:
    runner = ms.runner.LocalRunner(evaluator_config=QUICK, **options)
    (future,) = runner.run([ms.runner.RunnerInput(str(path), "llvm", ARGUMENTS)])
    assert future.done()
    return future.result()


def own_build(mod: Any, target: Any, params: Any) -> Any:
    return ms.builder.default_build(mod, target, params)


@pytest.fixture(scope="module")
def path() -> Any:
    found = built(f_build=own_build).artifact_path
    yield found
    ms.measure_callback.remove_build_dir(str(found))
    assert not Path(str(found)).parent.exists()


@pytest.mark.slow
def test_programs_are_built_and_timed() -> None:
    found = built()
    assert found.error_msg is None and found.artifact_path is not None
    result = ran(found.artifact_path)
    assert result.error_msg is None and result.run_secs is not None and result.run_secs[0].value > 0
    ms.measure_callback.remove_build_dir(found.artifact_path)


def test_builders_report_errors() -> None:
    def fails(*_: Any) -> Any:
        raise ValueError("on purpose")

    def hangs(*_: Any) -> Any:
        time.sleep(60)

    error = built(f_build=fails).error_msg
    assert error is not None and error.startswith("LocalBuilder: An exception occurred") and "on purpose" in error
    assert built(f_export=fails, f_build=own_build).artifact_path is None
    assert built(f_build=hangs, timeout_sec=0.2).error_msg == "LocalBuilder: Timeout, killed after 0.2 seconds"
    with pytest.raises(ValueError, match="wrong-name"):
        ms.builder.LocalBuilder(f_build="wrong-name")

    def registers() -> None:
        tvm.register_func("meta_schedule.test_build_in_child", own_build)

    assert built(f_build="meta_schedule.test_build_in_child", initializer=registers).error_msg is None
    with pytest.raises(OptionError, match="ended without a result"):
        in_child(lambda: __import__("os")._exit(3), 10)


def test_runners_report_errors(path: str) -> None:
    kept: list[Any] = []

    def alloc(device: Any, args_info: Any, repeat: int) -> Any:
        made = default_alloc_argument(device, args_info, repeat)
        kept.extend(made[0])
        return made

    def evaluate(module: Any, device: Any, config: Any, repeated: Any) -> list[float]:
        module(*repeated[0])
        np.testing.assert_array_equal(kept[2].numpy(), kept[0].numpy() + kept[1].numpy())
        return [0.5]

    result = ran(path, f_alloc_argument=alloc, f_run_evaluator=evaluate)
    assert result.error_msg is None and result.run_secs == [0.5]
    assert ran(path, f_cleanup=lambda: None).run_secs
    error = ran("none.tar").error_msg
    assert error is not None and error.startswith("LocalRunner: An exception occurred")
    slow = ran(path, f_alloc_argument=lambda *_: time.sleep(60), timeout_sec=0.2)
    assert slow.run_secs is None and slow.error_msg == "LocalRunner: Timeout, killed after 0.2 seconds"


@pytest.mark.slow
def test_programs_are_timed_behind_a_tracker(path: str) -> None:
    with LocalRPC() as rpc:
        config = ms.runner.RPCConfig(rpc.tracker_host, rpc.tracker_port, rpc.tracker_key, 1, 60)
        runner = ms.runner.RPCRunner(config, QUICK, initializer=lambda: None)
        (future,) = runner.run([ms.runner.RunnerInput(path, "llvm", ARGUMENTS)])
        result = future.result()
        assert result.error_msg is None and result.run_secs
        (future,) = runner.run([ms.runner.RunnerInput("none.tar", "llvm", ARGUMENTS)])
        error = future.result().error_msg
        assert error is not None and error.startswith("RPCRunner: An exception occurred")
        ones = {name: np.ones(32, np.float32) for name in "abc"}

        def call(module: Any, device: Any, given: Any) -> Any:
            module(given["a"], given["b"], given["c"])
            return given["c"]

        made = run_module_via_rpc(config, tvm.build(MODULE, target="llvm"), "cpu", ones, call)
        np.testing.assert_array_equal(made.numpy(), 2 * ones["a"])


def record(database: ms.Database, seconds: Sequence[float] | None, steps: Any = None) -> ms.database.TuningRecord:
    sch = tir.Schedule(MODULE)
    if steps is not None:
        steps(sch)
    made = ms.database.TuningRecord(sch.trace, database.commit_workload(MODULE), seconds, "llvm", ARGUMENTS)
    database.commit_tuning_record(made)
    return made


@pytest.mark.parametrize("equality", ["structural", "ignore-ndarray", "anchor-block"])
def test_databases_keep_the_fastest(tmp_path: Path, equality: str) -> None:
    for database in (ms.database.MemoryDatabase(equality), ms.database.JSONDatabase(
            str(tmp_path / "w.json"), str(tmp_path / "r.json"), module_equality=equality)):
        for seconds in ([1.5, 4.5], [], [0.0, 2.0], None, [2.0], [3.0, 1e10], [1e10]):
            record(database, seconds)
        top = database.get_top_k(database.commit_workload(MODULE), 3)
        assert [r.run_secs for r in top] == [[0.0, 2.0], [2.0], [1.5, 4.5]]
        assert database.get_top_k(database.commit_workload(MODULE), 0) == []
        with pytest.raises(OptionError, match="must be at least 0"):
            database.get_top_k(database.commit_workload(MODULE), -1)
    x = tvm.relay.var("x", shape=(2, 2))
    network = tvm.IRModule.from_expr(tvm.relay.Function([x], tvm.relay.nn.relu(x)))
    workload = database.commit_workload(network)
    again = ms.database.JSONDatabase(str(tmp_path / "w.json"), str(tmp_path / "r.json"))
    assert len(again) == 7 and again.has_workload(network)
    assert again.commit_workload(network).shash == workload.shash
    assert again.get_all_tuning_records()[0].as_measure_candidate().args_info is not None


def test_several_databases_are_one() -> None:
    one, two = ms.Database.create("memory"), ms.database.MemoryDatabase()
    first, second = record(one, [1.0], lambda s: s.unroll(s.get_loops("add")[0])), record(two, [0.5])
    union, ordered = ms.database.UnionDatabase(one, two), ms.database.OrderedUnionDatabase(one, two)
    assert union.query_tuning_record(MODULE, "llvm") is second
    assert ordered.query_tuning_record(MODULE, "llvm") is first
    assert union.has_workload(MODULE) and len(union) == 2
    assert "T.unrolled" in str(ordered.query(MODULE, "llvm", kind="ir_module"))
    assert ordered.query(MODULE, "llvm", kind="record") is first
    assert ms.Database.create(lambda sch: False).query_tuning_record(MODULE, "llvm") is None
    assert ms.Database.create(lambda sch: True).has_workload(MODULE)
    assert one.identity != two.identity


def test_damaged_databases_are_refused(tmp_path: Path) -> None:
    paths = str(tmp_path / "w.json"), str(tmp_path / "r.json")
    Path(paths[1]).write_text("[3, []]\n")
    with pytest.raises(ModelError, match="a record belongs to no workload"):
        ms.database.JSONDatabase(*paths)
    Path(paths[0]).write_text("{\n")
    with pytest.raises(ModelError, match="a line is not JSON"):
        ms.database.JSONDatabase(*paths)
    with pytest.raises(OptionError, match="cannot be opened"):
        ms.database.JSONDatabase(str(tmp_path / "none" / "w.json"), paths[1])


def candidates(count: int) -> list[ms.MeasureCandidate]:
    return [ms.MeasureCandidate(tir.Schedule(MODULE), ARGUMENTS) for _ in range(count)]


def test_cost_models_are_saved(tmp_path: Path) -> None:
    task, path = ms.TuneContext(MODULE, target="llvm"), str(tmp_path / "model")
    extractor = ms.feature_extractor.RandomFeatureExtractor(seed=3)
    model = ms.cost_model.XGBModel(extractor=extractor, num_warmup_samples=4, seed=1)
    assert len(model.predict(task, candidates(3))) == 3
    costs = [ms.runner.RunnerResult([1.0 + k], None) for k in range(8)] + [ms.runner.RunnerResult(None, "failed")]
    model.update(task, candidates(9), costs)
    model.save(path)
    state = extractor.random_state
    first = model.predict(task, candidates(5))
    other = ms.cost_model.XGBModel(extractor=extractor, num_warmup_samples=4, seed=1, path=path)
    extractor.random_state = state
    np.testing.assert_array_equal(other.predict(task, candidates(5)), first)
    assert other.data_size == 9 and [g.min_cost for g in other.data.values()] == [1.0]
    own = ms.CostModel.create("xgb", num_warmup_samples=0)
    own.update(task, candidates(2), costs[:2])
    assert len(own.predict(task, candidates(2))) == 2
    chance = ms.CostModel.create("random", seed=5)
    chance.save(path)
    scores = chance.predict(task, candidates(4))
    chance.load(path)
    np.testing.assert_array_equal(chance.predict(task, candidates(4)), scores)
    assert scores.min() >= 0 and scores.max() <= 100


@ms.derived_object
class OwnCallback(ms.measure_callback.PyMeasureCallback):
    """A callback that fails."""

    def apply(self, task_scheduler: Any, task_id: int, *results: Any) -> None:
        raise ValueError("test")


def test_packed_rows_of_training_data() -> None:
    rows = [np.ones((2, 3), np.float32), 2 * np.ones((1, 3), np.float32)]
    data = ms.cost_model.PackSum(rows, np.array([1.0, 0.5]))
    each = np.array([0.25, 0.25, 1.0])
    assert data.predict_with_score(each).tolist() == [0.5, 1.0]
    assert data.rmse(each) == ("p-rmse", 0.5)
    assert [x.tolist() for x in data.obj_square_error(each)] == [[-0.5, -0.5, 0.5], [1, 1, 1]]
    assert data.average_peak_score(each, 2) == ("a-peak@2", 0.75)
    with pytest.raises(OptionError, match="a PackSum without scores"):
        ms.cost_model.PackSum(rows).rmse(each)
    with pytest.raises(OptionError, match="there are 2 candidates, but 1 scores"):
        ms.cost_model.PackSum(rows, np.ones(1))


def test_packed_rows_are_learnt_by_xgboost(capsys: pytest.CaptureFixture[str]) -> None:
    xgboost = pytest.importorskip("xgboost")
    rng = np.random.default_rng(0)
    rows = [rng.random((n, 4)).astype(np.float32) for n in (1, 2, 3, 2, 1, 3)]
    data = ms.cost_model.PackSum(rows, np.array([r.sum() for r in rows]))
    matrix = data.dmatrix
    stop = ms.cost_model.custom_callback(3, 5, [lambda pred, _: data.rmse(pred)], [(matrix, "tr")])
    booster = xgboost.train(
        {"max_depth": 3}, matrix, 40, obj=lambda pred, _: data.obj_square_error(pred), callbacks=[stop])
    assert data.rmse(booster.predict(matrix))[1] < 0.5 * data.rmse(np.zeros(len(data.ids)))[1]
    assert "tr-p-rmse: " in capsys.readouterr().out
    with pytest.raises(OptionError, match="not for the folds of xgboost"):
        ms.cost_model.custom_callback(3, 5, [], [], cvfolds=[1])


def test_parts_have_names_and_defaults() -> None:
    callback = OwnCallback()
    assert re.fullmatch(r"meta_schedule.OwnCallback\(0x[a-f0-9]*\)", str(callback)) and callback._outer() is callback
    with pytest.raises(ValueError, match="test"):
        callback.apply(ms.task_scheduler.RoundRobin(), 0, [], [], [])
    assert [type(c).__name__ for c in ms.MeasureCallback.create()] == [
        "AddToDatabase", "RemoveBuildArtifact", "UpdateCostModel"]
    assert ms.MeasureCallback.create(callback) == [callback] and callback.clone() is not callback
    for part, method, args in (
        (ms.Builder(), "build", [[]]), (ms.Runner(), "run", [[]]), (ms.CostModel(), "predict", [None, []]),
        (ms.ScheduleRule(), "apply", [None, None]), (ms.Postproc(), "apply", [None]), (ms.Mutator(), "apply", [None]),
        (ms.FeatureExtractor(), "extract_from", [None, []]), (ms.SearchStrategy(), "post_tuning", []),
        (ms.Database(), "get_all_tuning_records", []), (ms.runner.RunnerFuture(), "result", []),
    ):
        with pytest.raises(NotImplementedError, match=f"does not define {method}"):
            getattr(part, method)(*args)
    assert str(ms.arg_info.TensorInfo("float32", [1, 3])) == 'TensorInfo("float32", [1, 3])'
    assert ms.arg_info.TensorInfo.from_json(["TENSOR", "float32", [2]]) == ms.arg_info.TensorInfo("float32", (2,))
    with ms.Profiler.timeit("nothing"):
        assert ms.Profiler.current() is None
    assert ms.TuneContext(MODULE, target="llvm", task_name="a").clone().task_name == "a"


def _windows(x: Array, kernel: int, rank: int, stride: int, padding: int, dilation: int = 1) -> Array:
    """Return the windows of zero-padded data with the spatial axes 1 to `rank`: (N, *output, channels…, *kernel)."""
    x = np.pad(x, [(0, 0), *((padding, padding),) * rank, *((0, 0),) * (x.ndim - 1 - rank)])
    span = dilation * (kernel - 1) + 1
    found = np.lib.stride_tricks.sliding_window_view(x, (span,) * rank, axis=tuple(range(1, rank + 1)))
    places = (slice(None), *(slice(None, None, stride),) * rank, *(slice(None),) * (x.ndim - 1 - rank))
    return found[(*places, *(slice(None, None, dilation),) * rank)]


def _grouped(x: Array, w: Array, rank: int, groups: int, **how: int) -> Array:
    parts = np.split(x, groups, axis=-1), np.split(w, groups, axis=-1)
    letters = "xyz"[:rank]
    equation = f"n{letters.upper()}c{letters},{letters}cf->n{letters.upper()}f"
    made = [np.einsum(equation, _windows(a, w.shape[0], rank, **how), b) for a, b in zip(*parts, strict=True)]
    return np.concatenate(made, axis=-1)


def _transposed(x: Array, w: Array) -> Array:
    """A transposed convolution of stride 2 and padding 1."""
    n, h, width, _ = x.shape
    spread = np.zeros((n, 2 * h - 1, 2 * width - 1, x.shape[3]), np.float32)
    spread[:, ::2, ::2] = x
    return _grouped(spread, w[::-1, ::-1], 2, 1, stride=1, padding=w.shape[0] - 2)


WORKLOADS: dict[str, tuple[tuple[int, ...], Callable[..., Array]]] = {
    "C1D": ((1, 9, 3, 4, 3, 2, 1), lambda x, w: _grouped(x, w, 1, 1, stride=2, padding=1)),
    "C2D": ((2, 7, 6, 3, 4, 3, 2, 1), lambda x, w: _grouped(x, w, 2, 1, stride=2, padding=1)),
    "C3D": ((1, 4, 5, 6, 2, 3, 3, 1, 1), lambda x, w: _grouped(x, w, 3, 1, stride=1, padding=1)),
    "GRP": ((1, 6, 6, 4, 6, 3, 1, 0, 1, 2), lambda x, w: _grouped(x, w, 2, 2, stride=1, padding=0)),
    "DIL": ((1, 8, 8, 2, 3, 3, 1, 1, 2), lambda x, w: _grouped(x, w, 2, 1, stride=1, padding=1, dilation=2)),
    "DEP": ((1, 5, 5, 4, 3, 1, 1), lambda x, w: np.einsum("nXYcxy,xyc->nXYc", _windows(x, 3, 2, 1, 1), w[0])),
    "T2D": ((1, 3, 4, 2, 3, 4, 2, 1), _transposed),
    "CAP": ((1, 4, 4, 2, 3, 3, 2, 1),
            lambda x, w: np.einsum("nXYikcxy,xykjcf->nXYijf", _windows(x, 3, 2, 2, 1), w)),
    "GMM": ((2, 3, 4, 5), np.matmul),
    "TBG": ((1, 3, 2, 4), lambda q, v: np.einsum("bihd,bjhd->bhij", q, v)),
    "CBR": ((1, 5, 5, 2, 3, 3, 1, 1), lambda x, w, bias, offset, scale: np.maximum(
        0, (_grouped(x, w, 2, 1, stride=1, padding=1) + bias) * scale + offset)),
    "NRM": ((2, 3, 4), lambda a: np.sqrt(np.sum(a * a, axis=(1, 2)))),
    "SFM": ((3, 5), lambda a: np.exp(a - a.max(1, keepdims=True)) / np.exp(a - a.max(1, keepdims=True)).sum(
        1, keepdims=True)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKLOADS)
def test_workloads_of_tests_compute_what_they_are_named_after(name: str) -> None:
    sizes, reference = WORKLOADS[name]
    func = te.create_prim_func(te_workload.CONFIGS[name][0](*sizes))
    rng = np.random.default_rng(3)
    *inputs, output = [rng.standard_normal([int(n) for n in b.shape]).astype(np.float32) for b in func.buffers]
    run(func, [*inputs, output])
    np.testing.assert_allclose(output, reference(*inputs), rtol=1e-4, atol=1e-5)


def test_workloads_have_four_sizes() -> None:
    assert [int(n) for n in te_workload.create_te_workload("GMM", 3).buffers[2].shape] == [1, 1024, 1024]
    assert [int(n) for n in te_workload.create_te_workload("T2D", 0).buffers[2].shape] == [1, 8, 8, 256]
    a, b, c = te_workload.matmul_relu(4, 5, 6, "float16", "float32")
    assert (str(a.dtype), str(b.shape[1]), str(c.dtype)) == ("float16", "5", "float32")
    with pytest.raises(OptionError, match="there is no size 4 of the workload 'C2D'; there are sizes 0 to 3 of C1D"):
        te_workload.create_te_workload("C2D", 4)
    with pytest.raises(OptionError, match="the number of channels 3 must be a multiple of factor=2"):
        te_workload.depthwise_conv2d_nhwc(1, 4, 4, 3, 3, factor=2)


FREE_LAYOUT = """
@T.prim_func
def product(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 4), "float32"), C: T.Buffer((8, 4), "float32")):
    T.func_attr({"layout_free_buffers": [1]})
    for i0, j, k0, i1, k1 in T.grid(2, 4, 2, 4, 4):
        with T.block("product"):
            vi = T.axis.spatial(8, i0 * 4 + i1)
            vj = T.axis.spatial(4, j)
            vk = T.axis.reduce(8, k0 * 4 + k1)
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""


def test_inputs_of_free_layout_are_stored_as_they_are_read() -> None:
    before = tir.parse(FREE_LAYOUT)
    sch = tir.Schedule(before)
    assert ms.postproc.RewriteLayout().apply(sch)
    text = str(sch.mod["main"])
    assert "B_global = T.alloc_buffer((4, 2, 4), \"float32\")" in text
    assert "B_global[ax1_1, ax0_1 // 4, ax0_1 % 4] = B[ax0_1, ax1_1]" in text
    assert "A[vi, vk] * B_global[vj, vk // 4, vk % 4]" in text
    inputs = [np.random.default_rng(1).standard_normal(s).astype(np.float32) for s in ((8, 8), (8, 4))]
    results = [np.zeros((8, 4), np.float32) for _ in range(2)]
    run(before, [*inputs, results[0]])
    run(sch.mod["main"], [*inputs, results[1]])
    np.testing.assert_array_equal(results[0], results[1])


@pytest.mark.parametrize("change", [
    ("B[vk, vj]", "B[vk, T.min(vj, 3)]"),  # no digits of loop variables
    ("A[vi, vk] * B[vk, vj]", "A[vi, vk] * B[vk, vj] * B[vk, 0]"),  # two places at a time
    ("i0 * 4 + i1", "i0 * 4 + i1"),
], ids=["clipped", "twice", "same"])
def test_inputs_without_a_fixed_order_keep_their_layout(change: tuple[str, str]) -> None:
    text = FREE_LAYOUT.replace(*change)
    if change[0] == change[1]:  # read in the order in which it is stored
        text = text.replace("i0, j, k0, i1, k1 in T.grid(2, 4, 2, 4, 4)", "k0, i0, i1, j in T.grid(8, 2, 4, 4)")
        text = text.replace("k0 * 4 + k1", "k0")
    sch = tir.Schedule(tir.parse(text))
    before = str(sch.mod)
    assert ms.postproc.RewriteLayout().apply(sch)
    assert str(sch.mod) == before


def test_reads_of_free_layout_outside_of_blocks_are_refused() -> None:
    func = tir.parse("""
@T.prim_func
def product(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    T.func_attr({"layout_free_buffers": [0]})
    for i in range(8):
        B[i] = A[i]
    for i in range(8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = B[vi]
""")
    with pytest.raises(ScheduleError, match="the buffer A of free layout is read outside of blocks"):
        ms.postproc.RewriteLayout().apply(tir.Schedule(func))


def test_instructions_of_marked_blocks() -> None:
    program = tir.parse("""
        def program(b: T.Buffer((8,), "float32"), c: T.Buffer((8,), "float32")):
            for i in T.serial(8):
                with T.block("c"):
                    v = T.axis.spatial(8, i)
                    c[v] = b[v] + 1.0
    """)
    for name, fits in (("test.add_one_4", True), ("dot_16x4_vnni", False)):
        sch = tir.Schedule(program)
        block = sch.blockize(sch.split(sch.get_loops("c")[0], [None, 4])[1])
        sch.annotate(block, "meta_schedule.auto_tensorize", name)
        assert ms.postproc.RewriteTensorize().apply(sch) is fits
        assert ("T.vectorized" in str(sch.mod["main"])) is fits


def test_a_block_of_tiles_computes_into_a_copy() -> None:
    sch = tir.Schedule(PROGRAMS["rows"])
    i, k = sch.get_loops("B")
    sch.reorder(k, i)
    block = sch.blockize(sch.split(i, [None, 3])[1])
    sch.cache_write(block, 0, "global")
    data = [np.arange(np.prod(b.shape), dtype="float32").reshape(b.shape) for b in sch.mod["main"].params]
    wanted = [a.copy() for a in data]
    run(lower_blocks(sch.mod["main"]), data)
    run(lower_blocks(PROGRAMS["rows"]), wanted)
    np.testing.assert_array_equal(data[-1], wanted[-1])


def test_initial_values_of_marked_blocks() -> None:
    sch = tir.Schedule(PROGRAMS["rows"])
    i, k = sch.get_loops("B")
    sch.reorder(k, i)
    block = sch.blockize(sch.split(i, [None, 3])[1])
    sch.annotate(block, "meta_schedule.auto_tensorize", "no such name")
    ms.postproc.RewriteReductionBlock().apply(sch)
    first = sch.get_block("B_o_init")
    assert sch.get(first).annotations["meta_schedule.auto_tensorize"] == ""
    sch.unannotate("B_o", "meta_schedule.auto_tensorize")
    for vectorizes in (False, True):
        assert ms.postproc.RewriteTensorize(vectorize_init_loop=vectorizes).apply(sch)
        kind = sch.get(sch.get_loops(sch.get_child_blocks(first)[0])[-1]).kind
        assert kind == ("vectorized" if vectorizes else "serial")


ANCHOR = """
    def main(A: T.Buffer((6, 8), "float32"), B: T.Buffer((6,), "float32")):
        for i, k in T.grid(6, 8):
            with T.block("sum"):
                v, r = T.axis.remap("SR", [i, k])
                with T.init():
                    B[v] = 0.0
                B[v] = B[v] + A[v, r]
"""
MORE = """
    def main(A: T.Buffer((6, 8), "float32"), C: T.Buffer((6,), "float32")):
        B = T.alloc_buffer((6,), "float32")
        one = T.alloc_buffer((), "float32")
        for i, k in T.grid(6, 8):
            with T.block("sum"):
                v, r = T.axis.remap("SR", [i, k])
                with T.init():
                    B[v] = 0.0
                B[v] = B[v] + A[v, r]
        with T.block("one"):
            u = T.axis.spatial(1, 0)
            one[()] = 1.0
        for i in T.serial(6):
            with T.block("C"):
                v = T.axis.spatial(6, i)
                C[v] = B[v] + one[()]
"""


@pytest.mark.parametrize("cached", [False, True])
def test_a_trace_serves_a_program_with_more_blocks(cached: bool) -> None:
    sch = tir.Schedule(tir.parse(ANCHOR))
    block = sch.get_block("sum")
    outer, _ = sch.split(sch.get_loops(block)[0], sch.sample_perfect_tile(sch.get_loops(block)[0], 2, decision=[2, 3]))
    if cached:
        copy = sch.cache_write(block, 0, "global")
        sch.reverse_compute_at(copy, outer)
    sch.parallel(outer)
    sch.decompose_reduction(block, sch.get_loops(block)[-1])
    sch.unroll(sch.get_loops(sch.get_block("sum_update"))[-1])
    more = tir.parse(MORE)
    other = tir.Schedule(more)
    ms.trace_apply.schedule_using_anchor_trace(other, sch.trace, TARGET)
    made = other.mod["main"]
    names = ["sum_init", "sum", "B_global"] if cached else ["sum_init", "sum", "C"]
    assert [s.name for s in tir.stmt.walk_stmt(made.body) if isinstance(s, tir.Block)] == names
    assert str(made).count("T.parallel") == 2 - cached
    a = np.arange(48, dtype="float32").reshape(6, 8)
    c = np.zeros(6, "float32")
    run(tir.lower_blocks(made), [a, c])
    np.testing.assert_array_equal(c, a.sum(1) + 1)


def test_a_trace_of_blocks_that_are_not_here() -> None:
    sch = tir.Schedule(add)
    sch.parallel(sch.get_loops("add")[0])
    other = tir.Schedule(tir.parse(ANCHOR))
    ms.trace_apply.schedule_using_anchor_trace(other, sch.trace, TARGET)
    assert "T.parallel" not in str(other.mod["main"])


def test_networks_of_tests_are_those_of_torchvision(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    maker = types.SimpleNamespace(resnet18=lambda weights: torch.nn.Conv2d(3, 4, 3))
    monkeypatch.setitem(sys.modules, "torchvision", types.SimpleNamespace(models=maker))
    mod, params, (name, shape, dtype) = get_network("resnet_18", [1, 3, 8, 8], layout="NHWC")
    assert (name, shape, dtype) == ("input0", [1, 3, 8, 8], "float32") and len(params) == 2
    assert 'data_layout="NHWC"' in mod.astext()
    with pytest.raises(OptionError, match="there is no network 'resnet18'; did you mean 'resnet_18'"):
        get_network("resnet18", [1, 3, 8, 8])
    with pytest.raises(OptionError, match="the layout of 'resnet_18' is NCHW or NHWC, not 'CHWN'"):
        get_network("resnet_18", [1, 3, 8, 8], layout="CHWN")
    with pytest.raises(OptionError, match="cache_dir: networks are not kept in files"):
        get_network("resnet_18", [1, 3, 8, 8], cache_dir="networks")


def test_downloaded_networks_become_integer_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx = pytest.importorskip("onnx")
    names = ("input_ids", "segment_ids", "input_mask")
    values = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.INT64, [1, 4]) for n in (*names, "out")]
    nodes = [
        onnx.helper.make_node("Add", ["input_ids", "segment_ids"], ["s"]),
        onnx.helper.make_node("Add", ["s", "input_mask"], ["out"])]
    (tmp_path / "tlcbench").mkdir()
    onnx.save(
        onnx.helper.make_model(onnx.helper.make_graph(nodes, "net", values[:3], values[3:])),
        tmp_path / "tlcbench" / "bert-base-qat.onnx")
    monkeypatch.setenv("TEST_DATA_ROOT_PATH", str(tmp_path))
    mod, _, inputs = load_quantized_bert_base(seq_len=4)
    assert [p.name_hint for p in mod["main"].params] == [n for n, _, _ in inputs] == list(names)
