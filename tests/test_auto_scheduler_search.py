"""The search: proposals, learning, several tasks in one budget, and networks that are built with what was found."""

from __future__ import annotations

import json
import logging
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from auto_scheduler_workloads import Pretended, arrays, small_matmul, softmax
from tilewright import relay
from tilewright.base.errors import ModelError, OptionError
from tilewright.base.global_functions import register_func, remove_global_func
from tilewright.search import auto_scheduler
from tilewright.search.auto_scheduler.evolution import Evolution
from tilewright.search.auto_scheduler.measure import MeasureInput, MeasureResult, candidate
from tilewright.search.auto_scheduler.measure import measure as measure_inputs
from tilewright.search.auto_scheduler.measure_record import RecordedState, dump_record_to_string
from tilewright.search.auto_scheduler.program import program_of
from tilewright.search.auto_scheduler.transform_step import TransformStep
from tilewright.search.measure import measure
from tilewright.search.records import Records

QUICK = {"sample_init_min_population": 12, "evolutionary_search_population": 6, "evolutionary_search_num_iters": 1}


def task() -> auto_scheduler.SearchTask:
    return auto_scheduler.SearchTask(func=small_matmul, args=(24, 32, 20), target="llvm")


def options(trials: int, engine: Pretended, **more: Any) -> auto_scheduler.TuningOptions:
    return auto_scheduler.TuningOptions(
        trials, num_measures_per_round=4, verbose=0, builder=engine, runner=engine, **more
    )


def policy(
    seed: int = 0, model: Any = None, searched: auto_scheduler.SearchTask | None = None
) -> auto_scheduler.SketchPolicy:
    return auto_scheduler.SketchPolicy(searched or task(), model, QUICK, seed)


# One task.
@pytest.mark.slow
def test_the_same_seed_makes_the_same_proposals() -> None:
    def proposed(seed: int) -> list[str]:
        engine = Pretended()
        policy(seed).search(options(8, engine))
        return engine.seen

    assert proposed(3) == proposed(3) != proposed(4)


@pytest.mark.slow
def test_a_search_measures_nothing_twice_and_keeps_the_best(tmp_path: Path) -> None:
    engine, file = Pretended(fails=5), tmp_path / "log.json"
    p = policy()
    best = p.search(options(16, engine, measure_callbacks=[auto_scheduler.RecordToFile(file)]))
    assert len(set(engine.seen)) == len(engine.seen) == 17
    _, results = auto_scheduler.RecordReader(file).read_lines()
    assert sum(r.error_no == 7 for r in results) == 3
    assert best is not None and p.best_cost == min(r.cost for r in results)
    sch, args = task().apply_best(str(file))
    given = arrays(args)
    tvm.build(sch, args, "llvm")(*given)
    np.testing.assert_array_equal(given[-1], given[0] @ given[1])

    resumed = auto_scheduler.SketchPolicy(
        task(), None, QUICK, 0, init_search_callbacks=[auto_scheduler.PreloadMeasuredStates(str(file))]
    )
    assert (resumed.trials, resumed.best_cost) == (16, p.best_cost)
    again = Pretended()
    resumed.search(options(4, again))
    assert not set(again.seen[1:]) & set(engine.seen)


def test_a_search_ends_where_nothing_gets_better(capsys: pytest.CaptureFixture[str]) -> None:
    class Constant(Pretended):
        def run(self, built: Any, on_measured: Any = None) -> Any:
            from tilewright.search.measure import Measured

            results = [Measured((1.0,)) for _ in built]
            for k, r in enumerate(results):
                on_measured(k, r)
            return results

    p = policy()
    chosen = options(40, Constant(), early_stopping=6)
    chosen.verbose = 1
    p.search(chosen)
    assert p.trials == 8
    assert "no better candidate in 7 trials: the search ends" in capsys.readouterr().out


def test_without_trials_the_first_guess_chooses() -> None:
    p = policy()
    state = p.search(options(0, Pretended()))
    assert state is not None and p.trials == 0
    guessed = program_of(task(), task().compute_dag.init_state.apply(state.transform_steps)).cycles
    assert guessed < program_of(task(), task().compute_dag.init_state).cycles


def test_parameters_of_a_policy() -> None:
    with pytest.raises(
        OptionError, match="there is no parameter 'eps_gredy' of a SketchPolicy; did you mean 'eps_greedy'"
    ):
        auto_scheduler.SketchPolicy(task(), params={"eps_gredy": 1})
    assert len(policy().generate_sketches()) == 3


