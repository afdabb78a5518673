"""A decoder with a growing cache (`benchmarks/decoder_model.py`): one program for every past and every prompt."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import decoder
import tilewright
from decoder_model import TINY, build, inputs_of, write
from small_models import onnxruntime_answers
from tilewright.base.errors import InputError, OpenSizeWarning
from tilewright.compat import onnx_session
from tilewright.runtime.artifact import load_executable

pytestmark = pytest.mark.slow

Feed = dict[str, Any]
LENGTHS = (1, 2, 7, 16, 33)


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return build(TINY)


@pytest.fixture(scope="module")
def program(model: onnx.ModelProto) -> tilewright.Model:
    with warnings.catch_warnings():
        warnings.simplefilter("error", OpenSizeWarning)
        return tilewright.compile(model, shapes=decoder.open_shapes(TINY), threads=1)


def random_feed(length: int, past: int) -> Feed:
    """Inputs of a call for `length` tokens after a random past, some of which is masked."""
    rng = np.random.default_rng(100 * length + past)
    shape = (1, TINY.kv_heads, past, TINY.head_dim)
    caches = {f"past_key_values.{c}": rng.standard_normal(shape, np.float32) for c in TINY.caches}
    feed = inputs_of(TINY, [int(t) for t in rng.integers(0, TINY.vocabulary, length)], caches)
    feed["attention_mask"][0, : past // 3] = 0
    return feed


def check(found: Any, model: onnx.ModelProto, feed: Feed) -> None:
    for f, wanted in zip(found, onnxruntime_answers(model, feed), strict=True):
        np.testing.assert_allclose(f, wanted, rtol=2e-4, atol=2e-5)


def test_prompts_and_steps_after_any_past(program: tilewright.Model, model: onnx.ModelProto) -> None:
    assert [str(s) for s in program.artifact.manifest.symbols] == [
        "sequence_length from 1", "past_sequence_length from 0"]
    for length in LENGTHS:
        for past in (0, 1, 5, 16, 31):
            feed = random_feed(length, past)
            check(program(feed), model, feed)


def test_the_tokens_are_those_of_onnx_runtime(program: tilewright.Model, tmp_path: Path) -> None:
    path = write(TINY, tmp_path / "decoder.onnx")
    theirs = decoder.generate(decoder.onnxruntime(path, TINY, 1), TINY, decoder.prompt_of(TINY, 5), 40)[2]
    saved = load_executable(program.save(tmp_path / "decoder.so"))
    for run in (program, saved):
        assert decoder.generate(lambda feed, run=run: run(*feed.values()), TINY,  # type: ignore[misc]
                                decoder.prompt_of(TINY, 5), 40)[2] == theirs
    assert decoder.generate(decoder.session(path, TINY, 1), TINY, decoder.prompt_of(TINY, 5), 40)[2] == theirs


def test_a_mask_of_another_length_is_refused(program: tilewright.Model) -> None:
    feed = random_feed(2, 3)
    feed["attention_mask"] = np.ones((1, 4), np.int64)
    with pytest.raises(
        InputError,
        match=r"dimension 1 of input 'attention_mask' is 4, and must be \(past_sequence_length \+ sequence_length\) = "
        r"5, where sequence_length is 2 \(dimension 1 of input 'input_ids'\), past_sequence_length is 3 \(dimension 2 "
    ):
        program(feed)


def test_heads_that_share_a_cache_read_it_in_place(program: tilewright.Model) -> None:
    kernels = [str(getattr(step, "symbol", "")) for step in program.artifact.manifest.steps]
    assert sum("attention" in k for k in kernels) == TINY.layers
    assert sum("broadcast_to" in k for k in kernels) <= 1  # of the mask, for all layers


def test_hidden_tokens_have_no_weight(program: tilewright.Model, model: onnx.ModelProto) -> None:
    feed = random_feed(5, 60)
    plain = program(feed)[0]
    for name in feed:
        if name.startswith("past_key_values"):
            feed[name][:, :, : 60 // 3] = 1e30
    np.testing.assert_array_equal(program(feed)[0], plain)
    check(program(feed), model, feed)


def test_any_batch_of_prompts(model: onnx.ModelProto) -> None:
    shapes = {n: ("batch_size", *dims[1:]) for n, dims in decoder.open_shapes(TINY).items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error", OpenSizeWarning)
        program = tilewright.compile(model, shapes=shapes, threads=1)
    for batch, length, past in ((1, 1, 0), (2, 3, 4), (3, 1, 17)):
        rows = [random_feed(length, past + 0 * k) for k in range(batch)]
        feed = {n: np.concatenate([np.roll(r[n], k, -1) for k, r in enumerate(rows)]) for n in rows[0]}
        check(program(feed), model, feed)


def test_sessions_take_symbolic_shapes(model: onnx.ModelProto) -> None:
    session = onnx_session.InferenceSession(model.SerializeToString(), shapes=decoder.open_shapes(TINY))
    binding = session.io_binding()
    feed = random_feed(4, 6)
    for name, array in feed.items():
        binding.bind_cpu_input(name, array)
    for output in session.get_outputs():
        binding.bind_output(output.name)
    session.run_with_iobinding(binding)
    check(binding.copy_outputs_to_cpu(), model, feed)


def test_the_benchmark_compares_each_way_with_its_limits() -> None:
    ways = "compile,session,c" if shutil.which("cc") or shutil.which("gcc") else "compile,session"
    done = subprocess.run(
        [sys.executable, decoder.__file__, "--tiny", "--no-memory", "--peers", "ort", "--steps", "5", "--prompt", "3",
         "--prompts", "1,4", "--threads", "1", "--rounds", "1", "--ways", ways],
        capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    title, head, *rows = done.stdout.splitlines()
    names = [decoder.WAYS[way] for way in ways.split(",")]
    assert title == "1 thread, times in ms"
    assert head.split() == "step slowest prompt 1 prompt 4 memory compiling tokens".split()
    for row, name in zip(rows, ["onnxruntime", *names], strict=False):
        assert row.startswith(name) and row.endswith("equal")
    for line, name in zip(rows[1 + len(names) :], names, strict=True):
        figures = line.removeprefix(f"{name}: ").split(", ")
        assert figures[-2:] == ["tokens equal", "0 compiled after loading"]
        for figure, start in zip(figures, ("step", "prompt 1", "prompt 4", "slowest"), strict=False):
            assert re.fullmatch(rf"{start} \d+\.\d\d( OVER)? of \d\.\d", figure)


def test_figures_beyond_their_limits_are_marked() -> None:
    theirs = decoder.Row("onnxruntime", 1, {7: [1.0]}, [[1.0, 1.0, 1.0]], [4], memory=1.0)
    mine = decoder.Row("tilewright", 1, {7: [0.95]}, [[0.5, 0.5, 1.2]], [4], memory=1.2)
    assert decoder.limits([theirs, mine], [7]) == [
        "tilewright: step 0.50 of 0.9, prompt 7 0.95 OVER of 0.9, slowest 2.40 OVER of 2.0, memory 1.20 of 1.3, "
        "tokens equal, 0 compiled after loading"]
