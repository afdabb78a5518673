"""MetaSchedule: design spaces keep results, searches, databases, and networks with the schedules of a database."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import meta_schedule as ms
from tilewright import relay, tir
from tilewright.base.errors import CompileError, ModelError, OptionError, ScheduleError, TVMError
from tilewright.ir.structural import structural_equal
from tilewright.scalar.expr import number_of
from tilewright.search.meta_schedule.testing.dummy_object import DummyBuilder, DummyMutator, DummyRunner
from tilewright.search.meta_schedule.testing.space_generation import (
    check_sketches,
    generate_design_space,
    get_rules,
    print_sketches,
)
from tilewright.tir.interpreter import run
from tilewright.tir.stmt import For, PrimFunc, walk_stmt

TARGET = "llvm -num-cores=4"


product_relu = tir.parse("""
@T.prim_func
def product_relu(A: T.Buffer((8, 16), "float32"), B: T.Buffer((16, 8), "float32"), D: T.Buffer((8, 8), "float32")):
    A2 = T.alloc_buffer((8, 16), "float32")
    C = T.alloc_buffer((8, 8), "float32")
    for i, j in T.grid(8, 16):
        with T.block("A2"):
            vi, vj = T.axis.remap("SS", [i, j])
            A2[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j, k in T.grid(8, 8, 16):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A2[vi, vk] * B[vk, vj]
    for i, j in T.grid(8, 8):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = T.max(C[vi, vj], T.float32(0))
""")


sums = tir.parse("""
@T.prim_func
def sums(A: T.Buffer((2, 64), "float32"), B: T.Buffer((2,), "float32")):
    for i, k in T.grid(2, 64):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk]
