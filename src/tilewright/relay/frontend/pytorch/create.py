"""Operators that create tensors: filled, ranges, random."""

from __future__ import annotations

import hashlib
import math
from typing import Any, Final

import ml_dtypes
import numpy as np

from tilewright.base.types import INT64, DataType
from tilewright.relay import types_of
from tilewright.relay.expr import Constant, Expr, Tuple
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.products import broadcast_shape
from tilewright.relay.frontend.pytorch.node import Node
from tilewright.relay.frontend.pytorch.promotion import dtype_named, number_type, result_type, tensor
from tilewright.relay.frontend.pytorch.references import spread
from tilewright.relay.frontend.pytorch.registry import converter
from tilewright.relay.frontend.pytorch.transform import dims_of
from tilewright.relay.frontend.shaping import cast, reshape
from tilewright.relay.random import threefry_key
from tilewright.relay.types_of import dtype_of, shape_of

_FILLS: Final = {"zeros": 0, "ones": 1, "empty": 0}


def _kind(dtype: Any, node: Node, otherwise: DataType | None = None) -> DataType:
    return (otherwise or node.default_dtype) if dtype is None else dtype_named(dtype, node)


def filled(size: Any, value: Any, kind: DataType, node: Node) -> Expr:
    """A tensor filled with one value."""
    number = tensor(value, kind)
    settled = [node.settled(d) if isinstance(d, Expr) else d for d in size]
    if any(isinstance(d, Expr) and node.known(d) is None for d in settled):
        return op.broadcast_to(number, op.concatenate(Tuple(tuple(reshape(tensor(d, INT64), (1,)) for d in settled)),
            axis=0))
    return spread(number, tuple(dims_of(settled, node)))


def _register_fill(name: str, value: int) -> None:
    @converter(name)
    def plain(size: Any, node: Node, dtype: Any = None, names: Any = None) -> Expr:
        return filled(size, value, _kind(dtype, node), node)

    @converter(f"{name}_like")
    def like(self: Expr, node: Node, dtype: Any = None) -> Expr:
        return filled(shape_of(self), value, _kind(dtype, node, dtype_of(self)), node)

    @converter(f"new_{name}")
    def new(self: Expr, size: Any, node: Node, dtype: Any = None) -> Expr:
        return filled(size, value, _kind(dtype, node, dtype_of(self)), node)


for _name, _value in _FILLS.items():
    _register_fill(_name, _value)


@converter("empty_strided", "new_empty_strided", "empty_permuted")
def empty_strided(size: Any, node: Node, self: Expr | None = None, stride: Any = None, physical_layout: Any = None,
                  dtype: Any = None) -> Expr:
    return filled(size, 0, _kind(dtype, node, None if self is None else dtype_of(self)), node)


@converter("full")
def full(size: Any, fill_value: Any, node: Node, dtype: Any = None) -> Expr:
    own = dtype_of(fill_value) if isinstance(fill_value, Expr) else number_type(fill_value, node.default_dtype)
    return filled(size, fill_value, _kind(dtype, node, own), node)


@converter("full_like")
def full_like(self: Expr, fill_value: Any, node: Node, dtype: Any = None) -> Expr:
    return filled(shape_of(self), fill_value, _kind(dtype, node, dtype_of(self)), node)


@converter("new_full")
def new_full(self: Expr, size: Any, fill_value: Any, node: Node, dtype: Any = None) -> Expr:
    return filled(size, fill_value, _kind(dtype, node, dtype_of(self)), node)


@converter("fill")
def fill(self: Expr, value: Any, node: Node) -> Expr:
    return filled(shape_of(self), value, dtype_of(self), node)


@converter("zero")
def zero(self: Expr, node: Node) -> Expr:
    return filled(shape_of(self), 0, dtype_of(self), node)


@converter("scalar_tensor")
def scalar_tensor(s: Any, node: Node, dtype: Any = None) -> Expr:
    return tensor(s, _kind(dtype, node))


@converter("tensor", "as_tensor")
def tensor_of(node: Node, data: Any = None, t: Any = None, dtype: Any = None) -> Expr:
    data = t if data is None else data

    def made(value: Any) -> Expr:
        return op.stack(Tuple(tuple(map(made, value))), axis=0) if isinstance(value, list) else tensor(value, kind)

    numbers = _flat(data)
    kind = _kind(dtype, node, result_type(numbers, node.default_dtype) if numbers else node.default_dtype)
    if any(isinstance(n, Expr) or not isinstance(n, (bool, int, float)) for n in numbers):
        return made(data)
    return Constant(np.array(data, kind.numpy()))


def _flat(data: Any) -> list[Any]:
    return [n for d in data for n in _flat(d)] if isinstance(data, list) else [data]


