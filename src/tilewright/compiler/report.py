"""What a build tells about itself: seconds by phase, and what each stage made."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilewright.compiler.kernel import Kernel
    from tilewright.ir.module import IRModule


@dataclass
class Report:
    """Seconds spent in each phase of a build, and what the stages made: each kernel, its LLVM text, and the fused module.

    The module, and with it the weights as they were in the model, is kept only where it is asked for.
    """

    keeps_module: bool = False
    phases: dict[str, float] = field(default_factory=dict)
    module: IRModule | None = None
    kernels: dict[str, Kernel] = field(default_factory=dict)
    llvm: dict[str, str] = field(default_factory=dict)
    c: str = ""
    """The C text of all kernels, where the target is C."""

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the seconds of the block under `name`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - start
