"""TVM's `tvm.contrib.tflite_runtime`: runs a TFLite model with TensorFlow's own interpreter, for comparison.

    module = create(open("model.tflite", "rb").read(), tvm.cpu())
    module.set_input(0, x); module.invoke(); module.get_output(0)

`relay.frontend.from_tflite` compiles such a model instead.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

import numpy as np

from tilewright.base.errors import InputError, PackageError, TargetError
from tilewright.base.nd import Device, NDArray, array, as_numpy

__all__ = ["TFLiteModule", "create"]

_PACKAGES: Final = ("ai_edge_litert.interpreter", "tflite_runtime.interpreter", "tensorflow.lite")
"""Modules that have an interpreter of TFLite models, the smallest package first."""


def create(tflite_model_bytes: bytes, device: Device, runtime_target: str = "cpu") -> TFLiteModule:
    """Return a model that runs on this machine's CPU.

    Raises `PackageError` without an interpreter, and `TargetError` for another runtime target, such as `edge_tpu`.
    """
    if runtime_target != "cpu":
        raise TargetError(
            f"the runtime target of a TFLite model is '{runtime_target}'; only 'cpu' is here", code="TW0502")
    for name in _PACKAGES:
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        return TFLiteModule(module.Interpreter(model_content=bytes(tflite_model_bytes)), device)
    raise PackageError("an interpreter of TFLite models is not installed; `pip install ai-edge-litert`")


class TFLiteModule:
    """A model with its own input and output arrays."""

    def __init__(self, interpreter: Any, device: Device | None = None) -> None:
        self.interpreter, self.device = interpreter, (device or Device()).require()
        interpreter.allocate_tensors()

    def set_input(self, index: int, value: Any) -> None:
        """Copy an array into an input. Raises `InputError` for an unknown input."""
        self.interpreter.set_tensor(_tensor(self.interpreter.get_input_details(), index, "input"), as_numpy(value))

    def set_num_threads(self, num_threads: int) -> None:
        """Raise `InputError`: the number of threads of an interpreter is fixed when it is made."""
        raise InputError("the number of threads of a TFLite interpreter cannot be changed later", code="TW0708")

    def invoke(self) -> None:
        """Compute the outputs."""
        self.interpreter.invoke()

    def get_output(self, index: int) -> NDArray:
        """Return a copy of an output. Raises `InputError` for an unknown output."""
        number = _tensor(self.interpreter.get_output_details(), index, "output")
        return array(np.array(self.interpreter.get_tensor(number)), self.device)


def _tensor(details: Any, index: int, what: str) -> int:
    """Return the number of a tensor in the model."""
    if not 0 <= index < len(details):
        raise InputError(f"the model has no {what} {index}; it has {len(details)}", code="TW0707")
    return int(details[index]["index"])
