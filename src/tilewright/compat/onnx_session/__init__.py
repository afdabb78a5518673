"""ONNX Runtime's door to Tilewright: programs written for `onnxruntime.InferenceSession` run with one line changed.

    import tilewright.onnx_session as onnxruntime

    session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    y, = session.run(None, {"x": x})
"""

from __future__ import annotations

from tilewright.compat.onnx_session.options import ExecutionMode, GraphOptimizationLevel, RunOptions, SessionOptions
from tilewright.compat.onnx_session.session import InferenceSession, IOBinding
from tilewright.compat.onnx_session.values import ModelMetadata, NodeArg, OrtValue


def get_available_providers() -> list[str]:
    """Under ONNX Runtime's names: code is compiled for the CPU."""
    return ["CPUExecutionProvider"]


def get_all_providers() -> list[str]:
    """The same."""
    return get_available_providers()


def get_device() -> str:
    """Where models run."""
    return "CPU"


def set_default_logger_severity(severity: int) -> None:
    """Taken and without effect: see `tilewright.logs`."""


__all__ = [
    "ExecutionMode", "GraphOptimizationLevel", "IOBinding", "InferenceSession", "ModelMetadata", "NodeArg", "OrtValue",
    "RunOptions", "SessionOptions",
    "get_all_providers", "get_available_providers", "get_device", "set_default_logger_severity",
]
