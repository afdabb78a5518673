"""Decoding of image files with Pillow (ONNX ImageDecoder). Runs in Python, because the size is in the file."""

from __future__ import annotations

import io
from typing import Final

import numpy as np

from tilewright.base.errors import InputError, ShapeError
from tilewright.base.types import TensorType, Type
from tilewright.relay.op.registry import Array, Fusion, Op, op, tensors
from tilewright.scalar.expr import UnknownDim

_CHANNELS: Final = {"RGB": 3, "BGR": 3, "Grayscale": 1}


@op("image.decode", kind=Fusion.OPAQUE)
class DecodeImage(Op):
    """The pixels (height, width, channels), uint8, of an image file whose bytes are a vector of uint8 (ONNX
    ImageDecoder).

    Formats: JPEG, PNG, BMP, TIFF, WebP, PNM, JPEG 2000. Raises `InputError` at run time for bytes of no known format.
    """

    pixel_format: str = "RGB"
    """Order of the channels: "RGB", "BGR" or "Grayscale"."""

    def infer(self, encoded: Type) -> TensorType:
        """(height, width, channels) of unknown height and width; uint8. The input is a vector of uint8."""
        (t,) = tensors(encoded)
        if t.ndim != 1 or t.dtype != "uint8":
            raise ShapeError(f"the bytes of a file were expected, a vector of uint8, and this is {t!r}")
        if self.pixel_format not in _CHANNELS:
            raise ShapeError(f"pixel_format is {self.pixel_format!r}; it must be one of {', '.join(_CHANNELS)}")
        return TensorType((UnknownDim(), UnknownDim(), _CHANNELS[self.pixel_format]), "uint8")

    def reference(self, encoded: Array) -> Array:
        from PIL import Image

        try:
            with Image.open(io.BytesIO(encoded.tobytes())) as image:
                pixels = np.asarray(image.convert("L" if self.pixel_format == "Grayscale" else "RGB"))
        except OSError as error:
            raise InputError(f"the bytes cannot be decoded as an image: {error}", code="TW0712") from None
        shaped = pixels.reshape(*pixels.shape[:2], _CHANNELS[self.pixel_format])
        return np.ascontiguousarray(shaped[..., ::-1]) if self.pixel_format == "BGR" else shaped
