"""Remainders of float32 and shorter floats, in float64 where that is exact, else by the C library.

    q = trunc(|x| / |y|);  r = |x| - q * |y|        exact for q < 2^29: 24 bits of y and 29 of q are the 53 of a float64

The quotient is rounded, so q may be off by one near an integer; r is then below zero, or not below |y|, and is
corrected. If a lane has a greater quotient, an infinite y or a NaN, all lanes are computed by `fmodf`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tilewright.backends.cpu.llvm.conversion import convert, is_short, narrow, widen
from tilewright.backends.cpu.llvm.text import float_constant, register_type, suffix
from tilewright.base.types import BOOL, FLOAT32, DataType

if TYPE_CHECKING:
    from tilewright.backends.cpu.llvm.function import FunctionText, Value

_LARGEST: Final = float(1 << 29)


def remainder(
    f: FunctionText, dtype: DataType, texts: list[str], library: Callable[[FunctionText, DataType, list[str], int], str]
) -> Value:
    """Return the remainder of two floats of `dtype`, 32 bits or fewer, with the sign of the first.

    `library` calls `fmodf` for each lane.
    """
    level, single = f.here, FLOAT32.with_lanes(dtype.lanes)
    x, y = (widen(f, t, level, dtype) for t in texts) if is_short(dtype) else texts
    result, exact = _in_double(f, single, x, y)
    found, _ = f.choose(
        exact, register_type(single), lambda: (result, level), lambda: (library(f, single, [x, y], f.here), f.here))
    return (narrow(f, found, f.here, dtype) if is_short(dtype) else found), f.here


def _in_double(f: FunctionText, single: DataType, x: str, y: str) -> tuple[str, str]:
    """Return the remainder in float64, and whether it is exact in all lanes."""
    level, double = f.here, DataType("float64").with_lanes(single.lanes)
    kind, truth = register_type(double), register_type(BOOL.with_lanes(single.lanes))

    def put(text: str) -> str:
        return f.put(text, level)

    def of(name: str, dtype: DataType, *operands: str) -> str:
        register = register_type(dtype)
        callee = f.declare(f"llvm.{name}.{suffix(dtype)}", register, ", ".join([register] * len(operands)))
        return put(f"call {register} {callee}({', '.join(f'{register} {o}' for o in operands)})")

    def number(value: float) -> str:
        text = float_constant(value, double)
        return text if double.lanes == 1 else f"splat (double {text})"

    a, b = (of("fabs", double, convert(f, t, level, single, double)) for t in (x, y))
    q = of("trunc", double, put(f"fdiv {kind} {a}, {b}"))
    r = put(f"fsub {kind} {a}, {put(f'fmul {kind} {q}, {b}')}")
    small = put(f"fcmp olt {kind} {q}, {number(_LARGEST)}")
    exact = put(f"and {truth} {small}, {put(f'fcmp ord {kind} {r}, {r}')}")
    below = put(f"fcmp olt {kind} {r}, {number(0.0)}")
    r = put(f"select {truth} {below}, {kind} {put(f'fadd {kind} {r}, {b}')}, {kind} {r}")
    beyond = put(f"fcmp oge {kind} {r}, {b}")
    r = put(f"select {truth} {beyond}, {kind} {put(f'fsub {kind} {r}, {b}')}, {kind} {r}")
    signed = of("copysign", single, convert(f, r, level, double, single), x)
    if single.lanes > 1:
        n = single.lanes
        exact = put(f"icmp eq i{n} {put(f'bitcast {truth} {exact} to i{n}')}, -1")
    return signed, exact
