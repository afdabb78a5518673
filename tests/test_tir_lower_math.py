"""The expansions of elementary functions against float64, and at the ends of the range."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.base.types import DataType
from tilewright.scalar import expr as T
from tilewright.scalar import intrinsics as I
from tilewright.scalar.arith import evaluate
from tilewright.scalar.expr import Buffer, Call, Intrinsic, Load, Select, Var
from tilewright.scalar.walk import walk
from tilewright.tir.stmt import Let, PrimFunc, Store
from tilewright.tir.transform.lower_math import EXPANSIONS, expand, lower_math

Array = np.ndarray[Any, Any]

INPUTS = {"exp": (-104, 89), "exp2": (-150, 128), "tanh": (-12, 12), "sigmoid": (-88, 30), "erf": (-5, 5)}
ULPS = {"exp": 1, "exp2": 1, "log": 1, "log2": 2, "tanh": 2.5, "sigmoid": 2.5, "erf": 2, "rsqrt": 1.5}
REFERENCE: dict[str, Callable[..., Any]] = {
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "erf": np.vectorize(math.erf), "rsqrt": lambda x: 1 / np.sqrt(x)
}


def fused(a: Array, b: Array, c: Array) -> Array:
    """A fused multiply-add: one rounding (the product of two float32 is exact in float64)."""
    exact: Array = np.asarray(a, np.float64) * np.asarray(b, np.float64) + np.asarray(c, np.float64)
    return exact.astype(np.float32)


def apply(f: Intrinsic, x: Array, monkeypatch: pytest.MonkeyPatch) -> Array:
    monkeypatch.setattr(I.fma, "reference", fused)
    v = Var("x", DataType("float32").with_lanes(len(x)))
    expanded = expand(f(v))
    assert expanded is not None
    assert not any(isinstance(e, Call) and e.op in EXPANSIONS for e in walk(expanded))
    result: Array = evaluate(expanded, {v: x})
    return result


def reference(f: Intrinsic) -> Callable[..., Any]:
    """The meaning in numpy."""
    meaning = REFERENCE.get(f.spelling, f.reference)
    assert meaning is not None
    return meaning


def points(name: str) -> Array:
    """Random values over the range, and over all exponents within it."""
    rng = np.random.default_rng(1)
    lo, hi = INPUTS.get(name, (1e-38, 3e38))
    spread = np.exp(rng.uniform(-87, math.log(hi), 100_000)) * (rng.choice([-1, 1], 100_000) if lo < 0 else 1)
    x = np.concatenate([rng.uniform(lo, hi, 100_000) if name in INPUTS else rng.uniform(0.4, 3, 100_000), spread])
    return x[(x >= lo) & (x <= hi)].astype(np.float32)


@pytest.mark.parametrize("f", EXPANSIONS, ids=str)
def test_error_in_units_in_the_last_place(f: Intrinsic, monkeypatch: pytest.MonkeyPatch) -> None:
    x = points(f.spelling)
    found = apply(f, x, monkeypatch)
    with np.errstate(all="ignore"):
        exact = reference(f)(x.astype(np.float64))
        rounded = exact.astype(np.float32)
        finite = np.isfinite(rounded) & np.isfinite(found)
        error = np.abs(
            found.astype(np.float64) - exact
        )[finite] / np.spacing(np.abs(rounded[finite])).astype(np.float64)
    worst = error.argmax()
    assert error[worst] <= ULPS[f.spelling], (error[worst], x[finite][worst])


def test_erf_that_is_rounded_to_bfloat16() -> None:
    """One polynomial, exact at the ends; in what is stored as float32, and inside of other functions, the other two."""
    x = np.concatenate([points("erf"), ENDS]).astype(np.float32)
    v = Var("x", DataType("float32").with_lanes(len(x)))
    expanded = expand(I.erf(v), coarse=True)
    assert expanded is not None
    assert not any(isinstance(e, Select) for e in walk(expanded))
    with np.errstate(all="ignore"):
        found, exact = evaluate(expanded, {v: x}), REFERENCE["erf"](x.astype(np.float64))
    error = np.abs(found - exact)
    assert np.nanmax(error) < 2.5e-5
    assert np.nanmax(error / np.maximum(np.abs(exact), 1e-30)) < 1.1e-4
    assert (found[np.abs(x) > 4] == np.sign(x[np.abs(x) > 4])).all()
    assert (np.isnan(found) == np.isnan(x)).all()


def test_which_erf_is_rounded() -> None:
    a, i = Buffer("a", (8,), "float32"), Var("i")

    def chosen(value: T.PrimExpr, dtype: str) -> bool:
        func = PrimFunc("f", (a, Buffer("b", (8,), dtype)), Store(Buffer("b", (8,), dtype), value, (i,)))
        body = lower_math(func).body
        found = []
        while isinstance(body, Let):
            found.append(body.value)
            body = body.body
        assert isinstance(body, Store)
        return any(isinstance(e, Select) for root in (*found, body.value) for e in walk(root))

    gelu = a[i] * 0.5 * (I.erf(a[i]) + 1.0)
    assert not chosen(T.cast("bfloat16", gelu), "bfloat16")
    assert chosen(gelu, "float32")
    assert chosen(T.cast("float16", gelu), "float16")
    assert chosen(T.cast("bfloat16", I.sqrt(1.0 - I.erf(a[i]))), "bfloat16")


ENDS = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-45, -1e-45, 1e-39, 3e38, -3e38, 88.8, -87.5, -103.5, 1e-20],
    np.float32
)


@pytest.mark.parametrize("f", EXPANSIONS, ids=str)
def test_ends_of_the_range(f: Intrinsic, monkeypatch: pytest.MonkeyPatch) -> None:
    found = apply(f, ENDS, monkeypatch)
    with np.errstate(all="ignore"):
        expected = np.asarray(reference(f)(ENDS.astype(np.float64))).astype(np.float32)
    np.testing.assert_allclose(found, expected, rtol=3e-7, atol=3e-45 if f is not I.sigmoid else 2e-38)
    zero = found == 0
    if f in (I.tanh, I.erf):
        np.testing.assert_array_equal(np.signbit(found[zero]), np.signbit(ENDS[zero]))


def test_half_precision_goes_through_float32() -> None:
    x = Var("x", "float16")
    lowered = expand(I.exp(x))
    assert lowered is not None and lowered.dtype == "float16"
    assert abs(float(evaluate(lowered, {x: np.float16(1.5)})) - math.exp(1.5)) < 4e-3


def test_float64_stays_a_call() -> None:
    assert expand(I.exp(Var("x", "float64"))) is None
    assert expand(I.asin(Var("x", "float32"))) is None


def test_functions_inside_of_statements_are_expanded() -> None:
    a, b = Buffer("a", (4,)), Buffer("b", (4,))
    func = lower_math(PrimFunc("f", (a, b), Store(b, I.tanh(I.exp(a[0])), (T.const(1, "int64"),))))
    assert isinstance(func.body, Store)
    assert not any(isinstance(e, Select) for e in walk(func.body.value))
    assert not any(isinstance(e, Call) and e.op in EXPANSIONS for e in walk(func.body.value))


def test_an_argument_that_is_chosen_by_is_read_once_before() -> None:
    a, b = Buffer("a", (4,)), Buffer("b", (4,))
    func = lower_math(PrimFunc("f", (a, b), Store(b, I.erf(I.log(a[0]) * 2.0), (T.const(1, "int64"),))))
    outer = func.body
    assert isinstance(outer, Let) and isinstance(outer.value, Load)
    assert isinstance(outer.body, Store)
    assert not any(isinstance(e, Load) for e in walk(outer.body.value))


def test_an_argument_below_a_select_is_not_read_early() -> None:
    a, b, n = Buffer("a", (4,)), Buffer("b", (4,)), Var("n")
    value = T.if_then_else(n < 4, I.log(a[n]), 0.0)
    func = lower_math(PrimFunc("f", (a, b), Store(b, value, (T.const(1, "int64"),))))
    assert isinstance(func.body, Store) and isinstance(func.body.value, Select)
