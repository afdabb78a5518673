"""The runtimes that are compared: one function each that loads a model file and gives something to call.

Everybody computes on the CPU, in float32 unless `Precision` says otherwise, with the same number of threads, and gets
and gives numpy arrays.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Inputs = dict[str, NDArray[Any]]
Run = Callable[[Inputs], list[NDArray[Any]]]
MIXED = {"f32": "", "bf16": "bfloat16"}
"""The precisions that can be compared, and what mixed precision is called for them."""


def tilewright(path: Path, inputs: Inputs, threads: int, precision: str = "f32") -> Run:
    """This project, compiled for the shapes of `inputs`; the function's `report` holds the seconds of each phase."""
    import tilewright

    model = tilewright.compile(
        path, shapes={name: array.shape for name, array in inputs.items()}, threads=threads,
        mixed_precision=MIXED[precision]
    )
    several = len(model.outputs) > 1

    def run(feed: Inputs) -> list[NDArray[Any]]:
        answer = model(*feed.values())
        return list(answer) if several else [answer]

    run.report = dict(model.report.phases)  # type: ignore[attr-defined]
    return run


def onnxruntime(path: Path, inputs: Inputs, threads: int, precision: str = "f32") -> Run:
    """ONNX Runtime's CPU provider with all graph optimisations (its default); float32 always."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda feed: session.run(None, feed)


def litert(path: Path, inputs: Inputs, threads: int, precision: str = "f32") -> Run:
    """LiteRT (TensorFlow Lite) with XNNPACK, as it comes. It reads .tflite alone."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path), num_threads=threads)
    interpreter.allocate_tensors()
    places = [d["index"] for d in interpreter.get_input_details()]
    results = [d["index"] for d in interpreter.get_output_details()]

    def run(feed: Inputs) -> list[NDArray[Any]]:
        for place, array in zip(places, feed.values(), strict=True):
            interpreter.set_tensor(place, array)
        interpreter.invoke()
        return [interpreter.get_tensor(index) for index in results]

    return run


def openvino(path: Path, inputs: Inputs, threads: int, precision: str = "f32") -> Run:
    """OpenVINO's CPU plug-in, for the shapes of `inputs`, tuned for latency; but for f32, in the precision that it
    chooses."""
    import openvino

    core = openvino.Core()
    model = core.read_model(path)
    model.reshape({name: list(array.shape) for name, array in inputs.items()})
    hints = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads} | (
        {"INFERENCE_PRECISION_HINT": "f32"} if precision == "f32" else {}
    )
    compiled = core.compile_model(model, "CPU", hints)
    request = compiled.create_infer_request()

    def run(feed: Inputs) -> list[NDArray[Any]]:
        answers = request.infer(feed, share_inputs=True, share_outputs=True)
        return [np.asarray(answers[port]) for port in compiled.outputs]

    return run


LOADERS: dict[str, Callable[[Path, Inputs, int, str], Run]] = {
    "tilewright": tilewright,
    "onnxruntime": onnxruntime,
    "openvino": openvino,
    "litert": litert,
}
SHORT = {"ort": "onnxruntime", "ov": "openvino"}
PACKAGES = {"litert": "ai_edge_litert"}
"""What a runtime's package is called, where that is not its name."""


def installed(names: list[str]) -> list[str]:
    """Those of `names` (short ones allowed) that can be imported here; raises `KeyError` for a runtime that is not
    known."""
    full = [SHORT.get(name, name) for name in names]
    for name in full:
        LOADERS[name]
    return [name for name in full if importlib.util.find_spec(PACKAGES.get(name, name)) is not None]
