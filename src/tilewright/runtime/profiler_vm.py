"""TVM's `tvm.runtime.profiler_vm`: the times of the steps of a program of `relay.vm.compile`.

    vm = profiler_vm.VirtualMachineProfiler(relay.vm.compile(mod, "llvm", params=params), tvm.cpu())
    print(vm.profile(x, func_name="main"))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.base.nd import array
from tilewright.runtime.intermediate import collected
from tilewright.runtime.profiling import MetricCollector, Report
from tilewright.runtime.vm import VirtualMachine

__all__ = ["VirtualMachineProfiler", "enabled"]


def enabled() -> bool:
    """Return True: every program can be profiled."""
    return True


class VirtualMachineProfiler(VirtualMachine):
    """Runs a program like `VirtualMachine`, and reports the time of each step."""

    def profile(
        self, *args: Any, func_name: str = "main", collectors: Sequence[MetricCollector] | None = None, **kwargs: Any,
    ) -> Report:
        """Report the time of each step of `main` with these arguments; collectors add metrics from a step-by-step run.

        Raises `InputError` for unsuitable arguments, and `RunError` for programs with control flow or dynamic shapes.
        """
        self._check(func_name)
        given = self._flat(args, kwargs)
        report: Report = self.executable.profile(*given).report()
        configuration = {**report.configuration, "Executor": "VM"}
        if not collectors:
            return Report(report.calls, report.device_metrics, configuration)
        more = collected(self.executable, [array(x) for x in given], self.device, collectors)
        rows = [{**row, **found} for row, found in zip(report.calls, [*more, {}], strict=True)]
        return Report(rows, report.device_metrics, configuration)
