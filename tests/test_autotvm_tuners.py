"""Tuners, by all their names, on a landscape that costs nothing to measure; and once on real kernels, in worker
processes."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from test_autotvm_tasks import kernel_task
from tilewright.base.errors import OptionError
from tilewright.search import autotvm, comparison
from tilewright.search.autotvm.measure import TaskCandidate, at_once, create_measure_batch
from tilewright.search.autotvm.network import NetworkTuning
from tilewright.search.autotvm.selection import prove, select, unchanged, write
from tilewright.search.autotvm.task.task import create
from tilewright.search.autotvm.tuner import TUNERS, GATuner, GridSearchTuner, RandomTuner, XGBTuner, get_tuner
from tilewright.search.autotvm.tuner.droplet_tuner import DropletTuner
from tilewright.search.measure import Built, Candidate, Measured, MeasureErrorNo, failed
from tilewright.search.records import Records

FIELD = [
    *(
        f"xgb{loss}{features}" for loss in ("", "_rank", "_rank_binary")
        for features in ("", "_knob", "_itervar", "_curve")
    ), "ga", "random", "gridsearch",
]


def seconds_of(config: str) -> float:
    """A valley around tiles of 6 x 32; some configurations fail."""
    d = {name: value[-1] if kind == "sp" else value for name, kind, value in json.loads(config)["entity"]}
    if d.get("tile_k") == 8:
        raise ValueError("eight steps are too many")
    rows, columns = d.get("tile_y", d.get("tile_ow", 1)), d.get("tile_x", d.get("tile_oc", 16))
    return float(1e-4 * (1 + abs(rows - 6) + abs(columns - 32) / 16 + 0.2 * abs(d.get("blocks", -1))))


class Paper:
    """A builder and a runner that measure nothing: they look it up."""

    n_parallel = 4
    form = "none"

    def __init__(self) -> None:
        self.measured: list[str] = []

    def build(self, candidates: Sequence[Candidate], form: str = ".tar") -> list[Built]:
        return [Built(c, None) for c in candidates]

    def run(self, built: Sequence[Built], on_measured: Any = None) -> list[Measured]:
        found = []
        for k, b in enumerate(built):
            self.measured.append(b.candidate.config)
            try:
                found.append(Measured((seconds_of(b.candidate.config),), timestamp=time.time()))
            except ValueError as error:
                found.append(failed(MeasureErrorNo.RUNTIME_DEVICE, str(error)))
            if on_measured is not None:
                on_measured(k, found[-1])
        return found


def paper() -> tuple[Paper, dict[str, Any]]:
    made = Paper()
    return made, autotvm.measure_option(made, made)


def test_all_names_are_there() -> None:
    assert len(FIELD) == 15
    assert set(TUNERS) == {*FIELD, "droplet", "auto"}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(TUNERS))
def test_each_tuner_makes_its_trials(name: str) -> None:
    task, (bench, option) = kernel_task("pointwise"), paper()
    tuner = get_tuner(name, task)
    seen: list[int] = []
    tuner.tune(20, option, callbacks=[lambda t, inputs, results: seen.extend(i.config.index for i in inputs)])
    assert len(bench.measured) == 20
    assert len(set(seen)) == 20
    assert seen[0] == task.default_config.index
    assert tuner.best_config is not None
    assert tuner.best_flops == max(
        task.flop / seconds_of(m) for m in bench.measured if '"tile_k", "sp", [-1, 8]' not in m
    )


def test_a_wrong_name_is_told() -> None:
    with pytest.raises(OptionError, match=r"Invalid tuner: xgb_rnk; did you mean 'xgb_rank'\?"):
        get_tuner("xgb_rnk", kernel_task("softmax"))
    with pytest.raises(OptionError, match="Invalid tuner: 17; the tuners are auto, xgb"):
        get_tuner("17", kernel_task("softmax"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda t: XGBTuner(t, feature_type="knobs"), "there are no features 'knobs'; did you mean 'knob'"),
        (lambda t: XGBTuner(t, loss_type="mse"), "there is no loss 'mse'"),
        (lambda t: XGBTuner(t, optimizer="ga"), "there is no optimizer 'ga'"),
        (lambda t: XGBTuner(t, plan_size=0), "plan_size=0"),
        (lambda t: GATuner(t, pop_size=1), "pop_size=1 must be at least 2"),
        (lambda t: DropletTuner(t, [99]), r"start_position=\[99\] is not a point of a space of"),
        (lambda t: RandomTuner(t).tune(-1, paper()[1]), "n_trial=-1 must not be negative"),
        (lambda t: RandomTuner(t).tune(1, paper()[1], si_prefix="X"), "no prefix 'X'"),
        (lambda t: RandomTuner(t).load_history([]), "RandomTuner cannot learn from other tasks"),
        (lambda t: autotvm.measure_option("locl", "local"), "there is no builder 'locl'; did you mean 'local'"),
        (
            lambda t: autotvm.measure_option("local", 3),  # type: ignore[arg-type]
            "runner is a int, which cannot run"
        ),
        (lambda t: autotvm.callback.progress_bar(3, si_prefix="X"), "no prefix 'X'"),
        (lambda t: autotvm.callback.log_to_file("x", "pickle"), "written as JSON, not as 'pickle'"),
    ],
)
def test_options_that_there_are_not(make: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        make(kernel_task("softmax"))


def test_small_spaces_are_looked_through() -> None:
    task, (bench, option) = kernel_task("softmax"), paper()
    for make in (GridSearchTuner, RandomTuner, XGBTuner, lambda t: GATuner(t, pop_size=8), DropletTuner):
        bench.measured.clear()
        make(task).tune(1000, option)
        assert len(set(bench.measured)) == len(bench.measured) == len(task.config_space)


def test_it_stops_without_hope() -> None:
    task, (_, option) = kernel_task("pointwise"), paper()
    tuner = GridSearchTuner(task)
    tuner.tune(500, option, early_stopping=10)
    assert tuner.trials <= tuner.best_iter + 10 + at_once(option)
    assert tuner.trials < 500


def test_an_interrupt_keeps_finished_trials() -> None:
    class Interrupted(Paper):
        def run(self, built: Sequence[Built], on_measured: Any = None) -> list[Measured]:
            super().run(built[:3], on_measured)
            raise KeyboardInterrupt

    seen: list[int] = []
    bench = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        GridSearchTuner(kernel_task("pointwise")).tune(
            8, autotvm.measure_option(bench, bench),
            callbacks=[lambda t, inputs, results: seen.extend(i.config.index for i in inputs)])
    assert len(seen) == len(bench.measured) == 3


@pytest.mark.slow
def test_a_model_finds_the_valley_sooner_than_chance() -> None:
    task = kernel_task("pointwise")

    def best_of(make: Any, seed: int) -> float:
        tuner = make(task, seed=seed)
        tuner.tune(60, paper()[1])
        return float(tuner.best_flops)

    learnt = np.mean(
        [best_of(lambda t, seed: get_tuner("xgb_knob", t, seed=seed, plan_size=16, model="numpy"), s) for s in range(2)]
    )
    chance = np.mean([best_of(RandomTuner, s) for s in range(2)])
    assert learnt > chance


def test_history_of_other_tasks_is_learnt_from() -> None:
    task, (_, option) = kernel_task("pointwise"), paper()
    batch = create_measure_batch(task, option)
    inputs = [
        autotvm.MeasureInput(task.target, task, task.config_space.get(i))
        for i in task.config_space.sample_ints(80, np.random.default_rng(0))
    ]
    history = list(zip(inputs, batch(inputs), strict=True))
    tuner = get_tuner("xgb_knob", task, model="numpy")
    assert isinstance(tuner, XGBTuner)
    tuner.load_history(history, min_seed_records=500)
    assert not tuner.cost_model.rows
    tuner.load_history(history, min_seed_records=50)
    rows: int = tuner.cost_model.rows
    assert rows == 80
    tuner.tune(16, option)
    blind = RandomTuner(task)
    blind.tune(16, option)
    assert tuner.best_flops >= blind.best_flops
    programs = get_tuner("xgb_curve", task, model="numpy")
    assert isinstance(programs, XGBTuner)
    programs.load_history(history[:12], min_seed_records=10)
    assert programs.cost_model.rows == 12


def test_trials_are_resumed(tmp_path: Path) -> None:
    task, (bench, option) = kernel_task("pointwise"), paper()
    file = tmp_path / "trials.json"
    first = RandomTuner(task)
    first.tune(10, option, callbacks=[autotvm.callback.log_to_file(file)])
    second = RandomTuner(task)
    assert second.resume(autotvm.record.load_from_file(file)) == 10
    assert second.best_flops == first.best_flops
    bench.measured.clear()
    second.tune(10, option)
    assert not {json.dumps(json.loads(row)["config"]) for row in file.read_text().splitlines()} & set(bench.measured)


def test_progress_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    task, (_, option) = kernel_task("softmax"), paper()
    monitor, log = autotvm.callback.Monitor(), io.StringIO()
    RandomTuner(task).tune(
        8, option,
        callbacks=[autotvm.callback.progress_bar(8, prefix="[Task  1/25] "), monitor, autotvm.callback.log_to_file(log)]
    )
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("[Task  1/25]  Current/Best:")
    assert "GFLOPS" in line
    assert "Progress: (8/8)" in line
    assert len(monitor.trial_scores()) == len(monitor.trial_timestamps()) == len(log.getvalue().splitlines()) == 8


@pytest.mark.slow
def test_a_network_shares_its_time(tmp_path: Path) -> None:
    tasks = [(kernel_task("pointwise"), 30), (kernel_task("dense"), 1), (kernel_task("softmax"), 1)]
    _, option = paper()
    tuning = NetworkTuning(tasks, option, Records(tmp_path / "t.json"))
    seen: list[str] = []
    tuning.run(trials=120, report=lambda s: seen.append(s.task.name))
    assert [t.name for t, _ in tasks] == seen[:3]  # the model's choice of each comes first
    trials = [s.trials for s in tuning.states]
    assert sum(trials) == 120 == len(Records(tmp_path / "t.json"))
    assert trials[0] > trials[1]
    assert tuning.time < tuning.time_before
    assert sum(map(tuning.share, tuning.states)) == pytest.approx(1)
    again = NetworkTuning(tasks, option, Records(tmp_path / "t.json"))
    assert [s.trials for s in again.states] == trials
    assert again.time == tuning.time
    with pytest.raises(OptionError, match="nothing to tune"):
        NetworkTuning([], option, Records(tmp_path / "t.json"))


@pytest.mark.slow
def test_only_what_helps_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # nothing is run
    tasks = [(kernel_task(name, "llvm -mcpu=x86-64-v4"), calls) for name, calls in (("pointwise", 3), ("dense", 1))]
    _, option = paper()
    tuning = NetworkTuning(tasks, option, Records(tmp_path / "t.json"))
    tuning.run(trials=60)
    found = [select(s, option, rounds=8) for s in tuning.states]
    verdicts = [v for v in found if v is not None]
    assert [v.is_kept for v in verdicts] == [True, True]
    monkeypatch.setattr(comparison, "_timed", lambda call, number: call())  # a program is what it takes

    def compiled(kept: Sequence[Any]) -> Any:
        """The first kernel saves half, the second makes it slower by more than that."""
        names = [v.state.task.name for v in kept]
        turns = 4 - 2 * (tasks[0][0].name in names) + 4 * (tasks[1][0].name in names)
        return lambda: 1e-3 * turns

    said: list[str] = []
    in_all = prove(verdicts, compiled, 4.0, said.append)
    assert in_all is not None
    assert in_all.is_faster
    assert [v.is_kept for v in verdicts] == [True, False]
    assert said[0].startswith("2 tuned kernels")
    write(Records(tmp_path / "best.json"), [*verdicts, unchanged(tuning.states[0])])
    rows = [json.loads(row) for row in (tmp_path / "best.json").read_text().splitlines()]
    assert rows[0]["config"] == verdicts[0].config.to_json_dict()
    assert rows[1]["config"] == tasks[1][0].default_config.to_json_dict()
    assert rows[1]["result"][0][0] == verdicts[1].default.costs[0]


@pytest.mark.slow
def test_real_kernels_are_measured_in_processes(tmp_path: Path) -> None:
    file = tmp_path / "records.json"
    with autotvm.LocalBuilder(n_parallel=1) as builder, autotvm.LocalRunner(
        number=1, repeat=1, cooldown_interval=0, noise=9.0
    ) as runner:
        option = autotvm.measure_option(builder, runner)
        for name in ("conv", "softmax"):
            RandomTuner(kernel_task(name)).tune(3, option, callbacks=[autotvm.callback.log_to_file(file)])
        task = create("tests/matmul", (16, 24, 8, "float32"), "llvm")
        tuner = GridSearchTuner(task)
        tuner.tune(2, option)
        assert tuner.best_measure_pair is not None
        assert pytest.approx(task.flop) == 2 * 16 * 24 * 8
    results = list(autotvm.record.load_from_file(file))
    assert [r.error_no for _, r in results] == [0] * 6
    assert all(0 < r.cost < 10 for _, r in results)
    assert json.loads(file.read_text().splitlines()[0])["machine"]


def test_candidates_say_what_they_are() -> None:
    task = kernel_task("dense")
    one = TaskCandidate.of(task, task.default_config)
    assert json.loads(one.key)[0] == task.name
    assert one.identity == TaskCandidate.of(kernel_task("dense"), task.default_config).identity
    assert one.default() is not None
    assert list(one.values()) == ["packed"]


def test_the_sample_task_of_tvm_and_tuners_of_a_range() -> None:
    from tilewright.compat.testing import autotvm as sample
    from tilewright.search.autotvm.database import DummyDatabase, filter_inputs

    task, _ = sample.get_sample_task(16)
    grid = GridSearchTuner(task, range_idx=(8, 15))
    assert (grid.begin_idx, grid.end_idx, grid.index, grid.visited_max) == (8, 16, 8, 8)
    assert [c.index for c in grid.next_batch(20)] == [*range(8, 16)] and not grid.has_next() and grid.index == 16
    chance = RandomTuner(task, range_idx=(8, 15))
    assert sorted(c.index for c in chance.next_batch(20)) == [*range(8, 16)]
    genes = GATuner(task, pop_size=1000)
    assert genes.pop_size == len(genes.genes) == len(genes.visited) == len(task.config_space)
    assert len({c.index for c in genes.next_batch(1000)}) == len(task.config_space) and not genes.has_next()

    records = sample.get_sample_records(3)
    database = DummyDatabase()
    for inp, result in records[:2]:
        database.save(inp, result)
    database.save(records[0][0], records[0][1], extend=True)
    assert database.load(records[1][0]) == records[1][1] and database.load(records[2][0]) is None
    assert len(database.load(records[0][0], get_all=True)) == 2
    assert [len(part) for part in filter_inputs(database, [inp for inp, _ in records])] == [2, 1]
    assert len(database.filter(lambda inp, results: results[0].costs[0] > 1)) == 1
    told: list[int] = []
    assert len(sample.DummyRunner().run([1, 2], lambda k, r: told.append(k))) == 2 and told == [0, 1]


def test_operations_of_a_schedule() -> None:
    from tilewright import te
    from tilewright.search.autotvm.task.task import FlopCalculationError, compute_flop

    a = te.placeholder((8, 4), "int8", name="a")
    k = te.reduce_axis((0, 4), "k")
    total = te.compute((8,), lambda i: te.sum(te.div(a[i, k].astype("int32"), 3), axis=k), name="total")
    assert compute_flop(te.create_schedule(total.op)) == 2 * 8 * 4
    counted = te.compute((8,), lambda i: total[i], name="counted", attrs={"FLOP": 100})
    assert compute_flop(te.create_schedule(counted.op)) == 2 * 8 * 4 + 100
    with pytest.raises(FlopCalculationError, match="only move elements"):
        compute_flop(te.create_schedule(te.compute((8,), lambda i: a[i, 0], name="moved").op))


def test_numbers_in_units() -> None:
    from tilewright.search.autotvm import utils

    assert utils.format_si_prefix(1024, "k") == 1.024 and utils.format_si_prefix(3e-6, "\xb5") == pytest.approx(3)
    assert utils.get_rank([0.5, 2.0, 1.0]).tolist() == [3, 1, 2]
    with pytest.raises(OptionError, match="there is no prefix 'x' of units"):
        utils.format_si_prefix(1, "x")
    pooled = utils.pool_map(lambda n: n + 1, [1, 2, 3], 2)
    assert pooled is not None and pooled.tolist() == [2, 3, 4] and sorted(utils.sample_ints(0, 3, 3)) == [0, 1, 2]
