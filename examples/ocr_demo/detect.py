"""Finds lines of text: what goes into the detector, and how its map of probabilities becomes boxes.

The map says for each pixel how likely it lies in the *kernel* of a line, which is the line shrunk so that neighbours do
not touch. A box is the frame of one connected region of the map, grown back by the distance that the shrinking took
away (differentiable binarization: Liao et al., 2020, arXiv:1911.08947). Boxes are upright: this picture is not rotated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

MEAN = np.array([0.485, 0.456, 0.406], np.float32)
SPREAD = np.array([0.229, 0.224, 0.225], np.float32)
STRIDE = 32  # the detector halves the picture five times


@dataclass(frozen=True)
class Box:
    """An upright frame in pixels, right and bottom exclusive, and the mean probability of what is in it."""

    left: int
    top: int
    right: int
    bottom: int
    score: float


def prepare(image: Image.Image) -> NDArray[np.float32]:
    """The picture as the detector wants it: (1, 3, H, W), padded with white to whole strides."""
    width, height = (-(-side // STRIDE) * STRIDE for side in image.size)
    paper = Image.new("RGB", (width, height), "white")
    paper.paste(image)
    pixels = np.asarray(paper, np.float32)[:, :, ::-1] / np.float32(255)  # trained on blue, green, red
    return np.ascontiguousarray(((pixels - MEAN) / SPREAD).transpose(2, 0, 1)[None])


def boxes(
    probability: NDArray[np.float32], *, threshold: float = 0.3, keep: float = 0.6, grow: float = 1.5, smallest: int = 4
) -> list[Box]:
    """Boxes of the (H, W) map, top to bottom and then left to right; `keep` is the least mean probability of a box."""
    height, width = probability.shape
    found = []
    for left, top, right, bottom in regions(probability > threshold):
        wide, high = right - left, bottom - top
        if min(wide, high) < smallest:
            continue
        score = float(probability[top:bottom, left:right].mean())
        if score < keep:
            continue
        more = round(wide * high * grow / (2 * (wide + high)))
        found.append(
            Box(max(0, left - more), max(0, top - more), min(width, right + more), min(height, bottom + more), score)
        )
    return sorted(found, key=lambda box: (box.top, box.left))


def regions(mask: NDArray[np.bool_]) -> list[tuple[int, int, int, int]]:
    """Frames (left, top, right, bottom) of the regions of `mask` that hang together by sides or corners.

    Works on the runs of each row, of which there are few, instead of on pixels.
    """
    edges = np.diff(np.pad(mask, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    rows, starts = np.nonzero(edges == 1)
    ends = np.nonzero(edges == -1)[1]
    parent = list(range(len(rows)))

    def root(run: int) -> int:
        while parent[run] != run:
            parent[run] = parent[parent[run]]
            run = parent[run]
        return run

    first_of_row = np.searchsorted(rows, np.arange(mask.shape[0] + 1))
    for run, (row, start, end) in enumerate(zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True)):
        if row == 0:
            continue
        for above in range(first_of_row[row - 1], first_of_row[row]):
            if starts[above] <= end and start <= ends[above]:
                parent[root(above)] = root(run)
    frames: dict[int, list[int]] = {}
    for run, (row, start, end) in enumerate(zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True)):
        frame = frames.setdefault(root(run), [start, row, end, row + 1])
        frame[0], frame[2], frame[3] = min(frame[0], start), max(frame[2], end), row + 1
    return [(left, top, right, bottom) for left, top, right, bottom in frames.values()]
