"""`Value` and `Node`: what a TFLite converter can query about an operator and its inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.base.errors import ModelError, Origin
from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.core import node as core
from tilewright.relay.frontend.core.known import KnownValues
from tilewright.relay.frontend.core.node import NotKnownError, SizeNotKnownError
from tilewright.relay.frontend.tflite.model import Model, Operator, Quantization, Tensor
from tilewright.relay.frontend.tflite.resources import Resources

if TYPE_CHECKING:
    from tilewright.relay.frontend.core.registry import Converter

Array = np.ndarray[Any, Any]
Outside = Callable[[Expr], Expr]

QUANTIZED = frozenset({"int8", "uint8", "int16", "int4"})


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor in the graph: its expression, and its declaration in the model."""

    expr: Expr
    tensor: Tensor

    @property
    def dtype(self) -> str:
        return str(self.expr.tensor_type.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The static shape; raises `NotKnownError` if a size is known only at run time."""
        shape = self.expr.tensor_type.shape
        if not all(isinstance(d, int) for d in shape):
            what = (f"tensor '{self.tensor.name}' has the shape ({', '.join(map(str, shape))}), but must have known "
                    "sizes")
            raise SizeNotKnownError(f"{what}; give the shape of the model's inputs: shape_dict={{…}}, on the command "
                                    "line --input-shapes")
        return shape

    @property
    def rank(self) -> int:
        return self.expr.tensor_type.ndim

    @property
    def dimensions(self) -> int:
        """Number of dimensions in the model, excluding the last dimension of `shape` for complex parts."""
        return self.rank - is_complex(self.tensor)

    @property
    def is_quantized(self) -> bool:
        """Whether it is quantized: its integers have a scale."""
        return is_quantized(self.tensor)

    @property
    def quantization(self) -> Quantization:
        return quantization_of(self.tensor)

    @property
    def scale(self) -> float:
        return scale_of(self.tensor)

    @property
    def zero_point(self) -> int:
        return zero_point_of(self.tensor)

    def of(self, expr: Expr) -> Value:
        """Another expression with the same scale and zero point."""
        return Value(expr, self.tensor)


def is_quantized(t: Tensor) -> bool:
    return t.dtype in QUANTIZED and t.quantization is not None and any(t.quantization.scales)


def is_complex(t: Tensor) -> bool:
    """Whether it is complex: its expression has floats, with the two parts along an additional dimension."""
    return t.dtype in ("complex64", "complex128")


def quantization_of(t: Tensor) -> Quantization:
    if t.quantization is None:
        raise ModelError(f"tensor '{t.name}' of {t.dtype} has no scale, but the operator needs one; the file is "
                         "damaged: convert it again", code="TW0103")
    return t.quantization


def scale_of(t: Tensor) -> float:
    """The only scale of a tensor; raises `ModelError` unless there is exactly one, above zero."""
    found = quantization_of(t).scales
    if len(found) != 1 or found[0] <= 0:
        raise ModelError(f"tensor '{t.name}' has {len(found)} scales ({', '.join(map(str, found[:3]))}), but the "
                         "operator needs one above zero", code="TW0107")
    return found[0]


def zero_point_of(t: Tensor) -> int:
    return quantization_of(t).zero_points[0]


def parameters_of(t: Tensor) -> tuple[Constant, Constant]:
    """The scale and zero point of a tensor with one of each, as arguments of operators of `relay.qnn`."""
    return constant(scale_of(t), "float32"), constant(zero_point_of(t), "int32")


class Node(core.Node):
    """One operator of the model while it is converted."""

    __slots__ = ("_import_graph", "intermediates", "model", "operator", "resources")
    operand = "tensor"

    def __init__(
        self, operator: Operator, origin: Origin, outputs: Sequence[Tensor], intermediates: Sequence[Tensor],
        model: Model | None, known: KnownValues, resources: Resources,
        import_graph: Callable[[int, Sequence[Expr], Outside | None], list[Expr]],
    ) -> None:
        super().__init__(origin, tuple(outputs), known)
        self.operator, self.intermediates, self.model, self.resources = operator, tuple(intermediates), model, resources
        self._import_graph = import_graph

    @property
    def output(self) -> Tensor:
        """The declaration of the first output."""
        found: Tensor = self.outputs[0]
        return found

    def refuse_attribute(self, converter: Converter, name: str, value: Any) -> None:
        if value:
            self.refuse(f"option '{name}' is {value!r}, which is not supported; convert the model without it")

    def import_graph(self, number: int, inputs: Sequence[Expr], outside: Outside | None = None) -> list[Expr]:
        """Import another graph of the model applied to `inputs`; return its outputs."""
        return self._import_graph(number, inputs, outside)

    def known(self, x: Value) -> Array | None:
        """The value of an input, or None if it is not known yet."""
        found = self._known.of(x.expr)
        return None if found is not None and found.dtype == object and x.dtype != "string" else found

    def value(self, x: Value, name: str = "", why: str = "") -> Array:
        """The value of an input. Raises `NotKnownError` if the model computes it."""
        found = self.known(x)
        if found is None:
            found = self._known.demand(x.expr)
        if found is None or (found.dtype == object and x.dtype != "string"):
            what = (f"tensor '{x.tensor.name}' must be known at compile time, but it is computed from the model's "
                    "inputs")
            raise NotKnownError(what, self.origin)
        return found

    def ints(self, x: Value, name: str = "") -> tuple[int, ...]:
        """The value of an input as Python ints."""
        found = self.value(x)
        if found.dtype.kind not in "iub":
            self.refuse(f"tensor '{x.tensor.name}' must be integers, but is {x.tensor.dtype}; the file is damaged: "
                        "convert it again")
        return tuple(int(v) for v in found.flat)

    def whole(self, x: Value) -> int:
        """The only element of an input, as an int."""
        self.ints(x)
        return int(self.scalar(x))

    def scalar(self, x: Value | None, name: str = "", default: Any = None) -> Any:
        """The only element of an input."""
        return super().scalar(x, name or ("" if x is None else x.tensor.name), default)

    def stored(self, x: Value) -> Array:
        """The stored value of an input; refuses computed ones."""
        found = self.known(x)
        if found is None:
            self.refuse(f"tensor '{x.tensor.name}' must be stored in the model, but it is computed")
        return found


def constant(value: Any, dtype: str) -> Constant:
    return Constant(np.asarray(value, dtype))
