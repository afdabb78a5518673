"""TVM's `tvm.utils.roofline`: roofline analysis of the kernels of a network against the peaks of this machine.

A session on this machine (`remote`) is accepted; everything is measured in this process.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tilewright.backends.targets.target import Target
from tilewright.base.errors import OptionError
from tilewright.base.nd import Device
from tilewright.compiler.build import build
from tilewright.compiler.peaks import peaks
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Expr
from tilewright.runtime.host import host_arch
from tilewright.runtime.profiling import Report
from tilewright.runtime.threads import threads_of_call
from tilewright.runtime.trial import machine_name

if TYPE_CHECKING:
    from tilewright.compat.roofline import x86

__all__ = ["estimate_peak_bandwidth", "estimate_peak_fma_flops", "roofline_analysis", "x86"]


def __getattr__(name: str) -> Any:
    if name == "x86":
        return importlib.import_module("tilewright.compat.roofline.x86")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'", name=name)


def roofline_analysis(
    mod: IRModule | Expr, params: Mapping[str, Any], target: str | Target, dev: Device, remote: Any = None,
    inputs: Mapping[str, Any] | None = None, runs: int = 50,
) -> Report:
    """Compile a network for this machine, run it, and report time, operations, bytes, share of the roofline, and the
    limiting resource of each step.

    Inputs are random by default. Raises `OptionError` for a `remote` or a target that is another machine.
    """
    _check_local(target, remote)
    program = build(mod, target, params=params).executable
    profile = program.profile(*([inputs] if inputs else []), number=runs)
    return profile.report(peaks(program.threads))


def estimate_peak_fma_flops(target: str | Target, dev: Device, dtype: str = "float32", remote: Any = None) -> float:
    """Return the operations per second of this machine on `dtype` (float32, bfloat16 or int8), for a matrix product
    that stays in the caches; a multiply-add counts as two."""
    _check_local(target, remote)
    found = peaks(threads_of_call()).operations
    if dtype not in found:
        raise OptionError(
            f"this machine has no special instructions for '{dtype}'; peaks are available for {', '.join(found)}",
            code="TW0210")
    return found[dtype]


def estimate_peak_bandwidth(target: str | Target, dev: Device, remote: Any = None, nbytes: int | None = None) -> float:
    """Return the memory bandwidth of this machine in bytes per second: of main memory, or of a working set of `nbytes`.
    """
    _check_local(target, remote)
    found = peaks(threads_of_call())
    return found.bandwidths[-1][1] if nbytes is None else found.bandwidth(nbytes)


def _check_local(target: str | Target, remote: Any) -> None:
    arch = Target(target).mtriple.split("-")[0]
    if (remote is not None and remote.machine != machine_name()) or arch not in ("", host_arch()):
        raise OptionError(
            f"peaks are measured on the target machine, but this machine is {host_arch()}; run this on the target "
            "machine",
            code="TW0505")
