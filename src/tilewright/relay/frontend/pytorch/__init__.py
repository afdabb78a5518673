"""The PyTorch frontend: `from_pytorch`, and `register_converter` for custom operators."""

from __future__ import annotations

from tilewright.relay.frontend.core.registry import families
from tilewright.relay.frontend.pytorch.model import (
    ImportedGraph,
    Input,
    Output,
    from_graph,
    from_pytorch,
    from_shapes,
    operators,
    signature,
)
from tilewright.relay.frontend.pytorch.node import Node
from tilewright.relay.frontend.pytorch.registry import CONVERTERS
from tilewright.relay.frontend.pytorch.registry import converter as register_converter

FAMILIES = families(
    __name__,
    "attention complex_numbers create fft indexing linalg linear losses math nn padding pooling quantize "
    "quantize_functions quantize_layers recurrent reduce resize selection signal special transform vision")
"""The modules of converters; importing them fills the table."""

__all__ = ["CONVERTERS", "FAMILIES", "ImportedGraph", "Input", "Node", "Output", "from_graph", "from_pytorch",
           "from_shapes", "operators", "register_converter", "signature"]
