"""Operators that combine each element with those before it along an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from tilewright import te
from tilewright.relay.op.registry import Array, Fusion, Op, op, tensors
from tilewright.topi import scans as topi
from tilewright.topi.shapes import axis_of, product
from tilewright.types import DataType, TensorType, Type


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
        if self.exclusive:
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
