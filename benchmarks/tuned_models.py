"""Whole models, tuned and untuned, in turn: is the tuned one faster, by how much, and is that sure?

    python benchmarks/tuned_models.py resnet50 mobilenet_v2 --minutes 10 --threads 2 [--json tuned.json]
    python benchmarks/tuned_models.py --model det.onnx --input-shapes "x:[1,3,640,640]"
    python benchmarks/tuned_models.py --model some.onnx --records records.json        # no tuning, only the comparison
    python benchmarks/tuned_models.py mobilenet_v2 --trials 1 2 4 20        # AutoTVM's API, that many a task, anew

Each model is tuned by `tilewright tune` for the minutes given (trials of an earlier run are known), in a process of its
own. Then both programs run in turn in this one, on the same inputs; outputs are compared first. The ratio is the median
of the pairs, with its 95 % confidence interval; kernels of a machine that others use as well make wide intervals, which
are shown as they are.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import models
import tilewright
from tilewright.compiler.sequences import flat
from tilewright.driver.options import input_shapes
from tilewright.driver.tensors import Fill, feed
from tilewright.search.comparison import Comparison, in_turn

PAIRS = 300
TOLERANCE = 1e-3


def arrays(answer: Any) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(a, np.float64) for a in flat(answer if isinstance(answer, tuple) else (answer,))]


def compare(
    path: Path, shapes: str, records: Path, threads: int, pairs: int, seconds: float
) -> tuple[Comparison, float]:
    """The tuned model against the untuned one, and the largest difference of their outputs as a part of the largest
    output."""
    sizes = input_shapes(shapes) or None
    plain = tilewright.compile(path, sizes, threads=threads)
    tuned = tilewright.compile(path, sizes, threads=threads, records=records)
    inputs = feed(plain.inputs, {}, Fill.RANDOM)
    off = max(
        float(np.abs(a - b).max(initial=0) / max(np.abs(b).max(initial=0), 1e-9)) for a,
        b in zip(arrays(tuned(**inputs)), arrays(plain(**inputs)), strict=True)
    )
    if not off <= TOLERANCE:
        raise SystemExit(f"{path.name}: the tuned outputs differ by {off:.2g} of the largest, more than {TOLERANCE}")
    return in_turn(lambda: plain(**inputs), lambda: tuned(**inputs), pairs, seconds), off


def tune(path: Path, shapes: str, records: Path, minutes: float, threads: int) -> None:
    """`tilewright tune`, whose table goes to the standard error."""
    command = [
        sys.executable, "-m", "tilewright", "tune", str(path), "-o", str(records), "--minutes", str(minutes),
        "--threads", str(threads), "--input-shapes", shapes
    ]
    subprocess.run(command, check=True)


def tune_briefly(path: Path, shapes: str, records: Path, trials: int, threads: int) -> None:
    """Tune each task by a number of trials through AutoTVM's API, as its tutorials do, with one measurement each."""
    from tilewright import autotvm
    from tilewright.relay.frontend import from_onnx

    mod, params = from_onnx(str(path), input_shapes(shapes) or None)
    option = autotvm.measure_option(
        builder=autotvm.LocalBuilder(), runner=autotvm.LocalRunner(number=10, repeat=1, timeout=10, min_repeat_ms=0))
    for task in autotvm.task.extract_from_program(mod["main"], target=f"llvm -num-cores={threads}", params=params):
        autotvm.tuner.XGBTuner(task, loss_type="rank").tune(
            n_trial=min(trials, len(task.config_space)), measure_option=option,
            callbacks=[autotvm.callback.log_to_file(str(records))])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="models of benchmarks/models.py")
    parser.add_argument("--model", type=Path, action="append", default=[], help="a model file")
    parser.add_argument("--input-shapes", default="", help='sizes of inputs that are open: "x:[1,3,640,640]"')
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--trials", type=int, nargs="+", default=[], help="instead of minutes, numbers of trials for each task")
    parser.add_argument("--records", type=Path, help="compare with these records, without tuning")
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()) / "tilewright-tuned", help="where records are kept"
    )
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--seconds", type=float, default=60.0, help="the most that a comparison takes")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    rows = []
    paths = [*(models.ensure(n) for n in given.names), *given.model]
    for path, trials in itertools.product(paths, given.trials or [0]):
        label = path.stem + (f" {trials} trials" if trials else "")
        records = given.records or given.folder / f"{label.replace(' ', '_')}.json"
        if trials:
            records.unlink(missing_ok=True)  # trials of an earlier run would count as well
            tune_briefly(path, given.input_shapes, records, trials, given.threads)
        elif given.records is None:
            tune(path, given.input_shapes, records, given.minutes, given.threads)
        found, off = compare(path, given.input_shapes, records, given.threads, given.pairs, given.seconds)
        verdict = "faster" if found.is_faster else "slower" if found.is_slower else "equal within the noise"
        print(
            f"{label:34s} {1e3 * found.first:9.3f} ms untuned {1e3 * found.second:9.3f} ms tuned   {found}   "
            f"{verdict}; outputs differ by {off:.1e}", flush=True
        )
        rows.append(
            {
                "model": label, "untuned": found.first, "tuned": found.second, "ratio": found.ratio,
                "low": found.low, "high": found.high, "pairs": found.pairs
            }
        )
    if given.json is not None:
        given.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
