"""A TFLite file as Python objects: graphs, operators, tensors, and stored values.

`read_model` checks all references between tables (numbers of tensors, buffers, graphs), so converters can index safely.
Stored values are views of the file's bytes.
"""

from __future__ import annotations

import itertools
import math
import struct
from dataclasses import dataclass, field
from typing import Any, Final

import ml_dtypes
import numpy as np

from tilewright.base.array_bytes import of_strings
from tilewright.base.errors import ModelError, Origin
from tilewright.base.forks import lazy_attribute
from tilewright.base.model_formats import file_bytes
from tilewright.relay.frontend.tflite.flatbuffer import Flatbuffer
from tilewright.relay.frontend.tflite.schema import ELEMENT_TYPES, OPERATORS
from tilewright.relay.frontend.tflite.sparsity import densified

Array = np.ndarray[Any, Any]

_IDENTIFIER: Final = b"TFL3"
_CUSTOM: Final = OPERATORS.index("CUSTOM")
_VERSION: Final = 3
_PACKED: Final = {"int4": 4, "uint4": 4, "int2": 2}
_ZERO_POINTS: Final = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-(1 << 15), (1 << 15) - 1)}
"""Range of zero points by type; other types use the int32 range."""
_HANDLES: Final = frozenset({"resource", "variant"})
_NUMPY: Final = {name: np.dtype(name) for name in ELEMENT_TYPES if name not in _PACKED and name not in _HANDLES
                 and name not in ("string", "bfloat16")}
_NUMPY["bfloat16"] = np.dtype(ml_dtypes.bfloat16)


@dataclass(frozen=True, slots=True)
class Quantization:
    """Scales and zero points: one of each, or one per element of `axis`."""

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int

    @property
    def is_per_axis(self) -> bool:
        return len(self.scales) > 1


