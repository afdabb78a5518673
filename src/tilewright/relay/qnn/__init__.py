"""QNN: operators of quantized tensors, where a value is `scale * (q - zero_point)`.

`relay.qnn.op.conv2d`, `quantize`, `requantize`, … have the field's names, arguments and attributes. Each has its numpy
meaning and says with which plain operators it is computed (`Op.simplify`); nothing after that knows of quantization.
The passes, `relay.qnn.transform`, are imported when they are first used.
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
