"""The TFLite frontend: `from_tflite`, and `register_converter` for custom operators."""

from __future__ import annotations

from tilewright.relay.frontend.core.registry import families
from tilewright.relay.frontend.tflite.importer import from_tflite
from tilewright.relay.frontend.tflite.node import Node, Value
from tilewright.relay.frontend.tflite.registry import CONVERTERS
from tilewright.relay.frontend.tflite.registry import converter as register_converter
from tilewright.relay.frontend.tflite.signature import signature

FAMILIES = families(
    __name__,
    "activations arithmetic control conv detection elementwise hash_tables image indexing matmul movement pool "
    "quantize random recurrent reductions spectra")
"""The modules of converters; importing them fills the table."""

__all__ = ["CONVERTERS", "FAMILIES", "Node", "Value", "from_tflite", "register_converter", "signature"]
