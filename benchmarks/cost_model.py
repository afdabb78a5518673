"""The cost models that ship: measure kernels of all kinds, train on them, and judge on kernels that were left out.

    python benchmarks/cost_model.py collect data/ --minutes 20      # data/kernels.json, data/programs.json; goes on
                                                                    where it was
    python benchmarks/cost_model.py judge data/                     # six times: trained without a sixth of the
                                                                    kernels, asked about these
    python benchmarks/cost_model.py train data/                     # writes src/tilewright/tuning/cost_models.npz

What is learned is the speed of a configuration as a part of the best of its kernel, so figures need only be right
within a kernel: one thread, the least of a few repetitions. `judge` shows, over the kernels left out, the speed of the
first, the best and the mean of the sixteen candidates that a model puts first among those measured, beside sixteen at
random (the mean of 50 draws), and the rank correlation of scores and speeds. All are medians over kernels.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cost_kernels import modules
from tilewright.backends.targets.target import Target
from tilewright.ir.module import IRModule
from tilewright.search.auto_scheduler import measure as scheduled
from tilewright.search.auto_scheduler.cost_model import corrected
from tilewright.search.auto_scheduler.evolution import Evolution
from tilewright.search.auto_scheduler.relay_integration import extract_tasks
from tilewright.search.auto_scheduler.search_policy import SketchPolicy
from tilewright.search.autotvm.measure import TaskCandidate
from tilewright.search.autotvm.pretrained import PretrainedKernelModel
from tilewright.search.autotvm.record import of_record
from tilewright.search.autotvm.task.kernels import KernelTask
from tilewright.search.autotvm.task.relay_integration import tasks_of
from tilewright.search.comparison import rank_correlation
from tilewright.search.cost_model import FILE, BoostedTrees, write
from tilewright.search.local import LocalBuilder, LocalRunner
from tilewright.search.measure import measure
from tilewright.search.records import Records

Array = np.ndarray[Any, Any]
EACH, FIRST, FOLDS, LARGEST = 36, 16, 6, 1e8
"""Candidates of a kernel; of them, those that are compared; parts of the kernels; operations of a program at most,
whose plain loops have to run, too."""


@dataclass(frozen=True)
class Kernel:
    """What was measured of one kernel: features [n, width], seconds [n], and guesses without measuring, the higher the
    better, where there are such."""

    name: str
    rows: Array
    seconds: Array
    guess: Array | None = None

    @property
    def speeds(self) -> Array:
        """Parts of the best."""
        return np.where(np.isfinite(self.seconds), self.seconds.min() / self.seconds, 0.0)


def collect(folder: Path, minutes: float) -> None:
    """Half of the time for kernels, half for programs."""
    folder.mkdir(exist_ok=True)
    with LocalBuilder(6) as builder, LocalRunner(
        2, number=1, repeat=4, min_repeat_ms=0.5, cooldown_interval=0, threads=1, noise=1e9
    ) as runner:
        for work in (_measure_kernels, _measure_programs):
            end = time.perf_counter() + 30 * minutes
            step = work(folder, Target("llvm"), builder, runner)
            for family, mod in modules():
                if time.perf_counter() > end:
                    break
                step(family, mod)


def _measure_kernels(folder: Path, target: Target, builder: Any, runner: Any) -> Callable[[str, IRModule], None]:
    records = Records(folder / "kernels.json")

    def step(family: str, mod: IRModule) -> None:
        for task, _ in tasks_of(mod, None, target):
            space = task.config_space
            drawn = [
                task.default_config.index, *map(int, space.sample_ints(min(EACH, len(space)), np.random.default_rng(0)))
            ]
            found = measure(
                [TaskCandidate.of(task, space.get(i)) for i in dict.fromkeys(drawn)], builder, runner, records
            )
            print(
                f"{family}: {task.title}: {len(found)} configurations, {sum(not m.ok for m in found)} failed",
                flush=True
            )

    return step


def _measure_programs(folder: Path, target: Target, builder: Any, runner: Any) -> Callable[[str, IRModule], None]:
    path = folder / "programs.json"
    known = {json.loads(line)["task"] for line in path.read_text().splitlines()} if path.exists() else set()

    def step(family: str, mod: IRModule) -> None:
        for task in extract_tasks(mod, None, target)[0]:
            if task.workload_key in known or task.compute_dag.flop_ct > LARGEST:
                continue
            known.add(task.workload_key)
            programs = Evolution(sample=2 * EACH // 3).initial(
                task, SketchPolicy(task, seed=0, verbose=0).sketches, random.Random(0)
            )
            candidates = [scheduled.candidate(scheduled.MeasureInput(task, p.state, p.func)) for p in programs]
            with path.open("a") as file:
                for p, m in zip(programs, measure(candidates, builder, runner), strict=True):
                    row = {
                        "task": task.workload_key, "features": [round(float(x), 5) for x in p.features],
                        "cycles": p.cycles, "costs": list(m.costs)
                    }
                    file.write(json.dumps(row) + "\n")
            print(f"{family}: {task.desc}: {len(programs)} programs", flush=True)

    return step


def kernels(folder: Path) -> list[Kernel]:
    """What was measured of configurations."""
    by_task: dict[str, list[Any]] = {}
    for record in Records(folder / "kernels.json"):
        if record.measured.ok:
            by_task.setdefault(record.key, []).append(record)
    found = []
    for records in by_task.values():
        pairs = [of_record(r)[0] for r in records]
        task = pairs[0].task
        assert isinstance(task, KernelTask)
        places = [task.config_space.index_of(i.config.entity_map) for i in pairs]
        kept = [(p, min(r.measured.costs)) for p, r in zip(places, records, strict=True) if p is not None]
        found.append(
            Kernel(task.title, PretrainedKernelModel(task).rows([p for p, _ in kept]), np.asarray([c for _, c in kept]))
        )
    return found


def programs(folder: Path) -> list[Kernel]:
    """What was measured of scheduled programs; those that failed count as endless."""
    by_task: dict[str, list[dict[str, Any]]] = {}
    for line in (folder / "programs.json").read_text().splitlines():
        row = json.loads(line)
        by_task.setdefault(row["task"], []).append(row)
    return [
        Kernel(
            key[:60], np.asarray([r["features"] for r in rows], np.float32),
            np.asarray([min(r["costs"], default=np.inf) for r in rows]), -np.log([r["cycles"] for r in rows])
        )
        for key, rows in by_task.items() if any(r["costs"] for r in rows)
    ]


def learned(given: list[Kernel]) -> BoostedTrees:
    """Of configurations their speeds; of programs what their guesses are off by, as logarithms, from the middle of each
    kernel."""
    made = BoostedTrees("reg")
    made.fit(
        np.concatenate([k.rows for k in given]),
        np.concatenate([k.speeds if k.guess is None else _missed(k, k.guess) for k in given])
    )
    return made


def _missed(k: Kernel, guess: Array) -> Array:
    off = np.log(np.maximum(k.speeds, 1e-3)) - guess
    missed: Array = np.clip(off - np.median(off), -3.0, 3.0)
    return missed


def scores(model: BoostedTrees, k: Kernel) -> Array:
    """As tuners have them."""
    return model.predict(k.rows) if k.guess is None else corrected(k.guess, model, k.rows)


def left_out(given: list[Kernel]) -> Iterator[tuple[Kernel, BoostedTrees]]:
    """Each kernel with a model that was trained without it."""
    parts = np.random.default_rng(0).permutation(len(given)) % FOLDS
    for part in range(FOLDS):
        model = learned([k for k, p in zip(given, parts, strict=True) if p != part])
        for k, p in zip(given, parts, strict=True):
            if p == part and len(k.seconds) > FIRST:
                yield k, model


def judge(title: str, given: list[Kernel]) -> None:
    rows: dict[str, list[tuple[float, float, float, float]]] = {}
    for k, model in left_out(given):
        speeds = k.speeds
        orders = {"trained": scores(model, k), **({"cycle model": k.guess} if k.guess is not None else {})}
        for name, found_scores in orders.items():
            top = speeds[np.argsort(-found_scores, kind="stable")[:FIRST]]
            rows.setdefault(name, []).append((top[0], top.max(), top.mean(), rank_correlation(found_scores, speeds)))
        draws = [np.random.default_rng(n).permutation(speeds)[:FIRST] for n in range(50)]
        rows.setdefault("random", []).append(
            (
                float(speeds.mean()), float(np.mean([d.max() for d in draws])),
                float(np.mean([d.mean() for d in draws])), 0.0
            )
        )
    print(
        f"{title}: {sum(len(k.seconds) for k in given)} measurements of {len(given)} kernels; the first {FIRST} "
        "candidates of kernels left out, medians"
    )
    for name, found in rows.items():
        first, best, mean, rank = np.median(np.asarray(found), axis=0)
        print(
            f"  {name:12} first {first:.3f}  best {best:.3f}  mean {mean:.3f}"
            + (f"  rank correlation {rank:.2f}" if name != "random" else "")
        )


def speed() -> None:
    """How many candidates a second the shipped model scores, rows and all."""
    (_, mod), *_ = [m for m in modules() if m[0] == "conv1x1"]
    ((task, _),) = tasks_of(mod, None, Target("llvm"))
    prior, indices = PretrainedKernelModel(task), np.random.default_rng(0).integers(len(task.config_space), size=10_000)
    prior(indices[:16])
    begin = time.perf_counter()
    prior(indices)
    print(f"{len(indices) / (time.perf_counter() - begin):,.0f} candidates a second")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", choices=("collect", "judge", "train", "speed"))
    parser.add_argument("folder", type=Path, nargs="?", default=Path("data"))
    parser.add_argument("--minutes", type=float, default=20.0)
    given = parser.parse_args()
    if given.work == "collect":
        collect(given.folder, given.minutes)
    elif given.work == "judge":
        judge("configurations of kernels", kernels(given.folder))
        judge("scheduled programs", programs(given.folder))
    elif given.work == "train":
        write(FILE, {"kernels": learned(kernels(given.folder)), "programs": learned(programs(given.folder))})
        print(f"wrote {FILE}, {FILE.stat().st_size} bytes")
    else:
        speed()


if __name__ == "__main__":
    main()
