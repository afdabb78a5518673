"""TVM's `tvm.testing`: comparison of results, enabled targets, and parameters of pytest functions.

Parameters and targets (`parameter`, `parametrize_targets`, `requires_cuda`, …) need pytest, and `target` and `dev` as
arguments of test functions need the plugin: `pytest_plugins = ["tilewright.testing.plugin"]` in `conftest.py`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tilewright.base.nd import Device, device
from tilewright.ir.transform import PassContext
from tilewright.scalar.arith import Analyzer, Ranges, prove, simplify
from tilewright.scalar.expr import as_expr

if TYPE_CHECKING:
    from tilewright.compat.testing.before_after import CompareBeforeAfter
    from tilewright.compat.testing.pytest_names import (
        exclude_targets,
        fixture,
        known_failing_targets,
        main,
        parameter,
        parameters,
        parametrize_targets,
        requires_arm_dot,
        requires_cascadelake,
        requires_cuda,
        requires_gpu,
        requires_llvm,
        requires_package,
        requires_rpc,
        requires_skylake_avx512,
        requires_x86,
        skip_if_32bit,
        skip_if_wheel_test,
        slow,
        uses_gpu,
    )

__all__ = [
    "CompareBeforeAfter", "assert_allclose", "assert_prim_expr_equal", "check_numerical_grads", "device_enabled",
    "disable_span_filling", "enable_span_filling", "enabled_targets", "exclude_targets", "fixture",
    "known_failing_targets", "main", "parameter", "parameters", "parametrize_targets", "requires_arm_dot",
    "requires_cascadelake", "requires_cuda", "requires_gpu", "requires_llvm", "requires_package", "requires_rpc",
    "requires_skylake_avx512", "requires_x86", "skip_if_32bit", "skip_if_wheel_test", "slow", "uses_gpu",
]


_JOBS: Final = (
    "after_initializer", "call_cpp_ffi", "call_cpp_py_ffi", "call_py_ffi", "fast_summation", "identity_after",
    "initializer", "register_ffi", "slow_summation", "terminate_self", "timeout_job",
)
"""The functions of `popen_jobs`."""


def __getattr__(name: str) -> Any:
    if name in ("aot", "plugin", "usmp"):
        return importlib.import_module(f"tilewright.compat.testing.{name}")
    if name == "CompareBeforeAfter":
        return importlib.import_module("tilewright.compat.testing.before_after").CompareBeforeAfter
    if name in _JOBS:
        return getattr(importlib.import_module("tilewright.compat.testing.popen_jobs"), name)
    if name in __all__ or name.startswith("requires_"):
        found = getattr(importlib.import_module("tilewright.compat.testing.pytest_names"), name, None)
        if found is not None:
            return found
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'", name=name)


def enable_span_filling() -> PassContext:
    """Return a context in which importers give calls the names of the model's nodes as spans, as they do by default."""
    return PassContext(config={"relay.frontend.fill_span": True})


def disable_span_filling() -> PassContext:
    """Return a context in which importers give calls no spans."""
    return PassContext(config={"relay.frontend.fill_span": False})


def assert_allclose(actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 1e-7) -> None:
    """Raise `AssertionError`, which shows the largest differences, unless the shapes are equal and |actual - desired|
    <= atol + rtol * |desired|."""
    found, wanted = np.asanyarray(actual), np.asanyarray(desired)
    assert found.shape == wanted.shape, f"the shapes differ: {found.shape}, expected {wanted.shape}"
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol, verbose=True)


def device_enabled(target: Any) -> bool:
    """Whether programs for `target` run on this machine."""
    return str(target).split(maxsplit=1)[0] in ("llvm", "cpu")


def enabled_targets() -> list[tuple[str, Device]]:
    """Return the targets whose programs run on this machine, with their devices."""
    return [("llvm", device("llvm"))]


def assert_prim_expr_equal(lhs: Any, rhs: Any) -> None:
    """Raise `AssertionError` unless two integer expressions are equal for all values of their variables."""
    a, b = as_expr(lhs), as_expr(rhs)
    ranges = Ranges()
    if not (a is b or simplify(a, ranges) is simplify(b, ranges) or prove(a.equal(b), ranges)
            or (a.dtype.is_integer and Analyzer().can_prove_equal(a, b))):
        raise AssertionError(f"{a} is not proved equal to {b}; they become {simplify(a, ranges)} and "
                             f"{simplify(b, ranges)}")


def check_numerical_grads(
    function: Callable[..., Any], input_values: Sequence[Any] | Mapping[str, Any],
    grad_values: Sequence[Any] | Mapping[str, Any], function_value: Any = None, delta: float = 1e-3,
    atol: float = 1e-2, rtol: float = 0.1
) -> None:
    """Compare gradients of a function of arrays with central differences of width `2 * delta`.

    `function` returns a number, or an array that is summed. `input_values` and `grad_values` are lists, or dictionaries
    by the names of arguments. The differences contain the rounding of the function's type, so whole gradients are
    compared: raises `AssertionError` if the norm of `grad - expected` is not finite, or exceeds `atol * sqrt(size) +
    rtol * norm(expected)`.
    """
    named = isinstance(input_values, Mapping)
    values = {k: np.asarray(v) for k, v in _items(input_values)}

    def at(key: Any, place: tuple[int, ...], step: float) -> tuple[float, float]:
        """Return an element that is moved by `step`, and the value of the function there."""
        moved = values[key].copy()
        moved[place] += step
        given = {**values, key: moved}
        result = function(**given) if named else function(*given.values())
        return float(moved[place]), float(np.sum(np.asarray(result, np.float64)))

    for key, grad in _items(grad_values):
        expected = np.zeros(values[key].shape)
        for place in np.ndindex(*expected.shape):
            (low, below), (high, above) = at(key, place, -delta), at(key, place, delta)
            assert high > low, f"{values[key].dtype} has no number between {values[key][place]} and that plus {delta}"
            expected[place] = (above - below) / (high - low)
        found = np.asarray(grad, np.float64)
        assert found.shape == expected.shape, f"the shapes differ: {found.shape}, expected {expected.shape}"
        distance, norm = float(np.linalg.norm(found - expected)), float(np.linalg.norm(expected))
        limit = atol * np.sqrt(expected.size) + rtol * norm
        assert distance <= limit, (
            f"the gradient of {key!r} differs from differences of the function by {distance:.6g}, more than "
            f"{limit:.6g}:\n{found}\nexpected\n{expected}")


def _items(values: Any) -> list[tuple[Any, Any]]:
    return list(values.items()) if isinstance(values, Mapping) else list(enumerate(values))
