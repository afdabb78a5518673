"""Quantized files that nobody gives away as they are needed: a network of MLPerf Tiny, a file that other runtimes do not open, corrected, and
a transformer that is quantized while it runs."""

from __future__ import annotations

import itertools
import struct
import sys
from pathlib import Path

import numpy as np

import models

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

_WIDTHS = (640, 128, 128, 128, 128, 8, 128, 128, 128, 128, 640)
_SLOT_OF_DIMENSION = 16
"""`quantized_dimension` in the table `QuantizationParameters`: its seventh field."""


def anomaly_detection() -> Path:
    """AD01 of MLPerf Tiny: an autoencoder of ten dense layers, int8, with random weights of a fixed seed."""
    path = models.folder() / "ad01_int8.tflite"
    if path.exists():
        return path
    from tflite_models import Op, T, model

    random = np.random.default_rng(0)
    tensors, operators = [T("x", (1, _WIDTHS[0]), "int8", None, 0.05, 3)], []
    for k, (wide, out) in enumerate(itertools.pairwise(_WIDTHS)):
        last, given = k == len(_WIDTHS) - 2, len(tensors) - 1
        scale = 0.02 / wide**0.5
        w = T(f"w{k}", (out, wide), "int8", random.integers(-127, 128, (out, wide)).astype(np.int8), scale)
        b = T(f"b{k}", (out,), "int32", random.integers(-500, 500, out).astype(np.int32), 0.05 * scale)
        tensors += [w, b, T(f"y{k}", (1, out), "int8", None, 0.05, 3 if last else -128)]
        values = {"FusedActivationFunction": 0 if last else 1}
        operators.append(Op("FULLY_CONNECTED", [given, given + 1, given + 2], [given + 3], "FullyConnectedOptions", values))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model(tensors, operators, [0], [len(tensors) - 1]))
    return path


def corrected(path: Path) -> Path:
    """A copy of a file whose biases say that they are quantized along a dimension that they do not have; others refuse it for that."""
    from tflite.Model import Model

    content = bytearray(path.read_bytes())
    graph = Model.GetRootAs(content, 0).Subgraphs(0)
    for k in range(graph.TensorsLength()):
        tensor = graph.Tensors(k)
        quantization = tensor.Quantization()
        if quantization is not None and quantization.QuantizedDimension() >= max(1, tensor.ShapeLength()):
            table = quantization._tab
            struct.pack_into("<i", content, table.Pos + table.Offset(_SLOT_OF_DIMENSION), 0)
    copy = models.folder() / f"{path.stem}_corrected.tflite"
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_bytes(content)
    return copy


def dynamic() -> Path:
    """MiniLM with its products quantized dynamically: DynamicQuantizeLinear, MatMulInteger, a scale for each column."""
    path = models.folder() / "minilm_l6_dynamic.onnx"
    if not path.exists():
        from onnxruntime.quantization import QuantType, quantize_dynamic

        quantize_dynamic(models.ensure("minilm_l6"), path, weight_type=QuantType.QInt8, per_channel=True)
    return path
