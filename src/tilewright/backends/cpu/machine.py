"""Machines of CPUs: what schedules know of a processor, from the options of a target and the host."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from tilewright.backends.cpu import processors
from tilewright.runtime.host import host_cache_sizes

if TYPE_CHECKING:
    from tilewright.backends.target import Target
    from tilewright.topi.machine import Machine

_PORTABLE_VECTOR_BITS: Final = 256
"""The width of the innermost loops of C text, the same on every machine, so that the text is the same."""


def machine_of(target: Target) -> Machine:
    """Return the processor of a target whose code LLVM makes."""
    from tilewright.topi.machine import Machine

    bits = int(target.attrs.get("vector-width", 0)) or processors.vector_bits(target.family, target.features)
    registers = 32 if target.family in ("aarch64", "riscv") or "avx512f" in target.features else 16
    l1, l2 = host_cache_sizes() if target.is_native else (32 << 10, 1 << 20)
    cores = cores_of(target) if "num-cores" in target.attrs or target.has_threads else 1
    return Machine(bits, registers, l1, l2, cores, pipe_bits=_pipe_bits(target) if bits > processors.HALF_BITS else 0)


def portable_machine(target: Target) -> Machine:
    """Return the processor of C text: the same on every machine, apart from the number of cores."""
    from tilewright.topi.machine import Machine

    bits = int(target.attrs.get("vector-width", 0)) or _PORTABLE_VECTOR_BITS
    return Machine(bits, 16, 32 << 10, 1 << 20, cores_of(target), scalar=True, backend="c")


def cores_of(target: Target) -> int:
    """Return the cores that code may use: `-num-cores`, else those that this process may run on, else 4."""
    if "num-cores" in target.attrs:
        return int(target.attrs["num-cores"])
    if not target.is_native:
        return 4
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _pipe_bits(target: Target) -> int:
    if not target.is_native:
        return processors.pipe_bits(target.mcpu)
    import llvmlite.binding as llvm

    return processors.pipe_bits(llvm.get_host_cpu_name())
