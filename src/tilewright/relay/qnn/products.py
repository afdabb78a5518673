"""Convolutions and matrix products of quantized tensors: sums of products of `q - zero_point`, as int32.

    qnn.conv2d(%x, w, zx, zw, sx, sw) -> subtract(nn.conv2d(%x, w), zx * sum(w))         constant w, zw = 0

With constant weights, the stored bytes are multiplied: unsigned data by signed weights, which is fastest on processors.
The data's zero point is subtracted as one constant per output channel. Weights that exceed a byte because of their zero
point are split into two products: the clipped weights, and the excess. Signed data are offset by 128, padding is the
zero point, and channels are padded to whole words. Other cases are computed in int32 after subtracting the zero points.
The scales define the scale of the result, `sx * sw`, and do not affect the integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tilewright.backends.cpu.strategies.dots import FOURS
from tilewright.base.errors import Origin, ShapeError
from tilewright.base.types import INT32, DataType, TensorType, Type
from tilewright.relay.expr import Call, Constant, Expr
from tilewright.relay.op.broadcast import Add, BitwiseXor, Multiply, Subtract
from tilewright.relay.op.nn_conv import Conv2d, Conv2dTranspose, convolve, narrowed
from tilewright.relay.op.nn_matmul import BatchMatmul, Dense
from tilewright.relay.op.registry import Array, Fusion, Op, op, tensors
from tilewright.relay.op.shaping import sized
from tilewright.relay.op.transform import Pad, StridedSlice
from tilewright.relay.qnn import numerics as N

_LONGEST_RUN: Final = 64
"""Longest run of bytes along a kernel row that is multiplied without a loop."""
_MOST_STRAYS: Final = 2
"""Largest number of kernel positions with weights beyond a byte whose products are added separately."""


@op("qnn.conv2d", kind=Fusion.OUT_FUSABLE)
class QnnConv2d(Conv2d):
    """`nn.conv2d` of `data - input_zero_point` and `kernel - kernel_zero_point`; padding contributes zero.

    `kernel_zero_point` and `kernel_scale` are scalars, or have one element for each output channel.
    """

    out_dtype: str = "int32"
    """Type of the sums and of the result: "int32", or "int64" for data of 16 bits."""

    def infer(  # type: ignore[override]
        self, data: Type, kernel: Type, input_zero_point: Type, kernel_zero_point: Type, input_scale: Type,
        kernel_scale: Type
    ) -> TensorType:
        """The shape of `nn.conv2d`; `out_dtype`."""
        x, w = tensors(data, kernel)
        out_axis = self.axes()[1][0]
        _check_parameters(x, w, out_axis, input_zero_point, kernel_zero_point, input_scale, kernel_scale)
        return Conv2d.infer(self, data, kernel)

    def reference(  # type: ignore[override]
        self, data: Array, kernel: Array, input_zero_point: Array, kernel_zero_point: Array, input_scale: Array,
        kernel_scale: Array
    ) -> Array:
        data_order, kernel_order, out_order = self.axes()
        x = data.astype(np.int64) - np.asarray(input_zero_point).reshape(())
        w = kernel.astype(np.int64) - N.along(np.asarray(kernel_zero_point), 4, kernel_order[0])
        total = convolve(
            x.transpose(data_order), w.transpose(kernel_order), self.strides, (self.padding[:2], self.padding[2:]),
            self.dilation, self.groups)
        return narrowed(total, DataType(self.out_dtype)).transpose(out_order)

    def simplify(self, call: Call) -> Expr:
        x, w, zx, zw = call.args[:4]
        span = call.span
        data_order, kernel_order, out_order = self.axes()
        plain = Conv2d(**{**self.attributes(), "out_dtype": self.out_dtype})
        zeros = N.along(zw.value, 4, kernel_order[0]) if isinstance(zw, Constant) else None
        rows = self._reads_rows(x.tensor_type, w.tensor_type)
        stored = None
        if self.out_dtype == "int32":
            stored = _stored(_rows(x) if rows else x, w, zx, zw, zeros, span, self.groups == 1)
        if stored is None:
            a, b = _exact(x, zx, 4, 0, span, self.out_dtype), _exact(w, zw, 4, kernel_order[0], span, self.out_dtype)
            return Call(plain, [a, b], span=span)
        if rows:
            return self._by_rows(x.tensor_type.shape, *stored, span)
        x, weight, zero = stored
        if self._reads_planes(x.tensor_type, w.tensor_type):
            return self._by_planes(x, weight, zero, span)
        depth = weight.shape[kernel_order[1]]
        filled = -depth % FOURS.width if self.groups == 1 else 0
        widths = [(0, 0)] * 4
        if filled:
            widths[data_order[1]] = (0, filled)
            weight = np.pad(weight, [(0, filled) if d == kernel_order[1] else (0, 0) for d in range(4)])
        if not N.is_zero(zero) and any(self.padding):
            top, left, bottom, right = self.padding
            widths[data_order[2]], widths[data_order[3]] = (top, bottom), (left, right)
            plain = Conv2d(**{**plain.attributes(), "padding": (0, 0, 0, 0)})
        if any(map(any, widths)):
            x = Call(Pad(tuple(widths)), [x, N.casted(zero, x.tensor_type.dtype, span)], span=span)
        product = _total(plain, x, weight, span)
        sums = weight.sum(axis=tuple(kernel_order[1:]), dtype=np.int64)
        channel = out_order.index(1)
        return _corrected(product, zero, sums.reshape([-1 if d == channel else 1 for d in range(4)]), span)

    def _reads_rows(self, x: TensorType, w: TensorType) -> bool:
        """Whether NHWC data with few channels, not a multiple of a word, are better multiplied as runs along rows."""
        _, depth, _, width = self.kernel_shape(w)
        last = self.data_layout == (self.out_layout or self.data_layout) == "NHWC" and x.is_static and w.is_static
        return (last and self.groups == self.dilation[1] == 1 < width and depth % FOURS.width != 0
                and width * depth <= _LONGEST_RUN)

    def _reads_planes(self, x: TensorType, w: TensorType) -> bool:
        """Whether NCHW planes are better multiplied as runs along their rows."""
        _, depth, _, width = self.kernel_shape(w)
        first = self.data_layout == (self.out_layout or self.data_layout) == "NCHW" and x.is_static and w.is_static
        return first and self.groups == self.dilation[1] == 1 < width and depth < FOURS.width and width <= _LONGEST_RUN

    def _by_planes(self, x: Expr, weight: Array, zero: Expr, span: Origin | None) -> Expr:
        """The product of rows of planes with a kernel whose width is padded to whole words."""
        ordered = weight.transpose(self.axes()[1])  # OIHW
        channels, *_, wide = ordered.shape
        rows = np.pad(ordered, [(0, 0), (0, 0), (0, 0), (0, -wide % FOURS.width)])
        top, left, bottom, right = self.padding
        width = x.tensor_type.shape[3] + left
        last = (width + right - wide) // self.strides[1] * self.strides[1] + rows.shape[3]
        x = Call(Pad(((0, 0), (0, 0), (top, bottom), (left, max(right, last - width)))),
                 [x, N.casted(zero, x.tensor_type.dtype, span)], span=span)
        plain = Conv2d(strides=self.strides, dilation=self.dilation, channels=channels, kernel_size=rows.shape[2:],
                       out_dtype="int32")
        sums = rows.sum(axis=(1, 2, 3), dtype=np.int64)
        return _corrected(_total(plain, x, rows, span), zero, sums.reshape(1, -1, 1, 1), span)

    def _by_rows(self, shape: tuple[int, ...], x: Expr, weight: Array, zero: Expr, span: Origin | None) -> Expr:
        """The product of runs along rows of `x` (pixels and channels): a one-channel convolution, padded to whole
        words.
        """
        batch, height, width, depth = shape
        ordered = weight.transpose([self.axes()[1][k] for k in (2, 3, 1, 0)])  # HWIO
        tall, wide, _, channels = ordered.shape
        runs = ordered.reshape(tall, wide * depth, 1, channels)
        runs = np.pad(runs, [(0, 0), (0, -runs.shape[1] % FOURS.width), (0, 0), (0, 0)])
        top, left, bottom, right = self.padding
        step = self.strides[1] * depth
        last = (width + left + right - wide) // self.strides[1] * step + runs.shape[1]
        after = max(right * depth, last - (width + left) * depth)
        if top or left or bottom or after:
            x = Call(Pad(((0, 0), (top, bottom), (left * depth, after))),
                     [x, N.casted(zero, x.tensor_type.dtype, span)], span=span)
        one = Call(sized((batch, height + top + bottom, width * depth + left * depth + after, 1)), [x], span=span)
        plain = Conv2d(
            strides=(self.strides[0], step), dilation=(self.dilation[0], 1), channels=channels,
            kernel_size=runs.shape[:2], data_layout="NHWC",
            kernel_layout="HWIO", out_dtype="int32")
        return _corrected(_total(plain, one, runs, span), zero, runs.sum(axis=(0, 1, 2), dtype=np.int64), span)

    def relayout(self, perms: Sequence[Any]) -> Any:
        found = Conv2d.relayout(self, perms[:2])
        return None if found is None else (found[0], (*found[1], None, None, None, None), found[2])


@op("qnn.conv2d_transpose", kind=Fusion.OUT_FUSABLE)
class QnnConv2dTranspose(Conv2dTranspose):
    """`nn.conv2d_transpose` of `data - input_zero_point` and `weight - kernel_zero_point`.

    `kernel_zero_point` and `kernel_scale` are scalars, or have one element for each output channel of a kernel without
    groups.
    """

    out_dtype: str = "int32"
    """Type of the sums and of the result: "int32"."""

    def infer(  # type: ignore[override]
        self, data: Type, weight: Type, input_zero_point: Type, kernel_zero_point: Type, input_scale: Type,
        kernel_scale: Type
    ) -> TensorType:
        """The shape of `nn.conv2d_transpose`; `out_dtype`."""
        x, w = tensors(data, weight)
        _check_parameters(x, w, self.axes()[1][1], input_zero_point, kernel_zero_point, input_scale, kernel_scale)
        return Conv2dTranspose.infer(self, data, weight)

    def reference(  # type: ignore[override]
        self, data: Array, weight: Array, input_zero_point: Array, kernel_zero_point: Array, input_scale: Array,
        kernel_scale: Array
    ) -> Array:
        x = data.astype(np.int64) - np.asarray(input_zero_point).reshape(())
        w = weight.astype(np.int64) - N.along(np.asarray(kernel_zero_point), 4, self.axes()[1][1])
        return Conv2dTranspose.reference(self, x, w)

    def simplify(self, call: Call) -> Expr:
        x, w, zx, zw = call.args[:4]
        plain = Conv2dTranspose(**{**self.attributes(), "out_dtype": "int32"})
        return Call(plain, [_exact(x, zx, 4, 0, call.span), _exact(w, zw, 4, self.axes()[1][1], call.span)],
                    span=call.span)

    def relayout(self, perms: Sequence[Any]) -> Any:
        found = Conv2dTranspose.relayout(self, perms[:2])
        return None if found is None else (found[0], (*found[1], None, None, None, None), found[2])


@op("qnn.dense", kind=Fusion.OUT_FUSABLE)
class QnnDense(Op):
    """`data - input_zero_point` (…, in) times the transpose of `weight - kernel_zero_point` (units, in)."""

    units: int | None = None
    """Number of output columns; None takes it from the weight."""
    out_dtype: str = "int32"
    """Type of the sums and of the result: "int32", or "int64" for data of 16 bits."""

    def infer(
        self, data: Type, weight: Type, input_zero_point: Type, kernel_zero_point: Type, input_scale: Type,
        kernel_scale: Type
    ) -> TensorType:
        """(*batch, units) from (*batch, in) and (units, in); `out_dtype`."""
        x, w = tensors(data, weight)
        _check_parameters(x, w, 0, input_zero_point, kernel_zero_point, input_scale, kernel_scale)
        return Dense(self.units, self.out_dtype).infer(x, w)

    def reference(
        self, data: Array, weight: Array, input_zero_point: Array, kernel_zero_point: Array, input_scale: Array,
        kernel_scale: Array
    ) -> Array:
        x = data.astype(np.int64) - np.asarray(input_zero_point).reshape(())
        w = weight.astype(np.int64) - N.along(np.asarray(kernel_zero_point), 2, 0)
        return np.asarray(x @ w.T, DataType(self.out_dtype).numpy())

    def simplify(self, call: Call) -> Expr:
        x, w, zx, zw = call.args[:4]
        span, plain, wide = call.span, Dense(self.units, self.out_dtype), self.out_dtype != "int32"
        zeros = N.along(zw.value, 2, 0) if isinstance(zw, Constant) and not wide else None
        stored = _stored(x, w, zx, zw, zeros, span, True)
        if stored is None:
            a, b = (_exact(v, z, n, axis, span, self.out_dtype) for v, z, n, axis in (
                (x, zx, x.tensor_type.ndim, -1), (w, zw, 2, 0)))
            return Call(plain, [a, b], span=span)
        x, weight, zero = stored
        filled = -weight.shape[1] % FOURS.width
        if filled:
            weight = np.pad(weight, [(0, 0), (0, filled)])
            x = Call(Pad(((0, 0),) * (x.tensor_type.ndim - 1) + ((0, filled),)),
                     [x, N.casted(zero, x.tensor_type.dtype, span)], span=span)
        return _corrected(_total(plain, x, weight, span), zero, weight.sum(axis=1, dtype=np.int64), span)


@op("qnn.batch_matmul", kind=Fusion.OUT_FUSABLE)
class QnnBatchMatmul(Op):
    """`x - x_zero_point` (b, m, k) times the transpose of `y - y_zero_point` (b, n, k), for each b."""

    out_dtype: str = "int32"
    """Type of the result: "int32"."""

    def infer(self, x: Type, y: Type, x_zero_point: Type, y_zero_point: Type, x_scale: Type,
              y_scale: Type) -> TensorType:
        """(b, m, n) from (b, m, k) and (b, n, k); `out_dtype`."""
        a, b = tensors(x, y)
        _check_parameters(a, b, 0, x_zero_point, y_zero_point, x_scale, y_scale)
        return BatchMatmul(self.out_dtype).infer(a, b)

    def reference(self, x: Array, y: Array, x_zero_point: Array, y_zero_point: Array, x_scale: Array,
                  y_scale: Array) -> Array:
        a = x.astype(np.int64) - np.asarray(x_zero_point).reshape(())
        b = y.astype(np.int64) - np.asarray(y_zero_point).reshape(())
        return np.asarray(a @ b.swapaxes(1, 2), DataType(self.out_dtype).numpy())

    def simplify(self, call: Call) -> Expr:
        x, y, zx, zy = call.args[:4]
        return Call(BatchMatmul("int32"), [_exact(x, zx, 3, 0, call.span), _exact(y, zy, 3, 0, call.span)],
                    span=call.span)


def _rows(x: Expr) -> Expr:
    """Merge pixels and channels into one axis."""
    *lead, width, depth = x.tensor_type.shape
    return Call(sized((*lead, width * depth)), [x], span=x.span)


def _check_parameters(x: TensorType, w: TensorType, out_axis: int, zx: Type, zw: Type, sx: Type, sw: Type) -> None:
    N.require_quantized(x, "data")
    N.require_quantized(w, "the weight")
    for p, what in ((zx, "the input's zero point"), (sx, "the input's scale")):
        if not isinstance(p, TensorType) or any(d != 1 for d in p.shape):
            raise ShapeError(f"{what} must be one number, and it is {p!r}; a sum over channels has one scale")
    N.require_parameter(zw, "kernel_zero_point", w, out_axis)
    N.require_parameter(sw, "kernel_scale", w, out_axis)


def _stored(x: Expr, w: Expr, zx: Expr, zw: Expr, zero_points: Array | None, span: Origin | None,
            split: bool) -> tuple[Expr, Array, Expr] | None:
    """Unsigned data, signed weights without a zero point, and the data's zero point.

    None if the weights are not constant or too wide: more than a byte, or with `split`, more than 9 bits.
    """
    if not isinstance(w, Constant) or zero_points is None:
        return None
    weight = w.value.astype(np.int64) - zero_points
    kind = x.tensor_type.dtype
    reach = 256 if split else 128
    if kind not in ("uint8", "int8") or weight.min(initial=0) < -reach or weight.max(initial=0) >= reach - split:
        return None
    zero = N.spread(zx, 0, 0, span)
    if kind == "int8":
        x = Call(BitwiseXor(), [N.casted(x, "uint8", span), N.constant(128, "uint8")], span=span)
        zero = N.difference(zero, N.constant(-128, "int32"), span)
    return x, weight, zero


def _total(plain: Conv2d | Dense, x: Expr, weight: Array, span: Origin | None) -> Expr:
    """The product with weights of a byte, or with wider ones in two parts: the clipped weights, and the excess.

    A zero point leaves few nonzero weights in the excess. If these are at few positions of the kernel, their products
    are added separately.
    """
    inside = np.clip(weight, -128, 127)
    product = Call(plain, [x, Constant(inside.astype(np.int8), span)], span=span)
    beyond = weight - inside
    if not beyond.any():
        return product
    strays = _strays(plain, x.tensor_type.shape, beyond)
    if strays is None:
        return Call(Add(), [product, Call(plain, [x, Constant(beyond.astype(np.int8), span)], span=span)], span=span)
    for part, column in strays:
        taken = N.casted(Call(part, [x], span=span), "int32", span)
        product = Call(Add(), [product, Call(Multiply(), [taken, Constant(column.astype(np.int32), span)], span=span)],
                       span=span)
    return product


def _strays(plain: Conv2d | Dense, shape: Sequence[int], weight: Array) -> list[tuple[StridedSlice, Array]] | None:
    """For each kernel position with nonzero weights: the slice of the data that it multiplies, and its weights by
    output channel.

    None if there are many, a size is dynamic, or padding is part of the product.
    """
    if not all(isinstance(d, int) for d in shape):
        return None
    if isinstance(plain, Dense):
        ks = np.flatnonzero(weight.any(axis=0)).tolist()
        return [(StridedSlice((k,), (k + 1,), axes=(len(shape) - 1,)), weight[:, k])
                for k in ks] if len(ks) <= _MOST_STRAYS else None
    data_order, kernel_order, out_order = plain.axes()
    ordered = weight.transpose(kernel_order)
    places = np.argwhere(ordered.any(axis=0)).tolist()
    if any(plain.padding) or plain.groups != 1 or len(places) > _MOST_STRAYS:
        return None
    found = []
    for channel, *taps in places:
        begin, end, strides = [channel], [channel + 1], [1]
        for axis, tap, size, step, apart in zip(data_order[2:], taps, ordered.shape[2:], plain.strides, plain.dilation,
                strict=True):
            outputs = (shape[axis] - (size - 1) * apart - 1) // step + 1
            begin.append(tap * apart)
            end.append(tap * apart + (outputs - 1) * step + 1)
            strides.append(step)
        part = StridedSlice(tuple(begin), tuple(end), tuple(strides), axes=(data_order[1], *data_order[2:]))
        found.append((part, N.along(ordered[:, channel, taps[0], taps[1]], 4, out_order.index(1))))
    return found


def _exact(
    x: Expr, zero_point: Expr, ndim: int, axis: int, span: Origin | None, dtype: str = "int32"
) -> Expr:
    """Return the difference of quantized values and their zero point in `dtype`, that of the sums of products."""
    return N.difference(N.casted(x, dtype, span), N.casted(N.spread(zero_point, ndim, axis, span), dtype, span), span)


def _corrected(product: Expr, zero: Expr, sums: Array, span: Origin | None) -> Expr:
    """Subtract the contribution of the data's zero point from a product: `zero` times `sums`; int32 wraps around."""
    if N.is_zero(zero) or not sums.any():
        return product
    if isinstance(zero, Constant):
        return Call(Add(), [product, Constant((-zero.value.astype(np.int64) * sums).astype(INT32.numpy()))], span=span)
    excess = Call(Multiply(), [zero, Constant(sums.astype(INT32.numpy()))], span=span)
    return Call(Subtract(), [product, excess], span=span)
