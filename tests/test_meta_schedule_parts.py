"""Parts of MetaSchedule: builders and runners, databases, cost models, and the parts that programs extend."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import meta_schedule as ms
from tilewright import tir
from tilewright.base.errors import ModelError, OptionError
from tilewright.search.meta_schedule.runner.local_runner import default_alloc_argument
from tilewright.search.meta_schedule.testing.custom_builder_runner import run_module_via_rpc
from tilewright.search.meta_schedule.testing.local_rpc import LocalRPC
from tilewright.search.meta_schedule.utils import in_child

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
