"""The basic LSTM kernel: one step, with one matrix for all gates, applied to the concatenated input and last output.

Supports float32, and uint8 with int16 cells. Source: `LstmCell` in `reference/reference_ops.h` of TensorFlow Lite.
"""

from __future__ import annotations

import numpy as np

from tilewright.base.types import INT32
from tilewright.relay.expr import Expr, Tuple
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast, slice_axis
from tilewright.relay.frontend.tflite.gate_tables import by_sigmoid, by_tanh
from tilewright.relay.frontend.tflite.node import Node, Value, constant
from tilewright.relay.frontend.tflite.rescale import requantize

_CELL_BITS = 4
"""Integer bits of the int16 cell state."""
_CENTRE = 128
"""Zero point of data and outputs, which are in units of 1/128."""


def basic_lstm(x: Value, h: Value, w: Value, b: Value, c: Value, *, node: Node) -> tuple[Expr, ...]:
    """The output, the cell state, and the kernel's two scratch tensors: concatenated rows, and sums."""
    rows = op.concatenate(Tuple((x.expr, h.expr)), axis=1)
    if x.dtype == "float32":
        return _of_floats(rows, w, b, c)
    if x.dtype != "uint8" or c.dtype != "int16":
        node.refuse(f"its input is {x.dtype} and its state {c.dtype}; the basic kernel takes float32, or uint8 with a "
                    "state of int16: convert the model again")
    if x.zero_point != _CENTRE or w.rank != 2:
        node.refuse(f"the zero point of its input is {x.zero_point}, but the basic kernel takes only {_CENTRE}; "
                    "convert the model again")
    total = op.qnn.dense(
        rows, w.expr, constant(_CENTRE, "int32"), constant(w.zero_point, "int32"), constant(x.scale, "float32"),
        constant(w.scale, "float32"), units=w.shape[0], out_dtype=INT32)
    factor = float(np.float32(b.scale)) / 2.0**-12
    sums = requantize(op.nn.bias_add(total, b.expr, axis=1), factor, 1.0, 0, "int16")
    return _of_bytes(rows, sums, c)


def _quarters(sums: Expr) -> list[Expr]:
    """Split the sums into the gates: input, new, forget, output."""
    units = sums.tensor_type.shape[1] // 4
    return [slice_axis(sums, 1, k * units, (k + 1) * units) for k in range(4)]


def _of_floats(rows: Expr, w: Value, b: Value, c: Value) -> tuple[Expr, ...]:
    sums = op.nn.bias_add(op.nn.dense(rows, w.expr), b.expr, axis=1)
    into, new, forget, out = _quarters(sums)
    cell = op.add(op.multiply(op.sigmoid(into), op.tanh(new)), op.multiply(op.sigmoid(forget), c.expr))
    return op.multiply(op.sigmoid(out), op.tanh(cell)), cell, rows, sums


def _of_bytes(rows: Expr, sums: Expr, c: Value) -> tuple[Expr, ...]:
    into, new, forget, out = _quarters(sums)
    taken = _product(by_sigmoid(into), by_tanh(new, 3))
    half = constant(1 << (_CELL_BITS - 1), "int32")
    sign = op.right_shift(taken, constant(31, "int32"))
    added = op.right_shift(op.add(op.add(taken, half), sign), constant(_CELL_BITS, "int32"))
    kept = _product(by_sigmoid(forget), cast(c.expr, "int32"))
    cell = op.clip(op.add(added, kept), a_min=-(1 << 15), a_max=(1 << 15) - 1)
    shown = _product(by_sigmoid(out), by_tanh(cell, _CELL_BITS))
    shown_sign = op.right_shift(shown, constant(31, "int32"))
    short = op.right_shift(op.add(op.add(shown, constant(1 << 7, "int32")), shown_sign), constant(8, "int32"))
    found = op.add(op.clip(short, a_min=-128, a_max=127), constant(_CENTRE, "int32"))
    return cast(found, "uint8"), cast(cell, "int16"), rows, sums


def _product(a: Expr, b: Expr) -> Expr:
    """The product of 15-bit fractions, rounded half up."""
    return op.right_shift(op.add(op.multiply(a, b), constant(1 << 14, "int32")), constant(15, "int32"))
