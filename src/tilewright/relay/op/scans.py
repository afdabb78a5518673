"""Operators that combine each element with the elements before it along an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from tilewright import te
from tilewright.base.types import DataType, TensorType, TupleType, Type
from tilewright.relay.op.registry import Array, Fusion, Op, attributes, op, tensors
from tilewright.topi import scans as topi
from tilewright.topi.shapes import axis_of, product


@attributes
class Scan(Op):
    """Base of the sums and products of prefixes."""

    axis: int | None = None
    """Dimension of the scan; None flattens the data."""
    dtype: str | None = None
    """Type of the sums or products and of the result; None means that of the data."""
    exclusive: bool | None = None
    """True leaves the element itself out of its sum or product."""
    accumulate: ClassVar[Callable[..., Any]]
    computed: ClassVar[Callable[..., te.Tensor]]
    identity: ClassVar[int]

    def infer(self, data: Type) -> TensorType:
        """The shape of the data (flattened without `axis`); `dtype` or that of the data."""
        (t,) = tensors(data)
        dtype = self.dtype or t.dtype
        if self.axis is None:
            return TensorType((product(t.shape),), dtype)
        axis_of(self.axis, t.ndim)
        return TensorType(t.shape, dtype)

    def reference(self, data: Array) -> Array:
        dtype = DataType(self.dtype or data.dtype).numpy()
        values = (data.reshape(-1) if self.axis is None else data).astype(dtype)
        axis = 0 if self.axis is None else self.axis
        result = np.asarray(self.accumulate(values, axis=axis, dtype=dtype))
        if self.exclusive and result.size:
            first = np.full_like(np.take(result, [0], axis=axis), self.identity)
            result = np.concatenate([first, np.take(result, np.arange(result.shape[axis] - 1), axis=axis)], axis=axis)
        return result

    def compute(self, data: te.Tensor) -> te.Tensor:
        return self.computed(data, self.axis, self.dtype, self.exclusive)


@op("cumsum", kind=Fusion.OPAQUE)
class CumSum(Scan):
    """The sum of the elements up to each one along `axis`."""

    accumulate = staticmethod(np.cumsum)
    computed = staticmethod(topi.cumsum)
    identity = 0


@op("cumprod", kind=Fusion.OPAQUE)
class CumProd(Scan):
    """The product of the elements up to each one along `axis`."""

    accumulate = staticmethod(np.cumprod)
    computed = staticmethod(topi.cumprod)
    identity = 1


@attributes
class Extremes(Op):
    """Base of the extremes of prefixes: values, and the position of the last of equal extremes."""

    axis: int = 0
    """Dimension of the scan; negative counts from the end."""
    is_greatest: ClassVar[bool]

    @property
    def results(self) -> int:
        return 2

    def infer(self, data: Type) -> TupleType:
        """A tuple of the type of the data and its shape of int64."""
        (t,) = tensors(data)
        axis_of(self.axis, t.ndim)
        return TupleType((t, TensorType(t.shape, "int64")))

    def reference(self, data: Array) -> tuple[Array, Array]:
        values, places = np.moveaxis(data, self.axis, 0).copy(), np.zeros(np.moveaxis(data, self.axis, 0).shape,
            np.int64)
        for k in range(1, len(values)):
            here, before = values[k], values[k - 1]
            taken = (here >= before if self.is_greatest else here <= before) | np.not_equal(here, here)
            values[k], places[k] = np.where(taken, here, before), np.where(taken, k, places[k - 1])
        return np.moveaxis(values, 0, self.axis), np.moveaxis(places, 0, self.axis)

    def compute(self, data: te.Tensor) -> tuple[te.Tensor, ...]:
        return topi.extremes(data, self.axis, self.is_greatest, self.name)


@op("cummax", kind=Fusion.OPAQUE)
class CumMax(Extremes):
    """The largest of the elements up to each one along `axis`, and its position, the last of equal ones. NaN is the
    largest.
    """

    is_greatest = True


@op("cummin", kind=Fusion.OPAQUE)
class CumMin(Extremes):
    """The smallest of the elements up to each one along `axis`, and its position, the last of equal ones. NaN is the
    smallest.
    """

    is_greatest = False
