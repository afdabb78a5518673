"""The whole way of the small loop programs: lowered, compiled, and run against the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from codegen_native import run as run_native
from loop_programs import PROGRAMS, S, V, loops, variables
from tilewright.scalar import expr as T
from tilewright.scalar.expr import Buffer, Intrinsic
from tilewright.tir.interpreter import run
from tilewright.tir.parser import parse
from tilewright.tir.stmt import PrimFunc, Store
from tilewright.tir.transform.lower_math import EXPANSIONS
from tilewright.tir.transform.pipeline import lower_loops


def compare(before: PrimFunc, arrays: list[np.ndarray], rtol: float = 0) -> None:
    expected, found = [a.copy() for a in arrays], [a.copy() for a in arrays]
    run(before, expected)
    run_native(lower_loops(before), *found, threads=2)
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_allclose(b, a, rtol=rtol)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    before = PROGRAMS[name]()
    rng = np.random.default_rng(0)
    compare(before, [rng.integers(-8, 8, int(np.prod(b.shape))).astype(b.dtype.numpy()) for b in before.buffers])


@pytest.mark.parametrize("kind", [S, V])
@pytest.mark.parametrize("f", EXPANSIONS, ids=str)
def test_elementary_functions(f: Intrinsic, kind: str) -> None:
    a, b, (i,) = Buffer("a", (16,)), Buffer("b", (16,)), variables("i")
    before = PrimFunc("f", (a, b), loops((i, 16, kind), body=Store(b, f(a[i]) * a[i] + T.const(1, "float32"), (i,))))
    values = np.array(
        [0.0, 0.1, 0.5, 0.9, 1.0, 1.5, 2.0, 3.0, 4.0, 10.0, 20.0, 1e-3, 1e-10, 80.0, np.inf, np.nan], np.float32
    )
    compare(before, [values, np.zeros(16, np.float32)], rtol=2e-6)


@pytest.mark.parametrize(
    "body", ["if i < 10 and a[i] > 0:\n            b[i] = a[i] + 1", "b[i] = T.if_then_else(i >= 10 or a[i] > 0, 7, 8)"]
)
@pytest.mark.parametrize("kind", ["serial", "vectorized"])
def test_the_first_condition_decides_whether_the_second_reads(kind: str, body: str) -> None:
    before = parse(f"""@T.prim_func
def f(a: T.Buffer((10,), "int32"), b: T.Buffer((16,), "int32")):
    for i in T.{kind}(16):
        {body}
""")
    arrays = [np.arange(10, dtype="int32") - 3, np.zeros(16, "int32")]
    compare(before, arrays)
    run(lower_loops(before), arrays)  # which refuses to read behind the end
