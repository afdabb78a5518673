"""TVM's `tvm.instrument`: instruments that observe pass execution."""

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
