"""Quotients and limits of split indices: before -> after, and the same values."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import tilewright as tvm
from test_tir_public_passes import becomes
from tilewright.scalar.arith import evaluate
from tilewright.scalar.expr import Var, as_expr
from tilewright.tir.stmt import Evaluate, PrimFunc

PARAMS = 'A: T.Buffer((4096,), "int32"), i: T.int64, t: T.int64'
X, T = Var("i", "int64"), Var("t", "int64")


@pytest.mark.parametrize(("before", "after"), [
    ("A[(i * 32 + t) % 128 // 32] = 0", "A[(i + t // 32) % 4] = 0"),
    ("A[(i * 128 + t * 4) // 256] = 0", "A[(i + t * 4 // 128) // 2] = 0"),
    ("A[(i * 128 + t * 4) % 256 // 8] = 0", "A[(i * 16 + t * 4 // 8) % 32] = 0"),
    ("A[(t + i * 6) // 4] = 0", "A[(t + i * 6) // 4] = 0"),
    ("if 128 <= i * 32 + t:\n    A[0] = 0", "if 1 <= (i + t // 32) // 4:\n    A[0] = 0"),
    ("if i * 32 + t < 640:\n    A[0] = 0", "if (i + t // 32) // 20 < 1:\n    A[0] = 0"),
    ("if i < 640 and 1 <= i * 32 + t:\n    A[0] = 0", "if i < 640 and 1 <= i * 32 + t:\n    A[0] = 0"),
])
def test_forms(before: str, after: str) -> None:
    becomes("RenormalizeSplitPattern", before, after, params=PARAMS)


@pytest.mark.parametrize("value", [
    (X * 32 + T) % 128 // 32, (X * 12 + T) // 36, (X * 36 + T) // 12, (T + X * 4) % 24 // 8, (X * 4 + T) // 6,
    (X * 4 + T + X * 8) % 96 // 16 // 2, tvm.te.if_then_else(X * 4 + T < 17, 1, 0),
    tvm.te.if_then_else(as_expr(9) <= X * 3 + T, 1, 0), tvm.te.if_then_else(X * 4 + T < -3, 1, 0),
])
def test_values_stay(value: Any) -> None:
    func = PrimFunc("f", (), Evaluate(value))
    new = tvm.tir.transform.RenormalizeSplitPattern()(tvm.IRModule({"f": func}))["f"].body.value
    for i, t in itertools.product(range(-6, 40, 3), range(-7, 9)):
        assert evaluate(new, {X: i, T: t}) == evaluate(value, {X: i, T: t})
