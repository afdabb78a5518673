"""Calls of functions that another compiler took: opaque to every pass, and not ours to compute."""

from __future__ import annotations

from tilewright.base.types import DataType, TensorType, TupleType, Type
from tilewright.relay.op.registry import Fusion, Op, op


@op("external_call", kind=Fusion.OPAQUE)
class ExternalCall(Op):
    """The function `symbol` of a module that the code generator `compiler` made. It gives a tensor, or a tuple where there are several `shapes`.

    A device may keep state, so two calls are two calls.
    """

    symbol: str
    compiler: str
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]

    pure = False

    @property
    def results(self) -> int | None:
        return len(self.shapes) if len(self.shapes) != 1 else None

    def infer(self, *args: Type) -> Type:
        types = [TensorType(shape, DataType(dtype)) for shape, dtype in zip(self.shapes, self.dtypes, strict=True)]
        return types[0] if len(types) == 1 else TupleType(types)