def test_evolution_finds_what_the_score_asks_for() -> None:
    searched = task()
    p = policy()
    evolution = Evolution(sample=12, population=12, generations=3)
    choose = random.Random(0)
    first = evolution.initial(searched, p.sketches, choose)

    def score(programs: Any) -> Any:
        return np.array([-x.cycles for x in programs])

    ordered = evolution.evolve(searched, first, score, choose)
    assert ordered[0].cycles <= min(x.cycles for x in first)
    assert len({x.identity for x in ordered}) == len(ordered) > len(first)


@pytest.mark.slow
def test_models_order_programs() -> None:
    searched = task()
    p = policy()
    programs = Evolution(sample=24).initial(searched, p.sketches, random.Random(0))
    model = auto_scheduler.XGBModel(seed=0, num_warmup_sample=8)
    guess = model.score(programs)
    cycles = -np.log([x.cycles for x in programs])
    assert np.corrcoef(guess, cycles)[0, 1] > 0.8  # the model of cycles, corrected by the one that ships
    assert not np.array_equal(guess, cycles)
    assert np.array_equal(guess, auto_scheduler.XGBModel(seed=1).score(programs))
    measured = [MeasureResult((1.0 / (1 + x.features[4]),)) for x in programs]  # another truth than the guess
    model.update(programs, measured)
    learnt = model.score(programs)
    assert np.corrcoef(learnt, [1 + x.features[4] for x in programs])[0, 1] > 0.8
    assert len(model.score([])) == 0
    rows = np.stack([x.features for x in programs])
    assert model._model.predict(np.repeat(rows, 500, axis=0)).shape == (500 * len(programs),)
    assert (auto_scheduler.RandomModel(1).score(programs) == auto_scheduler.RandomModel(1).score(programs)).all()


@pytest.mark.slow
def test_a_model_learns_from_records(tmp_path: Path) -> None:
    searched = task()
    made = Evolution(sample=10).initial(searched, policy().sketches, random.Random(0))
    lines = [dump_record_to_string(MeasureInput(searched, x.state), MeasureResult((x.cycles * 1e-9,))) for x in made]
    broken = lines[0].replace('["CHW", 2, "local"]', '["CHW", 9, "local"]')
    other = lines[0].replace("small_matmul", "of_somebody_else")
    (tmp_path / "log.json").write_text("\n".join([*lines, broken, other]) + "\n")
    model = auto_scheduler.XGBModel(num_warmup_sample=4, model_file=str(tmp_path / "log.json"))
    assert model._model.rows == len(made)


def test_a_state_that_makes_no_program_is_an_error_of_its_own() -> None:
    searched = task()
    s = searched.compute_dag.init_state.copy()
    s.parallel(2, 2)  # trips of a sum add to the same elements
    good = searched.compute_dag.init_state
    engine = Pretended()
    bad, fine = measure_inputs([MeasureInput(searched, s), MeasureInput(searched, good)], engine, engine)
    assert bad.error_no == 1 and "cannot be parallel" in bad.error_msg and bad.cost == float("inf")
    assert fine.error_no == 0


def test_the_record_store_takes_schedules(tmp_path: Path) -> None:
    searched, engine, file = task(), Pretended(), tmp_path / "log.json"
    found = [candidate(MeasureInput(searched, searched.compute_dag.get_init_state()))]
    (first,) = measure(found, engine, engine, Records(file))
    (again,) = measure(found, engine, engine, Records(file))
    assert first.costs == again.costs and len(engine.seen) == 2  # it is measured once
    ((inp, result),) = auto_scheduler.load_records(file)
    assert (inp.task.workload_key, result.costs) == (searched.workload_key, first.costs)
    assert inp.task.hardware_params == searched.hardware_params


@pytest.mark.slow
def test_tuning_in_worker_processes(tmp_path: Path) -> None:
    file = tmp_path / "log.json"
    chosen = auto_scheduler.TuningOptions(
        3, num_measures_per_round=3, verbose=0, builder=auto_scheduler.LocalBuilder(timeout=60, n_parallel=1),
        runner=auto_scheduler.LocalRunner(timeout=60, number=1, repeat=2, min_repeat_ms=0),
        measure_callbacks=[auto_scheduler.RecordToFile(file)],
    )
    searched = task()
    try:
        searched.tune(chosen, policy())
    finally:
        chosen.builder.close()
        chosen.runner.close()
    _, results = auto_scheduler.RecordReader(file).read_lines()
    assert [r.error_no for r in results] == [0, 0, 0]
    assert all(r.cost > 0 for r in results)


