"""Small integers as bit planes packed into words, and their products (Cowan et al., 2018)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import DataType, TensorType, Type
from tilewright.relay.op.nn_conv import Conv2d, normalized
from tilewright.relay.op.nn_matmul import product_of
from tilewright.relay.op.registry import Array, Fusion, Op, op, tensors
from tilewright.topi.nn import binary as topi
from tilewright.topi.shapes import axis_of, differ, is_multiple, require_rank, text


def word_of(pack_dtype: str) -> DataType:
    """Return the type of the words. Raises `ShapeError` for other types than unsigned integers of whole bytes."""
    kind = DataType(pack_dtype)
    if kind.code != "uint" or kind.bits < 8:
        raise ShapeError(f"bits cannot be packed in {kind}; use uint8, uint16, uint32 or uint64")
    return kind


def _words(n: Any, kind: DataType, axis: int) -> Any:
    if not is_multiple(n, kind.bits):
        raise ShapeError(f"{n} elements along axis {axis} do not fill words of {kind.bits} bits; pad them")
    return n // kind.bits


def _require_integers(*types: TensorType) -> None:
    for t in types:
        if not t.dtype.is_integer:
            raise ShapeError(f"integers were expected, and these are {t.dtype}; quantize them first")


@op("nn.bitpack", kind=Fusion.OPAQUE)
class BitPack(Op):
    """The lowest `bits` bits of integers: each bit plane packed along `pack_axis` into words, the first element in the
    highest bit.
    """

    bits: int = 1
    """Number of bit planes, from the lowest bit on."""
    pack_axis: int = 1
    """Dimension that is packed into words; negative counts from the end."""
    bit_axis: int = 2
    """Position of the new dimension of the planes in the result."""
    pack_type: str = "uint32"
    """Type of the words: "uint8", "uint16", "uint32" or "uint64"."""

    def infer(self, data: Type) -> TensorType:
        """The shape with `pack_axis` in words and `bits` inserted at `bit_axis`; `pack_type`. The data are integer."""
        (t,) = tensors(data)
        _require_integers(t)
        axis, kind = axis_of(self.pack_axis, t.ndim, "pack_axis"), word_of(self.pack_type)
        if not 0 <= self.bit_axis <= t.ndim or not 1 <= self.bits <= t.dtype.bits:
            raise ShapeError(f"{self.bits} planes along axis {self.bit_axis} cannot be made from {t!r}; the axis must "
                             f"be 0 to {t.ndim}, and bits 1 to {t.dtype.bits}")
        shape = [_words(n, kind, axis) if d == axis else n for d, n in enumerate(t.shape)]
        return TensorType((*shape[: self.bit_axis], self.bits, *shape[self.bit_axis :]), kind)

    def reference(self, data: Array) -> Array:
        kind, axis = word_of(self.pack_type), self.pack_axis % data.ndim
        rows = np.moveaxis(data, axis, -1)
        rows = rows.reshape(*rows.shape[:-1], -1, kind.bits).astype(np.int64)
        places = np.uint64(1) << np.arange(kind.bits - 1, -1, -1, dtype=np.uint64)
        planes = [np.moveaxis((((rows >> b) & 1).astype(np.uint64) * places).sum(-1), -1, axis)
                  for b in range(self.bits)]
        return np.stack(planes, self.bit_axis).astype(kind.numpy())

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.bitpack(data, self.bits, self.pack_axis % data.ndim, self.bit_axis, self.pack_type)


class Bitserial(Op):
    """Base of the products of bit planes."""

    weight_bits: int
    """Bits of a weight."""
    pack_dtype: str
    """Type of the words of packed bits: "uint8", "uint16", "uint32" or "uint64"."""
    out_dtype: str
    """Type of the result."""
    unipolar: bool
    """True counts a bit of a weight as 1 or -1, False as 1 or 0."""

    def _weights(self, weight: Array) -> Array:
        """Return the integers that the bits of the weights represent."""
        planes = [((weight.astype(np.int64) >> b) & 1) << b for b in range(self.weight_bits)]
        total = np.asarray(sum(planes))
        return 2 * total - ((1 << self.weight_bits) - 1) if self.unipolar else total


def _low_bits(data: Array, bits: int) -> Array:
    return data.astype(np.int64) & ((1 << bits) - 1)


@op("nn.bitserial_dense", kind=Fusion.OPAQUE)
class BitserialDense(Bitserial):
    """data (batch, in) of `data_bits` bits times the transpose of weight (units, in) of `weight_bits` bits."""

    units: int | None = None
    """Number of output columns; None takes it from the weight."""
    data_bits: int = 1
    """Bits of a data element."""
    weight_bits: int = 1
    pack_dtype: str = "uint32"
    out_dtype: str = "int16"
    unipolar: bool = True

    def infer(self, data: Type, weight: Type) -> TensorType:
        """(batch, units) from integers (batch, in) and (units, in); `out_dtype`."""
        t, w = (require_rank(x, 2, what) for x, what in zip(tensors(data, weight), ("data", "weight"), strict=True))
        _require_integers(t, w)
        _words(t.shape[1], word_of(self.pack_dtype), 1)
        if differ(t.shape[1], w.shape[1]) or (self.units is not None and differ(self.units, w.shape[0])):
            raise ShapeError(f"the weight {text(w.shape)} must be (units, in) for data {text(t.shape)}"
                             + (f" and {self.units} units" if self.units else ""))
        return TensorType((t.shape[0], w.shape[0] if self.units is None else self.units), self.out_dtype)

    def reference(self, data: Array, weight: Array) -> Array:
        whole = product_of(_low_bits(data, self.data_bits), self._weights(weight).T, "int64")
        return whole.astype(DataType(self.out_dtype).numpy())

    def compute(self, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
        return topi.bitserial_dense(data, weight, self.data_bits, self.weight_bits, self.pack_dtype, self.out_dtype,
                                    self.unipolar)


@op("nn.bitserial_conv2d", kind=Fusion.OPAQUE)
class BitserialConv2d(Bitserial):
    """A convolution of data of `activation_bits` bits with weights of `weight_bits` bits; padding contributes zero."""

    strides: tuple[int, ...] = (1, 1)
    """Step of the window along height and width, in pixels."""
    padding: tuple[int, ...] = (0, 0)
    """Number of zero pixels around the image: (top, left, bottom, right), or fewer numbers."""
    channels: int | None = None
    """Number of output channels; None takes it from the weight."""
    kernel_size: tuple[int, ...] | None = None
    """Height and width of the kernel; None takes them from the weight."""
    activation_bits: int = 1
    """Bits of a data element."""
    weight_bits: int = 1
    data_layout: str = "NCHW"
    """Layout of data and result: "NCHW" or "NHWC"."""
    kernel_layout: str = ""
    """Layout of the weight; "" means "OIHW" for "NCHW", "HWIO" for "NHWC"."""
    pack_dtype: str = "uint32"
    out_dtype: str = "int16"
    unipolar: bool = True

    def __post_init__(self) -> None:
        normalized(self, 2, "strides", "kernel_size")

    def _plain(self) -> Conv2d:
        """Return the equivalent convolution of integers."""
        kernel = self.kernel_layout or {"NCHW": "OIHW", "NHWC": "HWIO"}.get(self.data_layout, "")
        if (self.data_layout, kernel) not in (("NCHW", "OIHW"), ("NHWC", "HWIO")):
            raise ShapeError(f"layouts {self.data_layout} and {self.kernel_layout} are not supported; use NCHW and "
                             "OIHW, or NHWC and HWIO")
        return Conv2d(
            self.strides, self.padding, channels=self.channels, kernel_size=self.kernel_size,
            data_layout=self.data_layout, kernel_layout=kernel,
            out_dtype="int64")

    def infer(self, data: Type, weight: Type) -> TensorType:
        """The shape of `nn.conv2d`; `out_dtype`. Both inputs are integer."""
        t, w = tensors(data, weight)
        _require_integers(t, w)
        found = self._plain().infer(t, TensorType(w.shape, t.dtype))
        axis = self.data_layout.index("C")
        _words(t.shape[axis], word_of(self.pack_dtype), axis)
        return TensorType(found.shape, self.out_dtype)

    def reference(self, data: Array, weight: Array) -> Array:
        whole = self._plain().reference(_low_bits(data, self.activation_bits), self._weights(weight))
        return whole.astype(DataType(self.out_dtype).numpy())

    def compute(self, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
        made = topi.bitserial_conv2d_nchw if self.data_layout == "NCHW" else topi.bitserial_conv2d_nhwc
        return made(data, weight, self.strides, self.padding, self.activation_bits, self.weight_bits, self.pack_dtype,
                    self.out_dtype, self.unipolar)
