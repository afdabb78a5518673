"""PyTorch's type promotion: the result type of tensors and Python numbers.

Kinds are ordered bool, integer, float. Within a kind, tensors with dimensions take precedence over scalar tensors, and
these over Python numbers. A Python number determines the type only if its kind is above those of the tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.types import BOOL, FLOAT32, INT64, DataType
from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.pytorch.node import Node
from tilewright.relay.frontend.shaping import cast
from tilewright.relay.types_of import dtype_of, rank
from tilewright.scalar.expr import PrimExpr

Operand = Any
"""A tensor, or a Python number."""

DTYPES: Final = (
    "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex32", "complex64", "complex128",
    "bool", "qint8", "quint8", "qint32", "bfloat16",
)
"""The element types; the position is TorchScript's number for it."""


def _kind(t: DataType) -> int:
    return 2 if t.is_float else 1 if t.is_integer else 0


def joined(a: DataType, b: DataType) -> DataType:
    """The smallest type that can hold both."""
    if a is b:
        return a
    if _kind(a) != _kind(b):
        return a if _kind(a) > _kind(b) else b
    if _kind(a) == 2:
        return FLOAT32 if a.bits == b.bits else a if a.bits > b.bits else b
    return DataType(np.promote_types(a.numpy(), b.numpy()))


def result_type(operands: Sequence[Operand], default: DataType = FLOAT32) -> DataType:
    """The type in which PyTorch computes an elementwise operator with these operands."""
    levels: list[DataType | None] = [None, None, None]
    for x in operands:
        level = 2 if not isinstance(x, Expr) else 0 if rank(x) else 1
        kind = dtype_of(x) if isinstance(x, Expr) else number_type(x, default)
        before = levels[level]
        levels[level] = kind if before is None else joined(before, kind)
    found: DataType | None = None
    for lower in levels:
        if lower is not None and (found is None or _kind(lower) > _kind(found)):
            found = lower
    return found if found is not None else default


def number_type(x: Any, default: DataType = FLOAT32) -> DataType:
    if isinstance(x, (bool, np.bool_)):
        return BOOL
    return INT64 if isinstance(x, (int, np.integer, PrimExpr)) else default


def tensor(x: Operand, dtype: str | DataType) -> Expr:
    """An operand as a tensor of type `dtype`; a symbolic size becomes a computed scalar."""
    if isinstance(x, Expr):
        return cast(x, dtype)
    if isinstance(x, PrimExpr):
        counted = op.ndarray_size(op.zeros(shape=(x,), dtype="bool"), dtype="int64")
        return cast(counted, dtype)
    kind = DataType(dtype)
    if kind.is_integer and isinstance(x, int) and not -(2 ** (kind.bits - 1)) <= x < 2 ** (kind.bits - 1):
        return Constant(np.asarray(x % 2**64, np.uint64).astype(kind.numpy()))
    with np.errstate(over="ignore", invalid="ignore"):
        return Constant(np.asarray(x).astype(kind.numpy()))


def promoted(*operands: Operand, node: Node) -> list[Expr]:
    """The operands as tensors of their promoted type."""
    kind = result_type(operands, node.default_dtype)
    return [tensor(x, kind) for x in operands]


def floating(x: Expr, node: Node) -> Expr:
    """`x` as a float type: integers and bools are cast to the default type."""
    return x if dtype_of(x).is_float else cast(x, node.default_dtype)


def dtype_named(dtype: Any, node: Node) -> DataType:
    """The type for a dtype argument: TorchScript's number, or a `torch.dtype`."""
    if isinstance(dtype, DataType):
        return dtype
    name = DTYPES[dtype] if isinstance(dtype, int) and dtype < len(DTYPES) else str(dtype).removeprefix("torch.")
    if name.startswith("complex"):
        node.refuse(f"the element type {name} is not supported; use real tensors")
    return DataType({"qint8": "int8", "quint8": "uint8", "qint32": "int32"}.get(name, name))
