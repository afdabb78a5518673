"""Complex tensors, represented during an import by pairs of real tensors.

A complex tensor is a call of `complex_of_parts` on its parts, stacked along a last dimension. Operators that read it
take the parts out again, so only inputs and outputs of a model are complex at run time. Operators that move elements
are converted once for each part. Operators that compute are in this module; all others refuse complex tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

from tilewright.base.types import DataType
from tilewright.relay.expr import Call, Expr, Tuple
from tilewright.relay.frontend.core.registry import Converter
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.pytorch import registry
from tilewright.relay.frontend.pytorch.node import Node
from tilewright.relay.frontend.pytorch.promotion import floating, promoted, tensor
from tilewright.relay.frontend.pytorch.registry import CONVERTERS, converter
from tilewright.relay.frontend.shaping import cast, slice_axis
from tilewright.relay.op.complex_numbers import ComplexOfParts
from tilewright.relay.op.transform import Stack
from tilewright.relay.types_of import dtype_of, rank, scalar, shape_of

F = TypeVar("F", bound=Callable[..., Any])

MOVING: Final = frozenset(
    {
        "alias", "cat", "chunk", "clone", "concat", "contiguous", "detach", "diagonal", "expand", "flatten", "flip",
        "gather", "index_select", "mT", "movedim", "narrow", "permute", "reshape", "roll", "select", "slice", "split",
        "split_with_sizes", "squeeze", "stack", "sum", "t", "transpose", "unbind", "unflatten", "unsqueeze", "view",
        "_unsafe_view"})
"""Operators whose result's real and imaginary parts depend only on the same parts of their arguments."""
COMPUTING: Final[dict[str, Callable[..., Any]]] = {}
"""Converters of operators that compute with complex tensors, by name.

Those that also accept real tensors are in the table of converters too.
"""
_PARTS: Final = {"complex64": DataType("float32"), "complex128": DataType("float64")}


def is_complex(x: Any) -> bool:
    return isinstance(x, Expr) and str(dtype_of(x)) in _PARTS


def parts_of(x: Expr) -> tuple[Expr, Expr]:
    """The real and the imaginary part, which is zero for a real tensor."""
    if not is_complex(x):
        return x, op.zeros_like(x)
    pairs = x.args[0] if isinstance(x, Call) and isinstance(x.op, ComplexOfParts) else op.complex_parts(x)
    if isinstance(pairs, Call) and isinstance(pairs.op, Stack) and isinstance(pairs.args[0], Tuple):
        real, imaginary = pairs.args[0].fields
        return real, imaginary
    last = rank(x)
    real, imaginary = (op.squeeze(slice_axis(pairs, last, k, k + 1), axis=(last,)) for k in (0, 1))
    return real, imaginary


def joined(real: Expr, imaginary: Expr) -> Expr:
    return op.complex_of_parts(op.stack(Tuple((real, imaginary)), axis=rank(real)))


def involved(arguments: Mapping[str, Any]) -> bool:
    """Whether an argument is complex, or a tensor is cast to a complex type."""
    return any(is_complex(x) for x in _tensors(arguments)) or (
        isinstance(arguments.get("self"), Expr) and str(arguments.get("dtype")).removeprefix("torch.") in _PARTS
    )


def _tensors(arguments: Mapping[str, Any]) -> Iterator[Any]:
    for value in arguments.values():
        yield from value if isinstance(value, (list, tuple)) else (value,)


def convert(found: Converter, node: Node, arguments: Mapping[str, Any]) -> Any:
    """Convert a call with complex arguments; refuse operators that do not support them."""
    name = node.name.removesuffix("_")
    if name in COMPUTING:
        return registry.convert(CONVERTERS.described(name, COMPUTING[name]), node, arguments)
    if name not in MOVING:
        node.refuse(
            f"it takes or gives complex numbers, but {name} is supported for real tensors only; compute with "
            "torch.view_as_real(x)")
    real, imaginary = ([_part(v, k) for v in arguments.values()] for k in (0, 1))
    both = [registry.convert(found, node, dict(zip(arguments, values, strict=True))) for values in (real, imaginary)]
    return joined(*both) if isinstance(both[0], Expr) else [joined(a, b) for a, b in zip(*both, strict=True)]


def _part(value: Any, which: int) -> Any:
    if isinstance(value, (list, tuple)):
        return [_part(v, which) for v in value]
    return parts_of(value)[which] if is_complex(value) else value


def computing(*names: str) -> Callable[[F], F]:
    """Register a converter for complex tensors only."""

    def register(function: F) -> F:
        COMPUTING.update(dict.fromkeys(names, function))
        return function

    return register


def of_both(*names: str) -> Callable[[F], F]:
    """Register a converter for real and complex tensors."""
    return lambda function: converter(*names)(computing(*names)(function))


