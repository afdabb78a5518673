"""The back end `c`: one C99 text for all kernels of a program, over scalars, compiled by a C compiler of this machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tilewright.backends.cpu.backend import CpuBackend
from tilewright.backends.cpu.machine import portable_machine

if TYPE_CHECKING:
    from tilewright.backends.cpu.llvm.debug_info import Source
    from tilewright.backends.machine import Machine
    from tilewright.backends.targets.target import Target
    from tilewright.runtime.scratch import Scratch
    from tilewright.tir.stmt import PrimFunc
    from tilewright.tir.transform.pipeline import LoopPass


class CBackend(CpuBackend):
    """Portable C text: it is the same for every machine, and a C compiler finds its vectors."""

    name = "c"
    stages: tuple[str, ...] = ("c",)
    one_text = True

    @property
    def loop_passes(self) -> Sequence[LoopPass]:
        from tilewright.tir.transform import pipeline

        return pipeline.SCALAR_PASSES

    def machine(self, target: Target) -> Machine:
        return portable_machine(target)

    def emit(
        self, funcs: Sequence[PrimFunc], target: Target, sources: Sequence[Source] = (),
        overlapping: frozenset[str] = frozenset(),
    ) -> tuple[str, Scratch]:
        from tilewright.backends.cpu.c.codegen import emit_measured

        return emit_measured(funcs, overlapping)

    def scratch(self, func: PrimFunc) -> Scratch:
        from tilewright.backends.cpu.c.memory import memory_of

        return memory_of(func).taken

    def compile(self, text: str, target: Target, *, in_order: bool = False) -> bytes:
        from tilewright.backends.cpu.c.compile import compile_c

        return compile_c(text, target)

    def with_note(self, text: str, note: str) -> str:
        """Return the text with the note as a comment at its end, in which no sequence ends a comment or is a trigraph.
        """
        escaped = note.replace("*/", "*\\/").replace("??", "?\\u003f")
        return f"{text}\n/* For tilewright.runtime.load_module:\n{escaped}\n*/\n"

    def identity(self, target: Target) -> str:
        from tilewright.backends.cpu.c.compile import identity_of

        return identity_of(target)


C: Final = CBackend()
