"""Architecture and features of this machine, detected without LLVM, because artifacts are checked on machines without
the compiler.

Feature names are LLVM's (`avx512f`, `fma`, `neon`). Only features that generated code may use are listed.
"""

from __future__ import annotations

import functools
import platform
import sys
from pathlib import Path
from typing import Final

# The kernel's name of a feature -> LLVM's name.
_X86_FLAGS: Final = {
    "pni": "sse3", "ssse3": "ssse3", "sse4_1": "sse4.1", "sse4_2": "sse4.2", "popcnt": "popcnt", "avx": "avx",
    "f16c": "f16c", "fma": "fma", "bmi1": "bmi", "bmi2": "bmi2", "abm": "lzcnt", "movbe": "movbe", "avx2": "avx2",
    "avx_vnni": "avxvnni", "avx512f": "avx512f", "avx512cd": "avx512cd", "avx512bw": "avx512bw",
    "avx512dq": "avx512dq", "avx512vl": "avx512vl", "avx512_vnni": "avx512vnni", "avx512_bf16": "avx512bf16",
    "avx512_fp16": "avx512fp16", "avx512vbmi": "avx512vbmi", "avx512_vbmi2": "avx512vbmi2",
    "amx_tile": "amx-tile", "amx_int8": "amx-int8", "amx_bf16": "amx-bf16",
}
_ARM_FLAGS: Final = {"asimd": "neon", "neon": "neon", "asimddp": "dotprod", "asimdhp": "fullfp16", "fphp": "fullfp16",
                     "i8mm": "i8mm", "bf16": "bf16", "sve": "sve", "sve2": "sve2", "vfpv4": "vfp4"}
_MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}


def host_arch() -> str:
    """Return the architecture as in target triples: `x86_64`, `aarch64`, …"""
    machine = platform.machine().lower()
    return _MACHINES.get(machine, machine)


def host_triple() -> str:
    """Return the triple of this process, for example `x86_64-unknown-linux-gnu`."""
    arch = host_arch()
    if sys.platform == "darwin":
        return f"{'arm64' if arch == 'aarch64' else arch}-apple-macosx11.0.0"
    if sys.platform == "win32":
        return f"{arch}-pc-windows-msvc"
    return f"{arch}-unknown-linux-gnu"


def system_of(triple: str) -> str:
    """Return the operating system of a triple: `Windows`, `macOS`, `Linux`, or an empty text for others."""
    rest = triple.partition("-")[2]
    known = {"windows": "Windows", "apple": "macOS", "darwin": "macOS", "macos": "macOS", "linux": "Linux"}
    return next((name for word, name in known.items() if word in rest), "")


@functools.cache
def host_features() -> frozenset[str]:
    """Return the features of this processor under LLVM's names, as reported by the operating system."""
    names = _X86_FLAGS if host_arch() == "x86_64" else _ARM_FLAGS
    flags = {"sse2"} if host_arch() == "x86_64" else {"neon"} if host_arch() == "aarch64" else set()
    return frozenset(flags | {names[f] for f in _kernel_flags() if f in names})


def _kernel_flags() -> list[str]:
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        return []
    for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
        key, _, value = line.partition(":")
        if key.strip().lower() in ("flags", "features"):
            return value.split()
    return []


@functools.cache
def host_cache_sizes() -> tuple[int, int]:
    """Return the bytes of one core's first-level data cache and second-level cache; typical sizes if they are not
    known."""
    found = {"1": 32 << 10, "2": 1 << 20}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = ((index / name) for name in ("level", "type", "size"))
        if kind.exists() and size.exists() and kind.read_text().strip() in ("Data", "Unified"):
            text = size.read_text().strip()
            found[level.read_text().strip()] = int(text[:-1]) * {"K": 1 << 10, "M": 1 << 20}[text[-1]]
    return found["1"], found["2"]
