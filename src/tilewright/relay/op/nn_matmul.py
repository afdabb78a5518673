"""Matrix products and bias addition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import DataType, TensorType, Type
from tilewright.relay.op.registry import Array, Fusion, Op, Precision, Relaid, op, per_channel_types, tensors
from tilewright.topi import definitions
from tilewright.topi.nn.activation import bias_add
from tilewright.topi.nn.multiplication import dense_pack
from tilewright.topi.shapes import Perm, axis_of, broadcast_shapes, differ, require_rank, require_same_dtype, text


def product_dtype(a: DataType, b: DataType, out_dtype: str) -> DataType:
    """The dtype of a sum of products: `out_dtype`, or the common dtype. With `out_dtype`, integer types may differ."""
    if a is not b and not (out_dtype and a.is_integer and b.is_integer):
        raise ShapeError(f"dtypes {a} and {b} differ; cast one of the arguments"
                         + ("" if out_dtype else ", or give out_dtype for integers"))
    return DataType(out_dtype) if out_dtype not in ("", "void") else a


def accumulator(a: np.dtype[Any], b: np.dtype[Any]) -> np.dtype[Any]:
    """The accumulator dtype in numpy: float32 for half floats; float64 for integers of up to 16 bits, exact below 2^53.
    """
    kind = DataType(a)
    if kind.is_float:
        return np.dtype(np.float32) if kind.bits < 64 else np.dtype(np.float64)
    return np.dtype(np.float64) if max(a.itemsize, b.itemsize) <= 2 else np.dtype(np.int64)


def multiplied(a: Array, b: Array) -> Array:
    return np.asarray(np.matmul(a, b))


def product_of(a: Array, b: Array, out_dtype: str) -> Array:
    """Return the matrix product in the dtype of the result; integers wrap around."""
    dtype = product_dtype(DataType(a.dtype), DataType(b.dtype), out_dtype)
    acc = accumulator(a.dtype, b.dtype)
    total = multiplied(a.astype(acc), b.astype(acc))
    if dtype.is_integer and acc.kind == "f":
        total = total.astype(np.int64)
    return total.astype(dtype.numpy())


def _swapped(x: Array, swap: bool) -> Array:
    return x.swapaxes(-1, -2) if swap else x


@op("nn.dense", kind=Fusion.OUT_FUSABLE)
class Dense(Op):
    """data (…, in) times the transpose of weight (units, in)."""

    precision = Precision.ALWAYS
    units: int | None = None
    """Number of output columns; None takes it from the weight."""
    out_dtype: str = ""
    """Type of the sums and of the result; "" means that of the inputs."""

    def infer(self, data: Type, weight: Type) -> TensorType:
        """(*batch, units) from (*batch, in) and (units, in); `out_dtype` or the common dtype of the inputs."""
        d, w = tensors(data, weight)
        require_rank(w, 2, "weight")
        if d.ndim < 1 or differ(d.shape[-1], w.shape[1]):
            raise ShapeError(f"the last dimension of data {text(d.shape)} and of weight {text(w.shape)} differ; the "
                             "weight is (units, in)")
        if self.units is not None and differ(self.units, w.shape[0]):
            raise ShapeError(f"units is {self.units}, and the weight {text(w.shape)} has {w.shape[0]}")
        return TensorType((*d.shape[:-1], w.shape[0]), product_dtype(d.dtype, w.dtype, self.out_dtype))

    def infer_arguments(self, types: Sequence[Type | None]) -> Sequence[Type | None]:
        """The weight from the columns of the data and `units`."""
        data, weight = types
        if weight is not None or not isinstance(data, TensorType) or self.units is None or not data.ndim:
            return types
        return data, TensorType((self.units, data.shape[-1]), data.dtype)

    def reference(self, data: Array, weight: Array) -> Array:
        return product_of(data, weight.T, self.out_dtype)

    def compute(self, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
        return definitions.dense(data, weight, product_dtype(data.dtype, weight.dtype, self.out_dtype))


@op("nn.matmul", kind=Fusion.OUT_FUSABLE)
class Matmul(Op):
    """tensor_a (…, m, k) times tensor_b (k, n), each optionally transposed."""

    precision = Precision.ALWAYS
    units: int | None = None
    """Number of output columns; None takes it from `tensor_b`."""
    out_dtype: str = ""
    """Type of the sums and of the result; "" means that of the inputs."""
    transpose_a: bool = False
    """True transposes the last two dimensions of `tensor_a`."""
    transpose_b: bool = False
    """True transposes `tensor_b`."""

    def infer(self, tensor_a: Type, tensor_b: Type) -> TensorType:
        """(*batch, m, n) from (*batch, m, k) and (k, n); `out_dtype` or the common dtype of the inputs."""
        a, b = tensors(tensor_a, tensor_b)
        require_rank(b, 2, "tensor_b")
        if self.transpose_a and a.ndim < 2:
            raise ShapeError(f"tensor_a {text(a.shape)} cannot be transposed: it has fewer than two dimensions")
        rows = (*a.shape[:-2], a.shape[-1], a.shape[-2]) if self.transpose_a else a.shape
        depth, columns = b.shape[::-1] if self.transpose_b else b.shape
        if a.ndim < 1 or differ(rows[-1], depth):
            raise ShapeError(f"{text(rows)} and {text((depth, columns))} cannot be multiplied: "
                             f"{rows[-1] if rows else 'nothing'} and {depth} differ")
        if self.units is not None and differ(self.units, columns):
            raise ShapeError(f"units is {self.units}, and tensor_b has {columns} columns")
        return TensorType((*rows[:-1], columns), product_dtype(a.dtype, b.dtype, self.out_dtype))

    def infer_arguments(self, types: Sequence[Type | None]) -> Sequence[Type | None]:
        """`tensor_b` from the columns of `tensor_a` and `units`."""
        a, b = types
        if b is not None or not isinstance(a, TensorType) or self.units is None or not a.ndim:
            return types
        depth = a.shape[-2 if self.transpose_a else -1]
        return a, TensorType((self.units, depth) if self.transpose_b else (depth, self.units), a.dtype)

    def reference(self, tensor_a: Array, tensor_b: Array) -> Array:
        return product_of(_swapped(tensor_a, self.transpose_a), _swapped(tensor_b, self.transpose_b), self.out_dtype)

    def compute(self, tensor_a: te.Tensor, tensor_b: te.Tensor) -> te.Tensor:
        dtype = product_dtype(tensor_a.dtype, tensor_b.dtype, self.out_dtype)
        return definitions.matmul(tensor_a, tensor_b, self.transpose_a, self.transpose_b, dtype)


@op("nn.batch_matmul", kind=Fusion.OUT_FUSABLE)
class BatchMatmul(Op):
    """Matrix products of two 3-d tensors: (b, m, k) times the transpose of (b, n, k). A batch of one is repeated."""

    precision = Precision.ALWAYS
    out_dtype: str = ""
    """Type of the sums and of the result; "" means that of the inputs."""
    transpose_a: bool = False
    """True transposes the matrices of `tensor_a`."""
    transpose_b: bool = True
    """True transposes the matrices of `tensor_b`."""

    def infer(self, tensor_a: Type, tensor_b: Type) -> TensorType:
        """(b, m, n) from (b or 1, m, k) and (b or 1, n, k); `out_dtype` or the common dtype of the inputs."""
        a, b = tensors(tensor_a, tensor_b)
        require_rank(a, 3, "tensor_a")
        require_rank(b, 3, "tensor_b")
        rows, depth = a.shape[:0:-1] if self.transpose_a else a.shape[1:]
        inner, columns = b.shape[:0:-1] if self.transpose_b else b.shape[1:]
        if differ(depth, inner):
            raise ShapeError(f"{text((rows, depth))} and {text((inner, columns))} cannot be multiplied: {depth} and "
                             f"{inner} differ")
        batch = broadcast_shapes(a.shape[:1], b.shape[:1])
        return TensorType((*batch, rows, columns), product_dtype(a.dtype, b.dtype, self.out_dtype))

    def reference(self, tensor_a: Array, tensor_b: Array) -> Array:
        return product_of(_swapped(tensor_a, self.transpose_a), _swapped(tensor_b, self.transpose_b), self.out_dtype)

    def compute(self, tensor_a: te.Tensor, tensor_b: te.Tensor) -> te.Tensor:
        dtype = product_dtype(tensor_a.dtype, tensor_b.dtype, self.out_dtype)
        return definitions.batch_matmul(tensor_a, tensor_b, self.transpose_a, self.transpose_b, dtype)


@op("nn.bias_add", kind=Fusion.BROADCAST)
class BiasAdd(Op):
    """data plus bias[channel], the channels along `axis`."""

    precision = Precision.FOLLOW
    axis: int = 1
    """Dimension of the channels; negative counts from the end."""

    def infer(self, data: Type, bias: Type) -> TensorType:
        """The type of the data; `bias` is a vector of its dtype, one element for each index of `axis`."""
        d, b = tensors(data, bias)
        require_same_dtype((d, b))
        channels = d.shape[axis_of(self.axis, d.ndim)]
        if b.ndim != 1 or differ(b.shape[0], channels):
            raise ShapeError(f"the bias must have the shape ({channels},), one value for each element of axis "
                             f"{self.axis}, and it has {text(b.shape)}")
        return d

    def infer_arguments(self, types: Sequence[Type | None]) -> Sequence[Type | None]:
        """The bias from the channels of the data."""
        return per_channel_types(types, self.axis)

    def reference(self, data: Array, bias: Array) -> Array:
        return np.asarray(data + bias.reshape([-1 if d == self.axis % data.ndim else 1 for d in range(data.ndim)]))

    def compute(self, data: te.Tensor, bias: te.Tensor) -> te.Tensor:
        return bias_add(data, bias, self.axis)

    def relayout(self, perms: Sequence[Perm | None]) -> Relaid:
        perm = perms[0]
        if perm is None:
            return self, (None, None), None
        return BiasAdd(axis=perm.index(self.axis % len(perm))), (perm, None), perm


@op("nn.contrib_dense_pack", kind=Fusion.OUT_FUSABLE)
class DensePack(Op):
    """data (batch, in) times the transpose of a weight packed in panels (units / x, in, x)."""

    units: int | None = None
    """Number of output columns; None takes it from the weight."""
    out_dtype: str = ""
    """Type of the sums and of the result; "" means that of the inputs."""
    weight_layout: str = "NK"
    """Layout of the weight: "NK<x>n" with x columns in a panel, or "NK" for any."""

    def infer(self, data: Type, weight: Type) -> TensorType:
        """(batch, units) from (batch, in) and (units / x, in, x); `out_dtype` or the common dtype of the inputs."""
        d, w = tensors(data, weight)
        require_rank(d, 2, "data")
        require_rank(w, 3, "weight")
        if self.weight_layout not in ("NK", f"NK{w.shape[2]}n"):
            raise ShapeError(f"weight_layout {self.weight_layout} does not match the weight {text(w.shape)}; it must "
                             f"be NK{w.shape[2]}n")
        units = w.shape[0] * w.shape[2]
        if differ(d.shape[1], w.shape[1]) or (self.units is not None and differ(self.units, units)):
            raise ShapeError(f"the weight {text(w.shape)}, which is (units / x, in, x), does not fit data "
                             f"{text(d.shape)}"
                             + (f" and {self.units} units" if self.units else ""))
        return TensorType((d.shape[0], units), product_dtype(d.dtype, w.dtype, self.out_dtype))

    def reference(self, data: Array, weight: Array) -> Array:
        plain = weight.transpose(0, 2, 1).reshape(-1, weight.shape[1])
        return product_of(data, plain.T, self.out_dtype)

    def compute(self, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
        return dense_pack(data, weight, None, str(product_dtype(data.dtype, weight.dtype, self.out_dtype)))
