"""Reads one line of text: what goes into the recogniser, and how its probabilities become letters.

The recogniser gives, for every eighth column of pixels, a probability for each letter of its alphabet and for "no
letter". The likeliest one is taken in each column, repeated letters are merged, and blanks dropped: greedy decoding of
connectionist temporal classification (Graves et al., 2006).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from .detect import Box

HEIGHT = 48
WIDTH_STEP = 320  # a compiled network is made for one shape, so widths are rounded up to few different ones


def alphabet(path: Path) -> list[str]:
    """The letters in the order of the network's output; the first one stands for "no letter"."""
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def prepare(image: Image.Image, box: Box) -> NDArray[np.float32]:
    """The part of the picture in `box` as the recogniser wants it: (1, 3, 48, W), scaled to -1..1, padded with 0."""
    part = image.crop((box.left, box.top, box.right, box.bottom))
    width = max(1, round(part.width * HEIGHT / part.height))
    pixels = np.asarray(part.resize((width, HEIGHT), Image.Resampling.BILINEAR), np.float32)[:, :, ::-1]
    padded = np.zeros((1, 3, HEIGHT, -(-width // WIDTH_STEP) * WIDTH_STEP), np.float32)
    padded[0, :, :, :width] = (pixels / np.float32(127.5) - 1).transpose(2, 0, 1)
    return padded


def decode(probability: NDArray[np.float32], letters: list[str]) -> tuple[str, float]:
    """The text that the (T, letters) matrix spells, and the mean probability of its letters (0 for an empty text)."""
    best = probability.argmax(axis=1)
    starts = np.flatnonzero((best != 0) & (best != np.concatenate(([0], best[:-1]))))
    if not len(starts):
        return "", 0.0
    return "".join(letters[best[t]] for t in starts), float(probability[starts, best[starts]].mean())
