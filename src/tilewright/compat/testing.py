"""The field's `tvm.testing`: what scripts compare answers with."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.base.nd import Device, device

__all__ = ["assert_allclose", "device_enabled", "enabled_targets"]


def assert_allclose(actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 1e-7) -> None:
    """Raises `AssertionError`, with the elements that differ most, unless |actual - desired| <= atol + rtol *
    |desired| and the shapes are equal."""
    found, wanted = np.asanyarray(actual), np.asanyarray(desired)
    assert found.shape == wanted.shape, f"the shapes differ: {found.shape}, and {wanted.shape} is wanted"
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol, verbose=True)


def device_enabled(target: Any) -> bool:
    """Whether programs for `target` run here."""
    return str(target).split(maxsplit=1)[0] in ("llvm", "cpu")


def enabled_targets() -> list[tuple[str, Device]]:
    """The targets whose programs run here, with their devices."""
    return [("llvm", device("llvm"))]
