"""QNN: operators of quantized tensors, where a value is `scale * (q - zero_point)`.

`relay.qnn.op.conv2d`, `quantize`, `requantize`, … have TVM's names, arguments and attributes. Each has a numpy
reference and a lowering to plain operators (`Op.simplify`), after which quantization is no longer visible. The passes,
`relay.qnn.transform`, are imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tilewright.relay.qnn import arithmetic, functions, op, products, scaling

if TYPE_CHECKING:
    from tilewright.relay.qnn import transform

__all__ = ["arithmetic", "functions", "op", "products", "scaling", "transform"]


def __getattr__(name: str) -> Any:
    if name == "transform":
        return importlib.import_module("tilewright.relay.qnn.transform")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'", name=name)
