"""ONNX Runtime's interface: programs written for `onnxruntime.InferenceSession` run with one changed line.

    import tilewright.onnx_session as onnxruntime

    session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    y, = session.run(None, {"x": x})
"""

from __future__ import annotations

from tilewright.compat.onnx_session.options import ExecutionMode, GraphOptimizationLevel, RunOptions, SessionOptions
from tilewright.compat.onnx_session.session import InferenceSession, IOBinding
from tilewright.compat.onnx_session.values import ModelMetadata, NodeArg, OrtValue


def get_available_providers() -> list[str]:
    """Return ONNX Runtime's name of the only provider, the CPU."""
    return ["CPUExecutionProvider"]


def get_all_providers() -> list[str]:
    """Return `get_available_providers()`."""
    return get_available_providers()


def get_device() -> str:
    """Return the device on which models run."""
    return "CPU"


def set_default_logger_severity(severity: int) -> None:
    """Accept a severity without effect; `tilewright.logs` configures logging."""


__all__ = [
    "ExecutionMode", "GraphOptimizationLevel", "IOBinding", "InferenceSession", "ModelMetadata", "NodeArg", "OrtValue",
    "RunOptions", "SessionOptions",
    "get_all_providers", "get_available_providers", "get_device", "set_default_logger_severity",
]
