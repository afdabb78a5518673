"""The real ONNX models of `benchmarks/onnx_workloads.py`, through `InferenceSession` and `compile`, beside ONNX Runtime
at every shape."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright.base.errors import InputError, RunError

pytest.importorskip("onnxruntime", reason="the answers are compared with ONNX Runtime's")
sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import onnx_models
import onnx_workloads

pytestmark = [
    pytest.mark.models, pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::tilewright.base.errors.OpenSizeWarning")]
SOME = 3
"""Shapes that `compile` is tried at beside the session."""


def found(real: onnx_workloads.Real) -> tuple[Path, dict[str, Any]]:
    """The file and the inputs; skips where one of them cannot be had."""
    try:
        return real.path, real.feeds()
    except LookupError as missing:
        pytest.skip(missing.args[0])


@pytest.mark.slow
@pytest.mark.parametrize("real", onnx_workloads.REAL, ids=lambda real: real.name)
def test_answers_are_those_of_onnx_runtime_at_every_shape(real: onnx_workloads.Real) -> None:
    found(real)
    rows = onnx_models.measure(real, threads=2, rounds=0)
    assert len(rows) == len(real.sizes)
    assert [(r.shape, r.failure) for r in rows if r.failure] == []


@pytest.mark.parametrize("real", onnx_workloads.REAL, ids=lambda real: real.name)
def test_a_compiled_model_gives_what_the_session_gives(real: onnx_workloads.Real) -> None:
    path, feeds = found(real)
    model, (_, theirs) = tilewright.compile(path, threads=1), onnx_models.sessions(path, threads=1)
    for feed in list(feeds.values())[:SOME]:
        right = theirs.run(None, feed)
        answer = model(feed)
        answers = answer if isinstance(answer, tuple) else (answer,)
        tolerance = onnx_models.EXACT_ENOUGH.get(real.name, onnx_models.TOLERANCE)
        # dictionaries, in an array
        found_here = [a.tolist() if isinstance(r, list) else a for a, r in zip(answers, right, strict=True)]
        assert onnx_models.difference(found_here, right) <= tolerance


def test_branches_that_require_different_sizes_are_one_program() -> None:
    """Windows of each sampling rate have their own lengths, which are checked in the branch of the rate."""
    (real,) = onnx_workloads.named(["silero_vad"])
    path, _ = found(real)
    model, (_, theirs) = tilewright.compile(path, symbolic=True), onnx_models.sessions(path, threads=1)
    for batch, length, rate in itertools.product((1, 3), (100, 256, 351, 352, 703, 704), (8000, 16000)):
        rng = np.random.default_rng([batch, length])
        feed = {
            "input": rng.standard_normal((batch, length)).astype(np.float32) / 10,
            "state": np.zeros((2, batch, 128), np.float32), "sr": np.array(rate)}
        if (192 <= length < 704) if rate == 16000 else (96 <= length < 352):
            for a, b in zip(model(feed), theirs.run(None, feed), strict=True):
                np.testing.assert_allclose(a, b, 1e-3, 2e-4)
        else:
            with pytest.raises((RunError, InputError), match=r"must be 1 where this branch|is 100, but the"):
                model(feed)


def test_a_model_that_is_not_there_says_where_it_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_MODELS", str(tmp_path))
    here = onnx_workloads.Real("nothing", onnx_workloads.named(["magika"])[0].feed, [(1,)], "no_such_package", "m.onnx")
    with pytest.raises(
        LookupError, match=r"nothing: .*nothing.onnx is not there, and the package no_such_package has it"
    ):
        _ = here.path
    with pytest.raises(LookupError, match="no model called nothing; the models are silero_vad, "):
        onnx_workloads.named(["nothing"])


def test_a_wrong_answer_is_not_timed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    real = onnx_workloads.named(["boosted_trees"])[0]
    found(real)
    monkeypatch.setattr(onnx_models, "TOLERANCE", -1.0)
    rows = onnx_models.measure(onnx_workloads.Real(real.name, real.feed, [(1,)]), threads=1, rounds=3)
    assert [r.ours for r in rows] == [[]] and rows[0].failure.startswith("wrong answer: relative difference")


@pytest.mark.slow
def test_the_program_prints_a_table() -> None:
    import subprocess

    found(onnx_workloads.named(["boosted_trees"])[0])
    program = Path(onnx_models.__file__)
    command = [
        sys.executable, str(program), "efficientnet_lite0", "boosted_trees", "--threads", "1", "--rounds", "1", "--each"
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "boosted_trees, 1 thread(s), 4000:" in done.stdout
    assert "10 of 10" in done.stdout
