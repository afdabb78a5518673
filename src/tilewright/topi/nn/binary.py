"""Products of small integers as bit planes packed into words, by counting bits (Cowan et al., 2018).

With `unipolar`, a weight bit counts 1 if set and -1 if clear; otherwise 1 or 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import DataType
from tilewright.scalar.expr import GE as GREATER_EQUAL
from tilewright.scalar.expr import PrimExpr, Var, add, all_of, cast, compare, const, if_then_else, mul, sub
from tilewright.scalar.intrinsics import bitwise_and, bitwise_not, bitwise_xor, shift_left, shift_right
from tilewright.topi.kinds import Reduction
from tilewright.topi.shapes import axis_of, text
from tilewright.topi.tag import tagged
from tilewright.topi.transform import dims
from tilewright.topi.windows import Ints, Padding, padding_of, per_dimension, window_count


def bits_set(x: PrimExpr) -> PrimExpr:
    """Return the number of set bits of an unsigned integer, in its own type: by sums over pairs, fours, and bytes."""
    kind = x.dtype

    def every(byte: int) -> PrimExpr:
        return const(int.from_bytes(bytes([byte]) * kind.itemsize, "little"), kind)

    def down(value: PrimExpr, by: int) -> PrimExpr:
        return shift_right(value, const(by, kind))

    pairs = sub(x, bitwise_and(down(x, 1), every(0x55)))
    fours = add(bitwise_and(pairs, every(0x33)), bitwise_and(down(pairs, 2), every(0x33)))
    octets = bitwise_and(add(fours, down(fours, 4)), every(0x0F))
    return octets if kind.bits == 8 else down(mul(octets, every(0x01)), kind.bits - 8)


def _word(pack_type: str) -> DataType:
    kind = DataType(pack_type)
    if kind.code != "uint" or kind.bits < 8:
        raise ShapeError(f"bits cannot be packed into {kind}; use uint8, uint16, uint32 or uint64")
    return kind


@tagged("bitpack")
def bitpack(
    data: te.Tensor, bits: int, pack_axis: int, bit_axis: int, pack_type: str, name: str = "QuantizeInput"
) -> te.Tensor:
    """Pack the lowest `bits` bits of integers: each plane along `pack_axis` into words, first element highest; planes
    are along a new `bit_axis`."""
    kind, axis = _word(pack_type), axis_of(pack_axis, data.ndim)
    if dims(data)[axis] % kind.bits:
        raise ShapeError(
            f"{dims(data)[axis]} elements along axis {axis} of {text(dims(data))} do not fill words of {kind.bits} "
            "bits; pad them"
        )
    words = [n // kind.bits if d == axis else n for d, n in enumerate(dims(data))]

    def element(*i: Var) -> PrimExpr:
        where: list[Any] = [*i[:bit_axis], *i[bit_axis + 1 :]]
        plane, first = cast(data.dtype, i[bit_axis]), where[axis] * kind.bits
        word: PrimExpr = const(0, kind)
        for k in range(kind.bits):
            where[axis] = first + k
            bit = bitwise_and(shift_right(data(*where), plane), const(1, data.dtype))
            word = add(word, shift_left(cast(kind, bit), const(kind.bits - 1 - k, kind)))
        return word

    return te.compute((*words[:bit_axis], bits, *words[bit_axis:]), element, name=name, inline=False)


def _planes(x: PrimExpr, w: PrimExpr, shift: PrimExpr, unipolar: bool, dtype: DataType) -> PrimExpr:
    """Return the contribution of one word of activations and one of weights, for planes with the factor 2^shift."""
    count = cast(dtype, bits_set(bitwise_and(x, w)))
    if unipolar:
        count = sub(count, cast(dtype, bits_set(bitwise_and(x, bitwise_not(w)))))
    return shift_left(count, cast(dtype, shift))


def _stored(shape: Sequence[Any], element: Callable[..., PrimExpr], name: str) -> te.Tensor:
    total = te.compute(shape, element, name=f"{name}_sum", schedule=Reduction())
    return te.compute(total.shape, total, name=name)


@tagged("bitserial_dense")
def bitserial_dense(
    data: te.Tensor, weight: te.Tensor, data_bits: int, weight_bits: int, pack_dtype: str = "uint32",
    out_dtype: str = "int16", unipolar: bool = True
) -> te.Tensor:
    """Multiply data (batch, in) of small integers by the transpose of weight (units, in), or of packed weights (units,
    bits, words)."""
    x = bitpack(data, data_bits, 1, 1, pack_dtype)
    w = bitpack(weight, weight_bits, 1, 1, pack_dtype) if weight.ndim == 2 else weight
    if w.extents[1:] != (weight_bits, x.extents[2]):
        raise ShapeError(f"weights {text(w.extents)} do not fit {weight_bits} bits and {x.extents[2]} words of data")
    b1, b2, k = (
        te.reduce_axis((0, n), name) for n,
        name in zip((data_bits, weight_bits, x.extents[2]), ("b1", "b2", "k"), strict=True)
    )
    dtype = DataType(out_dtype)
    return _stored(
        (x.shape[0], w.shape[0]),
        lambda n, o: te.sum(_planes(x(n, b1, k), w(o, b2, k), b1.var + b2.var, unipolar, dtype), axis=[b1, b2, k]),
        "bitserial_dense",
    )


def _bitserial_conv(
    x: Any, w: Any, sizes: Ints, kernel: Ints, words: int, stride: Any, padding: Padding, bits: Ints, unipolar: bool,
    dtype: DataType
) -> tuple[Any, list[int]]:
    """Return the element function at (n, y, x, o) and the spatial shape, for words `x(n, y, x, plane, k)` and `w(y, x,
    plane, k, o)`."""
    every, sides = per_dimension(stride, 2, "stride"), padding_of(padding, kernel)
    out = [window_count(n, sides[k], sides[2 + k], kernel[k], every[k], 1, k) for k, n in enumerate(sizes)]
    ry, rx, k, b1, b2 = (
        te.reduce_axis((0, n), name) for n,
        name in zip((*kernel, words, *bits), ("ry", "rx", "k", "b1", "b2"), strict=True)
    )

    def element(n: Var, y: Var, at: Var, o: Var) -> PrimExpr:
        row, column = y * every[0] + ry.var - sides[0], at * every[1] + rx.var - sides[1]
        inside = all_of(row >= 0, row < sizes[0], column >= 0, column < sizes[1])
        value = _planes(x(n, row, column, b1, k), w(ry, rx, b2, k, o), b1.var + b2.var, unipolar, dtype)
        return te.sum(if_then_else(inside, value, const(0, dtype)), axis=[ry, rx, k, b1, b2])

    return element, out


@tagged("bitserial_conv2d_nchw")
def bitserial_conv2d_nchw(
    data: te.Tensor, kernel: te.Tensor, stride: int | Ints, padding: Padding, activation_bits: int, weight_bits: int,
    pack_dtype: str = "uint32", out_dtype: str = "int16", unipolar: bool = True,
) -> te.Tensor:
    """Convolve data NCHW with a kernel OIHW of small integers, or with a packed one (out, words, height, width, bits).
    """
    x = bitpack(data, activation_bits, 1, 2, pack_dtype)
    w = bitpack(kernel, weight_bits, 1, 4, pack_dtype) if kernel.ndim == 4 else kernel
    n, words, _, *sizes = x.extents
    channels, depth, *taps, bits = w.extents
    if (depth, bits) != (words, weight_bits):
        raise ShapeError(f"the kernel {text(w.extents)} does not fit {weight_bits} bits and {words} words of data")
    element, out = _bitserial_conv(
        lambda b, y, at, plane, k: x(b, k, plane, y, at), lambda y, at, plane, k, o: w(o, k, y, at, plane), sizes, taps,
        words, stride, padding, (activation_bits, weight_bits), unipolar, DataType(out_dtype),
    )
    return _stored((n, channels, *out), lambda b, o, y, at: element(b, y, at, o), "bitserial_conv2d")


@tagged("bitserial_conv2d_nhwc")
def bitserial_conv2d_nhwc(
    data: te.Tensor, kernel: te.Tensor, stride: int | Ints, padding: Padding, activation_bits: int, weight_bits: int,
    pack_dtype: str = "uint32", out_dtype: str = "int16", unipolar: bool = True,
) -> te.Tensor:
    """Convolve data NHWC with a kernel HWIO of small integers, or with a packed one (height, width, words, out, bits).
    """
    x = bitpack(data, activation_bits, 3, 4, pack_dtype)
    w = bitpack(kernel, weight_bits, 2, 4, pack_dtype) if kernel.ndim == 4 else kernel
    n, *sizes, words, _ = x.extents
    *taps, depth, channels, bits = w.extents
    if (depth, bits) != (words, weight_bits):
        raise ShapeError(f"the kernel {text(w.extents)} does not fit {weight_bits} bits and {words} words of data")
    element, out = _bitserial_conv(
        lambda b, y, at, plane, k: x(b, y, at, k, plane), lambda y, at, plane, k, o: w(y, at, k, o, plane), sizes, taps,
        words, stride, padding, (activation_bits, weight_bits), unipolar, DataType(out_dtype),
    )
    return _stored((n, *out, channels), element, "bitserial_conv2d")


@tagged("binarize_pack")
def binarize_pack(data: te.Tensor, axis: int | None = None, name: str = "PackedInput") -> te.Tensor:
    """Pack the signs of 32 elements along `axis` (default: the last) into a uint32, first element highest; a bit is set
    for x >= 0."""
    at = axis_of(-1 if axis is None else axis, data.ndim)
    if dims(data)[at] % 32:
        raise ShapeError(
            f"{dims(data)[at]} elements along axis {at} of {text(dims(data))} do not fill words of 32 bits; pad them"
        )

    def element(*i: Var) -> PrimExpr:
        word: PrimExpr = const(0, "uint32")
        for k in range(32):
            x = data(*(v * 32 + k if d == at else v for d, v in enumerate(i)))
            word = add(
                word,
                if_then_else(
                    compare(GREATER_EQUAL, x, const(0, x.dtype)), const(1 << (31 - k), "uint32"), const(0, "uint32")
                )
            )
        return word

    return te.compute([n // 32 if d == at else n for d, n in enumerate(dims(data))], element, name=name)


@tagged("binary_dense")
def binary_dense(data: te.Tensor, weight: te.Tensor) -> te.Tensor:
    """Multiply packed signs, data (batch, words) and weight (units, words) of uint32: the number of equal elements
    minus that of unequal ones, as float32."""
    words = data.extents[1]
    if weight.extents[1] != words:
        raise ShapeError(
            f"data {text(data.extents)} and weight {text(weight.extents)} do not have the same number of words"
        )
    k = te.reduce_axis((0, words), "k")
    different = te.compute(
        (data.shape[0], weight.shape[0]),
        lambda n, o: te.sum(cast("int32", bits_set(bitwise_xor(data(n, k), weight(o, k)))), axis=k), name="different",
        schedule=Reduction(),
    )
    return te.compute(
        different.shape,
        lambda n, o: cast("float32", sub(const(32 * words, "int32"), mul(different(n, o), const(2, "int32")))),
        name="binary_dense"
    )


__all__ = [
    "binarize_pack", "binary_dense", "bitpack", "bitserial_conv2d_nchw", "bitserial_conv2d_nhwc", "bitserial_dense"
]