# Several tasks.
def several() -> list[auto_scheduler.SearchTask]:
    return [task(), auto_scheduler.SearchTask(func=softmax, args=(8, 16), target="llvm")]


@pytest.mark.slow
def test_every_task_has_a_round_and_trials_are_used_up(capsys: pytest.CaptureFixture[str]) -> None:
    engine = Pretended()
    scheduler = auto_scheduler.TaskScheduler(several(), [1, 3])
    scheduler.tune(options(20, engine), search_policy_params=QUICK)
    assert len(engine.seen) == 21
    assert all(h and h[-1] < float("inf") for h in scheduler.history)
    printed = capsys.readouterr().out
    assert "not all tasks have been measured" in printed and "ms in all" in printed


def test_turns() -> None:
    scheduler = auto_scheduler.TaskScheduler(several(), strategy="round-robin", callbacks=[])
    scheduler.history = [[1.0, 0.5], [1.0]]
    assert scheduler.next_task() == 1
    scheduler = auto_scheduler.TaskScheduler(several(), [1, 1], callbacks=[])
    scheduler.history = [[10.0, 9.0, 8.0, 7.0, 6.0], [10.0, 1.0, 1.0, 1.0, 1.0]]
    assert scheduler.next_task() == 0, "where more is left, and more was gained"
    scheduler.task_weights = [0.001, 1]
    assert scheduler.next_task() == 1, "where more time goes"
    scheduler.dead = {1}
    assert scheduler.next_task() == 0
    scheduler.dead = set()
    scheduler.history[0] = [float("inf")]
    assert scheduler.next_task() == 0, "nothing ran yet"


def test_what_a_task_scheduler_refuses() -> None:
    with pytest.raises(OptionError, match="there is no strategy 'gradients'; did you mean 'gradient'"):
        auto_scheduler.TaskScheduler(several(), strategy="gradients")
    with pytest.raises(OptionError, match="there are no tasks to tune"):
        auto_scheduler.TaskScheduler([])
    with pytest.raises(OptionError, match="2 tasks and 1 weights"):
        auto_scheduler.TaskScheduler(several(), [1])
    with pytest.raises(OptionError, match="there is no search policy 'sketch'"):
        auto_scheduler.TaskScheduler(several(), callbacks=[]).tune(options(2, Pretended()), "sketch")
    with pytest.raises(OptionError, match="2 tasks and 1 search policies"):
        auto_scheduler.TaskScheduler(several(), callbacks=[]).tune(options(2, Pretended()), [policy()])


# Networks.
def network() -> tvm.IRModule:
    numbers = np.random.default_rng(0)
    x = relay.var("x", shape=(4, 20))
    y = relay.nn.relu(relay.nn.dense(x, relay.const(numbers.integers(-2, 3, (24, 20)).astype("float32"))))
    return tvm.IRModule.from_expr(
        relay.Function([x], relay.nn.dense(y, relay.const(numbers.integers(-2, 3, (8, 24)).astype("float32"))))
    )


def built(config: bool = True) -> Any:
    x = np.random.default_rng(1).integers(-2, 3, (4, 20)).astype("float32")
    with tvm.transform.PassContext(opt_level=3, config={"relay.backend.use_auto_scheduler": config}):
        module = tvm.contrib.graph_executor.GraphModule(relay.build(network(), "llvm")["default"](tvm.cpu(0)))
    module.run(x=x)
    return module.get_output(0).numpy()


