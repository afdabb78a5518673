"""The ONNX frontend: `from_onnx`, and `register_converter` for operators of your own."""

from __future__ import annotations

from tilewright.relay.frontend.onnx import (
    control,
    linear,
    loops,
    math,
    nn,
    quantize,
    recurrent,
    reduce,
    resize,
    sampling,
    sequences,
    transform,
)
from tilewright.relay.frontend.onnx.importer import from_onnx
from tilewright.relay.frontend.onnx.node import Node
from tilewright.relay.frontend.onnx.registry import CONVERTERS
from tilewright.relay.frontend.onnx.registry import converter as register_converter
from tilewright.relay.frontend.onnx.signature import signature

FAMILIES = (control, linear, loops, math, nn, quantize, recurrent, reduce, resize, sampling, sequences, transform)
"""The modules whose import fills the table of converters."""

__all__ = ["CONVERTERS", "FAMILIES", "Node", "from_onnx", "register_converter", "signature"]