@dataclass(slots=True)
class Tensor:
    """The declaration of a tensor. A dimension of `signature` is -1 if it is known only at run time."""

    name: str
    shape: tuple[int, ...]
    signature: tuple[int, ...]
    dtype: str
    quantization: Quantization | None
    is_variable: bool
    sparsity: dict[str, Any] | None
    file: str
    data: Any = None
    """Bytes of the stored value, or None."""
    _value: Array | None = None

    @property
    def is_stored(self) -> bool:
        return self.data is not None

    def value(self) -> Array:
        """The stored value; raises `ModelError` if its size does not match its shape."""
        if self._value is None:
            self._value = _value_of(self)
        return self._value


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of a graph: tensor numbers, -1 for an omitted input, and options by name."""

    kind: str
    version: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: dict[str, Any]
    intermediates: tuple[int, ...]
    custom_options: bytes
    number: int

    @property
    def mentioned(self) -> tuple[int, ...]:
        return (*self.inputs, *self.outputs, *self.intermediates)


@dataclass(frozen=True, slots=True)
class Graph:
    """One graph of a model; the first is the main graph, the others belong to control flow and signatures."""

    name: str
    tensors: tuple[Tensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[Operator, ...]


@dataclass(frozen=True, slots=True)
class Signature:
    """A named entry of a model: names of its inputs and outputs, with their tensor numbers."""

    key: str
    graph: int
    inputs: dict[str, int]
    outputs: dict[str, int]


@dataclass(frozen=True, slots=True)
class Model:
    """A complete file."""

    file: str
    description: str
    graphs: tuple[Graph, ...]
    signatures: tuple[Signature, ...] = ()
    contents: bytes = field(default=b"", repr=False)


def read_model(model: Any) -> Model:
    """The model in a path, bytes, or an object of the `tflite` package. Raises `ModelError` for an invalid file."""
    name, data = _bytes_of(model)
    shown = name or "the model"
    if len(data) < 8 or data[4:8] != _IDENTIFIER:
        raise ModelError(f"{shown} is not a TFLite model: bytes 4 to 8 are not TFL3; give a .tflite file",
                         code="TW0102")
    buffer = Flatbuffer(data, shown)
    root = buffer.root("Model")
    if root["version"] != _VERSION:
        raise ModelError(f"{shown} has version {root['version']} of the schema, but only version {_VERSION} is "
                         "supported; convert the model again", code="TW0110")
    if not root["subgraphs"]:
        raise ModelError(f"{shown} has no graph; convert the model again", code="TW0102")
    return _Reading(buffer, root, name).model()


def _bytes_of(model: Any) -> tuple[str, bytes]:
    """The name for messages, and the contents."""
    table: Any = getattr(model, "_tab", None)
    return ("", bytes(table.Bytes)) if hasattr(table, "Bytes") else file_bytes(model, "a tflite.Model")


class _Reading:
    """Converts the tables of one file to objects."""

    def __init__(self, buffer: Flatbuffer, root: dict[str, Any], name: str) -> None:
        self.buffer, self.root, self.name = buffer, root, name

    def model(self) -> Model:
        graphs = tuple(self._graph(g) for g in self.root["subgraphs"])
        signatures = tuple(self._signature(s, graphs) for s in self.root["signature_defs"])
        return Model(self.name, self.root["description"], graphs, signatures, self.buffer.data)

    def _graph(self, table: dict[str, Any]) -> Graph:
        tensors = tuple(map(self._tensor, table["tensors"]))
        operators = tuple(self._operator(o, k) for k, o in enumerate(table["operators"]))
        for numbers in (table["inputs"], table["outputs"], *(o.mentioned for o in operators)):
            if any(not -1 <= n < len(tensors) for n in numbers):
                self.buffer.refuse(f"the graph '{table['name']}' uses a tensor that it does not contain")
        if -1 in table["inputs"] or -1 in table["outputs"]:
            self.buffer.refuse(f"an input or output of the graph '{table['name']}' is not a tensor")
        return Graph(table["name"], tensors, table["inputs"], table["outputs"], operators)

    def _tensor(self, table: dict[str, Any]) -> Tensor:
        code, number, buffers = table["type"], table["buffer"], self.root["buffers"]
        if not 0 <= code < len(ELEMENT_TYPES):
            raise ModelError(f"tensor '{table['name']}' has elements of type {code}, which is not known; convert the "
                             "model with an older converter", self._origin, code="TW0110")
        if number >= max(len(buffers), 1):
            self.buffer.refuse(f"tensor '{table['name']}' is in buffer {number}, but the number of buffers is "
                               f"{len(buffers)}")
        shape = table["shape"]
        if any(d < 0 for d in shape):
            self.buffer.refuse(f"tensor '{table['name']}' has the shape {shape}")
        signature = table["shape_signature"] if len(table["shape_signature"]) == len(shape) else shape
        return Tensor(
            table["name"], shape, signature, ELEMENT_TYPES[code], self._quantization(table), table["is_variable"],
            table["sparsity"], self.name, self._data(buffers[number]) if number else None)

    def _data(self, table: dict[str, Any]) -> Any:
        """The bytes of a buffer, which are outside the tables in files over 2 GB; None for an empty buffer."""
        begin, size = table["offset"], table["size"]
        if begin > 1:
            if begin + size > len(self.buffer.data):
                self.buffer.refuse(f"a buffer of {size} bytes begins at byte {begin}, but the file has "
                                   f"{len(self.buffer.data)}")
            return np.frombuffer(self.buffer.data, np.uint8, size, begin)
        return table["data"] if len(table["data"]) else None

    def _quantization(self, table: dict[str, Any]) -> Quantization | None:
        said = table["quantization"]
        if said is None or not said["scale"]:
            return None
        scales, zero_points = said["scale"], said["zero_point"] or (0,) * len(said["scale"])
        axis, shape = said["quantized_dimension"], table["shape"]
        if len(zero_points) != len(scales) and len(zero_points) != 1:
            self.buffer.refuse(f"tensor '{table['name']}' has {len(scales)} scales and {len(zero_points)} zero points")
        if len(scales) > 1 and len(scales) not in shape:
            self.buffer.refuse(f"tensor '{table['name']}' of shape {shape} has {len(scales)} scales")
        if len(scales) > 1 and not (0 <= axis < len(shape) and shape[axis] == len(scales)):
            axis = shape.index(len(scales))  # old converters write arbitrary axes for biases
        least, most = _ZERO_POINTS.get(ELEMENT_TYPES[table["type"]], (-(1 << 31) + 1, (1 << 31) - 1))
        if not all(math.isfinite(s) and s >= 0 for s in scales) or any(not least <= z <= most for z in zero_points):
            self.buffer.refuse(f"tensor '{table['name']}' has scales or zero points that are not valid")
        return Quantization(scales, zero_points if len(zero_points) == len(scales) else zero_points * len(scales), axis)

    def _operator(self, table: dict[str, Any], number: int) -> Operator:
        codes, place = self.root["operator_codes"], table["opcode_index"]
        if place >= len(codes):
            self.buffer.refuse(f"operator {number} is of kind {place}, but the file declares only {len(codes)} kinds")
        code = codes[place]
        which = max(code["builtin_code"], code["deprecated_builtin_code"])
        if not 0 <= which < len(OPERATORS):
            raise ModelError(f"operator {number} is of kind {which}, which is not known; convert the model with an "
                             "older converter", self._origin, code="TW0110")
        kind = code["custom_code"] if which == _CUSTOM else OPERATORS[which]
        options = table["builtin_options"] or table["builtin_options2"] or {}
        return Operator(
            kind, code["version"], table["inputs"], table["outputs"], {k: v for k, v in options.items() if k != "_"},
            table["intermediates"], bytes(table["custom_options"]), number)

    def _signature(self, table: dict[str, Any], graphs: tuple[Graph, ...]) -> Signature:
        place = table["subgraph_index"]
        if place >= len(graphs):
            self.buffer.refuse(f"the signature '{table['signature_key']}' is of graph {place}, but the number of "
                               f"graphs is {len(graphs)}")
        sides = [{m["name"]: m["tensor_index"] for m in table[side]} for side in ("inputs", "outputs")]
        if any(n >= len(graphs[place].tensors) for side in sides for n in side.values()):
            self.buffer.refuse(f"the signature '{table['signature_key']}' uses a tensor that its graph does not "
                               "contain")
        return Signature(table["signature_key"], place, *sides)

    @lazy_attribute
    def _origin(self) -> Origin | None:
        return Origin(self.name) if self.name else None


def _value_of(tensor: Tensor) -> Array:
    data = tensor.data
    if tensor.dtype in _HANDLES:
        raise ModelError(f"tensor '{tensor.name}' is a {tensor.dtype}, which has no value", code="TW0114")
    if tensor.dtype == "string":
        return _strings(tensor)
    if tensor.sparsity is not None:
        return densified(tensor.name, tensor.sparsity, tensor.shape, lambda count: _plain(tensor, data, count))
    return _plain(tensor, data, math.prod(tensor.shape)).reshape(tensor.shape)


def _plain(tensor: Tensor, data: Any, count: int) -> Array:
    """Unpack `count` elements from bytes; several share a byte if they have less than eight bits."""
    bits = _PACKED.get(tensor.dtype)
    wanted = count * _NUMPY[tensor.dtype].itemsize if bits is None else -(-count * bits // 8)
    if len(data) < wanted:
        raise ModelError(f"tensor '{tensor.name}' has {len(data)} bytes, but {count} elements of {tensor.dtype} need "
                         f"{wanted}; the file is damaged: convert it again", code="TW0103")
    if bits is None:
        return np.require(data[:wanted].view(_NUMPY[tensor.dtype]), requirements="A")
    raw = np.stack([(data[:wanted] >> s) & ((1 << bits) - 1) for s in range(0, 8, bits)], axis=1).reshape(-1)[:count]
    if tensor.dtype.startswith("u"):
        return raw
    return ((raw.astype(np.int8) << (8 - bits)) >> (8 - bits)).astype(np.int8)


def _strings(tensor: Tensor) -> Array:
    """Read strings: their number, the start of each and the end of the last, then their bytes."""
    data, count = bytes(tensor.data), math.prod(tensor.shape)
    if len(data) < 4 or struct.unpack_from("<i", data)[0] != count or len(data) < 4 * (count + 2):
        raise ModelError(f"tensor '{tensor.name}' does not contain {count} strings; the file is damaged: convert it "
                         "again",
                         code="TW0103")
    ends = struct.unpack_from(f"<{count + 1}i", data, 4)
    if any(not 0 <= a <= b <= len(data) for a, b in itertools.pairwise(ends)):
        raise ModelError(
            f"tensor '{tensor.name}' has strings outside its bytes; the file is damaged: convert it again",
            code="TW0103")
    return of_strings([data[a:b].decode("utf-8", "surrogateescape") for a, b in itertools.pairwise(ends)], tensor.shape)
