"""The operators of quantized tensors as functions: `relay.qnn.op.conv2d(data, kernel, …)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.relay.op.hooks import register_qnn_legalize
from tilewright.relay.op.registry import operator_names, public_function

__all__ = ["register_qnn_legalize"]


def __getattr__(name: str) -> Callable[..., Any]:
    return public_function("qnn." + name, __name__)


def __dir__() -> list[str]:
    return [*__all__, *operator_names("qnn.")]
