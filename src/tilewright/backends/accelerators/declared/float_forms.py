"""Forms of floating-point operators."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.backends.accelerators.declared import samples
from tilewright.backends.accelerators.declared.declaration import Accelerator, Refused
from tilewright.backends.accelerators.declared.matches import (
    Form,
    Match,
    Reading,
    constants,
    data_of,
    is_call,
    require_layout,
    sides_of,
)

if TYPE_CHECKING:
    from tilewright.relay.dataflow_pattern import DFPattern
    from tilewright.relay.expr import Expr, Function


def _with_relu(pattern: DFPattern) -> DFPattern:
    from tilewright.relay.dataflow_pattern import is_op

    return pattern.optional(is_op("nn.relu"))


def _finished(product: DFPattern, relu: bool) -> DFPattern:
    """Return a pattern of sums with an optional bias, optional casts, and an optional ReLU (none unless `relay` allows
    it)."""
    from tilewright.relay.dataflow_pattern import is_op

    sums = product.optional(is_op("cast"))
    biased = is_op("nn.bias_add")(sums, *constants(1)) | is_op("add")(sums, *constants(1)) | sums
    finished = biased.optional(is_op("cast"))
    return _with_relu(finished) if relu else finished


def _active(root: Any) -> tuple[Any, bool]:
    """Return the operand of a ReLU, and whether there is a ReLU."""
    active = is_call(root, "nn.relu")
    return (root.args[0] if active else root), active


def _sums(root: Any, product: str, axis: int) -> tuple[Any, np.ndarray[Any, Any], bool]:
    """Return the product under `root`, its bias along the axis (zeros if none), and whether a ReLU follows. Refuses
    other biases."""
    biased, active = _active(root)
    if is_call(biased, "cast"):
        biased = biased.args[0]
    if is_call(biased, product):
        return biased, np.zeros(biased.tensor_type.shape[axis], biased.tensor_type.dtype.numpy()), active
    found, bias = biased.args if isinstance(getattr(biased.args[1], "value", None), np.ndarray) else biased.args[::-1]
    if is_call(found, "cast"):
        found = found.args[0]
    channels, ndim = found.tensor_type.shape[axis], len(found.tensor_type.shape)
    shape = bias.value.shape
    along = (
        shape if is_call(biased, "nn.bias_add")
        else [n for d, n in enumerate((*(1,) * (ndim - len(shape)), *shape)) if n != 1 or d == axis]
    )
    right_axis = (
        biased.op.axis % ndim == axis
        if is_call(biased, "nn.bias_add")
        else bias.value.size == 1 or (*(1,) * (ndim - len(shape)), *shape)[axis] == channels
    )
    if not right_axis or list(along) != [channels]:
        raise Refused(
            f"a bias is one number for each output channel, and this has the shape {shape}",
            "give the product a bias of its output channels: nn.bias_add")
    return found, bias.value.reshape(-1), active


@dataclass(frozen=True)
class float_conv2d(Form):
    """A convolution: `x` with its `padding` (top, left, bottom, right), `weight` (kh, kw, ci, co), `bias` (co),
    `kernel`, `strides`, `dilation`, `groups`, `relu`.

    A missing bias is zeros. With `relu=False`, a ReLU after it is a separate operator.
    """

    relu: bool = True

    def pattern(self) -> DFPattern:
        from tilewright.relay.dataflow_pattern import is_op, wildcard

        return _finished(is_op("nn.conv2d")(wildcard(), *constants(1)), self.relu)

    def read(self, root: Expr, reading: Reading) -> Match:
        below: Any = _active(root)[0]
        while not is_call(below, "nn.conv2d"):
            below = next(a for a in below.args if not isinstance(getattr(a, "value", None), np.ndarray))
        require_layout(below.op.data_layout, reading)
        conv, bias, active = _sums(root, "nn.conv2d", below.op.data_layout.index("C"))
        op = conv.op
        weight = np.ascontiguousarray(conv.args[1].value.transpose(op.axes()[1]).transpose(2, 3, 1, 0))
        x = data_of(conv.args[0], reading)
        padding = tuple(map(int, op.padding))
        if any(padding):
            x = x.pad(*sides_of(op.data_layout, *padding), 0)
        kh, kw, depth, _ = weight.shape
        strides, dilation = tuple(map(int, op.strides)), tuple(map(int, op.dilation))
        return Match(
            root, reading, x=x, weight=weight, bias=bias, strides=strides, dilation=dilation, groups=int(op.groups),
            relu=active, padding=padding, kernel=(kh, kw), dtype=x.dtype,
            macs=math.prod(root.tensor_type.shape) * kh * kw * depth)

    def sample(self, rng: np.random.Generator, accelerator: Accelerator) -> Function:
        return samples.float_conv2d(rng, accelerator, self.relu)


@dataclass(frozen=True)
class float_dense(Form):
    """A matrix product: `x` (n, k), `weight` (k, units), `bias` (zeros if missing), `relu`.

    With `relu=False`, a ReLU after it is a separate operator.
    """

    relu: bool = True

    def pattern(self) -> DFPattern:
        from tilewright.relay.dataflow_pattern import is_op, wildcard

        return _finished(is_op("nn.dense")(wildcard(), *constants(1)), self.relu)

    def read(self, root: Expr, reading: Reading) -> Match:
        product, bias, active = _sums(root, "nn.dense", 1)
        x, weight = data_of(product.args[0], reading), np.ascontiguousarray(product.args[1].value.T)
        return Match(
            root, reading, x=x, weight=weight, bias=bias, relu=active, dtype=x.dtype,
            macs=math.prod(x.shape) * weight.shape[1])

    def sample(self, rng: np.random.Generator, accelerator: Accelerator) -> Function:
        return samples.float_dense(rng, accelerator, self.relu)


@dataclass(frozen=True)
class float_add(Form):
    """A sum of two tensors of equal shape: `a`, `b`, `relu`. With `relu=False`, a ReLU after it is a separate operator.
    """

    relu: bool = True

    def pattern(self) -> DFPattern:
        from tilewright.relay.dataflow_pattern import is_op, wildcard

        total = is_op("add")(wildcard(), wildcard())
        return _with_relu(total) if self.relu else total

    def read(self, root: Expr, reading: Reading) -> Match:
        total, active = _active(root)
        a, b = (data_of(v, reading) for v in total.args)
        if a.shape != b.shape:
            raise Refused(
                f"the tensors of a sum have one shape, and these have {a.shape} and {b.shape}",
                "broadcast the smaller one before: relay.broadcast_to")
        return Match(root, reading, a=a, b=b, relu=active, dtype=a.dtype)

    def sample(self, rng: np.random.Generator, accelerator: Accelerator) -> Function:
        return samples.float_add(rng, accelerator, self.relu)


@dataclass(frozen=True)
class relu(Form):
    """The maximum of a number and zero: `x`."""

    def pattern(self) -> DFPattern:
        from tilewright.relay.dataflow_pattern import is_op, wildcard

        return is_op("nn.relu")(wildcard())

    def read(self, root: Expr, reading: Reading) -> Match:
        call: Any = root
        x = data_of(call.args[0], reading)
        return Match(root, reading, x=x, dtype=x.dtype)

    def sample(self, rng: np.random.Generator, accelerator: Accelerator) -> Function:
        return samples.relu(rng, accelerator)


__all__ = ["float_add", "float_conv2d", "float_dense", "relu"]
