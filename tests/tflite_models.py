"""Small TFLite models for tests, written with the functions of the schema's own package (`tflite`, `flatbuffers`).

    model([T("x", (1, 4)), T("y", (1, 4))], [Op("RELU", [0], [1])], [0], [1])  ->  bytes
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

flatbuffers = pytest.importorskip("flatbuffers", reason="flatbuffers, which writes TFLite files, is not installed")
tflite = pytest.importorskip("tflite", reason="tflite, the schema of TFLite files, is not installed")

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class T:
    """A tensor: stored where it has a value, quantized where it has scales."""

    name: str
    shape: Sequence[int]
    dtype: str = "float32"
    value: Any = None
    scale: Sequence[float] | float = ()
    zero_point: Sequence[int] | int = 0
    axis: int = 0
    variable: bool = False


@dataclass(frozen=True)
class Op:
    """An operator: numbers of tensors (-1 for one that is left out), and options by the names of the schema package."""

    kind: str
    inputs: Sequence[int]
    outputs: Sequence[int]
    options: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    custom: bytes = b""
    intermediates: Sequence[int] = ()


@dataclass(frozen=True)
class Graph:
    """One graph of a model."""

    tensors: Sequence[T]
    operators: Sequence[Op]
    inputs: Sequence[int]
    outputs: Sequence[int]


@dataclass(frozen=True)
class Entry:
    """A signature: the number of its graph, and tensors by the names of its inputs and outputs."""

    key: str
    graph: int
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]


def model(
    tensors: Sequence[T], operators: Sequence[Op], inputs: Sequence[int], outputs: Sequence[int], *others: Graph,
    signatures: Sequence[Entry] = ()
) -> bytes:
    """The bytes of a model whose main graph is given first."""
    return _Writer().model([Graph(tensors, operators, inputs, outputs), *others], signatures)


def _texts(values: Sequence[str]) -> bytes:
    """How many there are, where each begins and where the last ends, then their letters."""
    letters = [v.encode() for v in values]
    begins = 4 * (len(letters) + 2) + np.cumsum([0, *map(len, letters)])
    return np.asarray([len(letters), *begins], np.int32).tobytes() + b"".join(letters)


class _Writer:
    def __init__(self) -> None:
        self.b = flatbuffers.Builder(1024)
        self.buffers: list[bytes] = [b""]
        self.codes: list[str] = []

    def model(self, graphs: Sequence[Graph], signatures: Sequence[Entry]) -> bytes:
        made = [self._graph(g) for g in graphs]
        entries = [self._entry(s) for s in signatures]
        codes = [self._code(kind) for kind in self.codes]
        buffers = [self._table("Buffer", Data=self._bytes(d)) if d else self._table("Buffer") for d in self.buffers]
        root = self._table(
            "Model", Version=3, OperatorCodes=self._offsets(codes), Subgraphs=self._offsets(made),
            Buffers=self._offsets(buffers), **({"SignatureDefs": self._offsets(entries)} if entries else {}),
        )
        self.b.Finish(root, b"TFL3")
        return bytes(self.b.Output())

    def _entry(self, s: Entry) -> int:
        sides = [
            self._offsets(
                [self._table("TensorMap", Name=self.b.CreateString(n), TensorIndex=k) for n, k in side.items()]
            ) for side in (s.inputs, s.outputs)
        ]
        return self._table(
            "SignatureDef", Inputs=sides[0], Outputs=sides[1], SignatureKey=self.b.CreateString(s.key),
            SubgraphIndex=s.graph
        )

    def _graph(self, g: Graph) -> int:
        tensors = [self._tensor(t) for t in g.tensors]
        operators = [self._operator(o) for o in g.operators]
        return self._table(
            "SubGraph", Tensors=self._offsets(tensors), Operators=self._offsets(operators), Inputs=self._ints(g.inputs),
            Outputs=self._ints(g.outputs),
        )

    def _tensor(self, t: T) -> int:
        number = 0
        if t.value is not None:
            self.buffers.append(_texts(t.value) if t.dtype == "string" else np.asarray(t.value, t.dtype).tobytes())
            number = len(self.buffers) - 1
        fields: dict[str, Any] = {
            "Name": self.b.CreateString(t.name), "Shape": self._ints(t.shape), "Buffer": number,
            "Type": getattr(tflite.TensorType, t.dtype.upper())
        }
        scales = [t.scale] if isinstance(t.scale, float) else list(t.scale)
        if scales:
            zeros = [t.zero_point] * len(scales) if isinstance(t.zero_point, int) else list(t.zero_point)
            fields["Quantization"] = self._table(
                "QuantizationParameters", Scale=self.b.CreateNumpyVector(np.asarray(scales, np.float32)),
                ZeroPoint=self.b.CreateNumpyVector(np.asarray(zeros, np.int64)), QuantizedDimension=t.axis,
            )
        return self._table("Tensor", **fields, IsVariable=t.variable)

    def _operator(self, o: Op) -> int:
        if o.kind not in self.codes:
            self.codes.append(o.kind)
        fields: dict[str, Any] = {
            "Inputs": self._ints(o.inputs), "Outputs": self._ints(o.outputs), "OpcodeIndex": self.codes.index(o.kind)
        }
        if o.intermediates:
            fields["Intermediates"] = self._ints(o.intermediates)
        if o.options:
            values = {
                k: self._ints(v) if isinstance(v, (list, tuple)) else self.b.CreateString(v) if isinstance(v, str)
                else v for k, v in o.values.items()
            }
            union = "BuiltinOptions" if hasattr(tflite.BuiltinOptions, o.options) else "BuiltinOptions2"
            fields[f"{union}Type"] = getattr(getattr(tflite, union), o.options)
            fields[union] = self._table(o.options, **values)
        if o.custom:
            fields["CustomOptions"] = self._bytes(o.custom)
        return self._table("Operator", **fields)

    def _code(self, kind: str) -> int:
        known = getattr(tflite.BuiltinOperator, kind, None)
        if known is None:
            return self._table(
                "OperatorCode", BuiltinCode=tflite.BuiltinOperator.CUSTOM, DeprecatedBuiltinCode=32,
                CustomCode=self.b.CreateString(kind), Version=1
            )
        return self._table("OperatorCode", BuiltinCode=known, DeprecatedBuiltinCode=min(known, 127), Version=1)

    def _table(self, kind: str, **fields: Any) -> int:
        module = importlib.import_module(f"tflite.{kind}")
        getattr(module, f"{kind}Start")(self.b)
        for name, value in fields.items():
            getattr(module, f"{kind}Add{name}")(self.b, value)
        return int(getattr(module, f"{kind}End")(self.b))

    def _ints(self, values: Sequence[int]) -> int:
        return int(self.b.CreateNumpyVector(np.asarray(values, np.int32)))

    def _bytes(self, data: bytes) -> int:
        self.b.StartVector(1, len(data), 16)
        self.b.head -= len(data)
        self.b.Bytes[self.b.head:self.b.head + len(data)] = data
        return int(self.b.EndVector())

    def _offsets(self, values: Sequence[int]) -> int:
        self.b.StartVector(4, len(values), 4)
        for v in reversed(values):
            self.b.PrependUOffsetTRelative(v)
        return int(self.b.EndVector())