""")


def results(func: PrimFunc, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    shapes = [tuple(int(str(d)) for d in b.shape) for b in func.buffers]
    arrays = [rng.standard_normal(s, np.float32) for s in shapes[:-1]]
    out = np.zeros(shapes[-1], np.float32)
    run(tir.lower_blocks(func), [*arrays, out])
    return out


def context(func: PrimFunc = product_relu, **options: Any) -> ms.TuneContext:
    return ms.TuneContext(func, target=TARGET, space_generator="post-order-apply", rand_state=1, **options)


@pytest.mark.slow
@pytest.mark.parametrize("func", [product_relu, sums])
def test_every_schedule_of_the_space_keeps_the_results(func: PrimFunc) -> None:
    task = context(func, search_strategy="replay-trace")
    task.pre_tuning(12, 12)
    found = task.generate_measure_candidates()
    assert found is not None and len(found) == 12
    want = results(func)
    for candidate in found:
        np.testing.assert_allclose(results(candidate.sch.mod["main"]), want, rtol=1e-4, atol=1e-4)
    kinds = {s.kind for c in found for s in walk_stmt(c.sch.mod["main"].body) if isinstance(s, For)}
    assert {"parallel", "serial"} <= kinds
    names = {i.kind.name for c in found for i in c.sch.trace}
    assert "DecomposeReduction" in names and "EnterPostproc" in names
    assert ("RFactor" if func is sums else "SamplePerfectTile") in names


def test_mutators_change_one_decision() -> None:
    task = context()
    space = task.generate_design_space()[0]
    assert task.space_generator is not None and task.mod is not None
    changed = set()
    mutators: Any = task.space_generator.mutator_probs
    for mutator in mutators:
        trace = mutator.apply(space.trace)
        if trace is not None:
            other = tir.Schedule(task.mod)
            trace.apply_to_schedule(other)
            assert str(trace) != str(space.trace)
            np.testing.assert_allclose(results(other.mod["main"]), results(product_relu), rtol=1e-4, atol=1e-4)
            changed.add(type(mutator).__name__)
    assert {"MutateTileSize", "MutateUnroll", "MutateParallel"} <= changed
    assert ms.mutator.MutateTileSize().apply(tir.Schedule(product_relu).trace) is None


def test_a_search_finds_each_schedule_once() -> None:
    def tiled(sch: tir.Schedule) -> None:
        i, _, _ = sch.get_loops("C")
        sch.split(i, sch.sample_perfect_tile(i, 2))

    task = ms.TuneContext(
        product_relu, target=TARGET, rand_state=1, space_generator=ms.space_generator.ScheduleFn(
            tiled, postprocs=[], mutator_probs={DummyMutator(): 1.0}),
        search_strategy=ms.search_strategy.EvolutionarySearch(
            population_size=4, init_min_unmeasured=8, genetic_num_iters=1))
    task.pre_tuning(100, 3, cost_model=ms.cost_model.XGBModel(num_warmup_samples=2))
    seen = []
    while (found := task.generate_measure_candidates()) is not None:
        task.notify_runner_results(found, [ms.runner.RunnerResult([1.0], None)] * len(found))
        seen += [int(str(c.sch.get(c.sch.get_loops("C")[0]).extent)) for c in found]
    task.post_tuning()
    assert sorted(seen) == [1, 2, 4, 8]


def test_tasks_are_tuned_and_recorded(tmp_path: Path) -> None:
    database = ms.tune_tir(
        product_relu, TARGET, work_dir=tmp_path, max_trials_global=6, num_trials_per_iter=3, builder=DummyBuilder(),
        runner=DummyRunner(), seed=3, strategy=ms.search_strategy.EvolutionarySearch(
            population_size=4, init_min_unmeasured=4, genetic_num_iters=1))
    assert len(database) == 6
    best = ms.tir_integration.compile_tir(database, product_relu, TARGET)
    assert best is not None
    again = ms.database.JSONDatabase(work_dir=str(tmp_path))
    fastest, record = database.get_top_k(
        database.commit_workload(ms.utils.normalized_module(product_relu)), 1)[0], again.query_tuning_record(
        product_relu, TARGET)
    assert record is not None and record.run_secs is not None and record.run_secs == fastest.run_secs
    assert record.run_secs[0].value == float(record.run_secs[0])
    assert structural_equal(again.query_ir_module(product_relu, TARGET), best.mod)
    assert again.query(sums, TARGET, kind="schedule") is None
    rows = [json.loads(line) for line in (tmp_path / "database_tuning_record.json").read_text().splitlines()]
    index, (trace, seconds, target, arguments) = rows[0]
    assert index == 0 and trace[0][0] == ["GetBlock", [], ["A2", "main"], ["b0"]] and seconds[0] > 0
    assert target.startswith("llvm") and arguments[0] == ["TENSOR", "float32", [8, 16]]
    pruned = ms.database.MemoryDatabase()
    again.dump_pruned(pruned)
    assert len(pruned) == 1


@pytest.mark.slow
def test_the_best_schedule_is_measured_and_built(tmp_path: Path) -> None:
    quick = ms.runner.LocalRunner(evaluator_config=ms.runner.EvaluatorConfig(1, 1, 0))
    with ms.Profiler() as profiler:
        database = ms.tune_tir(
            product_relu, TARGET, tmp_path, 2, num_trials_per_iter=2, runner=quick, strategy="replay-trace")
    assert {"Total", "SendToBuilder", "SendToRunner"} <= set(profiler.get()) and "Total" in profiler.table()
    sch = ms.tir_integration.compile_tir(database, product_relu, TARGET)
    assert sch is not None
    a, b = np.ones((8, 16), np.float32), np.ones((16, 8), np.float32)
    out = tvm.nd.array(np.zeros((8, 8), np.float32))
    tvm.build(sch.mod, target=TARGET)(tvm.nd.array(a), tvm.nd.array(b), out)
    np.testing.assert_allclose(out.numpy(), 2 * (a @ b))


@pytest.mark.slow
def test_a_network_gets_the_schedules_of_a_database() -> None:
    x, w = relay.var("x", shape=(4, 16)), np.ones((8, 16), np.float32)
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(relay.nn.dense(x, relay.const(w)))))
    (task,) = ms.relay_integration.extract_tasks(mod, TARGET)
    assert task.task_name == "fused_nn_dense_nn_relu" and task.weight == 1
    asked = []

    def schedule(sch: tir.Schedule) -> bool:
        asked.append(sch.mod.attrs["task_name"])
        sch.unroll(sch.get_loops(sch.get_child_blocks("root")[0])[-1])
        return True

    given = np.random.default_rng(0).standard_normal((4, 16), np.float32)
    database = ms.database.ScheduleFnDatabase(schedule)
    lib = ms.relay_integration.compile_relay(database, mod, TARGET, {})
    module = tvm.contrib.graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    module.run(x=given)
    np.testing.assert_allclose(module.get_output(0).numpy(), np.maximum(given @ w.T, 0), rtol=1e-4)
    assert len(asked) == 1
    with database:
        assert ms.Database.current() is database
    assert ms.Database.current() is None
    tasks, weights = ms.relay_integration.extracted_tasks_to_tune_contexts([task], strategy="replay-trace", seed=1)
    assert weights == [1.0] and tasks[0].task_name == task.task_name


def test_rules_by_themselves() -> None:
    (inlined,) = generate_design_space("llvm", product_relu, TARGET, ms.schedule_rule.AutoInline)
    assert [b.block for b in inlined.get_child_blocks("root")] == ["C", "D"]
    made = generate_design_space("llvm", product_relu, TARGET, ms.schedule_rule.MultiLevelTiling)
    assert len(made) == 3
    assert all(number_of(s.get(s.get_loops("C")[0]).extent) is not None for s in made)
    (marked,) = generate_design_space(
        "llvm", product_relu, TARGET, None, [ms.schedule_rule.ParallelizeVectorizeUnroll(2, 16, [0, 16], False)])
    found = marked.get(marked.get_block("root")).annotations
    assert found["meta_schedule.parallel"] == 8 and found["meta_schedule.vectorize"] == 16
    assert structural_equal(tir.parse(marked.mod["main"].script()), marked.mod["main"])
    kept = generate_design_space("llvm", sums, TARGET, ms.schedule_rule.RandomComputeLocation)
    check_sketches(sums, kept, [sums], [[]])
    assert [type(r).__name__ for r in get_rules("llvm", ms.schedule_rule.AddRFactor)] == ["AddRFactor"]
    (plain,) = ms.TuneContext(
        sums, target=TARGET, space_generator=ms.space_generator.SpaceGeneratorUnion(
            [ms.space_generator.PostOrderApply(f_block_filter=lambda b: False, sch_rules=[DoubleRule()])])
    ).generate_design_space()
    assert structural_equal(plain.mod["main"], sums)
    with pytest.raises(AssertionError, match="no schedule gives the program"):
        check_sketches(sums, [plain], [product_relu], [[]])
    print_sketches([plain])


@ms.derived_object
class DoubleRule(ms.schedule_rule.PyScheduleRule):
    """A rule that gives each schedule twice."""

    def apply(self, sch: tir.Schedule, block: Any) -> list[tir.Schedule]:
        return [sch, sch.copy()]


def test_an_elementwise_reader_writes_results_back() -> None:
    """A block that reads the results in order takes the place of a copy that would write them back."""
    reuse = ms.schedule_rule.ReuseType("may", levels=[1, 2], scope="global")
    rule = ms.schedule_rule.MultiLevelTiling("SSRSRS", reuse_write=reuse)
    found = generate_design_space("llvm", product_relu, TARGET, types=None, sch_rules=[rule])
    places = [[v.var.name for v in s.get_loops(s.get_block("D"))] for s in found]
    assert sorted(map(len, places)) == [2, 4, 6]
    assert not any("C_global" in str(s.mod) for s in found)


def test_a_block_may_name_its_rule() -> None:
    sch = tir.Schedule(sums)
    sch.annotate("B", "schedule_rule", "test_named_rule")
    called: list[Any] = []

    def rule(sch: tir.Schedule, block: Any) -> tir.Schedule:
        called.append(block)
        return sch

    tvm.register_func("meta_schedule.cpu.test_named_rule", rule, override=True)
    space = ms.space_generator.PostOrderApply(sch_rules=[DoubleRule(), ms.schedule_rule.ApplyCustomRule()])
    found = ms.TuneContext(sch.mod, target=TARGET, space_generator=space).generate_design_space()
    assert len(found) == 2 and {b.block for b in called} == {"B"}


def test_an_error_of_a_rule_names_the_rule_and_its_block() -> None:
    sch = tir.Schedule(sums)
    sch.annotate("B", "schedule_rule", "test_failing_rule")

    def rule(sch: tir.Schedule, block: Any) -> tir.Schedule:
        raise KeyError("tile")

    tvm.register_func("meta_schedule.cpu.test_failing_rule", rule, override=True)
    with pytest.raises(OptionError, match="the rule 'test_failing_rule' of block 'B' failed: KeyError: 'tile'"):
        ms.schedule_rule.ApplyCustomRule().apply(sch, sch.get_block("B"))


def test_postprocessors_complete_a_schedule() -> None:
    sch = tir.Schedule(product_relu)
    root = sch.get_block("root")
    assert sch.get_sref(root).parent is None and sch.get_sref("C").parent is not None
    for key, value in (("parallel", 4), ("vectorize", 8), ("unroll_explicit", 16)):
        sch.annotate(root, f"meta_schedule.{key}", value)
    for post in ms.postproc.Postproc.create("llvm"):
        assert post.apply(sch)
    assert "root_block" not in sch.mod["main"].attrs
    text = sch.mod["main"].script()
    assert "T.parallel" in text and "T.vectorized" in text and "C_init" in text and "pragma_auto_unroll" in text
    np.testing.assert_allclose(results(sch.mod["main"]), results(product_relu), rtol=1e-4, atol=1e-4)


def test_places_of_a_value_may_be_none() -> None:
    for decision, blocks in ((-1, ["A2", "C", "D"]), (-2, ["C", "D"]), (0, ["A2", "C", "D"])):
        sch = tir.Schedule(product_relu)
        sch.compute_at("A2", sch.sample_compute_location("A2", decision=decision))
        assert [b.block for b in sch.get_child_blocks("root")] == blocks
        again = tir.replay(product_relu, tir.Trace.from_json(json.loads(json.dumps(sch.trace.as_json()))))
        assert structural_equal(again, sch.mod["main"])


MESSAGES: dict[str, tuple[Any, type[Exception], str]] = {
    "space": (lambda: ms.SpaceGenerator.create("none"), OptionError, "there is no design space 'none'"),
    "space without rules": (
        lambda: ms.space_generator.PostOrderApply().generate_design_space(sums), OptionError, "make a TuneContext"),
    "result of a space": (
        lambda: ms.space_generator.ScheduleFn(lambda s: 3).generate_design_space(sums), ScheduleError,
        "returns a int; return None, a schedule or a list"),
    "space of a program": (
        lambda: ms.space_generator.PySpaceGenerator()._initialize_with_tune_context(ms.TuneContext()), TVMError,
        "InitializeWithTuneContext method not implemented"),
    "strategy": (lambda: ms.SearchStrategy.create("none"), OptionError, "there is no search strategy 'none'"),
    "rules": (lambda: ms.ScheduleRule.create("metal"), OptionError, "there are no rules for 'metal'"),
    "postprocessors": (lambda: ms.Postproc.create("metal"), OptionError, "there are no postprocessors for 'metal'"),
    "mutators": (lambda: ms.Mutator.create("metal"), OptionError, "there are no mutators for 'metal'"),
    "reuse": (lambda: ms.schedule_rule.ReuseType("x", [1], "global"), OptionError, "'no', 'may' or 'must', not 'x'"),
    "structure": (lambda: ms.schedule_rule.MultiLevelTiling("SX"), OptionError, "consists of S and R"),
    "reuse that may be": (
        lambda: ms.schedule_rule.MultiLevelTiling("SR", reuse_read=ms.schedule_rule.ReuseType("may", [1], "local")),
        OptionError, "reuse_read is 'no' or 'must'"),
    "scheduler": (lambda: ms.TaskScheduler.create("none"), OptionError, "there is no task scheduler 'none'"),
    "weights": (
        lambda: ms.task_scheduler.RoundRobin().tune([], [1.0], 1, 1, 1, None, None), OptionError, "0 tasks, but 1"),
    "no next task": (lambda: ms.task_scheduler.PyTaskScheduler().next_task_id(), ValueError, "is not defined"),
    "cost model": (lambda: ms.CostModel.create("none"), OptionError, "there is no cost model 'none'"),
    "extractor": (lambda: ms.cost_model.XGBModel(extractor="none"), OptionError, "there is no feature extractor"),
    "callback": (lambda: ms.MeasureCallback.create("none"), OptionError, "there is no callback 'none'"),
    "builder": (lambda: ms.Builder.create("none"), OptionError, "there is no builder 'none'"),
    "runner": (lambda: ms.Runner.create("none"), OptionError, "there is no runner 'none'"),
    "database": (lambda: ms.Database.create("none"), OptionError, "there is no database 'none'"),
    "equality": (lambda: ms.database.MemoryDatabase("none"), OptionError, "module_equality is one of structural"),
    "kind of query": (
        lambda: ms.database.MemoryDatabase().query(sums, TARGET, kind="none"), OptionError, "kind is one of record"),
    "record": (
        lambda: ms.database.TuningRecord.from_json([1], ms.database.Workload(sums)), ModelError, "not a tuning record"),
    "workload": (lambda: ms.database.Workload.from_json(["1", "%"]), ModelError, "not a workload of a database"),
    "argument": (lambda: ms.arg_info.ArgInfo.from_json(["X"]), OptionError, "is not an argument; one is"),
    "seed": (lambda: ms.TuneContext(rand_state=-2), OptionError, "must be a seed of 0 or more"),
    "no space": (lambda: ms.TuneContext(sums).generate_design_space(), OptionError, "has no space_generator"),
    "no strategy": (lambda: ms.TuneContext(sums).post_tuning(), OptionError, "has no search_strategy"),
    "probability": (
        lambda: ms.search_strategy.EvolutionarySearch(eps_greedy=2), OptionError, "must be between 0 and 1"),
    "executor": (
        lambda: ms.relay_integration.compile_relay(
            ms.database.MemoryDatabase(), tvm.IRModule(), TARGET, {}, backend="none"), OptionError, "'graph' or 'vm'"),
    "tracker": (lambda: ms.runner.RPCConfig().complete(), OptionError, "tracker_host, tracker_port and tracker_key"),
    "parameters": (
        lambda: ms.builder.default_build(tvm.IRModule(), TARGET, {"w": 1}), CompileError, "use relay.build"),
    "several programs": (
        lambda: ms.utils.only_function(tvm.IRModule({"a": sums, "b": sums})), ScheduleError, "this one has 2"),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_what_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("HOST", "PORT", "KEY"):
        monkeypatch.delenv(f"TVM_TRACKER_{key}", raising=False)
    what, kind, message = MESSAGES[name]
    with pytest.raises(kind, match=message):
        what()
