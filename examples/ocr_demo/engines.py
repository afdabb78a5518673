"""Who computes: Tilewright, or ONNX Runtime to compare with. Both take a model file and a shape and give a function."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Network = Callable[[NDArray[np.float32]], NDArray[Any]]
Engine = Callable[[Path, tuple[int, ...]], Network]


def tilewright(path: Path, shape: tuple[int, ...]) -> Network:
    """The model compiled for one thread and inputs of `shape`."""
    import tilewright

    network: Network = tilewright.compile(path, shapes={"x": shape}, threads=1)
    return network


def onnxruntime(path: Path, shape: tuple[int, ...]) -> Network:
    """The model in ONNX Runtime's CPU provider on one thread; it takes any shape."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def run(x: NDArray[np.float32]) -> NDArray[Any]:
        answer: NDArray[Any] = session.run(None, {"x": x})[0]
        return answer

    return run
