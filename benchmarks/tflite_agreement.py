"""Whether TFLite networks give the numbers of TensorFlow Lite's reference kernels: elements, how many differ, by how
much at most; and what a picture shows.

    python benchmarks/tflite_agreement.py FOLDER                                  # every .tflite file in it, 100
        random inputs each
    python benchmarks/tflite_agreement.py net.tflite --inputs 10 --litert /path/to/python --micro /path/to/python
    python benchmarks/tflite_agreement.py FOLDER --picture cat.jpg --labels labels.txt

Integers must be equal, floats within 1e-5 of themselves and of the largest. The kernels are those of `ai_edge_litert`
(`OpResolverType.BUILTIN_REF`), and of `tflite_micro` for a file that LiteRT refuses; other Pythons may have them.
Networks of images also get pieces of the picture; where there are labels, classifiers of as many classes must see what
`--shows` says in it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tflite_runtimes import MICRO, REFERENCE, RefusedError, answers

Array = NDArray[Any]
TOLERANCE: Final = 1e-5
PIECES: Final = 20
"""Pieces of the picture."""

@dataclass
class Row:
    """How the answers for all inputs of one file differ."""

    model: str
    runtime: str
    inputs: int
    elements: int = 0
    differing: int = 0
    largest: float = 0.0
    why: str = ""
    """Why there is nothing to count."""

    def add(self, found: Array, wanted: Array) -> None:
        """Count one output; the largest distance is in steps for integers, and for floats in parts of the largest
        number."""
        if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
            raise ValueError(
                f"{self.model}: an output is {found.dtype} {found.shape}, and {wanted.dtype} {wanted.shape} was "
                "expected"
            )
        self.elements += wanted.size
        distance = np.abs(found.astype(np.float64) - wanted)
        if wanted.dtype.kind == "f":
            scale = max(1.0, float(np.abs(wanted).max(initial=0)))
            self.differing += int((distance > TOLERANCE * (scale + np.abs(wanted))).sum())
            distance = distance / scale
        else:
            self.differing += int((distance != 0).sum())
        self.largest = max(self.largest, float(distance.max(initial=0)))

    def line(self) -> str:
        """The row as text."""
        return (
            f"{self.model:40} {self.runtime:14} {self.inputs:>6} {self.elements:>9} {self.differing:>9} "
            f"{self.largest:>8.2g} {self.why}".rstrip()
        )


def inputs_of(
    signature: Sequence[tuple[str, Sequence[Any], str]], count: int, picture: Path | None
) -> list[list[Array]]:
    """`count` times random inputs, the same in every run; then pieces of the picture for a network of one image."""
    rng = np.random.default_rng(0)
    found = [[_random(rng, tuple(shape), dtype) for _, shape, dtype in signature] for _ in range(count)]
    if picture is not None and len(signature) == 1 and _is_image(signature[0][1]):
        found += [[as_input(piece, signature[0][2])] for piece in pieces(picture, signature[0][1])]
    return found


def _random(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    if dtype.startswith("float"):
        return rng.standard_normal(shape).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype, endpoint=True)


def _is_image(shape: Sequence[Any]) -> bool:
    return len(shape) == 4 and shape[0] == 1 and shape[3] in (1, 3) and min(shape[1:3]) >= 32


def pieces(picture: Path, shape: Sequence[Any]) -> Iterator[Array]:
    """The whole picture first, then squares from all over it, as bytes of that shape (1, height, width, 1 or 3)."""
    from PIL import Image

    rng = np.random.default_rng(1)
    with Image.open(picture) as opened:
        image = opened.convert("RGB" if shape[3] == 3 else "L")
    for k in range(PIECES):
        side = min(image.size) if k == 0 else int(rng.integers(min(image.size) // 4, min(image.size)))
        left, top = (int(rng.integers(0, s - side + 1)) for s in image.size)
        part = image if k == 0 else image.crop((left, top, left + side, top + side))
        yield np.asarray(part.resize((shape[2], shape[1]))).reshape(tuple(shape))


def as_input(picture: Array, dtype: str) -> Array:
    """Bytes of a picture as a network takes them: as they are, less 128, or from -1 to 1."""
    if dtype == "uint8":
        return picture
    return (picture.astype(np.int16) - 128).astype(np.int8) if dtype == "int8" else (
        picture / np.float32(127.5) - 1
    ).astype(dtype)


def agreement(path: Path, count: int, litert: str, micro: str = "", picture: Path | None = None) -> Row:
    """Our answers beside those of the kernels. Raises `CompileError` where we refuse the file."""
    import tilewright
    from tilewright.relay.frontend.tflite import signature

    inputs = inputs_of(signature(path), count, picture)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = tilewright.compile(path, threads=1)
        ours = [_several(compiled(*x)) for x in inputs]
    row = Row(path.stem, "LiteRT", len(inputs))
    try:
        theirs = answers(REFERENCE, litert, path, inputs, len(ours[0]))
    except RefusedError as refused:
        row.runtime, row.why = "none", str(refused)
        if not micro:
            return row
        theirs, row.runtime, row.why = answers(MICRO, micro, path, inputs, len(ours[0])), "tflite-micro", ""
    for found, wanted in zip(ours, theirs, strict=True):
        for a, b in zip(found, wanted, strict=True):
            row.add(np.asarray(a), b)
    return row


def _several(found: Any) -> list[Any]:
    return list(found) if isinstance(found, tuple) else [found]


def seen(path: Path, picture: Path, labels: Sequence[str]) -> list[str]:
    """The three classes that a classifier finds likeliest in the picture; nothing where it has other classes than there
    are labels."""
    import tilewright
    from tilewright.relay.frontend.tflite import signature

    inputs = signature(path)
    if len(inputs) != 1 or not _is_image(inputs[0][1]):
        return []
    scores = _several(
        tilewright.compile(path, threads=1)(as_input(next(pieces(picture, inputs[0][1])), inputs[0][2]))
    )[0].reshape(-1)
    return [labels[k] for k in np.argsort(scores)[::-1][:3]] if len(scores) == len(labels) else []


def main() -> int:
    """Print a line for each file; 1 when an element differs, a file has no answer to compare with, or the picture shows
    something else."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path, help=".tflite files, or folders of them")
    parser.add_argument("--inputs", type=int, default=100, help="how many random inputs")
    parser.add_argument("--litert", default=sys.executable, help="a Python that has ai_edge_litert")
    parser.add_argument("--micro", default="", help="a Python that has tflite_micro")
    parser.add_argument("--picture", type=Path, help="a picture whose pieces are inputs of networks of images")
    parser.add_argument("--labels", type=Path, help="a file with a line for each class")
    parser.add_argument("--shows", default="cat", help="what is in the label of what is in the picture")
    parser.add_argument("--json", type=Path, help="write the findings to this file")
    options = parser.parse_args()
    files = [f for m in options.models for f in (sorted(m.glob("*.tflite")) if m.is_dir() else [m])]
    print(f"{'model':40} {'runtime':14} {'inputs':>6} {'elements':>9} {'differing':>9} {'largest':>8}")
    rows: list[Row] = []
    for path in files:
        rows.append(agreement(path, options.inputs, options.litert, options.micro, options.picture))
        print(rows[-1].line(), flush=True)
    others = 0
    if options.picture and options.labels:
        labels = options.labels.read_text(encoding="utf-8").splitlines()
        for path in files:
            best = seen(path, options.picture, labels)
            others += bool(best) and not any(options.shows in label for label in best)
            print(
                f"{path.stem} sees in {options.picture.name}: {', '.join(best)}" if best
                else f"{path.stem} has other classes"
            )
    if options.json:
        options.json.write_text(json.dumps([dataclasses.asdict(r) for r in rows], indent=1))
    return 1 if others or any(r.differing or r.why for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
