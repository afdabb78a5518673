"""A trained network of images, quantized by a picture and parts of it: it sees the same as the float network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewright as tvm

SHARED = Path(__file__).parent.parent.parent / "shared" / "models"
MODEL, PICTURE = SHARED / "efficientnet_lite0.onnx", SHARED / "cat.jpg"


@pytest.mark.models
@pytest.mark.skipif(
    not MODEL.exists() or not PICTURE.exists(), reason=f"there is no {MODEL.name} or {PICTURE.name} in {SHARED}"
)
def test_a_trained_network_sees_the_same() -> None:
    from PIL import Image

    random, whole = np.random.default_rng(0), Image.open(PICTURE).convert("RGB")
    parts = [whole]
    for _ in range(7):
        size = int(min(whole.size) * random.uniform(0.5, 0.66))
        left, top = (int(random.integers(0, n - size)) for n in whole.size)
        parts.append(whole.crop((left, top, left + size, top + size)))
    images = np.stack([((np.asarray(p.resize((224, 224)), np.float32) - 127) / 128).transpose(2, 0, 1) for p in parts])
    found = tvm.quantize(MODEL, images, bias_correction=True)
    assert found.report.error < 0.1
    assert all(e.quantized for e in found.report.layers)
    compiled, plain = found.compile(), tvm.compile(MODEL)
    for x in images:
        y, wanted = compiled(x[None])[0], plain(x[None])[0]
        assert y.argmax() == wanted.argmax()
    y, wanted = compiled(images[:1])[0], plain(images[:1])[0]
    assert len(set(np.argsort(y)[-5:]) & set(np.argsort(wanted)[-5:])) >= 4
