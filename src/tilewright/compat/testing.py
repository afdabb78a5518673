"""TVM's `tvm.testing`: comparison of results, and enabled targets."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.base.nd import Device, device

__all__ = ["assert_allclose", "device_enabled", "enabled_targets"]


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
