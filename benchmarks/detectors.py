"""Detectors over pictures that no call has seen, ours beside ONNX Runtime.

How many boxes each class has depends on the picture, so the sizes of a detector's tensors differ in every call. A
detector is compiled once, saved and loaded; the loaded program must compile nothing for any picture. Both take each
picture once, in alternating order. Answers are compared behind the clock: each box of one must have a partner of the
same label, place and score in the other. Weights are random, so that rounding decides which of many similar regions
are kept in some pictures: where the answer of ONNX Runtime changes with noise of 1e-5, the picture is unstable.

    python benchmarks/detectors.py                          # SSDlite, Faster R-CNN and RetinaNet, 300 pictures each
    python benchmarks/detectors.py ssdlite --pictures 50 --each
    python benchmarks/detectors.py --rounds 3 --json detectors.json

The worst ratio is that of a single picture. On a machine with other work, read the processor times, with one thread,
and measure several rounds: each loads the program again, so that no picture is known to it, and the least time of a
picture counts.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import models
import onnx_exports

DETECTORS = ("ssdlite", "faster_rcnn", "retinanet")
WARM = 3
"""Pictures before the first one that is timed."""
NOISE = 1e-5
NOISY = 8
"""Copies of a picture with noise, which show whether it is unstable."""
Array = np.ndarray[Any, Any]


@dataclass
class Race:
    """The results of one detector: seconds for each picture, ours and theirs."""

    name: str
    wall: list[tuple[float, float]] = field(default_factory=list)
    processor: list[tuple[float, float]] = field(default_factory=list)
    boxes: list[int] = field(default_factory=list)
    wrong: list[int] = field(default_factory=list)
    unstable: list[int] = field(default_factory=list)
    """Pictures in which rounding decides."""
    compiled: int = 0
    """Programs that were compiled after loading."""
    interpreted: int = 0
    """Points whose operators ran in numpy."""


def picture(number: int) -> Array:
    """Return a picture with a gradient, a few discs and boxes of random colours, and noise: (3, height, width)."""
    random = np.random.default_rng([models.SEED, 77, number])
    channels, height, width = onnx_exports.PICTURE
    y, x = np.mgrid[:height, :width].astype(np.float32)
    angle = random.uniform(0, 2 * np.pi)
    slope = (x * np.cos(angle) / width + y * np.sin(angle) / height) * random.uniform(0, 0.5)
    found = slope[None] + random.uniform(0.2, 0.8, (channels, 1, 1))
    for _ in range(int(random.integers(0, 12))):
        cy, cx = random.uniform(0, height), random.uniform(0, width)
        ry, rx = random.uniform(5, height / 3), random.uniform(5, width / 3)
        dy, dx = np.abs(y - cy) / ry, np.abs(x - cx) / rx
        inside = dy * dy + dx * dx < 1 if random.random() < 0.5 else np.maximum(dy, dx) < 1
        found = np.where(inside, random.uniform(0, 1, (channels, 1, 1)), found)
    found = found + random.normal(0, random.uniform(0, 0.1), found.shape)
    return np.ascontiguousarray(np.clip(found, 0, 1), np.float32)


def agree(ours: Any, theirs: Any) -> bool:
    """Return whether two answers (boxes, scores, labels) have the same boxes, in any order of nearly equal scores."""
    if [v.shape for v in ours] != [v.shape for v in theirs]:
        return False
    boxes, scores, labels = ours
    near = np.abs(boxes[:, None] - theirs[0][None]).max(-1) < 1.0
    near &= np.abs(scores[:, None] - theirs[1][None]) < 5e-3
    near &= labels[:, None] == theirs[2][None]
    return bool(near.any(0).all() and near.any(1).all())


@contextmanager
def compilations() -> Iterator[list[Any]]:
    """Yield a list that gets an entry for each stage that loaded programs compile."""
    from tilewright.compiler.saved_stages import Way

    made: list[Any] = []
    before = {name: getattr(Way, name) for name in ("compiled", "compiled_symbolic")}

    def counted(method: Callable[..., Any]) -> Callable[..., Any]:
        def compiled(*args: Any) -> Any:
            made.append(args)
            return method(*args)

        return compiled

    for name, method in before.items():
        setattr(Way, name, counted(method))
    try:
        yield made
    finally:
        for name, method in before.items():
            setattr(Way, name, method)


def compiled(path: Path, file: Path, threads: int) -> None:
    """Compile a detector, and save it."""
    import tilewright

    tilewright.compile(path, shapes={"picture": onnx_exports.PICTURE}, threads=threads).save(file)


def is_unstable(session: Any, x: Array, answer: Any) -> bool:
    """Return whether noise changes the answer of ONNX Runtime."""
    random = np.random.default_rng(models.SEED)
    noisy = ((x + NOISE * random.standard_normal(x.shape)).astype(np.float32) for _ in range(NOISY))
    return not all(agree(session.run(None, {"picture": y}), answer) for y in noisy)


def race(name: str, path: Path, pictures: int, threads: int, rounds: int = 1) -> Race:
    """Let both take the pictures in turns."""
    result = Race(name)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "detector.tar"
        compiled(path, file, threads)
        for _ in range(rounds):
            gc.collect()  # what compiling and earlier rounds left is not counted in the times of calls
            gc.freeze()
            race_once(result, path, file, pictures, threads)
    return result


def race_once(result: Race, path: Path, file: Path, pictures: int, threads: int) -> None:
    """Add a round to the result."""
    import onnxruntime

    import tilewright

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = threads, 1, 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    ours: Any = tilewright.load(file, threads=threads)
    calls: list[Callable[[Array], Any]] = [ours, lambda x: session.run(None, {"picture": x})]
    found = Race(result.name)
    with compilations() as made:
        for k in range(WARM + pictures):
            x = picture(k)
            answers: dict[int, Any] = {}
            wall, processor = [0.0, 0.0], [0.0, 0.0]
            for which in (k % 2, 1 - k % 2):
                begin, busy = time.perf_counter(), time.process_time()
                answers[which] = calls[which](x)
                wall[which], processor[which] = time.perf_counter() - begin, time.process_time() - busy
            if k >= WARM:
                found.wall.append((wall[0], wall[1]))
                found.processor.append((processor[0], processor[1]))
                found.boxes.append(len(answers[1][0]))
            if not agree(answers[0], answers[1]):
                (found.unstable if is_unstable(session, x, answers[1]) else found.wrong).append(k)
    result.wall, result.processor = least(result.wall, found.wall), least(result.processor, found.processor)
    result.boxes, result.wrong, result.unstable = found.boxes, found.wrong, found.unstable
    result.compiled += len(made)
    result.interpreted += sum(bool(e.next.seen) for e in ours.edges() if e.next is not None)


def least(before: list[tuple[float, float]], now: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the least times of each picture."""
    return [(min(a, c), min(b, d)) for (a, b), (c, d) in zip(before, now, strict=True)] if before else now


