"""Forms of operators on real numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.contrib.accelerator import samples
from tilewright.contrib.accelerator.declaration import Accelerator, Refused
from tilewright.contrib.accelerator.matches import Form, Match, Reading, constants, data_of, is_call, require_layout, sides_of

if TYPE_CHECKING:
    from tilewright.relay.dataflow_pattern import DFPattern
    from tilewright.relay.expr import Expr, Function


def _with_relu(pattern: DFPattern) -> DFPattern:
    from tilewright.relay.dataflow_pattern import is_op

    return pattern.optional(is_op("nn.relu"))


def _product(root: Any) -> tuple[Any, bool]:
    """The product below a bias, and whether a ReLU follows."""
    active = is_call(root, "nn.relu")
    return (root.args[0] if active else root), active


@dataclass(frozen=True)
class float_conv2d(Form):
    """A convolution with a bias: `x` with its padding, `weight` (kh, kw, ci, co), `bias` (co), `strides`, `dilation`, `groups`, `relu`."""

    def pattern(self) -> DFPattern:
        from tilewright.relay.dataflow_pattern import is_op, wildcard

        return _with_relu(is_op("nn.bias_add")(is_op("nn.conv2d")(wildcard(), *constants(1)), *constants(1)))

    def read(self, root: Expr, reading: Reading) -> Match:
        biased, active = _product(root)
        conv: Any = biased.args[0]
        op = conv.op
        require_layout(op.data_layout, reading)
        weight = np.ascontiguousarray(conv.args[1].value.transpose(op.axes()[1]).transpose(2, 3, 1, 0))
        x = data_of(conv.args[0], reading)
        padding = tuple(map(int, op.padding))
        if any(padding):
            x = x.pad(*sides_of(op.data_layout, *padding), 0)
        kh, kw, depth, _ = weight.shape
        strides, dilation = tuple(map(int, op.strides)), tuple(map(int, op.dilation))
        return Match(
            root, reading, x=x, weight=weight, bias=biased.args[1].value, strides=strides, dilation=dilation, groups=int(op.groups), relu=active, padding=padding,
            kernel=(kh, kw), dtype=x.dtype, macs=math.prod(root.tensor_type.shape) * kh * kw * depth,
        )

    def sample(self, rng: np.random.Generator, accelerator: Accelerator) -> Function:
        return samples.float_conv2d(rng, accelerator)


@dataclass(frozen=True)
class float_dense(Form):
    """A matrix product with a bias: `x` (n, k), `weight` (k, units), `bias`, `relu`."""

    def pattern(self) -> DFPattern:
        from tilewright.relay.dataflow_pattern import is_op, wildcard

        return _with_relu(is_op("nn.bias_add")(is_op("nn.dense")(wildcard(), *constants(1)), *constants(1)))

    def read(self, root: Expr, reading: Reading) -> Match:
        biased, active = _product(root)
        product: Any = biased.args[0]
        x, weight = data_of(product.args[0], reading), np.ascontiguousarray(product.args[1].value.T)
        if len(x.shape) != 2:
            raise Refused(f"a matrix has two dimensions, and this has {len(x.shape)}", "reshape the data of nn.dense to two dimensions")
        return Match(root, reading, x=x, weight=weight, bias=biased.args[1].value, relu=active, dtype=x.dtype, macs=math.prod(x.shape) * weight.shape[1])

    def sample(self, rng: np.random.Generator, accelerator: Accelerator) -> Function:
        return samples.float_dense(rng, accelerator)


@dataclass(frozen=True)
class float_add(Form):
    """A sum of two tensors of one shape: `a`, `b`, `relu`."""

    def pattern(self) -> DFPattern:
        from tilewright.relay.dataflow_pattern import is_op, wildcard

        return _with_relu(is_op("add")(wildcard(), wildcard()))

    def read(self, root: Expr, reading: Reading) -> Match:
        total, active = _product(root)
        a, b = (data_of(v, reading) for v in total.args)
        if a.shape != b.shape:
            raise Refused(f"the tensors of a sum have one shape, and these have {a.shape} and {b.shape}", "broadcast the smaller one before: relay.broadcast_to")
        return Match(root, reading, a=a, b=b, relu=active, dtype=a.dtype)

    def sample(self, rng: np.random.Generator, accelerator: Accelerator) -> Function:
        return samples.float_add(rng, accelerator)


@dataclass(frozen=True)
class relu(Form):
    """The larger of a number and zero: `x`."""

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
