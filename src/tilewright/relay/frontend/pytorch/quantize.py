"""Quantization of TorchScript tensors, which carry a scale and zero point (`Quantized`), and of PT2E's plain integers.

The arithmetic is that of PyTorch's engines for x86. Floats are multiplied by the reciprocal of the scale and rounded
half to even. Then the zero point is added, and the result is clipped to the range of the type. Products of integers are
exact, and scaled in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tilewright.base.types import FLOAT32, INT32, DataType
from tilewright.relay.expr import Call, Constant, Expr, Tuple
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.pytorch import math as elementwise
from tilewright.relay.frontend.pytorch.node import Array, Node
from tilewright.relay.frontend.pytorch.promotion import dtype_named
from tilewright.relay.frontend.pytorch.registry import converter
from tilewright.relay.frontend.shaping import axis_of, cast, reshape
from tilewright.relay.op.nn_pool import AdaptiveAvgPool2d, AvgPool2d
from tilewright.relay.op.reduction import Mean
from tilewright.relay.qnn.numerics import limits
from tilewright.relay.types_of import dtype_of, rank, scalar

KEPT: Final = frozenset({
    "view", "reshape", "flatten", "permute", "transpose", "squeeze", "unsqueeze", "select", "slice", "contiguous",
    "clone", "detach", "dropout", "max_pool1d", "max_pool2d",
    "quantized_max_pool2d", "expand", "narrow", "chunk", "split", "unbind", "index_select", "unflatten",
    "channel_shuffle", "pixel_shuffle", "repeat", "flip", "to",
    "upsample_nearest2d", "upsample_nearest1d", "alias", "topk", "movedim", "swapaxes", "t", "roll",
})
"""Operators that only move or select elements, so that their result has the quantization of their input."""


@dataclass(frozen=True, slots=True)
class Quantized:
    """real = scale * (integer - zero_point), with scalars or one element of each per index of `axis`."""

    scale: Array
    zero_point: Array
    axis: int = -1


def parameters_in(tensor: Any) -> Quantized:
    """The quantization parameters of a `torch.Tensor`."""
    import torch

    if tensor.qscheme() in (torch.per_channel_affine, torch.per_channel_affine_float_qparams):
        return Quantized(tensor.q_per_channel_scales().numpy().astype(np.float32),
                         tensor.q_per_channel_zero_points().numpy(), tensor.q_per_channel_axis())
    return Quantized(np.asarray(tensor.q_scale(), np.float32), np.asarray(tensor.q_zero_point()))


def parameters_of(x: Expr, node: Node) -> Quantized:
    """The quantization parameters of a TorchScript tensor; refuses tensors without them."""
    found = node.quantized.get(x)
    if found is None:
        node.refuse("its input is not quantized, but must be; export the model again")
    return found  # type: ignore[no-any-return]


def _number(x: Any, name: str, node: Node) -> Array:
    return node.value(x, name) if isinstance(x, Expr) else np.asarray(x)


def stored(real: Expr, scale: Array, zero_point: Array, kind: DataType, axis: int = -1, least: int | None = None,
           most: int | None = None) -> Expr:
    """Quantize a float tensor to integers, clipped to [least, most] or the range of the type."""
    inverse = (np.float32(1) / scale.astype(np.float32)).astype(np.float32)
    whole = op.round(op.multiply(real, along(inverse, rank(real), axis)))
    moved = op.add(whole, along(zero_point.astype(np.float32), rank(real), axis))
    low, high = limits(kind)
    return cast(op.clip(moved, a_min=float(low if least is None else least),
                        a_max=float(high if most is None else most)), kind)


def along(p: Array, ndim: int, axis: int) -> Expr:
    return Constant(p.reshape(()) if p.size == 1 else p.reshape([-1 if k == axis % ndim else 1 for k in range(ndim)]))


def real(x: Expr, q: Quantized) -> Expr:
    """Dequantize a tensor."""
    scale, zero = q.scale.astype(np.float32), q.zero_point.astype(np.int32)
    if q.scale.size == 1:
        scale, zero = scale.reshape(()), zero.reshape(())
    return op.qnn.dequantize(x, Constant(scale), Constant(zero), axis=q.axis)


def real_at_once(x: Expr, q: Quantized) -> Expr:
    """Dequantize with a single rounding, scale * integer - scale * zero_point, as torch's vectorized loops do."""
    scale = q.scale.astype(np.float32)
    if scale.size > 1:
        return real(x, q)
    return op.multiply_add(cast(x, FLOAT32), Constant(scale.reshape(())),
                           Constant(np.asarray(scale * np.float32(-float(q.zero_point)), np.float32).reshape(())))