def test_a_network_is_built_with_what_was_found(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tilewright.search.auto_scheduler.dispatcher")
    tasks, weights = auto_scheduler.extract_tasks(network(), None, "llvm")
    assert weights == [1, 1] and [t.desc for t in tasks] == ["fused_nn.dense_nn.relu", "fused_nn.dense"]
    file, plain = tmp_path / "log.json", built()
    found = policy(searched=tasks[0]).sketches[0]
    state = found.state({k.name: k.choices[-1] for k in found.knobs})
    own = tasks[1].compute_dag.init_state
    auto_scheduler.save_records(
        file, [MeasureInput(tasks[0], state), MeasureInput(tasks[1], own)],
        [MeasureResult((1e-3,)), MeasureResult((1e-3,))]
    )
    with auto_scheduler.ApplyHistoryBest(file) as best:
        assert auto_scheduler.DispatchContext.current is best
        np.testing.assert_array_equal(built(), plain)
        told = "\n".join(r.message for r in caplog.records)
        assert f"a schedule of {len(state.transform_steps)} steps that was found" in told
        assert "its own schedule was the best" in told
        caplog.clear()
        np.testing.assert_array_equal(built(config=False), plain)
        assert not caplog.records
    assert auto_scheduler.DispatchContext.current is None
    with auto_scheduler.ApplyHistoryBest(None):
        np.testing.assert_array_equal(built(), plain)
    assert "no record, its own schedule" in caplog.text


def test_tasks_are_named_by_a_digest_of_the_program_and_written_to_a_file(tmp_path: Path) -> None:
    seen: list[str] = []

    def number(text: str) -> int:
        seen.append(text)
        return len(seen) - 1

    register_func("auto_scheduler.compute_dag.hash_func", number)
    try:
        file = tmp_path / "computations.json"
        tasks, _ = auto_scheduler.extract_tasks(network(), None, "llvm", dump_workload_to_dag_log=file)
    finally:
        remove_global_func("auto_scheduler.compute_dag.hash_func")
    assert [t.workload_key.partition(",")[0] for t in tasks] == ["[0", "[1"]
    assert json.loads(file.read_text()) == {t.workload_key: str(t.compute_dag) for t in tasks}


def test_the_own_schedule_of_a_kernel_is_the_first_candidate() -> None:
    tasks, _ = auto_scheduler.extract_tasks(network(), None, "llvm")
    engine = Pretended()
    policy(searched=tasks[0]).search(options(3, engine))
    assert engine.seen[1] == "[]"


def test_a_record_that_does_not_fit_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    tasks, _ = auto_scheduler.extract_tasks(network(), None, "llvm")
    plain = built()
    last = len(tasks[0].compute_dag.ops) - 1
    wrong = RecordedState([TransformStep("CI", last)])  # an output is not inlined
    best = auto_scheduler.ApplyHistoryBest([])
    best.update("llvm", tasks[0].workload_key, wrong)
    with best:
        np.testing.assert_array_equal(built(), plain)
    assert "cannot be applied" in caplog.text and "is an output of the schedule" in caplog.text


def test_the_best_record_counts_whatever_the_order() -> None:
    searched = task()
    states = [searched.compute_dag.init_state.copy() for _ in range(2)]
    states[1].parallel(2, 0)
    pairs = [
        (MeasureInput(searched, s), MeasureResult((c,), e)) for s, c,
        e in zip([*states, states[0]], (2.0, 1.0, 0.1), (0, 0, 4), strict=True)
    ]
    best = auto_scheduler.ApplyHistoryBest(pairs)
    assert best.query("llvm -mcpu=znver4", searched.workload_key) == states[1].transform_steps
    assert best.query("cuda", searched.workload_key) is None
    assert best.identity != auto_scheduler.ApplyHistoryBest(pairs[:1]).identity
    with pytest.raises(OptionError, match=r"include_compatible \(records of other sizes\) is not supported"):
        auto_scheduler.ApplyHistoryBest(None, include_compatible=True)


@pytest.mark.slow
def test_models_and_populations_under_the_names_of_tvm(tmp_path: Path) -> None:
    from tilewright.search.auto_scheduler.cost_model import PythonBasedModel

    class Steps(PythonBasedModel):
        def predict(self, task: Any, states: Any) -> Any:
            return [len(s.transform_steps) for s in states]

    searched = task()
    small = {"sample_init_min_population": 6, "evolutionary_search_population": 6}
    p = auto_scheduler.SketchPolicy(searched, Steps(), params=small, verbose=0)
    states = p.sample_initial_population()
    assert len(states) == 6 and p.search_task is searched
    found = p.evolutionary_search([*states[:3], searched.compute_dag.get_init_state()], 4)
    lengths = [len(s.transform_steps) for s in found]
    assert lengths == sorted(lengths, reverse=True) and lengths[0] >= max(len(s.transform_steps) for s in states[:3])

    inputs = [auto_scheduler.MeasureInput(searched, s) for s in states]
    results = [auto_scheduler.MeasureResult([0.5 + k], 0, "", 0.2, 1) for k in range(6)]
    assert str(results[0]).startswith("MeasureResult(costs=(0.5,), error_no=0, ")
    assert isinstance(MeasureResult((1.0,)), auto_scheduler.MeasureResult)
    model = auto_scheduler.XGBModel(num_warmup_sample=2)
    model.update(inputs, results)
    assert len(model.predict(searched, states)) == len(auto_scheduler.RandomModel().predict(searched, states)) == 6
    model.save(str(tmp_path / "model"))
    again = auto_scheduler.XGBModel(num_warmup_sample=2)
    again.load(str(tmp_path / "model"))
    np.testing.assert_array_equal(again.predict(searched, states), model.predict(searched, states))
    (tmp_path / "other").write_text("[1]")
    with pytest.raises(ModelError, match="this is not a saved cost model"):
        again.load(str(tmp_path / "other"))


def test_the_empty_policy_measures_the_plain_loops() -> None:
    p = auto_scheduler.EmptyPolicy(task())
    p.verbose = 0
    best = p.search(options(4, Pretended()))
    assert isinstance(p, auto_scheduler.search_policy.SearchPolicy)
    assert best is not None and p.trials == 1 and not best.transform_steps


@pytest.mark.slow
def test_inputs_are_built_and_run_as_in_tvm() -> None:
    searched = task()
    wrong = searched.compute_dag.get_init_state()
    wrong.parallel(2, 2)
    inputs = [MeasureInput(searched, s) for s in (wrong, searched.compute_dag.init_state)]
    with auto_scheduler.LocalBuilder(n_parallel=1, timeout=60) as builder, auto_scheduler.LocalRunner(60) as runner:
        built = builder.build(inputs, 1)
        assert [b.error_no for b in built] == [1, 0]
        assert [r.error_no for r in runner.run(inputs, built)] == [1, 0]


def test_the_factor_between_workloads() -> None:
    factor, decode = auto_scheduler.utils.calc_workload_dis_factor, auto_scheduler.utils.decode_workload_key
    wanted = decode('["f", [8, 3, 64], [0, 1], "float32"]')
    assert factor(wanted, wanted) == 1 and factor(wanted, decode('["f", [2, 3, 32], [0, 1], "float32"]')) == 8
    others = ['["g", [8, 3, 64], [0, 1], "float32"]', '["f", [8, 3, 64], [1, 1], "float32"]', '["f", 8]']
    for other in (*others, '["f", [3, 3, 64], [0, 1], "float32"]', '["f", [8, 3, 64], [0, 1], "int8"]'):
        assert factor(wanted, decode(other)) == float("inf")


def test_entries_of_the_registry(tmp_path: Path) -> None:
    registry = auto_scheduler.workload_registry
    name, function = registry.serialize_workload_registry_entry(task().workload_key)
    del registry.WORKLOAD_FUNC_REGISTRY[name]
    registry.deserialize_workload_registry_entry((name, function))
    assert registry.WORKLOAD_FUNC_REGISTRY[name] is function
    with pytest.raises(OptionError, match="workload 'none of these' is not registered"):
        registry.serialize_workload_registry_entry('["none of these"]')
    made = [exec_workload(text) for text in ("n", "n", "n + 1")]
    auto_scheduler.register_workload("made", made[0])
    auto_scheduler.register_workload("made", made[1])  # the same text
    with pytest.raises(OptionError, match="workload 'made' is registered already"):
        auto_scheduler.register_workload("made", made[2])


def exec_workload(size: str) -> Any:
    """Return a workload whose text differs by the size."""
    found: dict[str, Any] = {}
    exec(f"def made(n):\n    return {size}", found)
    return found["made"]


def test_arrays_for_the_inputs_of_a_task() -> None:
    from tilewright.search.auto_scheduler.search_task import TASK_INPUT_BUFFER_TABLE, get_task_input_buffer

    TASK_INPUT_BUFFER_TABLE.clear()
    key, first = task().workload_key, np.zeros(3)
    made = auto_scheduler.SearchTask(workload_key=key, target="llvm", task_inputs={"A": first})
    assert made.task_input_names == ["A"] and get_task_input_buffer(key, "A") is first
    auto_scheduler.SearchTask(workload_key=key, target="llvm", task_inputs={"A": np.ones(3)})
    assert get_task_input_buffer(key, "A") is first
    auto_scheduler.SearchTask(workload_key=key, target="llvm", task_inputs={"A": 2}, task_inputs_overwrite=True)
    assert get_task_input_buffer(key, "A") == 2
    with pytest.raises(OptionError, match="there is no array of the input 'B'"):
        get_task_input_buffer(key, "B")
    with pytest.raises(OptionError, match="save_to_file"):
        auto_scheduler.SearchTask(
            workload_key=key, target="llvm", task_inputs={"C": first}, task_inputs_save_to_file=True)