@converter("arange")
def arange(node: Node, end: Any = None, start: Any = 0, step: Any = 1, dtype: Any = None) -> Expr:
    given = [start, end, step]
    own = INT64 if all(not isinstance(v, float) and not (isinstance(v, Expr) and dtype_of(v).is_float)
                       for v in given) else node.default_dtype
    kind = _kind(dtype, node, own)
    if all(isinstance(v, (int, float)) for v in given):
        return Constant(_counted(start, end, step, kind))
    known = [node.known(node.settled(v)) if isinstance(v, Expr) else v for v in given]
    if all(v is not None and np.asarray(v).dtype != object for v in known):
        first, last, apart = (np.asarray(v).reshape(-1)[0].item() for v in known)
        return Constant(_counted(first, last, apart, kind))
    if not any(isinstance(v, Expr) for v in given) and start == 0 and step == 1:
        return cast(op.cumsum(op.ones(shape=(end,), dtype="int64"), axis=0, exclusive=True), kind)
    return op.arange(start=tensor(start, kind), stop=tensor(end, kind), step=tensor(step, kind), dtype=kind)


def _counted(start: Any, end: Any, step: Any, kind: DataType) -> np.ndarray[Any, Any]:
    """The values of torch.arange: the element count in float64, then start + k * step; int64 uses integer arithmetic.
    """
    if kind is INT64 or (kind.is_integer and all(isinstance(v, int) for v in (start, end, step))):
        return np.asarray(np.arange(int(start), int(end), int(step)), kind.numpy())
    count = max(0, int(np.ceil((end - start) / step)))
    if kind.is_integer:
        return np.asarray(int(start) + np.arange(count) * int(step)).astype(kind.numpy())
    return np.asarray(start + np.arange(count, dtype=np.float64) * step).astype(kind.numpy())


@converter("linspace")
def linspace(start: Any, end: Any, steps: int, node: Node, dtype: Any = None) -> Expr:
    return Constant(_spaced(start, end, steps, node).astype(_kind(dtype, node).numpy()))


@converter("logspace")
def logspace(start: Any, end: Any, steps: int, node: Node, base: float = 10.0, dtype: Any = None) -> Expr:
    return Constant((float(base) ** _spaced(start, end, steps, node)).astype(_kind(dtype, node).numpy()))