def marked(x: Expr, q: Quantized, node: Node) -> Expr:
    node.quantized[x] = q
    return x


def quantized_from(real_result: Expr, scale: Any, zero_point: Any, kind: str | DataType, node: Node,
                   least: int | None = None) -> Expr:
    """Quantize a float tensor with one scale, and record its parameters."""
    q = Quantized(np.asarray(scale, np.float32), np.asarray(zero_point, np.int64))
    return marked(stored(real_result, q.scale, q.zero_point, DataType(kind), least=least), q, node)


def on_real(convert: Callable[[Expr], Any], x: Expr, node: Node) -> Any:
    """Apply an operator without integer support: dequantize, convert, and quantize with the input's parameters."""
    q = parameters_of(x, node)
    found = convert(real_at_once(x, q) if node.name.startswith("leaky_relu") else real(x, q))
    if not isinstance(found, Expr) or not dtype_of(found).is_float or q.scale.size > 1:
        node.refuse("it is not supported for quantized tensors; move the operator out of the quantized part of the "
                    "model")
    return quantized_from(found, q.scale, q.zero_point, dtype_of(x), node)


def average(pool: Any, x: Expr, q: Quantized) -> Expr | None:
    """Integer average pooling in the input's scale, given the float pooling; None for windows of unequal sizes."""
    if not isinstance(pool, Call) or q.scale.size > 1:
        return None
    attributes = pool.op.attributes()
    if isinstance(pool.op, AdaptiveAvgPool2d):
        sizes, wanted = [n.tensor_type.shape[2:] for n in (x, pool)]
        if not all(isinstance(n, int) and isinstance(m, int) and n % m == 0
                   for n, m in zip(sizes, wanted, strict=True)):
            return None
        window = tuple(n // m for n, m in zip(sizes, wanted, strict=True))
        attributes = {"pool_size": window, "strides": window, "padding": (0, 0, 0, 0), "layout": "NCHW",
                      "count_include_pad": False}
    elif isinstance(pool.op, Mean):
        sizes = x.tensor_type.shape[2:]
        if rank(x) != 4 or sorted(a % 4 for a in attributes["axis"]) != [2, 3] or not all(isinstance(n, int)
            for n in sizes):
            return None
        attributes = {"pool_size": sizes, "strides": sizes, "padding": (0, 0, 0, 0), "layout": "NCHW",
                      "count_include_pad": False}
        parameters = (parameter(q.scale, np.float32), parameter(q.zero_point, np.int32))
        return reshape(op.qnn.avg_pool2d(x, *parameters, *parameters, **attributes), pool.tensor_type.shape)
    elif not isinstance(pool.op, AvgPool2d):
        return None
    parameters = (parameter(q.scale, np.float32), parameter(q.zero_point, np.int32))
    return op.qnn.avg_pool2d(x, *parameters, *parameters, **attributes)


def parameter(p: Array, dtype: Any) -> Constant:
    """A scale or zero point as a scalar or vector constant."""
    return Constant(p.astype(dtype) if p.size > 1 else p.astype(dtype).reshape(()))


# Quantize and dequantize


@converter("quantize_per_tensor")
def quantize_per_tensor(self: Expr, scale: Any, zero_point: Any, dtype: Any, node: Node) -> Expr:
    q = Quantized(_number(scale, "scale", node).astype(np.float32), _number(zero_point, "zero_point", node))
    return _quantized_as(self, q, dtype_named(dtype, node), 1 if rank(self) > 1 else -1, node)


@converter("quantize_per_channel")
def quantize_per_channel(self: Expr, scales: Expr, zero_points: Expr, axis: int, dtype: Any, node: Node) -> Expr:
    q = Quantized(node.value(scales, "scales").astype(np.float32), node.value(zero_points, "zero_points"),
                  axis_of(axis, rank(self), node))
    return _quantized_as(self, q, dtype_named(dtype, node), q.axis, node)


def _quantized_as(x: Expr, q: Quantized, kind: DataType, axis: int, node: Node) -> Expr:
    made = op.qnn.quantize(cast(x, FLOAT32), parameter(q.scale, np.float32), parameter(q.zero_point, np.int32),
                           axis=axis, out_dtype=kind)
    return marked(made, q, node)


@converter("dequantize")
def dequantize(self: Expr, node: Node) -> Expr:
    return real(self, parameters_of(self, node)) if self in node.quantized else self


@converter("int_repr")
def int_repr(self: Expr) -> Expr:
    return op.copy(self)


@converter("q_scale", "q_zero_point")
def qparameter(self: Expr, node: Node) -> Any:
    q = parameters_of(self, node)
    return float(q.scale) if node.name == "q_scale" else int(q.zero_point)


# Elementwise


@converter("quantized::add", "quantized::add_relu", "quantized::mul", "quantized::mul_relu")
def quantized_binary(qa: Expr, qb: Expr, scale: float, zero_point: int, node: Node) -> Expr:
    q = Quantized(np.asarray(scale, np.float32), np.asarray(zero_point, np.int64))
    build = op.qnn.add if "add" in node.name else op.qnn.mul
    given = [c for p in (parameters_of(qa, node), parameters_of(qb, node), q) for c in (parameter(p.scale, np.float32),
        parameter(p.zero_point, np.int32))]
    return marked(_held(build(qa, qb, *given), int(zero_point), node.name.endswith("relu")), q, node)


def _held(x: Expr, zero_point: int, relu: bool) -> Expr:
    """Clip integers to nonnegative real values if `relu`."""
    low, high = limits(dtype_of(x))
    return op.clip(x, a_min=float(zero_point), a_max=float(high)) if relu and zero_point > low else x


@converter("quantized::add_scalar", "quantized::add_scalar_relu")
def quantized_add_scalar(qa: Expr, b: float, node: Node) -> Expr:
    """Add a number by shifting the zero point; if that leaves the range, the scale grows."""
    q, kind = parameters_of(qa, node), dtype_of(qa)
    (low, high), scale, zero = limits(kind), float(q.scale), int(q.zero_point)
    steps = int(np.rint(b / scale))
    moved, positive = zero - steps, node.name.endswith("relu")
    if low <= moved <= high:
        held = op.maximum(qa, scalar(moved, qa)) if positive else op.copy(qa)
        return marked(held, Quantized(q.scale, np.asarray(moved)), node)
    end = low if moved < low else high
    grown = np.asarray(abs((high if moved < low else low) - moved) / (high - low) * scale, np.float32)
    total = op.add(cast(qa, INT32), Constant(np.asarray(steps - zero, np.int32)))
    total = op.nn.relu(total) if positive else total
    factor = np.float32(scale) * (np.float32(1) / grown)
    whole = op.round(op.multiply(cast(total, FLOAT32), Constant(np.asarray(factor, np.float32))))
    held = op.clip(op.add(whole, Constant(np.asarray(end, np.float32))), a_min=float(low), a_max=float(high))
    return marked(cast(held, kind), Quantized(grown, np.asarray(end)), node)


@converter("quantized::mul_scalar", "quantized::mul_scalar_relu")
def quantized_mul_scalar(qa: Expr, b: float, node: Node) -> Expr:
    """Multiply by a number by scaling the scale; a negative number also mirrors the integers."""
    q, kind = parameters_of(qa, node), dtype_of(qa)
    (low, high), zero = limits(kind), int(q.zero_point)
    if b == 0:
        return marked(op.zeros_like(qa), Quantized(np.asarray(1, np.float32), np.asarray(0)), node)
    turned = op.copy(qa) if b > 0 else cast(op.subtract(scalar(low + high, cast(qa, INT32)), cast(qa, INT32)), kind)
    made = Quantized(np.asarray(float(q.scale) * abs(b), np.float32),
                     np.asarray(zero if b > 0 else high - (zero - low)))
    return marked(_held(turned, int(made.zero_point), node.name.endswith("relu")), made, node)


@converter("quantized::cat", "quantized::cat_relu")
def quantized_cat(qx: list[Expr], dim: int, scale: float | None, zero_point: int | None, node: Node) -> Expr:
    first = parameters_of(qx[0], node)
    s, z = (first.scale if scale is None else np.asarray(scale, np.float32), first.zero_point if zero_point is None
            else np.asarray(zero_point))
    parts = [x if _equal(parameters_of(x, node), s, z) else stored(real(x, parameters_of(x, node)), s, z, dtype_of(x))
             for x in qx]
    joined = op.concatenate(Tuple(tuple(parts)), axis=axis_of(dim, rank(qx[0]), node))
    if node.name.endswith("relu"):
        joined = op.maximum(joined, scalar(int(z), joined))
    return marked(joined, Quantized(s, z), node)


def _equal(q: Quantized, scale: Array, zero_point: Array) -> bool:
    return bool(q.scale.size == 1 and np.float32(q.scale) == np.float32(scale) and int(q.zero_point) == int(zero_point))


@converter("quantized::hardswish", "quantized::leaky_relu", "quantized::elu", "quantized::sigmoid", "quantized::celu",
           "quantized::softmax")
def quantized_activation(
    node: Node, output_scale: float, output_zero_point: int, input: Expr | None = None, qx: Expr | None = None,
    self: Expr | None = None, negative_slope: float = 0.01, alpha: float = 1.0, inplace: bool = False, dim: int = -1,
) -> Expr:
    x = next(v for v in (input, qx, self) if v is not None)
    q = parameters_of(x, node)
    if node.name == "quantized::softmax":
        to = Quantized(np.asarray(output_scale, np.float32), np.asarray(output_zero_point, np.int64))
        given = [c for p in (q, to) for c in (parameter(p.scale, np.float32), parameter(p.zero_point, np.int32))]
        return marked(op.qnn.softmax(x, *given, axis=axis_of(dim, rank(x), node)), to, node)
    r = real_at_once(x, q)
    build: dict[str, Callable[[], Expr]] = {
        "hardswish": lambda: elementwise.hardswish(r), "leaky_relu": lambda: op.nn.leaky_relu(r,
            alpha=float(negative_slope)),
        "elu": lambda: elementwise.elu(r, alpha), "sigmoid": lambda: op.sigmoid(r),
        "celu": lambda: elementwise.celu(r, alpha),
    }
    return quantized_from(build[node.name.removeprefix("quantized::")](), output_scale, output_zero_point, dtype_of(x),
                          node)


@converter("quantized::relu6")
def quantized_relu6(qx: Expr, node: Node, inplace: bool = False) -> Expr:
    """Clip to the integers of 0 and 6."""
    q = parameters_of(qx, node)
    low, high = limits(dtype_of(qx))
    zero = int(q.zero_point)
    six = int(np.rint(np.float32(6) * (np.float32(1) / q.scale.astype(np.float32)))) + zero
    return marked(op.clip(qx, a_min=float(max(low, zero)), a_max=float(min(high, six))), q, node)


FIXED: Final = {"sigmoid": (1 / 256, 0), "hardsigmoid": (1 / 256, 0), "tanh": (2 / 256, 128), "softmax": (1 / 256, 0)}
"""Fixed uint8 scale and zero point of the results; for int8 the zero point is 128 less."""


# PT2E: plain integers


@converter("quantized_decomposed::choose_qparams", "quantized_decomposed::choose_qparams_symmetric")
def choose_parameters(input: Expr, quant_min: int, quant_max: int, eps: float, dtype: Any,
                      node: Node) -> tuple[Expr, Expr]:
    """Scale and zero point for the range of a tensor extended to zero; symmetric around zero for "symmetric" operators.
    """
    axes, zero = tuple(range(rank(input))), scalar(0, input)
    low, high = op.minimum(op.min(input, axis=axes), zero), op.maximum(op.max(input, axis=axes), zero)
    if node.name.endswith("symmetric"):
        most = op.maximum(op.negative(low), high)
        scale = op.maximum(op.quotient(most, scalar((quant_max - quant_min) / 2, input)), scalar(eps, input))
        return scale, Constant(np.asarray(128 if dtype_named(dtype, node) == "uint8" else 0, np.int32))
    scale = op.maximum(op.quotient(op.subtract(high, low), scalar(quant_max - quant_min, input)), scalar(eps, input))
    point = op.subtract(scalar(quant_min, input), op.round(op.quotient(low, scale)))
    return scale, cast(op.clip(point, a_min=float(quant_min), a_max=float(quant_max)), INT32)


@converter("quantized_decomposed::quantize_per_tensor")
def decomposed_quantize(input: Expr, scale: Any, zero_point: Any, quant_min: int, quant_max: int, dtype: Any,
                        node: Node) -> Expr:
    if isinstance(scale, Expr) and node.known(node.settled(scale)) is None:
        whole = op.round(op.multiply(cast(input, FLOAT32), op.quotient(Constant(np.ones((), np.float32)), scale)))
        return cast(op.clip(op.add(whole, cast(zero_point, FLOAT32)), a_min=float(quant_min), a_max=float(quant_max)),
                    dtype_named(dtype, node))
    return _quantized_in(input, _number(scale, "scale", node), _number(zero_point, "zero_point", node), -1, quant_min,
                         quant_max, dtype_named(dtype, node))


@converter("quantized_decomposed::quantize_per_channel")
def decomposed_quantize_channels(input: Expr, scales: Expr, zero_points: Expr, axis: int, quant_min: int,
                                 quant_max: int, dtype: Any, node: Node) -> Expr:
    zeros = node.value(zero_points, "zero_points") if zero_points is not None else np.zeros(1, np.int64)
    return _quantized_in(input, node.value(scales, "scales"), zeros, axis_of(axis, rank(input), node), quant_min,
                         quant_max, dtype_named(dtype, node))


def _quantized_in(x: Expr, scale: Array, zero_point: Array, axis: int, least: int, most: int, kind: DataType) -> Expr:
    if (least, most) != limits(kind):
        return stored(cast(x, FLOAT32), scale, zero_point, kind, axis, least, most)
    s, z = (p.reshape(()) if p.size == 1 else p for p in (scale.astype(np.float32), zero_point.astype(np.int32)))
    return op.qnn.quantize(cast(x, FLOAT32), Constant(s), Constant(z), axis=axis if scale.size > 1 else -1,
                           out_dtype=kind)


@converter("quantized_decomposed::dequantize_per_tensor")
def decomposed_dequantize(input: Expr, scale: Any, zero_point: Any, quant_min: int, quant_max: int, dtype: Any,
                          node: Node, out_dtype: Any = None) -> Expr:
    if isinstance(scale, Expr) and node.known(node.settled(scale)) is None:
        return op.multiply(op.subtract(cast(input, FLOAT32), cast(zero_point, FLOAT32)), scale)
    return real(input, Quantized(_number(scale, "scale", node), _number(zero_point, "zero_point", node)))


@converter("quantized_decomposed::dequantize_per_channel")
def decomposed_dequantize_channels(
    input: Expr, scales: Expr, zero_points: Expr | None, axis: int, quant_min: int, quant_max: int, dtype: Any,
    node: Node, out_dtype: Any = None,
) -> Expr:
    scale = node.value(scales, "scales")
    zeros = np.zeros(scale.shape, np.int64) if zero_points is None else node.value(zero_points, "zero_points")
    return real(input, Quantized(scale, zeros, axis_of(axis, rank(input), node)))


@converter("fake_quantize_per_tensor_affine", "fake_quantize_per_channel_affine")
def fake_quantize(self: Expr, scale: Any, zero_point: Any, quant_min: int, quant_max: int, node: Node,
                  axis: int = -1) -> Expr:
    s, z = _number(scale, "scale", node).astype(np.float32), _number(zero_point, "zero_point", node)
    inverse = (np.float32(1) / s).astype(np.float32)
    zeros = along(z.astype(np.float32), rank(self), axis)
    whole = op.clip(op.add(op.round(op.multiply(self, along(inverse, rank(self), axis))), zeros),
                    a_min=float(quant_min), a_max=float(quant_max))
    return op.multiply(op.subtract(whole, zeros), along(s, rank(self), axis))
