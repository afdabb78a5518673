"""Networks and pictures for tests of what is shipped: a small one of integers, and a trained one that knows cats."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import numpy as np

from tilewright import relay
from tilewright.relay import nn
from tilewright.relay.expr import Function, const, var

_BESIDE: Final = Path(__file__).parent.parent.parent / "shared" / "models"
MODELS_FOLDER: Final = Path(os.environ.get("TILEWRIGHT_TFLITE_MODELS", _BESIDE))
"""Where trained networks are looked for: beside this project, or where the variable says."""
MOBILENET: Final = MODELS_FOLDER / "mobilenet_v1_0.25_224_quant.tflite"
CAT: Final = MODELS_FOLDER / "cat.jpg"
CATS: Final = range(282, 287)
"""The domestic cats among its 1001 classes, from tabby to Egyptian."""


def cat_pixels() -> np.ndarray[Any, Any]:
    """The cat as the network takes it: uint8 of shape (1, 224, 224, 3)."""
    from PIL import Image

    with Image.open(CAT) as image:
        return np.asarray(image.convert("RGB").resize((224, 224)))[None]


def small_network() -> Function:
    """Bytes by bytes, sums of 32 bits, and back: equal bits on every processor."""
    random = np.random.default_rng(3)
    x = var("x", shape=(2, 9, 9, 8), dtype="uint8")
    weight = const(random.integers(-128, 128, (3, 3, 8, 16)).astype(np.int8))
    y = nn.conv2d(x, weight, data_layout="NHWC", kernel_layout="HWIO", padding=(1, 1), out_dtype="int32")
    y = relay.qnn.op.requantize(
        y, const(np.float32(0.02)), const(np.int32(0)), const(np.float32(0.9)), const(np.int32(3)), out_dtype="int8"
    )
    return Function((x,), nn.max_pool2d(y, (2, 2), (2, 2), layout="NHWC"))
