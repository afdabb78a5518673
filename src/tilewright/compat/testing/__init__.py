"""TVM's `tvm.testing`: comparison of results, enabled targets, and parameters of pytest functions.

Parameters and targets (`parameter`, `parametrize_targets`, `requires_cuda`, …) need pytest, and `target` and `dev` as
arguments of test functions need the plugin: `pytest_plugins = ["tilewright.testing.plugin"]` in `conftest.py`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.base.nd import Device, device

if TYPE_CHECKING:
    from tilewright.compat.testing.pytest_names import (
        exclude_targets,
        fixture,
        known_failing_targets,
        main,
        parameter,
        parameters,
        parametrize_targets,
        requires_cuda,
        requires_gpu,
        requires_llvm,
        uses_gpu,
    )

__all__ = [
    "assert_allclose", "device_enabled", "enabled_targets", "exclude_targets", "fixture", "known_failing_targets",
    "main",
    "parameter", "parameters", "parametrize_targets", "requires_cuda", "requires_gpu", "requires_llvm", "uses_gpu",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module("tilewright.compat.testing.pytest_names"), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'", name=name)


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
