"""Calls of functions that another compiler took: opaque to every pass, and not ours to compute."""

from __future__ import annotations

from tilewright.relay.op.registry import Fusion, Op, op
from tilewright.types import TupleType, Type


@op("external_call", kind=Fusion.OPAQUE)
class ExternalCall(Op):
    """The function `symbol` of a module that the code generator `compiler` made; it gives a value of the type `result`.

    A device may keep state, so two calls are two calls.
    """

    symbol: str
    compiler: str
    result: Type

    pure = False

    @property
    def results(self) -> int | None:
        return len(self.result.fields) if isinstance(self.result, TupleType) else None

    def infer(self, *args: Type) -> Type:
        return self.result
