"""The operators of quantized tensors as functions: `relay.qnn.op.conv2d(data, kernel, …)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.errors import Origin
from tilewright.relay.expr import Call
from tilewright.relay.op.registry import operator_names, public_function
from tilewright.relay.qnn.scaling import Quantize


def quantize(
    data: Any, output_scale: Any, output_zero_point: Any, axis: int = -1, out_dtype: str = "int8", span: Origin | None = None
) -> Call:
    """`data` as integers of a scale and a zero point; see the operator `qnn.quantize`, whose text has the dtype first."""
    return Quantize(out_dtype, axis)(data, output_scale, output_zero_point, span=span)


def __getattr__(name: str) -> Callable[..., Any]:
    return public_function("qnn." + name, __name__)


def __dir__() -> list[str]:
    return operator_names("qnn.")
