"""The ONNX frontend: `from_onnx`, and `register_converter` for custom operators."""

from __future__ import annotations

from tilewright.relay.frontend.core.registry import families
from tilewright.relay.frontend.onnx import classic
from tilewright.relay.frontend.onnx.functions import unknown_operators
from tilewright.relay.frontend.onnx.importer import from_onnx
from tilewright.relay.frontend.onnx.node import Node
from tilewright.relay.frontend.onnx.registry import CONVERTERS
from tilewright.relay.frontend.onnx.registry import converter as register_converter
from tilewright.relay.frontend.onnx.signature import signature

FAMILIES = families(
    __name__,
    "contrib_attention contrib_fused contrib_quantized control early gradient linear loops math nn placing quantize "
    "random recurrent reduce resize sampling sequences training transform",
) + classic.FAMILIES
"""The modules of converters; importing them fills the table."""

__all__ = ["CONVERTERS", "FAMILIES", "Node", "from_onnx", "register_converter", "signature", "unknown_operators"]
