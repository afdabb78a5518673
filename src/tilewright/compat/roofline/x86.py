"""TVM's `tvm.utils.roofline.x86`: the peaks of this machine, measured by this package's own kernels."""

from __future__ import annotations

from typing import Any

from tilewright.backends.targets.target import Target
from tilewright.base.nd import Device
from tilewright.compat import roofline

__all__ = ["estimate_peak_bandwidth_dram", "estimate_peak_fma_vector_flops"]


def estimate_peak_fma_vector_flops(target: str | Target, dev: Device, remote: Any, dtype: str) -> float:
    """Return the operations per second of this machine on `dtype`: see `roofline.estimate_peak_fma_flops`."""
    return roofline.estimate_peak_fma_flops(target, dev, dtype, remote)


def estimate_peak_bandwidth_dram(target: str | Target, dev: Device, remote: Any) -> float:
    """Return the bandwidth of main memory in bytes per second: see `roofline.estimate_peak_bandwidth`."""
    return roofline.estimate_peak_bandwidth(target, dev, remote)
