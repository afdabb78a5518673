"""Suites of TFLite models: folders with `model.tflite` and `data.npz`, compiled and run.

`python tests/tflite_suite.py FOLDER…` runs all the cases in the folders, `--only NAME` those whose name begins so,
`--interpret` by the numpy meaning of the operators, without compiling them. In `data.npz` the inputs are `in0`,
`in1`, …, and what comes out is `out0`, …. Integers must be equal; floats may be off by
1e-5 of themselves and of the largest. Where ours differ from the files and `--litert PYTHON` names a Python that has
`ai_edge_litert`, its reference kernels are asked, then its default ones (some files were recorded by XNNPACK, and a few
reference kernels are known to be mistaken): what one of them answers is right, and counted apart.
"""

from __future__ import annotations

import argparse
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
from tilewright.base.errors import CompileError, NotNativeWarning
from tilewright.relay.frontend.tflite import from_tflite
from tilewright.relay.frontend.tflite.signature import signature
from tilewright.relay.interpreter import evaluate

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

from tflite_runtimes import DEFAULT, REFERENCE, answers

RTOL, ATOL = 1e-5, 1e-5
KERNELS = {"the reference kernels": REFERENCE, "the default kernels": DEFAULT}
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


def run(case: Path, interpreted: bool = False, litert: str = "") -> Outcome:
    """Compile the model of a case, or interpret it by the numpy meaning of its operators, and compare its answers with
    those of the files, and, where these are others, with those of LiteRT in the Python that is named."""
    path = case / "model.tflite"
    with np.load(case / "data.npz", allow_pickle=True) as data:  # texts are stored so; the suites are the project's own
        given, wanted = arrays(data, "in"), arrays(data, "out")
    with warnings.catch_warnings(record=True) as said, np.errstate(all="ignore"):
        warnings.simplefilter("always")
        try:
            names = [name for name, _, _ in signature(path)]
            inputs = [_given(x) for x in given]
            shapes = {n: x.shape for n, x in zip(names, inputs, strict=True)}
            got = evaluate(
                from_tflite(path, shapes)[0], *inputs
            ) if interpreted else tilewright.compile(path, shapes, threads=1)(*inputs)
            outputs = list(got) if isinstance(got, (tuple, list)) else [got]
            wrong = differences(outputs, wanted)
        except CompileError as error:
            return Outcome(refused=str(error))
        except Exception as error:  # whatever it is, it is reported as this case's failure
            return Outcome(wrong=f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
    native = not any(issubclass(w.category, NotNativeWarning) for w in said)
    apart = _answered_by(path, inputs, outputs, litert) if wrong and litert else ""
    return Outcome(wrong="" if apart else wrong, native=native, apart=apart)


def _answered_by(path: Path, inputs: Sequence[Array], outputs: Sequence[Array], litert: str) -> str:
    """Which kernels of LiteRT have our answer; an empty text where none has."""
    for name, script in KERNELS.items():
        (theirs,) = answers(script, litert, path, [inputs], len(outputs))
        if not differences(outputs, theirs):
            return name
    return ""


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
                return (
                    f"output {k}: {differ} of {b.size} integers differ, by up to "
                    f"{np.abs(a.astype(np.float64) - b.astype(np.float64)).max():.0f}"
                )
        elif not np.allclose(a, b, RTOL, ATOL * max(1.0, float(np.nanmax(np.abs(b), initial=0))), equal_nan=True):
            return (
                f"output {k}: up to {np.nanmax(np.abs(a - b)):.3g} off, where the largest is {np.nanmax(np.abs(b)):.3g}"
            )
    return ""


def main(arguments: Sequence[str]) -> int:
    """Run the cases in folders; say what is not as it should be."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--only", default="", help="cases whose name begins so")
    parser.add_argument(
        "--interpret", action="store_true", help="by the numpy meaning of the operators, nothing compiled"
    )
    parser.add_argument(
        "--litert", default="", help="a Python that has ai_edge_litert, asked where the files of a case differ from us"
    )
    options = parser.parse_args(arguments)
    found = [c for f in options.folders for c in cases(f) if c.name.startswith(options.only)]
    outcomes = {str(c): run(c, options.interpret, options.litert) for c in found}
    for name, o in outcomes.items():
        if not o.passed:
            print(f"{name}: {'WRONG ' + o.wrong if o.wrong else o.refused}")
    reasons = collections.Counter(o.refused.partition(":")[2][:90] for o in outcomes.values() if o.refused)
    for reason, count in reasons.most_common(40):
        print(f"{count:5d} {reason}")
    apart = collections.Counter(o.apart for o in outcomes.values() if o.apart)
    counts = (
        f"{sum(o.passed for o in outcomes.values())} pass, {sum(o.native for o in outcomes.values() if o.passed)} of "
        "them native"
    )
    counts += "".join(f", {count} as {kernels} have it" for kernels, count in apart.items())
    print(
        f"{len(outcomes)} cases: {counts}; {sum(reasons.values())} are refused, "
        f"{sum(bool(o.wrong) for o in outcomes.values())} are wrong"
    )
    return int(any(o.wrong for o in outcomes.values()))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TILEWRIGHT_CACHE_DIR"] = cache
        sys.exit(main(sys.argv[1:]))
