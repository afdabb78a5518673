"""Powers of integers as a function in LLVM text: wrapping multiplications, one or two for each bit of the exponent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilewright.backends.cpu.llvm.text import register_type
from tilewright.base.types import DataType

if TYPE_CHECKING:
    from tilewright.backends.cpu.llvm.function import FunctionText

_TEXT: Final = """
; x to the power y; a negative power is 1 / x^-y without its fraction, and 0 of zero
define internal KIND @NAME(KIND %x, KIND %y) nounwind {
entry:
  %negative = icmp TEST KIND %y, 0
  br i1 %negative, label %fraction, label %loop
loop:
  %base = phi KIND [ %x, %entry ], [ %square, %step ]
  %rest = phi KIND [ %y, %entry ], [ %shifted, %step ]
  %product = phi KIND [ 1, %entry ], [ %more, %step ]
  %over = icmp eq KIND %rest, 0
  br i1 %over, label %done, label %step
step:
  %odd = trunc KIND %rest to i1
  %factor = select i1 %odd, KIND %base, KIND 1
  %more = mul KIND %product, %factor
  %square = mul KIND %base, %base
  %shifted = lshr KIND %rest, 1
  br label %loop
done:
  ret KIND %product
fraction:
  %one = icmp eq KIND %x, 1
  %minus = icmp eq KIND %x, -1
  %uneven = trunc KIND %y to i1
  %sign = select i1 %uneven, KIND -1, KIND 1
  %other = select i1 %minus, KIND %sign, KIND 0
  %result = select i1 %one, KIND 1, KIND %other
  ret KIND %result
}
"""


def integer_power(f: FunctionText, dtype: DataType) -> str:
    """Return the name of the function that computes powers of the integer type `dtype`; a module has it once."""
    name, kind = f"tw_power_{dtype.element}", register_type(dtype.element)
    test = "slt" if dtype.code == "int" else "ult"  # an unsigned exponent is never below zero
    return f.define(name, _TEXT.replace("TEST", test).replace("KIND", kind).replace("NAME", name))
