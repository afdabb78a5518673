"""The field's `tvm.instrument`: what watches passes run."""

from tilewright.ir.transform import DumpInstrument, PassInstrument, PassTimingInstrument, VerifyInstrument, pass_instrument

__all__ = ["DumpInstrument", "PassInstrument", "PassTimingInstrument", "VerifyInstrument", "pass_instrument"]
