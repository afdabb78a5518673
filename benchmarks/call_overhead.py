"""What a call costs beside the work: a model of one operator on 16 floats, from Python.

    python benchmarks/call_overhead.py

Microseconds for each call, the fastest of many measurements, beside the same call of ONNX Runtime where it is
installed.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto, helper

import tilewright

_CALLS = 20_000
_REPEATS = 15


def model() -> bytes:
    """relu on 16 floats."""
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [16]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", [x], [y])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 10
    return bytes(made.SerializeToString())


def microseconds(call: Callable[[], Any]) -> float:
    return min(timeit.repeat(call, number=_CALLS, repeat=_REPEATS)) / _CALLS * 1e6


def main() -> None:
    content = model()
    compiled = tilewright.compile(content, threads=1)
    run = compiled.executable
    x, y = np.linspace(-1, 1, 16, dtype=np.float32), np.empty(16, np.float32)
    if not np.array_equal(compiled(x), np.maximum(x, 0)):
        raise SystemExit("the answer is wrong")
    rows = {
        "executable(x)": lambda: run(x),
        "executable(x, out=y)": lambda: run(x, out=y),
        "model(x)": lambda: compiled(x),
        "model(x=x)": lambda: compiled(x=x),
        "model({'x': x})": lambda: compiled({"x": x}),
    }
    try:
        import onnxruntime

        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        rows["ONNX Runtime, run"] = lambda: session.run(None, {"x": x})
    except ImportError:
        pass
    for name, call in rows.items():
        print(f"{name:24} {microseconds(call):6.2f} us")


if __name__ == "__main__":
    main()
