"""The field's `tvm.instrument`: what watches passes run."""

from tilewright.ir.instrument import (
    DumpInstrument,
    DumpIR,
    PassInstrument,
    PassPrintingInstrument,
    PassTimingInstrument,
    PrintAfterAll,
    PrintBeforeAll,
    VerifyInstrument,
    pass_instrument,
)

__all__ = [
    "DumpIR", "DumpInstrument", "PassInstrument", "PassPrintingInstrument", "PassTimingInstrument", "PrintAfterAll",
    "PrintBeforeAll", "VerifyInstrument",
    "pass_instrument",
]
