"""`Node`: what a PyTorch converter can query about its call, besides the arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tilewright.base.errors import Origin
from tilewright.base.types import DataType
from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.core import node as core
from tilewright.relay.frontend.core.known import KnownValues
from tilewright.relay.qnn.numerics import along

if TYPE_CHECKING:
    from tilewright.relay.frontend.core.registry import Converter

Array = np.ndarray[Any, Any]


class Layers(Protocol):
    """Gives the stored tensors of quantized layers."""

    def stored(self, packed: Any, what: str, real: Array, parameters: tuple[Constant, Constant], dtype: str,
               integers: Array | None, origin: Origin) -> Expr:
        """The "weight" or "bias" of a layer as integers, for a scale and zero point along axis 0."""


class Node(core.Node):
    """One call of an operator while it is converted."""

    __slots__ = ("_layers", "default_dtype", "defaults", "name", "quantized")
    operand = "argument"

    def __init__(
        self, name: str, origin: Origin, default_dtype: DataType, known: KnownValues, params: Mapping[Expr, Array],
        quantized: Any = None, layers: Layers | None = None, defaults: Mapping[str, Any] | None = None,
    ) -> None:
        """`quantized` has scales and zero points of tensors (`quantize.Quantized`), `defaults` those of the schema."""
        super().__init__(origin, (), known, params)
        self.name, self.default_dtype = name, default_dtype
        self.quantized, self._layers, self.defaults = quantized, layers, defaults or {}

    def renamed(self, name: str) -> Node:
        """The node for a call of another operator that implements this one."""
        return Node(name, self.origin, self.default_dtype, self._known, self._params, self.quantized, self._layers,
                    self.defaults)

    def refuse_attribute(self, converter: Converter, name: str, value: Any) -> None:
        if not _same(value, self.defaults.get(name)):
            default = repr(self.defaults.get(name))
            self.refuse(f"argument '{name}' is {_shown(value)}; only its default, {default}, is supported")

    def weight(self, packed: Any, integers: Array, scale: Constant, zero_point: Constant) -> Expr:
        s, z = (along(p.value, integers.ndim, 0) for p in (scale, zero_point))
        real = ((integers.astype(np.int32) - z).astype(np.float32) * s).astype(np.float32)
        return self._layer_tensor(packed, "weight", real, (scale, zero_point), str(integers.dtype), integers)

    def bias(self, packed: Any, real: Array, scale: Constant) -> Expr:
        """The bias of a quantized layer, in the scale of its sums."""
        return self._layer_tensor(packed, "bias", real, (scale, Constant(np.zeros((), np.int32))), "int32", None)

    def _layer_tensor(self, packed: Any, what: str, real: Array, parameters: tuple[Constant, Constant], dtype: str,
                      integers: Array | None) -> Expr:
        if self._layers is None:
            self.refuse("it is a quantized layer, which is not supported inside this operator")
        return self._layers.stored(packed, what, real, parameters, dtype, integers, self.origin)

    def settled(self, x: Expr) -> Expr:
        """`x`, or the constant that it evaluates to within a few steps."""
        return self._known.settle_near(x)

    def value(self, x: Expr, name: str, why: str = "") -> Array:
        """The value of argument `name`; raises `ModelError` if it depends on the model's inputs."""
        value = self.known(self.settled(x))
        if value is None or value.dtype == object:
            what = f"argument '{name}' must be known at compile time, but it is computed from the model's inputs"
            self.refuse(f"{what}; make it a constant of the model")
        return value


def _same(value: Any, default: Any) -> bool:
    if isinstance(value, (list, tuple)) and isinstance(default, (list, tuple)):
        return list(value) == list(default)
    return value is None or (type(value) in (bool, int, float, str) and value == default)


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, (bool, int, float, str, list, tuple)) else f"a {type(value).__name__}"
