"""What is known before anything is measured: the models that ship, and tuning by records alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from small_models import cnn
from test_autotvm_tasks import kernel_task
from tilewright.backends.targets.target import Target
from tilewright.base.errors import InternalError, OptionError
from tilewright.driver.main import main
from tilewright.search import cost_model
from tilewright.search.autotvm.measure import TaskCandidate
from tilewright.search.autotvm.offline import MODELS, PREDICTED, choose, predicted_cycles
from tilewright.search.autotvm.pretrained import WIDTH, PretrainedKernelModel
from tilewright.search.autotvm.task.kernels import KernelTask
from tilewright.search.autotvm.tuner import XGBTuner
from tilewright.search.comparison import rank_correlation
from tilewright.search.cost_model import FILE, BoostedTrees, read, shipped, write
from tilewright.search.measure import Measured
from tilewright.search.records import Records

X86 = "llvm -mcpu=x86-64-v4"


def test_models_are_kept_as_arrays(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 40, (300, 5)).astype(np.float32)
    model = BoostedTrees("reg", trees=20, depth=4)
    model.fit(x, np.abs(x[:, 0] - 20) + x[:, 1] * x[:, 2] / 40)
    for name in ("a", "b"):
        write(tmp_path / name, {"one": model, "other": model})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    again = read(tmp_path / "a", "other")
    np.testing.assert_allclose(again.predict(x), model.predict(x), rtol=1e-5, atol=1e-5)
    with pytest.raises(InternalError, match="a has no model 'third'"):
        read(tmp_path / "a", "third")


def test_what_ships(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert FILE.stat().st_size < 300_000
    assert shipped("kernels").predict(np.zeros((3, WIDTH))).shape == (3,)
    monkeypatch.setattr(cost_model, "FILE", tmp_path / "cost_models.npz")
    shipped.cache_clear()
    with pytest.raises(InternalError, match=r"the package lacks cost_models.npz"):
        shipped("kernels")
    shipped.cache_clear()


def test_configurations_are_scored_without_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    task = kernel_task("pointwise", X86)
    prior = PretrainedKernelModel(task)
    every = [task.config_space.index_at(k) for k in range(len(task.config_space))]
    monkeypatch.setattr(KernelTask, "lowered", None)  # no program is made
    scores = prior(every)
    assert prior.rows(every).shape == (len(every), WIDTH) and np.isfinite(scores).all()
    assert np.array_equal(scores[::-1], prior(every[::-1]))  # a score depends on nothing but the configuration
    assert prior([task.default_config.index])[0] > np.quantile(scores, 0.25)


def test_a_tuner_begins_with_what_should_be_fast() -> None:
    task = kernel_task("pointwise", X86)
    scores = PretrainedKernelModel(task)([task.config_space.index_at(k) for k in range(len(task.config_space))])
    first = [c.index for c in XGBTuner(task, feature_type="knob", seed=0).next_batch(17)][1:]
    assert first == [c.index for c in XGBTuner(task, feature_type="knob", seed=0).next_batch(17)][1:]
    chance = [c.index for c in XGBTuner(task, feature_type="knob", seed=0, prior=False).next_batch(17)][1:]
    mean = [float(np.mean(PretrainedKernelModel(task)(i))) for i in (first, chance)]
    assert mean[0] > np.quantile(scores, 0.7) > mean[1]


def test_rank_correlation() -> None:
    assert rank_correlation([1, 2, 3], [10, 20, 30]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3], [3, 2, -np.inf]) == pytest.approx(-1)
    assert rank_correlation([1, 1, 2, 2], [1, 2, 1, 2]) == pytest.approx(0)
    assert np.isnan(rank_correlation([1], [1])) and np.isnan(rank_correlation([1, 1], [1, 2]))


def recorded(path: Path, task: KernelTask, seconds: list[tuple[int, float]]) -> Records:
    records = Records(path)
    for index, cost in seconds:
        candidate = TaskCandidate.of(task, task.config_space.get(index))
        records.add(candidate, Measured((cost,), timestamp=1.0, machine="board, a processor, 4 cores"))
    return records


def test_records_choose_and_models_choose_where_they_are_right(tmp_path: Path) -> None:
    task, other = kernel_task("pointwise", X86), kernel_task("dense", X86)
    space, own = task.config_space, task.default_config.index
    drawn = [i for i in map(int, space.sample_ints(16, np.random.default_rng(1))) if i != own]
    scores = PretrainedKernelModel(task)([own, *drawn])
    honest = recorded(
        tmp_path / "honest.json", task, [(i, float(np.exp(-3 * s))) for i, s in zip([own, *drawn], scores, strict=True)]
    )
    fast = recorded(tmp_path / "fast.json", task, [(own, 1e-3), *((i, 2e-3) for i in drawn[1:]), (drawn[0], 5e-4)])

    choice, = choose([(task, 1)], fast).choices
    assert (
        choice.source, choice.config.index, choice.recorded
    ) == ("recorded", drawn[0], len(drawn) + 1) and choice.ratio == pytest.approx(0.5)

    found = choose([(task, 1), (other, 2)], honest)
    assert found.certainty["trained"] == pytest.approx(1) and found.judged == 1 and set(found.certainty) == set(MODELS)
    first, second = found.choices
    assert first.source in ("recorded", "own") and second.recorded == 0 and second.source in ("trained", "own")
    found.write(Records(tmp_path / "chosen.json"))
    rows = [json.loads(line) for line in (tmp_path / "chosen.json").read_text().splitlines()]
    assert all(row["selected"] for row in rows)
    assert all(
        row.get("error") == PREDICTED for row,
        c in zip(rows, [c for c in found.choices if c.measured], strict=True) if c.source == "trained"
    )

    backwards = recorded(
        tmp_path / "backwards.json", task,
        [(i, float(np.exp(3 * s))) for i, s in zip([own, *drawn], scores, strict=True)]
    )
    unsure = choose([(other, 1)], backwards)
    assert unsure.certainty["trained"] == pytest.approx(-1)
    if not unsure.certainty["cycles"] >= 0.5:
        assert unsure.choices[0].source == "own" and unsure.choices[0].measured is None


def test_cycles_are_of_the_loops_of_a_kernel() -> None:
    task = kernel_task("pointwise", X86)
    space = task.config_space
    every = {
        round(predicted_cycles(task, space.get(i))) for i in map(int, space.sample_ints(8, np.random.default_rng(0)))
    }
    # two vectors of 16 lanes a cycle, on some cores, are the most there is
    assert len(every) > 3 and min(every) > task.flop / 64 / 4


def test_the_command_measures_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, out = tmp_path / "cnn.onnx", tmp_path / "best.json"
    model.write_bytes(cnn().SerializeToString())
    task = kernel_task("pointwise")
    drawn = [task.default_config.index, *task.config_space.sample_ints(12, np.random.default_rng(0))]
    path = tmp_path / "records.json"
    recorded(path, task, [(int(i), 1e-3 + 1e-4 * k) for k, i in enumerate(dict.fromkeys(drawn))])
    monkeypatch.setattr("tilewright.runtime.worker.Worker.call", None)  # nothing is built or run
    assert main(["tune", str(model), "--replay", str(path), "-o", str(out)]) == 0
    said = capsys.readouterr().out
    assert (
        "How sure the models are: rank correlation with what is recorded, median of 1 kernels" in said
        and "Nothing was measured." in said
    )
    assert out.exists()
    target = "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a53"
    assert main(["tune", str(model), "--replay", str(path), "-o", str(out), "--target", target]) == 2
    assert f"has no records of kernels for '{Target(target)}'; it is of 'llvm'" in capsys.readouterr().err
    assert main(["tune", str(model), "--replay", str(path), "--ssh", "board"]) == 2
    assert "--replay measures nothing" in capsys.readouterr().err
    with pytest.raises(OptionError, match="no kernels at all"):
        choose([(task, 1)], Records(tmp_path / "none.json"))
