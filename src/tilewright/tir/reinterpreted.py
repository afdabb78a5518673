"""Views in TVMScript of memory with elements of a narrower type, from which the elements of the view are composed.

    M = T.allocate([8], "uint8")
    V = T.decl_buffer([4], "float16", M)      V[i] is the bits M[i * 2] | M[i * 2 + 1] << 8 as a float16

The first element of the memory has the lowest bits, as on the processors that have a back end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.base.types import DataType
from tilewright.scalar import expr as E
from tilewright.scalar.expr import Buffer, Load, PrimExpr, Var
from tilewright.tir.functions import bitwise_or, reinterpret, shift_left, shift_right
from tilewright.tir.stmt import Let, Seq, Stmt, Store
from tilewright.tir.views import View, reshaped


@dataclass(frozen=True, slots=True)
class Reinterpreted:
    """Memory seen as elements of `dtype`. `parts` has one dimension more: the parts of an element, lowest bits first.
    """

    name: str
    dtype: DataType
    parts: View

    @property
    def shape(self) -> tuple[Any, ...]:
        return self.parts.shape[:-1]

    def load(self, indices: Sequence[PrimExpr]) -> PrimExpr:
        """Return the element at `indices`, or a vector of elements for vectors of indices."""
        whole, part, lanes = _bits(self.dtype), _bits(self.parts.dtype), _lanes(indices)
        found: PrimExpr | None = None
        for n, place in enumerate(self._places(indices)):
            bits = E.cast(whole.with_lanes(lanes), reinterpret(part.with_lanes(lanes), Load(self.parts.buffer, place)))
            bits = shift_left(bits, n * part.bits) if n else bits
            found = bits if found is None else bitwise_or(found, bits)
        kind = self.dtype.with_lanes(lanes)
        return reinterpret(kind, found) if found is not None else E.const(0, kind)

    def store(self, indices: Sequence[PrimExpr], value: PrimExpr, mask: PrimExpr | None = None) -> Stmt:
        """Return the stores of the parts of `value`, which is computed once; `mask` is that of a store of a vector."""
        lanes = _lanes(indices)
        whole, part = _bits(self.dtype), _bits(self.parts.dtype).with_lanes(lanes)
        bits = Var(f"{self.name}_bits", whole.with_lanes(lanes))
        stores = []
        for n, place in enumerate(self._places(indices)):
            cut = E.cast(part, shift_right(bits, n * part.bits) if n else bits)
            held = reinterpret(self.parts.dtype.with_lanes(lanes), cut)
            stores.append(Store(self.parts.buffer, held, place, mask))
        return Let(bits, reinterpret(whole.with_lanes(lanes), value), Seq(tuple(stores)))

    def _places(self, indices: Sequence[PrimExpr]) -> list[tuple[PrimExpr, ...]]:
        return [self.parts.places([*indices, E.const(n, "int64")]) for n in range(self.parts.shape[-1])]


def reinterpreted(
    name: str, target: Buffer | View, shape: Sequence[Any], dtype: DataType, offset: PrimExpr
) -> Reinterpreted | str:
    """Return the memory of `target` from element `offset` of the view on as elements of `dtype`, or say why it does
    not fit."""
    held = target.dtype
    if not all(d.lanes == 1 and d.bits % 8 == 0 and (d.is_integer or d.is_float) for d in (dtype, held)):
        return f"'{name}' is {dtype}, but the memory of '{target.name}' holds {held}; the types must be equal"
    if dtype.bits % held.bits:
        return (f"'{name}' is {dtype}, but the memory of '{target.name}' holds {held}, which is wider; declare the "
                "memory with the narrower type")
    parts = dtype.bits // held.bits
    made = reshaped(name, target, (*shape, parts), E.mul(offset, parts))
    return made if isinstance(made, str) else Reinterpreted(name, dtype, made)


def _bits(dtype: DataType) -> DataType:
    """Return the unsigned type of the same width."""
    return DataType(f"uint{dtype.bits}")


def _lanes(indices: Sequence[PrimExpr]) -> int:
    return max((i.dtype.lanes for i in indices), default=1)
