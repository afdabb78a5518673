"""The table of ONNX converters, by domain and operator; the domain of ONNX itself is ''."""

from __future__ import annotations

from typing import Final

from tilewright.relay.frontend.core.registry import Converters, Terms

CONVERTERS: Final = Converters(
    "onnx", "tilewright.relay.frontend.onnx.register_converter",
    Terms(ignored=frozenset({"consumed_inputs"}), needs_one=True),  # an opset 1 hint to the executor
    domains={"ai.onnx": ""})
converter: Final = CONVERTERS.converter
domain_of: Final = CONVERTERS.domain_of
