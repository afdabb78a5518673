"""`Node`: what a converter may ask about the call it converts, beyond its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, Protocol

import numpy as np

from tilewright.base.errors import ModelError, Origin
from tilewright.base.types import DataType
from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.known import KnownValues
from tilewright.relay.qnn.numerics import along

Array = np.ndarray[Any, Any]


class Layers(Protocol):
    """What a program holds of its quantized layers."""

    def stored(self, packed: Any, what: str, real: Array, parameters: tuple[Constant, Constant], dtype: str, integers: Array | None, origin: Origin) -> Expr:
        """The `what` ("weight", "bias") of a layer as integers of `parameters`, a scale and a zero point along the first axis."""


class Node:
    """One call of an operator while it is converted."""

    __slots__ = ("_known", "_layers", "_params", "default_dtype", "name", "origin", "quantized")

    def __init__(
        self, name: str, origin: Origin, default_dtype: DataType, known: KnownValues, params: Callable[[Expr], Array | None], quantized: Any = None,
        layers: Layers | None = None,
    ) -> None:
        self.name, self.origin, self.default_dtype = name, origin, default_dtype
        self._known, self._params = known, params
        self.quantized, self._layers = quantized, layers
        """Scales and zero points of quantized tensors: `quantize.Quantized` by expression."""

    def renamed(self, name: str) -> Node:
        """The same for a call of another operator, which this one is made of."""
        return Node(name, self.origin, self.default_dtype, self._known, self._params, self.quantized, self._layers)

    def weight(self, packed: Any, integers: Array, scale: Constant, zero_point: Constant) -> Expr:
        """The weight of a quantized layer."""
        s, z = (along(p.value, integers.ndim, 0) for p in (scale, zero_point))
        real = ((integers.astype(np.int32) - z).astype(np.float32) * s).astype(np.float32)
        return self._layer_tensor(packed, "weight", real, (scale, zero_point), str(integers.dtype), integers)

    def bias(self, packed: Any, real: Array, scale: Constant) -> Expr:
        """The bias of a quantized layer in units of its sums."""
        return self._layer_tensor(packed, "bias", real, (scale, Constant(np.zeros((), np.int32))), "int32", None)

    def _layer_tensor(self, packed: Any, what: str, real: Array, parameters: tuple[Constant, Constant], dtype: str, integers: Array | None) -> Expr:
        if self._layers is None:
            self.refuse("it is a quantized layer, which is not supported here")
        return self._layers.stored(packed, what, real, parameters, dtype, integers, self.origin)

    def refuse(self, why: str) -> NoReturn:
        """Raise a `ModelError` at this node."""
        raise ModelError(why, self.origin, code="TW0107")

    def known(self, x: Expr | None) -> Array | None:
        """The value of a tensor if it is known now."""
        if x is None:
            return None
        value = self._known.of(x)
        return self._params(x) if value is None else value

    def settled(self, x: Expr) -> Expr:
        """`x`, or the constant that it comes to."""
        return self._known.settle_near(x)

    def value(self, x: Expr, name: str) -> Array:
        """The value of argument `name`; raises `ModelError` when it is computed from the model's inputs."""
        value = self.known(self.settled(x))
        if value is None or value.dtype == object:
            self.refuse(f"argument '{name}' must be known while compiling, and it is computed from the model's inputs; make it a constant of the model")
        return value

    def static(self, x: Expr, name: str) -> tuple[int, ...]:
        """The shape of argument `name`; raises `ModelError` when a dimension of it is symbolic."""
        shape = x.tensor_type.shape
        if not all(isinstance(d, int) for d in shape):
            dims = ", ".join(map(str, shape))
            self.refuse(f"the shape of '{name}' is ({dims}), and must be known while compiling; give the shapes of the inputs when importing")
        return shape
