"""`Value` and `Node`: what a converter may ask about the inputs of an operator, and about the operator itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from tilewright.base.errors import ModelError, Origin
from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.known import KnownValues
from tilewright.relay.frontend.tflite.model import Model, Operator, Quantization, Tensor
from tilewright.relay.frontend.tflite.resources import Resources

Array = np.ndarray[Any, Any]
Outside = Callable[[Expr], Expr]

QUANTIZED = frozenset({"int8", "uint8", "int16", "int4"})


class NotKnownError(ModelError):
    """A conversion needs a value that is computed from the model's inputs: it is tried again when the value is there."""

    code = "TW0108"


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor in the graph: its expression, and what the model says of it."""

    expr: Expr
    tensor: Tensor

    @property
    def dtype(self) -> str:
        return str(self.expr.tensor_type.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sizes; raises `NotKnownError` where one is only known while the model runs."""
        shape = self.expr.tensor_type.shape
        if not all(isinstance(d, int) for d in shape):
            raise NotKnownError(f"tensor '{self.tensor.name}' has the shape ({', '.join(map(str, shape))}), and must have known sizes; give the shape of the model's "
                                "inputs: shape_dict={…}, on the command line --input-shapes")
        return shape

    @property
    def rank(self) -> int:
        return self.expr.tensor_type.ndim

    @property
    def dimensions(self) -> int:
        """How many dimensions the model says it has: without the one of the two parts of complex numbers, which is the last of `shape`."""
        return self.rank - is_complex(self.tensor)

    @property
    def is_quantized(self) -> bool:
        """Whether its integers stand for numbers: they have a scale."""
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
        """Another expression under the same scale and zero point."""
        return Value(expr, self.tensor)


def is_quantized(t: Tensor) -> bool:
    return t.dtype in QUANTIZED and t.quantization is not None and any(t.quantization.scales)


def is_complex(t: Tensor) -> bool:
    """Whether its expression is of floats, with the two parts along one dimension more."""
    return t.dtype in ("complex64", "complex128")


def quantization_of(t: Tensor) -> Quantization:
    if t.quantization is None:
        raise ModelError(f"tensor '{t.name}' of {t.dtype} has no scale, and the operator needs one; the file is damaged: convert it again", code="TW0103")
    return t.quantization


def scale_of(t: Tensor) -> float:
    """The one scale of a tensor, above zero."""
    found = quantization_of(t).scales
    if len(found) != 1 or found[0] <= 0:
        raise ModelError(f"tensor '{t.name}' has {len(found)} scales ({', '.join(map(str, found[:3]))}), and the operator needs one above zero", code="TW0107")
    return found[0]


def zero_point_of(t: Tensor) -> int:
    return quantization_of(t).zero_points[0]


def parameters_of(t: Tensor) -> tuple[Constant, Constant]:
    """Scale and zero point of a tensor that has one of each, as arguments of operators of `relay.qnn`."""
    return constant(scale_of(t), "float32"), constant(zero_point_of(t), "int32")


class Node:
    """One operator of the model while it is converted."""

    __slots__ = ("_import_graph", "_known", "intermediates", "model", "operator", "origin", "outputs", "resources")

    def __init__(
        self, operator: Operator, origin: Origin, outputs: Sequence[Tensor], intermediates: Sequence[Tensor], model: Model | None, known: KnownValues,
        resources: Resources, import_graph: Callable[[int, Sequence[Expr], Outside | None], list[Expr]],
    ) -> None:
        self.operator, self.origin, self.outputs, self.intermediates, self.model = operator, origin, tuple(outputs), tuple(intermediates), model
        self.resources = resources
        self._known, self._import_graph = known, import_graph

    @property
    def output(self) -> Tensor:
        """What the model says of the first result."""
        return self.outputs[0]

    def refuse(self, why: str) -> NoReturn:
        """Raise a `ModelError` at this operator."""
        raise ModelError(why, self.origin, code="TW0107")

    def import_graph(self, number: int, inputs: Sequence[Expr], outside: Outside | None = None) -> list[Expr]:
        """The outputs of another graph of the model on `inputs`."""
        return self._import_graph(number, inputs, outside)

    def known(self, x: Value) -> Array | None:
        """The value of an input if it is known now."""
        found = self._known.of(x.expr)
        return None if found is not None and found.dtype == object and x.dtype != "string" else found

    def settled(self, x: Expr) -> Expr:
        """`x`, or the constant that it comes to."""
        return self._known.settle(x)

    def value(self, x: Value) -> Array:
        """The value of an input. One that is computed from the model's inputs is waited for: the conversion begins again when it is there."""
        found = self.known(x)
        if found is None:
            found = self._known.demand(x.expr)
        if found is None or (found.dtype == object and x.dtype != "string"):
            raise NotKnownError(f"tensor '{x.tensor.name}' must be known to convert the operator, and it is computed from the model's inputs", self.origin)
        return found

    def ints(self, x: Value) -> tuple[int, ...]:
        """The value of an input as Python ints."""
        found = self.value(x)
        if found.dtype.kind not in "iub":
            self.refuse(f"tensor '{x.tensor.name}' must be whole numbers, and is {x.tensor.dtype}; the file is damaged: convert it again")
        return tuple(int(v) for v in found.flat)

    def whole(self, x: Value) -> int:
        """The one whole number in an input."""
        found = self.ints(x)
        if len(found) != 1:
            self.refuse(f"tensor '{x.tensor.name}' must be one number, and its shape is {self.value(x).shape}")
        return found[0]

    def scalar(self, x: Value) -> Any:
        """The one number in an input."""
        found = self.value(x)
        if found.size != 1:
            self.refuse(f"tensor '{x.tensor.name}' must be one number, and its shape is {found.shape}")
        return found.reshape(-1)[0].item()

    def stored(self, x: Value) -> Array:
        """The value of an input that is part of the model; another is refused."""
        found = self.known(x)
        if found is None:
            self.refuse(f"tensor '{x.tensor.name}' must be stored in the model, and it is computed")
        return found


def constant(value: Any, dtype: str) -> Constant:
    """A constant of that type."""
    return Constant(np.asarray(value, dtype))
