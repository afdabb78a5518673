"""Descriptions of a session's model, and its input and output values: `NodeArg`, `ModelMetadata`, `OrtValue`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

import numpy as np
import onnx
from onnx import TensorProto

from tilewright.base.errors import InputError, TargetError
from tilewright.base.nd import as_numpy

Array = np.ndarray[Any, Any]

_NAMES: Final[dict[int, str]] = {TensorProto.FLOAT: "float", TensorProto.DOUBLE: "double"}
"""Element types whose name in ONNX Runtime is not ONNX's in lower case."""


@dataclass(frozen=True, slots=True)
class NodeArg:
    """An input or output; a dimension is a number, the name of a symbolic dimension, or None if unknown."""

    name: str
    shape: list[int | str | None]
    type: str

    def __str__(self) -> str:
        return f"NodeArg(name='{self.name}', type='{self.type}', shape={self.shape})"


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """The metadata in a model file."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom_metadata_map: dict[str, str] = field(default_factory=dict)


def node_arg(info: onnx.ValueInfoProto) -> NodeArg:
    """Return the declaration of an input or output: name, type and shape."""
    kind = info.type
    which = kind.WhichOneof("value")
    dims = getattr(kind, which).shape.dim if which in ("tensor_type", "sparse_tensor_type") else ()
    shape = [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in dims]
    return NodeArg(info.name, shape, type_text(kind))


def metadata(model: onnx.ModelProto) -> ModelMetadata:
    """Return the metadata of a model."""
    entries = {e.key: e.value for e in model.metadata_props}
    return ModelMetadata(
        model.producer_name, model.graph.name, model.domain, model.doc_string, model.graph.doc_string,
        model.model_version, entries)


def type_text(kind: onnx.TypeProto) -> str:
    """Return the name of a type in ONNX Runtime: `tensor(float)`, `seq(tensor(int64))`."""
    match kind.WhichOneof("value"):
        case "tensor_type":
            return f"tensor({_element(kind.tensor_type.elem_type)})"
        case "sparse_tensor_type":
            return f"sparse_tensor({_element(kind.sparse_tensor_type.elem_type)})"
        case "sequence_type":
            return f"seq({type_text(kind.sequence_type.elem_type)})"
        case "optional_type":
            return f"optional({type_text(kind.optional_type.elem_type)})"
        case "map_type":
            return f"map({_element(kind.map_type.key_type)},{type_text(kind.map_type.value_type)})"
        case _:
            return "unknown"


def _element(code: int) -> str:
    if code not in TensorProto.DataType.values():
        return "unknown"
    name: str = TensorProto.DataType.Name(code)
    return _NAMES.get(code, name.lower())


class OrtValue:
    """A tensor or a sequence of tensors in host memory."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    @classmethod
    def ortvalue_from_numpy(cls, numpy_obj: Any, device_type: str = "cpu", device_id: int = 0) -> Self:
        """Return a value that shares the memory of `numpy_obj`. Raises `TargetError` for a device other than the CPU.
        """
        check_device(device_type)
        return cls(as_numpy(numpy_obj))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls, shape: Sequence[int], element_type: Any, device_type: str = "cpu", device_id: int = 0
    ) -> Self:
        """Return an uninitialized value of that shape and numpy dtype."""
        check_device(device_type)
        return cls(np.empty(tuple(shape), element_type))

    def numpy(self) -> Any:
        """Return the array, or the list of arrays of a sequence."""
        return self._value

    def shape(self) -> list[int]:
        """Return the sizes of a tensor."""
        return list(np.shape(self._value))

    def data_type(self) -> str:
        """Return the type under ONNX Runtime's name."""
        if self.is_tensor_sequence():
            return f"seq({OrtValue(self._value[0]).data_type()})" if self._value else "seq(tensor(unknown))"
        return f"tensor({_element(self.element_type())})"

    def element_type(self) -> int:
        """Return ONNX's number of the element type."""
        found = (
            TensorProto.STRING if self._value.dtype.kind in "OUST"
            else onnx.helper.np_dtype_to_tensor_dtype(self._value.dtype)
        )
        return int(found)

    def device_name(self) -> str:
        """Return the name of the device."""
        return "cpu"

    def has_value(self) -> bool:
        """Whether there is a value; false for an empty optional."""
        return self._value is not None

    def is_tensor(self) -> bool:
        """Whether this is a tensor."""
        return isinstance(self._value, np.ndarray)

    def is_tensor_sequence(self) -> bool:
        """Whether this is a sequence of tensors."""
        return isinstance(self._value, (list, tuple))

    def data_ptr(self) -> int:
        """Return the address of the first element."""
        return int(self._value.ctypes.data)

    def update_inplace(self, np_arr: Array) -> None:
        """Overwrite the value with `np_arr`, which has the same shape and dtype."""
        if np_arr.shape != self._value.shape or np_arr.dtype != self._value.dtype:
            raise InputError(
                f"the value is {self._value.dtype}{self.shape()}; {np_arr.dtype}{list(np_arr.shape)} cannot replace it",
                code="TW0704")
        np.copyto(self._value, np_arr)


def check_device(name: str) -> None:
    """Raise `TargetError` for a device that is not the CPU."""
    if name.lower() not in ("cpu", "cpu_pinned"):
        raise TargetError(
            f"device '{name}' cannot hold values; models run on the CPU: device_type='cpu'", code="TW0506")