def _spaced(start: Any, end: Any, steps: int, node: Node) -> np.ndarray[Any, Any]:
    first, last = (float(node.value(v, "start and end")) if isinstance(v, Expr) else v for v in (start, end))
    if steps == 1:
        return np.asarray([first], np.float64)
    step = (last - first) / (steps - 1)
    index = np.arange(steps)
    return np.where(index < steps // 2, first + step * index, last - step * (steps - 1 - index))


@converter("eye")
def eye(n: int, node: Node, m: int | None = None, dtype: Any = None) -> Expr:
    return Constant(np.eye(n, m, dtype=_kind(dtype, node).numpy()))


@converter("tril_indices", "triu_indices")
def triangle_indices(row: int, col: int, node: Node, offset: int = 0, dtype: Any = None) -> Expr:
    find = np.tril_indices if node.name == "tril_indices" else np.triu_indices
    return Constant(np.stack(find(row, offset, col)).astype(_kind(dtype, node, INT64).numpy()))


@converter("hann_window", "hamming_window", "blackman_window")
def window(window_length: int, node: Node, periodic: bool = True, dtype: Any = None) -> Expr:
    n = np.arange(window_length) / max(window_length if periodic else window_length - 1, 1)
    weights = {"hann_window": (0.5, 0.5), "hamming_window": (0.54, 0.46),
               "blackman_window": (0.42, 0.5, 0.08)}[node.name]
    made = sum(w * (-1) ** k * np.cos(2 * np.pi * k * n) for k, w in enumerate(weights))
    return Constant(np.asarray(made).astype(_kind(dtype, node).numpy()))


# Random numbers have the requested distribution, but differ from those that torch draws


def _key(node: Node) -> Expr:
    """The state of the node's own generator: a compiled model draws the same numbers in each call."""
    return threefry_key(int.from_bytes(hashlib.sha256(str(node.origin).encode()).digest()[:4], "little"))


def _drawn(size: Any, kind: DataType, node: Node, low: float, high: float, normal: bool = False) -> Expr:
    a, b = (Constant(np.asarray(v, kind.numpy())) for v in (low, high))
    draw = op.random.normal if normal else op.random.uniform
    return draw(_key(node), a, b, out_shape=tuple(dims_of(size, node)), out_dtype=kind)[1]


@converter("rand", "randn")
def rand(size: Any, node: Node, dtype: Any = None) -> Expr:
    return _drawn(size, _kind(dtype, node), node, 0.0, 1.0, node.name == "randn")


@converter("rand_like", "randn_like")
def rand_like(self: Expr, node: Node, dtype: Any = None) -> Expr:
    return _drawn(shape_of(self), _kind(dtype, node, dtype_of(self)), node, 0.0, 1.0, node.name != "rand_like")


@converter("uniform")
def uniform(self: Expr, node: Node, from_: float = 0.0, to: float = 1.0) -> Expr:
    return _drawn(shape_of(self), dtype_of(self), node, from_, to)


def _uniform(self: Expr, node: Node, kind: DataType | None = None) -> Expr:
    """Uniform numbers in (0, 1) with the shape of `self`, and its type unless `kind` is given."""
    kind = dtype_of(self) if kind is None else kind
    tiny = float(ml_dtypes.finfo(kind.numpy()).tiny)  # type: ignore[no-untyped-call]
    return _drawn(shape_of(self), kind, node, tiny, 1.0)


@converter("exponential")
def exponential(self: Expr, node: Node, lambd: float = 1.0) -> Expr:
    return op.divide(op.negative(op.log(_uniform(self, node))), types_of.scalar(lambd, self))


@converter("cauchy")
def cauchy(self: Expr, node: Node, median: float = 0.0, sigma: float = 1.0) -> Expr:
    angle = op.multiply(op.subtract(_uniform(self, node), types_of.scalar(0.5, self)), types_of.scalar(math.pi, self))
    return op.add(op.multiply(op.tan(angle), types_of.scalar(sigma, self)), types_of.scalar(median, self))


@converter("log_normal")
def log_normal(self: Expr, node: Node, mean: float = 1.0, std: float = 2.0) -> Expr:
    return op.exp(_drawn(shape_of(self), dtype_of(self), node, mean, std, normal=True))


@converter("geometric")
def geometric(self: Expr, p: float, node: Node) -> Expr:
    kind = dtype_of(self) if dtype_of(self).is_float else DataType("float32")
    failures = op.divide(op.log(_uniform(self, node, kind)), Constant(np.asarray(math.log1p(-p), kind.numpy())))
    return cast(op.add(op.floor(failures), Constant(np.ones((), kind.numpy()))), dtype_of(self))


@converter("normal")
def normal(node: Node, self: Expr | None = None, mean: Any = 0.0, std: Any = 1.0, size: Any = None,
           dtype: Any = None) -> Expr:
    given = [v for v in (self, mean, std) if isinstance(v, Expr)]
    kind = _kind(dtype, node, dtype_of(given[0]) if given else None)
    drawn = _drawn(broadcast_shape([shape_of(v) for v in given]) if size is None else size, kind, node, 0.0, 1.0,
                   normal=True)
    return op.add(op.multiply(drawn, tensor(std, kind)), tensor(mean, kind))


@converter("rrelu")
def rrelu(self: Expr, node: Node, lower: float = 0.125, upper: float = 1 / 3, training: bool = False) -> Expr:
    slope = _drawn(shape_of(self), dtype_of(self), node, lower, upper) if training else types_of.scalar((lower + upper)
        / 2, self)
    return op.where(op.less(self, types_of.scalar(0, self)), op.multiply(self, slope), self)


@converter("randint_like")
def randint_like(self: Expr, high: Any, node: Node, low: int = 0, dtype: Any = None) -> Expr:
    top = int(node.value(high, "high")) if isinstance(high, Expr) else high
    return cast(op.floor(_drawn(shape_of(self), DataType("float32"), node, float(low), float(top))),
                _kind(dtype, node, dtype_of(self)))


@converter("randint", "randint.low")
def randint(high: int, size: Any, node: Node, low: int = 0, dtype: Any = None) -> Expr:
    return cast(op.floor(_drawn(size, DataType("float32"), node, float(low), float(high))), _kind(dtype, node, INT64))


@converter("bernoulli")
def bernoulli(self: Expr, node: Node, p: float | None = None) -> Expr:
    drawn = _drawn(shape_of(self), dtype_of(self), node, 0.0, 1.0)
    return cast(op.less(drawn, self if p is None else types_of.scalar(p, self)), dtype_of(self))


@converter("multinomial")
def multinomial(self: Expr, num_samples: int, node: Node, replacement: bool = False) -> Expr:
    if not replacement and num_samples > 1:
        # The largest values of p / e, with e exponentially distributed, are a draw without replacement.
        exponential = op.negative(op.log(_drawn(shape_of(self), dtype_of(self), node, 0.0, 1.0)))
        return op.topk(op.divide(self, exponential), k=num_samples, axis=-1, ret_type="indices", dtype="int64")
    return cast(op.random.multinomial(_key(node), self, num_samples=num_samples)[1], INT64)
