"""Host code as LLVM text: `backends/host_code.py` describes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.backends.cpu.llvm.c_entry import emit_c_entry
from tilewright.backends.cpu.llvm.compile import IN_ORDER, compile_text
from tilewright.backends.cpu.llvm.data import data_object
from tilewright.backends.cpu.llvm.entry import emit_blocks, emit_entry
from tilewright.backends.cpu.llvm.faults import faults_text
from tilewright.backends.cpu.llvm.flow import emit_flow
from tilewright.backends.cpu.llvm.interrupts import look_text
from tilewright.backends.cpu.llvm.kept_values import kept_values_text
from tilewright.backends.cpu.llvm.pool import pool_object, pool_text
from tilewright.backends.host_code import ControlFlow
from tilewright.backends.targets.target import Target
from tilewright.runtime.manifest import Manifest


class LlvmHostCode:
    """Host code that LLVM compiles, for every target of `processors.py`."""

    def entries(self, manifest: Manifest, target: Target, looks: frozenset[int] | None) -> Sequence[str]:
        return [emit_entry(manifest, looks=looks) + pool_text(target), *_called(manifest)]

    def flow(self, flow: ControlFlow, manifest: Manifest, target: Target) -> Sequence[str]:
        return [emit_blocks(flow.blocks, flow.calls, flow.looks) + emit_flow(flow), pool_text(target),
                *_called(manifest)]

    def for_functions(self, manifest: Manifest, target: Target) -> Sequence[bytes]:
        return [pool_object(target), *([compile_text(faults_text(), target)] if manifest.sites else [])]

    def c_entry(self, manifest: Manifest) -> bytes:
        return compile_text(emit_c_entry(manifest), Target(manifest.target))

    def data(self, target: Target, contents: Sequence[tuple[str, Any]]) -> bytes:
        return data_object(target, contents)

    def compile(self, text: str, target: Target, *, in_order: bool = False) -> bytes:
        return compile_text(text, target, level=IN_ORDER if in_order else None)


def _called(manifest: Manifest) -> list[str]:
    """Return the functions that checked code calls, those that entries of kept values call, and those that
    interruptible entries call."""
    return [*([faults_text()] if manifest.sites else []),
            *([kept_values_text(manifest)] if manifest.kept else []),
            *([look_text(manifest.triple)] if manifest.interruptible else [])]
