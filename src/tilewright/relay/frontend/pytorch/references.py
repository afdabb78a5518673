"""Mutable tensors: `Reference` is a tensor of the source program, `View` a part of another one.

Relay's values are immutable. A reference holds the expression of its tensor's current value; writing replaces it. A
view is read from its base, so it sees writes to the base; writing to a view writes to the base:

    y = x[0]; y.add_(1); return x      ->      scatter_elements(x, places of y in x, x[0] + 1)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.pytorch.node import Node
from tilewright.relay.frontend.shaping import cast, reshape
from tilewright.relay.types_of import dtype_of, shape_of

Read = Callable[[Expr], Expr]


class Reference:
    """A tensor of the source program, and the expression of its current value."""

    __slots__ = ("_value", "version")

    def __init__(self, value: Expr) -> None:
        self._value, self.version = value, 0

    @property
    def value(self) -> Expr:
        return self._value

    @property
    def root(self) -> Reference:
        """The tensor that owns the memory."""
        return self

    def write(self, new: Expr, node: Node) -> None:
        """Replace the value of the tensor; the type must be the same."""
        self._value = new
        self.version += 1

    def restore(self, value: Expr) -> None:
        """Reset the tensor to an earlier value."""
        self._value = value
        self.version += 1


class View(Reference):
    """A part of `base`; `read` extracts it from the base's expression."""

    __slots__ = ("_base", "_read")

    def __init__(self, value: Expr, base: Reference, read: Read) -> None:
        super().__init__(value)
        self._base, self._read = base, read
        self.version = base.version

    @property
    def value(self) -> Expr:
        base = self._base.value  # first, because it may update the version of the base
        if self.version != self._base.version:
            self._value, self.version = self._read(base), self._base.version
        return self._value

    @property
    def root(self) -> Reference:
        return self._base.root

    def write(self, new: Expr, node: Node) -> None:
        whole = self._base.value
        shape, part = node.static(whole, "self"), node.static(self.value, "self")
        count = math.prod(shape)
        places = node.value(self._read(Constant(np.arange(count).reshape(shape))), "self").reshape(-1)
        rows = reshape(cast(new, dtype_of(whole)), (math.prod(part),))
        if places.size == count and np.array_equal(places, np.arange(count)):
            written = reshape(rows, shape)
        else:
            flat = op.scatter_elements(reshape(whole, (count,)), Constant(places), rows, axis=0)
            written = reshape(node.settled(flat), shape)
        self._base.write(node.settled(written), node)


def read(value: Any) -> Any:
    """`value` with references replaced by their expressions, also in lists."""
    if isinstance(value, Reference):
        return value.value
    if isinstance(value, (list, tuple)):
        return [read(v) for v in value]
    return value


def spread(x: Expr, shape: tuple[Any, ...]) -> Expr:
    return x if shape_of(x) == shape else op.broadcast_to(x, shape=shape)
