"""Constants in loop programs, and memory at an address.

    A = T.allocate_const([1, 2, 3], "int8", [3])        read-only memory with these values
    p: T.handle("int8") = T.address_of(pool[64])        an address, and
    B = T.Buffer((16,), "int8", data=p)                 the memory that begins there
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Final

import numpy as np

from tilewright.base.errors import CompileError
from tilewright.base.node import node
from tilewright.base.types import DataType
from tilewright.scalar.expr import Buffer, Load, PlacedBuffer, as_expr, const, number_of
from tilewright.scalar.walk import walk
from tilewright.tir.stmt import Allocate, PrimFunc, Stmt, Store, expressions, map_bodies, seq, walk_stmt

MOST_VALUES: Final = 1 << 14
"""Largest number of values of constants in one function that is compiled."""


@node
class AllocateConst(Allocate):
    """`buffer` holds the constants `data`, an array of one dimension in row-major order, and then zeros."""

    data: Any = None

    def __init__(self, *args: Any, **fields: Any) -> None:
        """Make a constant of `buffer`, `body`, `annotations` and `data`, or of TVM's arguments: `buffer_var`, `dtype`,
        `extents`, `data_or_idx`, `body` and `annotations`."""
        if "buffer_var" in fields or len(args) > 4:
            names = ("buffer_var", "dtype", "extents", "data_or_idx", "body", "annotations")
            given = {"annotations": None, **dict(zip(names, args, strict=False)), **fields}
            data = given.pop("data_or_idx")
            args, fields = (*described(**given, condition=True), data), {}
        given = {"annotations": None, **dict(zip(_FIELDS, args, strict=False)), **fields}
        given["data"] = values_of(given["data"], given["buffer"])
        for name, value in {**given, "annotations": dict(given["annotations"] or {})}.items():
            object.__setattr__(self, name, value)


_FIELDS: Final = ("buffer", "body", "annotations", "data")


def values_of(data: Any, buffer: Buffer) -> np.ndarray[Any, Any]:
    """Return the constants of a buffer as an array of one dimension. Raises `CompileError` if they are more than its
    elements."""
    array = np.asarray(getattr(data, "numpy", lambda: data)(), dtype=buffer.dtype.numpy()).reshape(-1)
    sizes = [number_of(as_expr(d)) for d in buffer.shape]
    if None in sizes or array.size > prod(int(n) for n in sizes if n is not None):
        raise CompileError(
            f"'{buffer.name}' of shape {list(buffer.shape)} cannot hold {array.size} constants; give it a larger shape",
            code="TW0609")
    return array


def described(
    buffer_var: Buffer, dtype: str | DataType, extents: Sequence[Any], condition: Any, body: Stmt,
    annotations: Mapping[str, Any] | None = None
) -> tuple[Buffer, Stmt, Mapping[str, Any] | None]:
    """Return the fields of an allocation for TVM's arguments. Raises `CompileError` if they do not fit the buffer."""
    fits = isinstance(buffer_var, Buffer) and buffer_var.dtype is DataType(dtype) and number_of(as_expr(condition)) == 1
    if not fits or _numbers(extents) != _numbers(buffer_var.shape):
        raise CompileError(
            f"an allocation takes a buffer with its own type and sizes, and a true condition; '{buffer_var}' does not "
            f"fit {dtype}, {list(extents)} and the condition {condition}", code="TW0609")
    return buffer_var, body, annotations


def _numbers(sizes: Sequence[Any]) -> list[Any]:
    """Return sizes with constants as numbers."""
    found = map(as_expr, sizes)
    return [e if (n := number_of(e)) is None else n for e in found]


def lower_memory(func: PrimFunc) -> PrimFunc:
    """Return a function that stores its constants when it begins to use them, for code generation.

    Raises `CompileError` for memory at an address, and for more than `MOST_VALUES` constants.
    """
    memory = [s for s in walk_stmt(func.body) if isinstance(s, Allocate)]
    constants = [s for s in memory if isinstance(s, AllocateConst)]
    for s in walk_stmt(func.body):
        used = [s.buffer] if isinstance(s, Store) else []
        used += [e.buffer for top in expressions(s) for e in walk(top) if isinstance(e, Load)]
        placed = next((b for b in used if isinstance(b, PlacedBuffer)), None)
        if placed is not None:
            raise CompileError(
                f"'{placed.name}' in '{func.name}' is memory at an address; such a program can be read and planned, "
                "but not compiled", code="TW0602")
    number = sum(prod(int(number_of(e) or 0) for e in s.extents) for s in constants)
    if number > MOST_VALUES:
        raise CompileError(
            f"'{func.name}' has {number} constants, and {MOST_VALUES} can be compiled; pass them as an argument",
            code="TW0602")
    return func.with_body(_stored(func.body)) if constants else func


def _stored(s: Stmt) -> Stmt:
    """Replace constants by memory and stores."""
    inner = map_bodies(s, _stored) or s
    if not isinstance(inner, AllocateConst):
        return inner
    shape = [int(number_of(e) or 0) for e in inner.extents]
    padded = np.zeros(prod(shape), inner.data.dtype)
    padded[:inner.data.size] = inner.data
    stores = [
        Store(inner.buffer, const(v.item(), inner.dtype), tuple(const(int(i), "int64") for i in at))
        for at, v in np.ndenumerate(padded.reshape(shape))]
    return Allocate(inner.buffer, seq(*stores, inner.body), inner.annotations)


__all__ = ["AllocateConst", "described", "lower_memory", "values_of"]
