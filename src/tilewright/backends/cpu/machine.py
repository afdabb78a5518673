"""Machines of CPUs: a table of microarchitectures, and the `Machine` of a target.

A processor without a row has that of its family. `python benchmarks/peak.py` prints a row that it measures on this
machine.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tilewright.backends.cpu import processors
from tilewright.backends.machine import GENERIC, Core, Machine
from tilewright.base.limits import usable_cores
from tilewright.runtime.host import host_cache_sizes
from tilewright.topi.work import Step

if TYPE_CHECKING:
    from tilewright.backends.targets.target import Target

_PORTABLE_VECTOR_BITS: Final = 256
"""The width of the innermost loops of C text, the same on every machine, so that the text is the same."""


@dataclass(frozen=True, slots=True)
class Microarchitecture:
    """A row of the table: processors of one design, with the numbers that a target's options do not determine.

    `cpus` are LLVM's names; the row of a family has none. `vector_registers` excludes AVX-512, which has 32. `l1_bytes`
    and `l2_bytes` are minima for cross compilation. `source` is the source of the numbers.
    """

    family: str
    cpus: tuple[str, ...]
    source: str
    vector_registers: int = 16
    l1_bytes: int = 32 << 10
    l2_bytes: int = 1 << 20
    pipe_bits: int = 0
    core: Core = GENERIC


_MEASURED: Final = (
    "Costs of tiles, pieces, caches and threads were measured on two cores of AMD EPYC servers, Zen 4 and Zen 5; "
    "a gain of 0.6 from parts of a batch made resnet50 5 % slower."
)
TABLE: Final = (
    Microarchitecture("x86", (), f"Caches of Intel Skylake-SP, the smallest of server cores since 2017. {_MEASURED}"),
    Microarchitecture(
        "x86", ("znver4",),
        "AMD, Software Optimization Guide for the Zen 4 Microarchitecture (57647): vectors of 512 bits pass through "
        "pipes of 256 bits in two halves; L1 32 KiB, L2 1 MiB; two multiply-adds with a latency of 4 cycles, two loads "
        "and one store of 256 bits a cycle. Products of 160 to 192 rows took 4 to 9 % longer with 20 to 24 "
        f"accumulators of 32 registers than with 12 to 14. {_MEASURED}",
        pipe_bits=256),
    Microarchitecture(
        "x86", ("skylake-avx512", "skx", "cascadelake", "cooperlake"),
        "Intel 64 and IA-32 Architectures Optimization Reference Manual (248966), Skylake Server: L1 32 KiB, L2 1 MiB; "
        "two multiply-adds with a latency of 4 cycles, two loads and one store a cycle. On two cores of a Cascade Lake "
        "server, bert_base took 0.8 of the time with partial sums of 192 steps than of 48, and products of 32 to 128 "
        "rows in loops of 24 and 48 vector products reached 87 and 93 % of their speed unrolled: a cycle starts four "
        "instructions, those of the loop included. Other costs are those of the family.",
        core=replace(GENERIC, product_piece=192, loop_products=48)),
    Microarchitecture(
        "x86", ("znver1", "znver2", "znver3"),
        "AMD, Software Optimization Guide for the Zen 3 Microarchitecture (56665): L1 32 KiB, L2 512 KiB; two "
        "multiply-adds of 256 bits with a latency of 4 cycles, two loads and one store a cycle. The speed of the "
        "caches is that of an EPYC server, Zen 3, by `benchmarks/peak.py`. Sixteen registers do not hold the totals of "
        "a tile: products of 128 and 512 rows took 5 to 15 % less time with partial sums of 192 steps than of 48. "
        "Products of 32 to 512 rows in loops of 12, 24 and 48 vector products reached 94, 98 and 100 % of their speed "
        "unrolled.",
        l2_bytes=512 << 10,
        core=replace(
            GENERIC, loads=1.9, l1_cycles=0.54, l2_cycles=1.07, l3_cycles=1.55, product_piece=192, loop_products=48)),
    Microarchitecture(
        "x86",
        ("haswell", "broadwell", "core-avx2", "skylake", "alderlake", "raptorlake", "meteorlake", "arrowlake",
         "lunarlake", "sierraforest", "x86-64-v3"),
        "Intel 64 and IA-32 Architectures Optimization Reference Manual (248966): L1 32 KiB, L2 256 KiB and more; "
        "partial sums and loops as for Zen 3, which also has 16 registers of 256 bits. Other costs are those of the "
        "family, not measured.",
        l2_bytes=256 << 10, core=replace(GENERIC, product_piece=192, loop_products=48)),
    Microarchitecture(
        "aarch64", (),
        "Arm Architecture Reference Manual (DDI 0487): 32 vector registers. Other numbers are those of x86, not "
        "measured.",
        32),
    Microarchitecture(
        "riscv", (), "RISC-V V Extension 1.0: 32 vector registers. Other numbers are those of x86, not measured.", 32),
    Microarchitecture(
        "arm", (),
        "Arm Architecture Reference Manual (DDI 0406): 16 vector registers. Other numbers are those of x86, not "
        "measured."),
    Microarchitecture(
        "wasm", (), "WebAssembly has no registers; 16 are assumed. Other numbers are those of x86, not measured."),
)
"""The rows of families first among those of their family."""
STEP_NS: Final[Mapping[Step, float]] = {
    Step.MOVE: 1.0, Step.COMPARE: 2.0, Step.RANDOM: 8.0, Step.OVERLAP: 20.0, Step.SAMPLE: 40.0, Step.DIVISOR: 50.0,
    Step.PROPOSAL: 100.0, Step.FUNCTION: 200.0,
}
"""Nanoseconds of one step of a loop that is written out, estimated for a core of 4 GHz and not measured one by one.
They only decide whether a loop runs on several threads."""


def microarchitecture(family: str, cpu: str) -> Microarchitecture:
    """Return the row of a processor by LLVM's name, or that of its family."""
    rows = [row for row in TABLE if row.family == family]
    return next((row for row in rows if cpu in row.cpus), rows[0])


def machine_of(target: Target) -> Machine:
    """Return the machine model of a target whose code LLVM generates."""
    row = microarchitecture(target.family, _host_cpu() if target.is_native else target.mcpu)
    bits = int(target.attrs.get("vector-width", 0)) or processors.vector_bits(target.family, target.features)
    l1, l2 = host_cache_sizes() if target.is_native else (row.l1_bytes, row.l2_bytes)
    return Machine(
        bits, 32 if "avx512f" in target.features else row.vector_registers, l1, l2,
        cores_of(target) if "num-cores" in target.attrs or target.has_threads else 1,
        pipe_bits=row.pipe_bits if bits > row.pipe_bits else 0, core=row.core)


def portable_machine(target: Target) -> Machine:
    """Return the machine model of C text, the same on every machine except for the number of cores."""
    row = microarchitecture("x86", "generic")
    bits = int(target.attrs.get("vector-width", 0)) or _PORTABLE_VECTOR_BITS
    return Machine(
        bits, row.vector_registers, row.l1_bytes, row.l2_bytes, cores_of(target), scalar=True, backend="c",
        core=row.core)


def cores_of(target: Target) -> int:
    """Return the number of cores that code may use: `-num-cores`, else those available to this process, else 4."""
    if "num-cores" in target.attrs:
        return int(target.attrs["num-cores"])
    if not target.is_native:
        return 4
    return usable_cores()


@functools.cache
def _host_cpu() -> str:
    """Return LLVM's name of this machine's processor."""
    import llvmlite.binding as llvm

    return str(llvm.get_host_cpu_name())
