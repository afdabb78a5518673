"""`tvm.testing`: comparisons of programs, expressions and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te
from tilewright.base.errors import ScheduleError
from tilewright.compat import testing
from tilewright.compat.testing import plugin
from tilewright.tir.script import tir as T

X = te.var("x")


class TestFunctions(testing.CompareBeforeAfter):
    transform = tvm.tir.transform.UnrollLoop()

    def before(A: T.Buffer((2,), "float32")) -> None:  # type: ignore[valid-type]
        for i in T.unroll(2):
            A[i] = 0.0

    def expected(A: T.Buffer((2,), "float32")) -> None:  # type: ignore[valid-type]
        A[0] = 0.0
        A[1] = 0.0


class TestMethods(testing.CompareBeforeAfter):
    size = testing.parameter(1, 3)

    def transform(self) -> Any:
        return lambda mod: mod

    @testing.fixture
    def before(self, size: int) -> Any:
        return function(size)

    def expected(self, size: int) -> Any:
        return function(size)


class TestModules(testing.CompareBeforeAfter):
    transform = tvm.tir.transform.Simplify()

    class before:
        def f(A: T.Buffer((4,), "int64")) -> None:  # type: ignore[valid-type]
            for i in T.serial(4):
                A[i] = i * 2 + i

    class expected:
        def f(A: T.Buffer((4,), "int64")) -> None:  # type: ignore[valid-type]
            for i in T.serial(4):
                A[i] = i * 3


class TestErrors(testing.CompareBeforeAfter):
    expected = ScheduleError

    def before(A: T.Buffer((4,), "int64"), n: T.int64) -> None:  # type: ignore[valid-type]
        for i in T.unroll(n):
            A[i] = i

    def transform(self) -> Any:
        return tvm.tir.transform.UnrollLoop()


class TestCachedFixtures:
    step = testing.parameter(1, 2)

    @testing.fixture(cache_return_value=True)  # type: ignore[untyped-decorator]
    def changed(self) -> dict[str, int]:
        return {"step": 0}

    def test_each_test_gets_a_copy(self, step: int, changed: dict[str, int]) -> None:
        assert changed == {"step": 0}
        changed["step"] = step


def test_marks_of_targets() -> None:
    marks = {t: plugin._target_to_requirement(t) for t in ("llvm", "c", "cuda -arch=sm_75")}
    marks["opencl"] = plugin._target_to_requirement(tvm.target.Target("opencl"))
    assert {t: [m.args for m in found] for t, found in marks.items()} == {
        "llvm": [(False,)], "c": [], "cuda -arch=sm_75": [(True,)], "opencl": [(True,)]}


def function(size: int) -> Any:
    a = te.placeholder((size,), name="a")
    return te.create_prim_func([a, te.compute((size,), lambda i: a[i] + 1.0, "b")])


def test_a_difference_is_found() -> None:
    with pytest.raises(tvm.TVMError, match="the programs differ"):
        testing.CompareBeforeAfter().test_compare(function(2), function(3), lambda mod: mod)


def test_equal_expressions() -> None:
    testing.assert_prim_expr_equal((X + 1) * 2, X * 2 + 2)
    testing.assert_prim_expr_equal(tvm.tir.floormod(X * 4 + 1, 4), 1)
    with pytest.raises(AssertionError, match=r"x is not proved equal to \(x \+ 1\)"):
        testing.assert_prim_expr_equal(X, X + 1)


def test_numerical_gradients() -> None:
    x = np.array([1.0, -2.0, 3.0], np.float32)
    testing.check_numerical_grads(lambda v: v ** 2, [x], [2 * x])
    testing.check_numerical_grads(lambda a, b: (a * b).sum(), {"a": x, "b": x + 1}, {"b": x})
    with pytest.raises(AssertionError, match="the gradient of 0 differs from differences of the function by 3"):
        testing.check_numerical_grads(lambda v: v ** 2, [x], [3 * x])
    with pytest.raises(AssertionError, match="float16 has no number between"):
        testing.check_numerical_grads(lambda v: v * 2, [np.array([3000], np.float16)], [np.array([2])])


def test_numerical_gradients_of_rounded_values() -> None:
    """The sum of the function is rounded to float32, which hides small parts of the gradient."""
    x = np.random.default_rng(0).uniform(-10, 10, 40).astype("float32")
    testing.check_numerical_grads(lambda v: np.exp(v).sum(dtype="float32"), [x], [np.exp(x)])


def test_marks() -> None:
    assert testing.requires_package("numpy").args == (False,)
    assert testing.requires_package("numpy", "no_such_package").args == (True,)
    with pytest.raises(AttributeError, match="requires_mars"):
        testing.__getattr__("requires_mars")
