"""Random numbers and dropout. Without a seed, the node's name is the seed: each call of a compiled model draws the same
numbers.

Numbers come from the generator of `relay.random`, so they differ from those of other runtimes.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from typing import Any

from onnx import TensorProto

from tilewright.base.types import DataType
from tilewright.relay.expr import Expr, TupleGetItem, const
from tilewright.relay.frontend.onnx.node import Node
from tilewright.relay.frontend.onnx.reading import element_type
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast, reshape
from tilewright.relay.random import threefry_key
from tilewright.relay.types_of import dtype_of, rank

_DRAWN = ("float32", "float64")


def _key(seed: float | None, node: Node) -> Expr:
    words = struct.pack("<f", seed) if seed is not None else hashlib.sha256(str(node.origin).encode()).digest()[:4]
    return threefry_key(int.from_bytes(words, "little"))


def _drawn(draw: Any, a: float, b: float, shape: Sequence[int], dtype: DataType, seed: float | None,
           node: Node) -> Expr:
    """Draw from a distribution with two parameters, in float32 for narrower types."""
    wide = dtype if dtype in _DRAWN else DataType("float32")
    if not dtype.is_float:
        node.refuse(f"random numbers of type {dtype} are not supported; use a floating-point type")
    found = draw(_key(seed, node), const(a, str(wide)), const(b, str(wide)), out_shape=tuple(shape),
                 out_dtype=str(wide))
    return cast(TupleGetItem(found, 1), dtype)


def _dtype(code: int | None, like: Expr | None, node: Node) -> DataType:
    if code is not None:
        return element_type(code, "attribute 'dtype'", node.origin)
    return DataType("float32") if like is None or not dtype_of(like).is_float else dtype_of(like)


@converter("RandomUniform")
def random_uniform(
    *, shape: tuple[int, ...], dtype: int = TensorProto.FLOAT, high: float = 1.0, low: float = 0.0,
    seed: float | None = None, node: Node,
) -> Expr:
    return _drawn(op.random.uniform, low, high, shape, _dtype(dtype, None, node), seed, node)


@converter("RandomUniformLike")
def random_uniform_like(
    x: Expr, *, dtype: int | None = None, high: float = 1.0, low: float = 0.0, seed: float | None = None, node: Node,
) -> Expr:
    return _drawn(op.random.uniform, low, high, node.static(x, "input"), _dtype(dtype, x, node), seed, node)


@converter("RandomNormal")
def random_normal(
    *, shape: tuple[int, ...], dtype: int = TensorProto.FLOAT, mean: float = 0.0, scale: float = 1.0,
    seed: float | None = None, node: Node,
) -> Expr:
    return _drawn(op.random.normal, mean, scale, shape, _dtype(dtype, None, node), seed, node)


@converter("RandomNormalLike")
def random_normal_like(
    x: Expr, *, dtype: int | None = None, mean: float = 0.0, scale: float = 1.0, seed: float | None = None, node: Node,
) -> Expr:
    return _drawn(op.random.normal, mean, scale, node.static(x, "input"), _dtype(dtype, x, node), seed, node)


@converter("Bernoulli", since=15)
def bernoulli(x: Expr, *, dtype: int | None = None, seed: float | None = None, node: Node) -> Expr:
    """1 with the probability given by each element, otherwise 0."""
    drawn = _drawn(op.random.uniform, 0.0, 1.0, node.static(x, "input"), dtype_of(x), seed, node)
    return cast(op.less(drawn, x), dtype_of(x) if dtype is None else element_type(dtype, "attribute 'dtype'",
        node.origin))


@converter("Multinomial", since=7)
def multinomial(x: Expr, *, dtype: int = TensorProto.INT32, sample_size: int = 1, seed: float | None = None,
                node: Node) -> Expr:
    """Draw classes, given unnormalized log-probabilities."""
    if rank(x) != 2:
        node.refuse(f"its input must be a matrix with a row for each draw, but it has {rank(x)} dimensions")
    real = x if dtype_of(x) in _DRAWN else cast(x, "float32")
    shares = op.exp(op.subtract(real, op.max(real, axis=-1, keepdims=True)))
    found = TupleGetItem(op.random.multinomial(_key(seed, node), shares, num_samples=sample_size), 1)
    return cast(found, element_type(dtype, "attribute 'dtype'", node.origin))


@converter("Dropout")
def dropout_first(data: Expr, *, ratio: float = 0.5, is_test: int = 0, node: Node) -> tuple[Expr, ...]:
    """Dropout before opset 12: inference, without a training mode."""
    return _kept(data, node)


@converter("Dropout", since=12)
def dropout(data: Expr, ratio: Expr | None = None, training_mode: Expr | None = None, *, seed: int | None = None,
            node: Node) -> tuple[Expr, ...]:
    """In training mode, zero elements with probability `ratio`, and scale the others by 1 / (1 - ratio)."""
    if not node.scalar(training_mode, "training_mode", False):
        return _kept(data, node)
    wide = dtype_of(data) if dtype_of(data) in _DRAWN else DataType("float32")
    share = const(0.5, str(wide)) if ratio is None else cast(reshape(ratio, ()), wide)
    mask = op.greater_equal(_drawn(op.random.uniform, 0.0, 1.0, node.static(data, "data"), wide, None if seed is None
                                   else float(seed), node), share)
    larger = op.divide(cast(data, wide), op.subtract(const(1.0, str(wide)), share))
    return cast(op.where(mask, larger, const(0.0, str(wide))), dtype_of(data)), mask


def _kept(data: Expr, node: Node) -> tuple[Expr, ...]:
    """Dropout in inference: the input, and a mask that keeps everything."""
    if not any(node.outputs[1:]):
        return (data,)
    kind = "bool" if node.opset >= 10 else dtype_of(data)
    return data, op.ones_like(data) if kind != "bool" else op.cast(op.ones_like(data), dtype="bool")
