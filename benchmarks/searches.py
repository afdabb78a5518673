"""Ten kernels, searched in three ways: every tile there is with the rest by the model, by templates, and without
templates.

    python benchmarks/searches.py                                  # all ten, 200 trials each
    python benchmarks/searches.py dense_64x768 softmax --trials 64 --folder /tmp/searches

Each kernel is a small network of Relay, its weights constants. What the compiler does by itself, the best of all tiles
(the small space, of the model's algorithm), and what the two searches found are built as programs, whose answers are
compared, and then timed in turn. A search is to reach 0.95 of the speed of the better of the first two, and never to
end behind the first. What was measured is kept in the folder, so that `--trials 0` only times again; trials of an
earlier run are known to the searches.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tvm
from tilewright import relay
from tilewright.runtime.graph_executor import GraphModule
from tilewright.search import auto_scheduler, autotvm
from tilewright.search.autotvm.task.space import ConfigEntity

ENOUGH = 0.95
OPTION: dict[str, Any] = {"number": 1, "repeat": 3, "min_repeat_ms": 8}
SHORTEST = 5e-3
"""Seconds that a turn takes at least."""


def _weights(*shape: int) -> Any:
    return relay.const(
        (np.random.default_rng(1).random(shape, np.float32) - 0.5) / np.sqrt(np.prod(shape[1:])).astype(np.float32)
    )


def conv(channels: int, size: int, out: int, kernel: int, stride: int = 1, groups: int = 1) -> Any:
    x = relay.var("x", shape=(1, channels, size, size))
    w = _weights(out, channels // groups, kernel, kernel)
    return relay.nn.relu(
        relay.nn.conv2d(
            x, w, strides=(stride, stride), padding=(kernel // 2, kernel // 2), groups=groups, channels=out,
            kernel_size=(kernel, kernel)
        )
    )


def dense(rows: int, depth: int, out: int) -> Any:
    return relay.nn.dense(relay.var("x", shape=(rows, depth)), _weights(out, depth))


KERNELS: dict[str, Callable[[], Any]] = {
    "conv_56x56x64_3x3": lambda: conv(64, 56, 64, 3),
    "conv_28x28x128_3x3_s2": lambda: conv(128, 56, 128, 3, 2),
    "conv_14x14x256_1x1": lambda: conv(256, 14, 1024, 1),
    "conv_224x224x3_7x7_s2": lambda: conv(3, 224, 64, 7, 2),
    "conv_7x7x512_3x3": lambda: conv(512, 7, 512, 3),
    "dense_64x768": lambda: dense(64, 768, 3072),
    "dense_1x2048": lambda: dense(1, 2048, 1000),
    "dense_384x384": lambda: dense(384, 384, 384),
    "depthwise_56x56x144": lambda: conv(144, 56, 144, 3, 1, 144),
    "softmax_1536x128": lambda: relay.nn.softmax(relay.var("x", shape=(12, 128, 128))),
}


def small_space(task: Any) -> Iterator[ConfigEntity]:
    """The configurations that differ from the model's in its largest choice alone, which is the tile."""
    space = task.config_space
    point = space.point(space.default_index)
    axes = space.branches[point[0]]
    widest = max(range(len(axes)), key=lambda k: len(axes[k].answers))
    for answer in range(len(axes[widest].answers)):
        places = list(point)
        places[1 + widest] = answer
        yield space.get(space.index_of_point(tuple(places)))


def exhausted(task: Any, log: Path) -> None:
    """Measure the small space into a file."""
    option = autotvm.measure_option(builder=autotvm.LocalBuilder(), runner=autotvm.LocalRunner(**OPTION))
    batch = autotvm.measure.create_measure_batch(task, option)
    note = autotvm.callback.log_to_file(str(log))
    inputs = [autotvm.measure.MeasureInput(task.target, task, c) for c in small_space(task)]
    for first in range(0, len(inputs), 16):
        part = inputs[first : first + 16]
        note(None, part, batch(part))


