"""The back end `llvm`: LLVM text, one module per kernel, compiled by llvmlite."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from tilewright.backends.base import LIST, OPTIONS
from tilewright.backends.cpu import processors
from tilewright.backends.cpu.backend import CpuBackend
from tilewright.backends.cpu.machine import machine_of
from tilewright.base.errors import TargetError

if TYPE_CHECKING:
    from tilewright.backends.cpu.llvm.debug_info import Source
    from tilewright.backends.machine import Machine
    from tilewright.backends.targets.target import Target
    from tilewright.runtime.scratch import Scratch
    from tilewright.tir.stmt import PrimFunc


class LlvmBackend(CpuBackend):
    """Machine code by LLVM. llvmlite is imported when text is emitted or compiled."""

    name = "llvm"
    stages: tuple[str, ...] = ("ll", "asm")
    has_debug_info = True

    options: Mapping[str, str] = {**OPTIONS, "cl-opt": LIST}

    def check_code(self, target: Target) -> None:
        if processors.is_microcontroller(target.mcpu):
            raise TargetError(
                f"machine code for the microcontroller '{target.mcpu}' is not generated; use the target "
                f"'c -mcpu={target.mcpu}', whose C text its own compiler translates", code="TW0503")
        if "cl-opt" in target.attrs:
            raise TargetError(
                "the target's option '-cl-opt' is for LLVM's command line, which no program here has; omit it",
                code="TW0502")

    def machine(self, target: Target) -> Machine:
        return machine_of(target)

    def emit(
        self, funcs: Sequence[PrimFunc], target: Target, sources: Sequence[Source] = (),
        overlapping: frozenset[str] = frozenset(),
    ) -> tuple[str, Scratch]:
        from tilewright.backends.cpu.llvm.codegen import emit_measured

        return emit_measured(funcs, target, sources)

    def compile(self, text: str, target: Target, *, in_order: bool = False) -> bytes:
        from tilewright.backends.cpu.llvm.compile import IN_ORDER, compile_text

        return compile_text(text, target, level=IN_ORDER if in_order else None)

    def texts(self, text: str, target: Target) -> Mapping[str, Callable[[], str]]:
        from tilewright.backends.cpu.llvm.compile import assembly

        return {"ll": lambda: text, "asm": lambda: assembly(text, target)}


LLVM: Final = LlvmBackend()
