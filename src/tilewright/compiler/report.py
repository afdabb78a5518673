"""BuildReport of a build: seconds by phase, and the results of each stage."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from tilewright.backends.flow import FlowProgram
    from tilewright.compiler.kernel import Kernel
    from tilewright.ir.module import IRModule
    from tilewright.relay.expr import Function
    from tilewright.relay.transform.plan_memory import MemoryPlan
    from tilewright.runtime.manifest import Manifest
    from tilewright.runtime.program import Step
    from tilewright.tir.stmt import PrimFunc


@dataclass
class BuildReport:
    """Seconds spent in each phase of a build, and the results: each kernel, its LLVM text, and the fused module.

    The module with the model's original weights is kept only on request. So are the functions of the kernels by symbol,
    and the memory plans with their steps: one plan for a straight-line program, one per block with control flow.
    """

    keeps_module: bool = False
    phases: dict[str, float] = field(default_factory=dict)
    module: IRModule | None = None
    functions: dict[str, Function] = field(default_factory=dict)
    plans: list[tuple[MemoryPlan, tuple[Step, ...]]] = field(default_factory=list)
    kernels: dict[str, Kernel] = field(default_factory=dict)
    llvm: dict[str, str] = field(default_factory=dict)
    control: tuple[FlowProgram, Sequence[Manifest]] | None = None
    """The functions of a program with control flow, and its blocks."""
    text: str = ""
    """The text of all kernels, if the target's back end emits a single text."""

    def compiled(self, symbol: str, function: Function | PrimFunc, kernel: Kernel | None, text: str) -> None:
        """Keep the loops of a kernel of the graph, and the LLVM text of any kernel."""
        if kernel is not None:
            self.kernels[symbol] = kernel
            if self.keeps_module:
                self.functions[symbol] = cast("Function", function)
        if text:
            self.llvm[symbol] = text

    def apart(self) -> BuildReport:
        """Return a report for one attempt of a build, whose seconds count in this one."""
        return BuildReport(self.keeps_module, self.phases)

    def take(self, other: BuildReport) -> None:
        """Add the results of the attempt that succeeded."""
        self.functions.update(other.functions)
        self.plans += other.plans
        self.kernels.update(other.kernels)
        self.llvm.update(other.llvm)
        self.text = other.text or self.text

    def planned(self, plan: MemoryPlan, steps: Sequence[Step]) -> None:
        """Keep a plan and its steps if the module is kept."""
        if self.keeps_module:
            self.plans.append((plan, tuple(steps)))

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the seconds of the block under `name`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - start
