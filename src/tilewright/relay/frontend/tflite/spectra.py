"""Fourier transforms and complex numbers, represented by floats with an additional dimension of two parts."""

from __future__ import annotations

import math

from tilewright.relay.expr import Expr, Tuple
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import fields, reshape, slice_axis
from tilewright.relay.frontend.tflite.node import Node, Value, constant, is_complex
from tilewright.relay.frontend.tflite.registry import converter


@converter("RFFT2D")
def rfft2d(x: Value, fft_length: Value, *, node: Node) -> Expr:
    sizes = node.ints(fft_length)
    if len(sizes) != 2 or x.rank < 2 or min(sizes) < 1:
        node.refuse(f"a transform of {' by '.join(map(str, sizes)) or 'no sizes'} of an input of shape {x.shape} is "
                    "not valid")
    rows, columns = sizes
    lead = x.shape[:-2]
    data = x.expr
    for axis, size in ((x.rank - 2, rows), (x.rank - 1, columns)):
        data = _sized(data, axis, size)
    data = reshape(data, (math.prod(lead) * rows, columns))
    real, imaginary = fields(op.dft(data, op.zeros(shape=data.tensor_type.shape, dtype=x.dtype)), 2)
    half = columns // 2 + 1
    real, imaginary = (_turned(slice_axis(p, 1, 0, half), math.prod(lead), rows, half) for p in (real, imaginary))
    real, imaginary = (_turned(p, math.prod(lead), half, rows) for p in fields(op.dft(real, imaginary), 2))
    return op.stack(Tuple((reshape(real, (*lead, rows, half)), reshape(imaginary, (*lead, rows, half)))), axis=-1)


def _sized(x: Expr, axis: int, size: int) -> Expr:
    """Crop or zero-pad a dimension to `size`."""
    shape = x.tensor_type.shape
    if shape[axis] >= size:
        return slice_axis(x, axis, 0, size) if shape[axis] > size else x
    widths = tuple((0, size - shape[axis]) if k == axis else (0, 0) for k in range(len(shape)))
    return op.nn.pad(x, constant(0, str(x.tensor_type.dtype)), pad_width=widths)


def _turned(x: Expr, count: int, rows: int, columns: int) -> Expr:
    """Transpose each matrix of a vertical stack (count * rows, columns)."""
    return reshape(op.transpose(reshape(x, (count, rows, columns)), axes=(0, 2, 1)), (count * columns, rows))


def _part(x: Value, which: int, node: Node) -> Expr:
    if not is_complex(x.tensor):
        node.refuse(f"its input is of {x.tensor.dtype}, but must be complex")
    axis = x.rank - 1
    return reshape(slice_axis(x.expr, axis, which, which + 1), x.shape[:-1])


@converter("REAL")
def real(x: Value, *, node: Node) -> Expr:
    return _part(x, 0, node)


@converter("IMAG")
def imag(x: Value, *, node: Node) -> Expr:
    return _part(x, 1, node)


@converter("COMPLEX_ABS")
def complex_abs(x: Value, *, node: Node) -> Expr:
    """The magnitude, divided by the larger part so that squares do not overflow."""
    first, second = op.abs(_part(x, 0, node)), op.abs(_part(x, 1, node))
    large, small = op.maximum(first, second), op.minimum(first, second)
    kind = str(large.tensor_type.dtype)
    share = op.divide(small, op.where(op.equal(large, constant(0, kind)), constant(1, kind), large))
    return op.multiply(large, op.sqrt(op.add(constant(1, kind), op.multiply(share, share))))
