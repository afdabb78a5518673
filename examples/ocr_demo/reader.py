"""The two networks together: a picture goes in, lines of text come out."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from . import detect, recognise
from .engines import Engine, Network


@dataclass(frozen=True)
class Read:
    """A line of text, where it stands, and how sure the recogniser is of its letters (0..1)."""

    text: str
    confidence: float
    box: detect.Box


@dataclass
class Reader:
    """Reads pictures with networks made by `engine`, one for each shape that occurs; `given` is what each was given
    first."""

    engine: Engine
    detector: Path
    recogniser: Path
    letters: list[str]
    networks: dict[tuple[Path, tuple[int, ...]], Network] = field(default_factory=dict)
    given: dict[tuple[Path, tuple[int, ...]], NDArray[np.float32]] = field(default_factory=dict)

    def run(self, model: Path, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """The output of `model` for `x`."""
        key = (model, x.shape)
        if key not in self.networks:
            self.networks[key] = self.engine(model, x.shape)
            self.given[key] = x
        return self.networks[key](x)

    def find(self, image: Image.Image) -> list[detect.Box]:
        """Where there is text."""
        return detect.boxes(self.run(self.detector, detect.prepare(image))[0, 0])

    def read(self, image: Image.Image) -> list[Read]:
        """The lines of the picture, top to bottom."""
        lines = []
        for box in self.find(image):
            probability = self.run(self.recogniser, recognise.prepare(image, box))[0]
            lines.append(Read(*recognise.decode(probability, self.letters), box))
        return lines
