"""Operators that combine each element with those before it along an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from tilewright import te
from tilewright.base.types import DataType, TensorType, TupleType, Type
from tilewright.relay.op.registry import Array, Fusion, Op, op, tensors
from tilewright.topi import scans as topi
from tilewright.topi.shapes import axis_of, product


class Scan(Op):
    """Base of the scans: each element combined with all before it along `axis`, of the flattened data without one."""

    axis: Any
    dtype: Any
    exclusive: Any
    accumulate: ClassVar[Callable[..., Any]]
    computed: ClassVar[Callable[..., te.Tensor]]
    identity: ClassVar[int]

    def infer(self, data: Type) -> TensorType:
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
    """The sums of the elements up to each one along `axis`; without that one when `exclusive`."""

    axis: int | None = None
    dtype: str | None = None
    exclusive: bool | None = None
    accumulate = staticmethod(np.cumsum)
    computed = staticmethod(topi.cumsum)
    identity = 0


@op("cumprod", kind=Fusion.OPAQUE)
class CumProd(Scan):
    """The products of the elements up to each one along `axis`; without that one when `exclusive`."""

    axis: int | None = None
    dtype: str | None = None
    exclusive: bool | None = None
    accumulate = staticmethod(np.cumprod)
    computed = staticmethod(topi.cumprod)
    identity = 1


class Extremes(Op):
    """Base of the scans of extremes.

    The greatest or least element up to each one along `axis`, and where the last of equal ones is, as int64.
    """

    axis: Any
    is_greatest: ClassVar[bool]

    @property
    def results(self) -> int:
        return 2

    def infer(self, data: Type) -> TupleType:
        (t,) = tensors(data)
        axis_of(self.axis, t.ndim)
        return TupleType((t, TensorType(t.shape, "int64")))

    def reference(self, data: Array) -> tuple[Array, Array]:
        values, places = np.moveaxis(data, self.axis, 0).copy(), np.zeros(np.moveaxis(data, self.axis, 0).shape, np.int64)
        for k in range(1, len(values)):
            here, before = values[k], values[k - 1]
            taken = (here >= before if self.is_greatest else here <= before) | np.not_equal(here, here)
            values[k], places[k] = np.where(taken, here, before), np.where(taken, k, places[k - 1])
        return np.moveaxis(values, 0, self.axis), np.moveaxis(places, 0, self.axis)

    def compute(self, data: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
        return topi.extremes(data, self.axis, self.is_greatest, self.name)


@op("cummax", kind=Fusion.OPAQUE)
class CumMax(Extremes):
    """The greatest of the elements up to each one along `axis`, and where the last of equal ones is.

    What is no number is the greatest.
    """

    axis: int = 0
    is_greatest = True


@op("cummin", kind=Fusion.OPAQUE)
class CumMin(Extremes):
    """The least of the elements up to each one along `axis`, and where the last of equal ones is.

    What is no number is the least.
    """

    axis: int = 0
    is_greatest = False
