"""`Node`: what a converter can query about its node, besides the inputs and attributes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np

from tilewright.base.errors import ModelError, Origin
from tilewright.base.limits import MOST_TABLE
from tilewright.base.types import OpenSize
from tilewright.relay.expr import Expr
from tilewright.relay.frontend.core.known import KnownValues
from tilewright.scalar.expr import PrimExpr
from tilewright.scalar.walk import free_vars

if TYPE_CHECKING:
    from tilewright.relay.frontend.core.registry import Converter

Array = np.ndarray[Any, Any]


class NotKnownError(ModelError):
    """Raised when a conversion needs a value or size that the model computes; the node is then deferred."""

    code = "TW0108"


class SizeNotKnownError(NotKnownError):
    """Raised when a conversion needs a symbolic size of the model's inputs, or a value computed from such sizes."""


class Node:
    """One node of the model while it is converted."""

    __slots__ = ("_known", "_params", "origin", "outputs")
    operand: ClassVar[str] = "input"
    """The format's word for an operand."""

    def __init__(
        self, origin: Origin, outputs: Sequence[Any] = (), known: KnownValues | None = None,
        params: Mapping[Expr, Array] | None = None,
    ) -> None:
        """`outputs` are names, None for an unused output; `params` are the stored values of parameters."""
        self.origin, self.outputs, self._known, self._params = origin, outputs, known or KnownValues(), params or {}

    def refuse(self, why: str) -> NoReturn:
        """Raise a `ModelError` at this node."""
        raise ModelError(why, self.origin, code="TW0107")

    def refuse_attribute(self, converter: Converter, name: str, value: Any) -> None:
        """Raise `ModelError` for an unknown attribute, unless its value has no effect."""
        word, known = converter.terms.attribute, ", ".join(converter.attributes) or "none"
        raise ModelError(f"{word} '{name}' is not one of {converter.name}; its {word}s are: {known}", self.origin,
                         code="TW0109")

    def check_table(self, *sizes: int) -> None:
        """Raise `ModelError` if a table of these sizes is too large to compute during the import."""
        if math.prod(max(s, 1) for s in sizes) > MOST_TABLE or any(s < 0 for s in sizes):
            self.refuse(
                f"the node needs a table of {' x '.join(map(str, sizes))} elements; the limit for tables made while "
                f"importing is {MOST_TABLE}; correct its attributes and the shapes of its inputs")

    def hint(self, symbols: Sequence[Any] = ()) -> str:
        """Advice about unknown dimensions, to append to a message."""
        return "; give the shapes of the inputs when importing"

    def known(self, x: Any) -> Array | None:
        """The value of an input, or None if it is not known yet; an object array if it contains symbolic dimensions."""
        value = self._known.of(x)
        return self._params.get(x) if value is None and x is not None else value

    def settled(self, x: Expr) -> Expr:
        """`x`, or the constant that it evaluates to."""
        return self._known.settle(x)

    def value(self, x: Any, name: str, why: str = "") -> Array:
        """The value of input `name`; `why` is appended to the error message.

        Raises `NotKnownError` if the model computes the value or it has symbolic dimensions; the node is then deferred.
        """
        value = self.dims(x, name, why)
        if value.dtype == object and not x.tensor_type.dtype.is_object:
            self._wait_for_symbols(f"{self.operand} '{name}' is {_shown(value)}", list(value.flat))
        return value

    def dims(self, x: Any, name: str, why: str = "") -> Array:
        """The value of input `name`, an object array if it contains symbolic dimensions."""
        value = self.known(x)
        if value is None:
            value = self._known.demand(x)
        if value is None:
            what = (f"{self.operand} '{name}' must be known at compile time{why}, but it is computed from the model's "
                    "inputs")
            raise NotKnownError(what, self.origin)
        return value

    def ints(self, x: Any, name: str) -> tuple[int, ...]:
        """The value of input `name` as Python ints."""
        return tuple(int(v) for v in self.value(x, name).flat)

    def sizes(self, x: Any, name: str) -> tuple[int, ...]:
        """The value of input `name` as Python ints and dynamic sizes."""
        value = self.dims(x, name)
        if any(isinstance(v, PrimExpr) for v in value.flat):
            self._wait_for_symbols(f"{self.operand} '{name}' is {_shown(value)}", list(value.flat))
        return tuple(v if isinstance(v, OpenSize) else int(v) for v in value.flat)

    def scalar(self, x: Any, name: str, default: Any = None) -> Any:
        """The only element of input `name`, or `default` if the input is omitted."""
        if x is None:
            return default
        value = self.value(x, name)
        if value.size != 1:
            self.refuse(f"{self.operand} '{name}' must be one number, but its shape is {value.shape}")
        return value.reshape(-1)[0].item()

    def static(self, x: Expr, name: str) -> tuple[int, ...]:
        """The static shape of input `name`. Raises `NotKnownError` if a dimension is symbolic."""
        shape = x.tensor_type.shape
        if not all(isinstance(d, int) for d in shape):
            self._wait_for_symbols(f"the shape of {self.operand} '{name}' is {_shown(shape)}", shape)
        return shape

    def _wait_for_symbols(self, what: str, dims: Sequence[Any]) -> NoReturn:
        symbols = dict.fromkeys(v for d in dims if isinstance(d, PrimExpr) for v in free_vars(d))
        raise SizeNotKnownError(f"{what}, but must be known at compile time{self.hint(list(symbols))}", self.origin)


def _shown(dims: Any) -> str:
    return "(" + ", ".join(map(str, dims)) + ("," if len(dims) == 1 else "") + ")" if np.ndim(dims) else str(dims)
