"""Quantized files that nobody gives away as they are needed: a network of MLPerf Tiny, a file that other runtimes do
not open, corrected, a transformer that is quantized while it runs, and an ONNX network of bytes as a TFLite file."""

from __future__ import annotations

import itertools
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

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
        operators.append(
            Op("FULLY_CONNECTED", [given, given + 1, given + 2], [given + 3], "FullyConnectedOptions", values)
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model(tensors, operators, [0], [len(tensors) - 1]))
    return path


def corrected(path: Path) -> Path:
    """A copy of a file whose biases say that they are quantized along a dimension that they do not have; others refuse
    it for that."""
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


# An ONNX network of bytes as a TFLite file


@dataclass
class _Described:
    """A network as `quantized_writers.to_tflite` takes it."""

    input: Any
    layers: list[Any] = field(default_factory=list)

    @property
    def output(self) -> Any:
        return self.layers[-1].output


def as_tflite(name: str) -> Callable[[], Path]:
    """A function that writes the ONNX model `name` of `models.py`, QDQ of convolutions, sums and pools, as a TFLite
    file with the same integers and scales."""

    def write() -> Path:
        path = models.folder() / f"{name}_tflite.tflite"
        if not path.exists():
            import onnx

            from quantized_networks import Network
            from quantized_writers import to_tflite

            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(
                to_tflite(
                    cast(Network, _Qdq(onnx.shape_inference.infer_shapes(onnx.load(models.ensure(name)))).network())
                )
            )
        return path

    return write


class _Qdq:
    """An ONNX graph of operators between `DequantizeLinear` and `QuantizeLinear`, read in order."""

    def __init__(self, model: Any) -> None:
        from onnx import numpy_helper

        self.graph = model.graph
        self.stored = {t.name: numpy_helper.to_array(t) for t in self.graph.initializer}
        shapes = [*self.graph.value_info, *self.graph.input, *self.graph.output]
        self.shapes = {v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in shapes}
        self.bytes: dict[str, Any] = {}
        """The value that a tensor of bytes is, and the tensor of real numbers behind it."""
        self.weights: dict[str, tuple[Any, Any]] = {}

    def network(self) -> _Described:
        made: _Described | None = None
        real: dict[str, Any] = {}
        for node in self.graph.node:
            if node.op_type == "DequantizeLinear" and node.input[0] in self.stored:
                self.weights[node.output[0]] = (self.stored[node.input[0]], self.stored[node.input[1]])
            elif node.op_type == "DequantizeLinear":
                self.bytes[node.output[0]] = self.bytes[node.input[0]]
            elif node.op_type == "QuantizeLinear":
                value = self._value(node)
                self.bytes[node.output[0]] = value
                if made is None:
                    made = _Described(value)
                else:
                    made.layers += self._layers(real[node.input[0]], value)
            else:
                real[node.output[0]] = node
        assert made is not None
        return made

    def _value(self, node: Any) -> Any:
        from quantized_networks import Value

        return Value(
            np.broadcast_to(np.float32(0), self.shapes[node.input[0]]), np.float32(self.stored[node.input[1]]),
            int(self.stored[node.input[2]])
        )

    def _layers(self, node: Any, out: Any) -> Iterator[Any]:
        """The layer of an operator. Raises `LookupError` for one that a TFLite file has otherwise."""
        from onnx import helper

        from quantized_networks import Layer

        attrs = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        given = tuple(self.bytes[i] for i in node.input if i in self.bytes)
        match node.op_type:
            case "Conv":
                how = {
                    "stride": attrs["strides"][0], "padding": tuple(attrs["pads"][:2]), "groups": attrs["group"],
                    "act": "none"
                }
                yield Layer("conv", given, out, how, *self._weight(node))
            case "Gemm":
                yield Layer("dense", given, out, {"act": "none"}, *self._weight(node))
            case "Add":
                yield Layer("add", given, out, {"act": "none"})
            case "MaxPool":
                yield Layer(
                    "max_pool", given, out,
                    {"kernel": attrs["kernel_shape"][0], "stride": attrs["strides"][0], "padding": attrs["pads"][0]}
                )
            case "GlobalAveragePool":
                yield Layer("mean", given, out)
            case "Flatten":
                yield Layer("flatten", given, out)
            case other:
                raise LookupError(f"{other} is not written as TFLite")

    def _weight(self, node: Any) -> tuple[Any, Any, Any]:
        """Integers of a weight and its scales, and integers of the bias, whose scales are those of the sums."""
        weight, scale = self.weights[node.input[1]]
        return weight, scale, self.weights[node.input[2]][0]
