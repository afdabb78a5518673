"""`Node`: what a converter may ask about the call it converts, beyond its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from tilewright.errors import ModelError, Origin
from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.known import KnownValues
from tilewright.types import DataType

Array = np.ndarray[Any, Any]


class Node:
    """One call of an operator while it is converted."""

    __slots__ = ("_keep", "_known", "_params", "default_dtype", "name", "origin", "quantized")

    def __init__(
        self, name: str, origin: Origin, default_dtype: DataType, known: KnownValues, params: Callable[[Expr], Array | None], quantized: Any = None,
        keep: Callable[[str, Array], Expr] | None = None,
    ) -> None:
        self.name, self.origin, self.default_dtype = name, origin, default_dtype
        self._known, self._params = known, params
        self.quantized, self._keep = quantized, keep
        """Scales and zero points of quantized tensors: `quantize.Quantized` by expression."""

    def renamed(self, name: str) -> Node:
        """The same for a call of another operator, which this one is made of."""
        return Node(name, self.origin, self.default_dtype, self._known, self._params, self.quantized, self._keep)

    def weight(self, array: Array) -> Expr:
        """The integers of a quantized layer: a constant, or a parameter where the user wants to keep them."""
        return Constant(array, self.origin) if self._keep is None else self._keep(self.origin.name, array)

    def refuse(self, why: str) -> NoReturn:
        """Raise a `ModelError` at this node."""
        raise ModelError(why, self.origin)

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