def searched(name: str, mod: Any, trials: int, folder: Path) -> None:
    """Fill the three files of a kernel."""
    (task,) = autotvm.task.extract_from_program(mod["main"], target="llvm", params={})
    small, template, free = (folder / f"{name}.{kind}.json" for kind in ("small", "template", "free"))
    if not small.exists():
        exhausted(task, small)
    if not template.exists():
        option = autotvm.measure_option(builder=autotvm.LocalBuilder(), runner=autotvm.LocalRunner(**OPTION))
        autotvm.tuner.get_tuner("auto", task).tune(
            n_trial=trials, measure_option=option, callbacks=[autotvm.callback.log_to_file(str(template))]
        )
    if not free.exists():
        tasks, weights = auto_scheduler.extract_tasks(mod, {}, "llvm", include_simple_tasks=True)
        auto_scheduler.TaskScheduler(tasks, weights, callbacks=[]).tune(auto_scheduler.TuningOptions(
            trials, num_measures_per_round=32, runner=auto_scheduler.LocalRunner(**OPTION),
            measure_callbacks=[auto_scheduler.RecordToFile(str(free))], verbose=0,
        ))


def built(mod: Any) -> Any:
    with tvm.transform.PassContext(opt_level=3):
        return GraphModule(relay.build(mod, "llvm")["default"](tvm.cpu()))


def programs(name: str, mod: Any, folder: Path) -> dict[str, Any]:
    """The four programs of a kernel."""
    made = {"model": built(mod)}
    for kind in ("small", "template"):
        with autotvm.apply_history_best(str(folder / f"{name}.{kind}.json")):
            made[kind] = built(mod)
    with (
        auto_scheduler.ApplyHistoryBest(str(folder / f"{name}.free.json")),
        tvm.transform.PassContext(opt_level=3, config={"relay.backend.use_auto_scheduler": True}),
    ):
        made["free"] = GraphModule(relay.build(mod, "llvm")["default"](tvm.cpu()))
    return made


def timed(made: dict[str, Any], x: Any, rounds: int) -> dict[str, list[float]]:
    """Seconds of a call of each, turn by turn; raises `AssertionError` where answers differ."""
    answers, numbers = {}, {}
    for kind, program in made.items():
        program.set_input("x", x)
        program.run()
        answers[kind] = program.get_output(0).numpy()
        np.testing.assert_allclose(answers[kind], answers["model"], rtol=1e-3, atol=1e-4, err_msg=kind)
        begin = time.perf_counter()
        program.run()
        numbers[kind] = max(1, int(SHORTEST / (time.perf_counter() - begin)))
    times: dict[str, list[float]] = {kind: [] for kind in made}
    kinds = list(made)
    for turn in range(rounds):
        for kind in kinds[turn % 4 :] + kinds[: turn % 4]:
            calls = []
            for _ in range(numbers[kind] + 1):
                begin = time.perf_counter()
                made[kind].run()
                calls.append(time.perf_counter() - begin)
            # the first finds the caches full of another program's values
            times[kind].append(statistics.median(calls[1:]))
    return times


def main() -> int:
    """Search and time; 1 where a search fell short."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", default=list(KERNELS), help=", ".join(KERNELS))
    parser.add_argument("--trials", type=int, default=200, help="of each search")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()) / "tilewright-searches",
        help="where records are kept"
    )
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    short = 0
    for name in given.kernels:
        body = KERNELS[name]()
        mod = tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body))
        if given.trials:
            searched(name, mod, given.trials, given.folder)
        made = programs(name, mod, given.folder)
        shape = tuple(int(d) for d in mod["main"].params[0].type_annotation.shape)
        times = timed(made, np.random.default_rng(0).random(shape, np.float32), given.rounds)
        middle = {kind: statistics.median(t) for kind, t in times.items()}
        best = [
            min(m, s) for m, s in zip(times["model"], times["small"], strict=True)
        ] if middle["small"] > middle["model"] else times["small"]
        reached = {
            kind: statistics.median(b / t for b, t in zip(best, times[kind], strict=True))
            for kind in ("template", "free")
        }
        against = {
            kind: statistics.median(m / t for m, t in zip(times["model"], times[kind], strict=True))
            for kind in ("template", "free")
        }
        fell = any(r < ENOUGH for r in reached.values())
        short += fell
        figures = " ".join(f"{kind} {1e3 * t:.4f}" for kind, t in middle.items())
        print(
            f"{name:<22} ms: {figures}   of the best small: template {reached['template']:.2f}, free "
            f"{reached['free']:.2f}; "
              f"of the model's speed: {against['template']:.2f}, {against['free']:.2f}{'   SHORT' if fell else ''}",
              flush=True)
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