def _pairs(*operands: Any, node: Node) -> list[tuple[Expr, Expr]]:
    """The parts of tensors and Python numbers, promoted to one type."""
    parts: list[Any] = []
    for x in operands:
        parts += parts_of(x) if isinstance(x, Expr) else (complex(x).real, complex(x).imag)
    kind = next(_PARTS[str(dtype_of(x))] for x in operands if is_complex(x))
    whole = [tensor(p, kind) for p in parts]
    return list(zip(whole[::2], whole[1::2], strict=True))


# Parts


@of_both("real")
def real(self: Expr) -> Expr:
    return parts_of(self)[0]


@of_both("imag")
def imag(self: Expr) -> Expr:
    return parts_of(self)[1]


@of_both("view_as_real", "view_as_real_copy")
def view_as_real(self: Expr) -> Expr:
    return op.stack(Tuple(parts_of(self)), axis=rank(self))


@converter("view_as_complex", "view_as_complex_copy")
def view_as_complex(self: Expr) -> Expr:
    return op.complex_of_parts(self)


@converter("complex")
def complex_of(real: Expr, imag: Expr, node: Node) -> Expr:
    a, b = promoted(real, imag, node=node)
    whole = op.add(a, op.zeros_like(b)), op.add(b, op.zeros_like(a))
    return joined(*whole)


@converter("polar")
def polar(abs: Expr, angle: Expr, node: Node) -> Expr:
    length, turn = promoted(abs, angle, node=node)
    return joined(op.multiply(length, op.cos(turn)), op.multiply(length, op.sin(turn)))


@of_both("conj", "_conj", "conj_physical", "_conj_physical")
def conjugate(self: Expr) -> Expr:
    if not is_complex(self):
        return self
    a, b = parts_of(self)
    return joined(a, op.negative(b))


@computing("resolve_conj", "resolve_neg")
def resolve(self: Expr) -> Expr:
    return self


@of_both("angle")
def angle(self: Expr, node: Node) -> Expr:
    from tilewright.relay.frontend.pytorch.math import atan2

    if is_complex(self):
        a, b = parts_of(self)
        return atan2(b, a, node)
    x = floating(self, node)
    turned = op.where(op.less(x, scalar(0, x)), scalar(math.pi, x), scalar(0, x))
    return op.where(op.isnan(x), x, turned)


@computing("abs")
def absolute(self: Expr) -> Expr:
    from tilewright.relay.frontend.pytorch.math import length

    return length(*parts_of(self))


# Arithmetic


@computing("add", "sub")
def add(self: Any, other: Any, node: Node, alpha: Any = 1) -> Expr:
    (a, b), (c, d) = _pairs(self, other, node=node)
    step = op.add if node.name.startswith("add") else op.subtract
    factor = tensor(alpha, dtype_of(c))
    return joined(step(a, op.multiply(c, factor)), step(b, op.multiply(d, factor)))


def _times(x: tuple[Expr, Expr], y: tuple[Expr, Expr]) -> tuple[Expr, Expr]:
    (a, b), (c, d) = x, y
    return op.subtract(op.multiply(a, c), op.multiply(b, d)), op.add(op.multiply(a, d), op.multiply(b, c))


@computing("mul")
def multiply(self: Any, other: Any, node: Node) -> Expr:
    return joined(*_times(*_pairs(self, other, node=node)))


@computing("div")
def divide(self: Any, other: Any, node: Node) -> Expr:
    x, (c, d) = _pairs(self, other, node=node)
    size = op.add(op.multiply(c, c), op.multiply(d, d))
    a, b = _times(x, (c, op.negative(d)))
    return joined(op.divide(a, size), op.divide(b, size))


@computing("neg")
def negative(self: Expr) -> Expr:
    a, b = parts_of(self)
    return joined(op.negative(a), op.negative(b))


@computing("exp")
def exponential(self: Expr) -> Expr:
    a, b = parts_of(self)
    size = op.exp(a)
    return joined(op.multiply(size, op.cos(b)), op.multiply(size, op.sin(b)))


@computing("is_complex")
def says_complex(self: Expr) -> bool:
    return True


@computing("to", "_to_copy")
def to(self: Expr, node: Node, dtype: Any = None) -> Expr:
    name = str(dtype).removeprefix("torch.")
    if dtype is not None and name not in _PARTS:
        node.refuse(f"a complex tensor is cast to {name}; take its real part with torch.real(x) first")
    return self if dtype is None else joined(*(cast(p, _PARTS[name]) for p in parts_of(self)))


@computing("size")
def size(self: Expr, dim: int | None = None) -> Any:
    return list(shape_of(self)) if dim is None else shape_of(self)[dim]
