"""Suites of TFLite models: folders with `model.tflite` and `data.npz`, compiled and run.

`python tests/tflite_suite.py FOLDER…` runs all the cases in the folders, `--only NAME` those whose name begins so,
`--interpret` by the numpy meaning of the operators, without compiling them. In `data.npz` the inputs are `in0`,
`in1`, …, and what comes out is `out0`, …. Integers must be equal; floats may be off by
1e-5 of themselves and of the largest.
"""

from __future__ import annotations

import collections
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tilewright
from suite_outcome import Outcome
from tilewright.errors import CompileError, NotNativeWarning
from tilewright.relay.frontend.tflite import from_tflite
from tilewright.relay.frontend.tflite.signature import signature
from tilewright.relay.interpreter import evaluate

RTOL, ATOL = 1e-5, 1e-5
Array = np.ndarray[Any, Any]


def cases(folder: Path) -> Iterator[Path]:
    """The folders of cases, by name."""
    yield from sorted(p.parent for p in folder.rglob("model.tflite"))


def arrays(data: Any, prefix: str) -> list[Array]:
    """The arrays of that prefix, in order."""
    found: list[Array] = []
    while f"{prefix}{len(found)}" in data:
        found.append(data[f"{prefix}{len(found)}"])
    return found


def run(case: Path, interpreted: bool = False) -> Outcome:
    """Compile the model of a case, or interpret it by the numpy meaning of its operators, and compare its answers."""
    path = case / "model.tflite"
    with np.load(case / "data.npz", allow_pickle=True) as data:  # texts are stored so; the suites are the project's own
        given, wanted = arrays(data, "in"), arrays(data, "out")
    with warnings.catch_warnings(record=True) as said, np.errstate(all="ignore"):
        warnings.simplefilter("always")
        try:
            names = [name for name, _, _ in signature(path)]
            inputs = [_given(x) for x in given]
            shapes = {n: x.shape for n, x in zip(names, inputs, strict=True)}
            got = evaluate(from_tflite(path, shapes)[0], *inputs) if interpreted else tilewright.compile(path, shapes, threads=1)(*inputs)
            wrong = differences(list(got) if isinstance(got, (tuple, list)) else [got], wanted)
        except CompileError as error:
            return Outcome(refused=str(error))
        except Exception as error:  # whatever it is, it is reported as this case's failure
            return Outcome(wrong=f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
    return Outcome(wrong=wrong, native=not any(issubclass(w.category, NotNativeWarning) for w in said))


def _given(x: Array) -> Array:
    """Texts are objects in a model."""
    return np.asarray(x.astype(str), object) if x.dtype.kind in "SU" else x


def differences(got: Sequence[Array], wanted: Sequence[Array]) -> str:
    """What differs; an empty text where nothing does."""
    if len(got) != len(wanted):
        return f"{len(got)} outputs, and {len(wanted)} are expected"
    for k, (a, b) in enumerate(zip(got, wanted, strict=True)):
        a = np.asarray(a)
        if a.shape != b.shape:
            return f"output {k} has the shape {a.shape}, and {b.shape} is expected"
        if b.dtype.kind == "V":  # numpy stores bfloat16 as bytes
            b = b.view(a.dtype)
        if b.dtype.kind in "SUO":
            if a.astype(str).tolist() != b.astype(str).tolist():
                return f"output {k} has other texts"
        elif a.dtype != b.dtype:
            return f"output {k} is {a.dtype}, and {b.dtype} is expected"
        elif b.dtype.kind in "iub":
            differ = int(np.sum(a != b))
            if differ:
                return f"output {k}: {differ} of {b.size} integers differ, by up to {np.abs(a.astype(np.float64) - b.astype(np.float64)).max():.0f}"
        elif not np.allclose(a, b, RTOL, ATOL * max(1.0, float(np.nanmax(np.abs(b), initial=0))), equal_nan=True):
            return f"output {k}: up to {np.nanmax(np.abs(a - b)):.3g} off, where the largest is {np.nanmax(np.abs(b)):.3g}"
    return ""


def main(arguments: Sequence[str]) -> int:
    """Run the cases in folders; say what is not as it should be."""
    only = arguments[arguments.index("--only") + 1] if "--only" in arguments else ""
    folders = [Path(a) for a in arguments if not a.startswith("-") and a != only]
    outcomes = {str(c): run(c, "--interpret" in arguments) for f in folders for c in cases(f) if c.name.startswith(only)}
    for name, o in outcomes.items():
        if not o.passed:
            print(f"{name}: {'WRONG ' + o.wrong if o.wrong else o.refused}")
    reasons = collections.Counter(o.refused.partition(":")[2][:90] for o in outcomes.values() if o.refused)
    for reason, count in reasons.most_common(40):
        print(f"{count:5d} {reason}")
    counts = f"{sum(o.passed for o in outcomes.values())} pass, {sum(o.native for o in outcomes.values() if o.passed)} of them native"
    print(f"{len(outcomes)} cases: {counts}; {sum(reasons.values())} are refused, {sum(bool(o.wrong) for o in outcomes.values())} are wrong")
    return int(any(o.wrong for o in outcomes.values()))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TILEWRIGHT_CACHE_DIR"] = cache
        sys.exit(main(sys.argv[1:]))
