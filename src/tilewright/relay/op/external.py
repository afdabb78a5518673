"""Calls of functions compiled by another code generator, which all passes treat as opaque."""

from __future__ import annotations

from tilewright.base.types import DataType, TensorType, TupleType, Type
from tilewright.relay.op.registry import Fusion, Op, op


@op("external_call", kind=Fusion.OPAQUE)
class ExternalCall(Op):
    """A call of the function `symbol` in a module made by another code generator; a tuple if there are several
    `shapes`.

    A device may keep state, so two equal calls are not merged.
    """

    symbol: str
    """Name of the function in the module."""
    compiler: str
    """Name of the code generator that made the module."""
    shapes: tuple[tuple[int, ...], ...]
    """Shapes of the results."""
    dtypes: tuple[str, ...]
    """Types of the results."""

    pure = False

    @property
    def results(self) -> int | None:
        return len(self.shapes) if len(self.shapes) != 1 else None

    def infer(self, *args: Type) -> Type:
        """`shapes` and `dtypes`: a tensor, or a tuple of several."""
        types = [TensorType(shape, DataType(dtype)) for shape, dtype in zip(self.shapes, self.dtypes, strict=True)]
        return types[0] if len(types) == 1 else TupleType(types)