def ratios(pairs: list[tuple[float, float]]) -> Array:
    """Our times over theirs."""
    return np.array([ours / theirs for ours, theirs in pairs])


def show(races: list[Race], console: Console, threads: int, each: bool) -> None:
    """Print the table; with `each`, a line for each picture too."""
    table = Table(
        "detector", "boxes", "processor time", "wall time", "wrong", "unstable", "compiled", "in numpy",
        title=f"ours / ONNX Runtime, {threads} thread(s): mean, worst, pictures above 1")
    for r in races:
        if each:
            for k, ((a, b), count) in enumerate(zip(r.wall, r.boxes, strict=True)):
                console.print(f"{r.name}, picture {k}: {count} boxes, {a * 1e3:.1f} ms, ONNX Runtime {b * 1e3:.1f} ms",
                              highlight=False)
        cells = [
            f"{found.mean():.2f}, {found.max():.2f}, {(found > 1).sum()} of {len(found)}"
            for found in (ratios(r.processor), ratios(r.wall))]
        table.add_row(
            r.name, f"{min(r.boxes)} to {max(r.boxes)}", *cells, str(len(r.wrong)), str(len(r.unstable)),
            str(r.compiled), str(r.interpreted))
    console.print(table)


def main() -> int:
    """Measure and show; 1 if an answer was wrong, or a loaded program compiled something."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of: {', '.join(DETECTORS)}")
    parser.add_argument("--pictures", type=int, default=300)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1, help="the least time of each picture counts")
    parser.add_argument("--each", action="store_true", help="a line for each picture too")
    parser.add_argument("--json", type=Path, help="write the times to this file")
    given = parser.parse_args()
    if unknown := set(given.models) - set(DETECTORS):
        parser.error(f"no detector called {', '.join(sorted(unknown))}; the detectors are {', '.join(DETECTORS)}")
    console, races = Console(), []
    for name in given.models or DETECTORS:
        try:
            path = onnx_exports.ensure(name)
        except ImportError as missing:
            console.print(f"left out: {name} needs the package {missing.name}", highlight=False)
            continue
        races.append(race(name, path, given.pictures, given.threads, given.rounds))
    if races:
        show(races, console, given.threads, given.each)
    if given.json:
        given.json.write_text(json.dumps([vars(r) for r in races], indent=1))
    return 1 if any(r.wrong or r.compiled for r in races) else 0


if __name__ == "__main__":
    sys.exit(main())
