"""Vectors under masks: each processor writes the lanes that are on, and no other byte. `codegen_masks.py` runs all of
the cases."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import daily
from codegen_masks import Case, all_cases, wrong
from codegen_native import Native
from codegen_processors import PROCESSORS, why_not
from tilewright.backends.cpu.llvm.codegen import emit
from tilewright.backends.cpu.llvm.compile import assembly
from tilewright.backends.cpu.llvm.masks import pieces
from tilewright.compat.target import Target
from tilewright.scalar import expr as E
from tilewright.scalar.expr import Buffer, Load, Ramp, as_expr
from tilewright.tir import interpreter
from tilewright.tir.stmt import PrimFunc, Seq, Store

SAMPLE = 150


@pytest.mark.slow
@pytest.mark.parametrize("name", PROCESSORS)
def test_the_lanes_that_are_on_are_written(name: str, tmp_path: Path) -> None:
    if reason := why_not(name):
        pytest.skip(reason)
    cases = daily.sample(list(all_cases(daily.SEED)), SAMPLE, name)
    assert not wrong(cases, name, tmp_path, daily.SEED)


@pytest.mark.parametrize("name", PROCESSORS)
@pytest.mark.parametrize(
    ("source", "to"), [("int64", "int32"), ("int64", "int8"), ("int32", "int16"), ("int32", "int8"), ("int16", "int8")]
)
def test_one_narrowed_lane_is_one_element(name: str, source: str, to: str, tmp_path: Path) -> None:
    """The case that LLVM writes as an element of the wider type."""
    if reason := why_not(name):
        pytest.skip(reason)
    on = [tuple(k == p for k in range(lanes)) for lanes in (8, 16, 32) for p in (0, 1, lanes - 1)]
    assert not wrong(
        [Case("store", source, to, (mask,), known) for mask in on for known in ("literal", "variable", "difference")],
        name, tmp_path, 0
    )


def test_pieces_are_powers_of_two() -> None:
    for count in range(1, 65):
        lanes = [k < count for k in range(64)]
        found = pieces(lanes)
        assert [k for first, length in found for k in range(first, first + length)] == list(range(count))
        assert len(found) == count.bit_count()
        assert all(length.bit_count() == 1 for _, length in found)
    assert pieces([False, True, False, True, True, True]) == [(1, 1), (3, 2), (5, 1)]


def test_a_known_mask_is_no_mask() -> None:
    """One lane is one element; three lanes of bytes are two stores; whole vectors and nothing need no mask."""
    target = Target(PROCESSORS["skylake-avx512"])

    def stores(mask: tuple[bool, ...]) -> list[tuple[str, str]]:
        text = emit(Case("store", "int32", "int8", (mask,), "difference").func("f"), target)
        return re.findall(r"store (<\d+ x i\d+>|i\d+)|llvm\.(masked\.store)\.", text.partition("define")[2])

    first = {count: stores(tuple(k < count for k in range(16))) for count in (1, 3, 8, 11, 16)}
    assert first[1] == [("i8", "")]
    assert first[3] == [("<2 x i8>", ""), ("i8", "")]
    assert first[8] == [("<8 x i8>", "")]
    assert first[11] == [("", "masked.store")]
    assert first[16] == [("<16 x i8>", "")]
    emitted = emit(Case("store", "int32", "int8", (tuple(k == 5 for k in range(16)),), "difference").func("f"), target)
    assert "vmovd" not in assembly(emitted, target), "an element of 32 bits is written"


def test_loads_under_a_mask_serve_that_mask_alone() -> None:
    """A value that was loaded under one condition is not what another condition loads."""
    a, t, out = Buffer("a", (64,), "int32"), Buffer("t", (64,), "int64"), Buffer("out", (64,), "int32")
    from tilewright.scalar.intrinsics import doubled_high_product

    def product(first: int) -> E.PrimExpr:
        lane = Ramp(as_expr(first), 1, 16)
        factor, rounding = E.const(1 << 30, "int32x16"), Load(t, (Ramp(as_expr(0), 1, 16),))
        x = Load(a, (lane,))
        return E.if_then_else(
            E.compare(E.GT, x, E.const(0, "int32x16")), doubled_high_product(x, factor, rounding),
            E.const(0, "int32x16")
        )

    body = Seq(tuple(Store(out, product(first), (Ramp(as_expr(first), 1, 16),)) for first in (0, 16, 32, 48)))
    func = PrimFunc("f", (a, t, out), body)
    given = [
        np.where(np.arange(64) % 16 < np.arange(64) // 4, 13, -6).astype("int32"), np.full(64, 1 << 30),
        np.zeros(64, "int32")
    ]
    wanted = [x.copy() for x in given]
    interpreter.run(func, wanted)
    native = Native(func)
    native(*given)
    native.close()
    np.testing.assert_array_equal(given[2], wanted[2])
