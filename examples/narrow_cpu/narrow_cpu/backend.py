"""The back end `narrow_cpu`: its options, its machine, its strategy for convolutions; text and object files are those
of LLVM.

    Target("narrow_cpu -scratchpad=65536 -num-cores=1")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from tilewright.backends.base import NUMBER, Strategies, Strategy
from tilewright.backends.cpu.llvm.backend import LLVM, LlvmBackend
from tilewright.backends.targets.target import Target
from tilewright.base.errors import TargetError

if TYPE_CHECKING:
    from tilewright.backends.cpu.llvm.debug_info import Source
    from tilewright.backends.machine import Machine
    from tilewright.runtime.scratch import Scratch
    from tilewright.tir.stmt import PrimFunc

SCRATCHPAD = 64 << 10
"""Bytes of the scratchpad where the target does not say otherwise."""


class NarrowCpu(LlvmBackend):
    """A CPU with 128-bit vectors and a scratchpad; on x86-64 it is emulated by the instructions up to SSE4.2."""

    name = "narrow_cpu"
    keys = ("narrow_cpu", "cpu")
    options: Mapping[str, str] = MappingProxyType({**LlvmBackend.options, "scratchpad": NUMBER})

    def add_strategies(self, strategies: Strategies) -> None:
        from narrow_cpu import conv2d
        from tilewright.relay.op.nn_conv import Conv2d

        super().add_strategies(strategies)
        strategies.register(Conv2d, Strategy("scratchpad", conv2d.conv2d, accepts=conv2d.accepts))

    def check(self, target: Target) -> None:
        super().check(target)
        if target.attrs.get("scratchpad", SCRATCHPAD) < 1 << 10:
            raise TargetError(
                f"the scratchpad of '{target}' has less than 1 KiB; give it more, as in -scratchpad={SCRATCHPAD}"
            )

    def machine(self, target: Target) -> Machine:
        scratchpad = target.attrs.get("scratchpad", SCRATCHPAD)
        core = replace(LLVM.machine(target).core, l3_bytes=0, clock_ghz=1.0)
        return replace(
            LLVM.machine(host(target)), l1_bytes=scratchpad, l2_bytes=scratchpad, backend=self.name, core=core
        )

    def emit(
        self, funcs: Sequence[PrimFunc], target: Target, sources: Sequence[Source] = (),
        overlapping: frozenset[str] = frozenset(),
    ) -> tuple[str, Scratch]:
        return LLVM.emit(funcs, host(target), sources, overlapping)

    def compile(self, text: str, target: Target, *, in_order: bool = False) -> bytes:
        return LLVM.compile(text, host(target), in_order=in_order)

    def texts(self, text: str, target: Target) -> Mapping[str, Callable[[], str]]:
        return LLVM.texts(text, host(target))


def host(target: Target) -> Target:
    """Return the target of LLVM whose code runs on the emulated processor."""
    kept = {name: value for name, value in target.attrs.items() if name != "scratchpad"}
    return Target({
        "kind": "llvm", **kept, **({"mcpu": "x86-64-v2", "mtriple": target.mtriple} if target.family == "x86" else {})
    })


NARROW_CPU = NarrowCpu()
