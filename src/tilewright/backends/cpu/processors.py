"""Processors by name: architecture families, and the features of each named CPU.

The tables contain only the features that schedules and code generation use, under LLVM's names. A CPU that is missing
here is refused with the nearest known name, even if LLVM knows it. Otherwise its code would silently use the baseline
of the family.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_V2: Final = "sse2 sse3 ssse3 sse4.1 sse4.2 popcnt"
_AVX: Final = f"{_V2} avx"
_V3: Final = f"{_AVX} f16c fma bmi bmi2 lzcnt movbe avx2"
_V4: Final = f"{_V3} avx512f avx512cd avx512bw avx512dq avx512vl"
_CASCADE: Final = f"{_V4} avx512vnni"
_ICE: Final = f"{_CASCADE} avx512vbmi avx512vbmi2"
_SAPPHIRE: Final = f"{_ICE} avx512bf16 avx512fp16 avxvnni amx-tile amx-int8 amx-bf16"
_ARMV82: Final = "neon dotprod fullfp16"
_NEOVERSE_V1: Final = f"{_ARMV82} bf16 i8mm sve"

_X86: Final = {
    "x86-64": "sse2", "x86-64-v2": _V2, "x86-64-v3": _V3, "x86-64-v4": _V4, "generic": "sse2",
    "core2": "sse2 sse3 ssse3", "penryn": "sse2 sse3 ssse3 sse4.1", "nehalem": _V2, "westmere": _V2, "silvermont": _V2,
    "goldmont": _V2, "tremont": _V2, "sandybridge": _AVX, "ivybridge": f"{_AVX} f16c", "haswell": _V3, "broadwell": _V3,
    "core-avx2": _V3, "skylake": _V3, "skylake-avx512": _V4, "skx": _V4, "cascadelake": _CASCADE,
    "cooperlake": f"{_CASCADE} avx512bf16", "cannonlake": f"{_V4} avx512vbmi", "icelake-client": _ICE,
    "icelake-server": _ICE, "tigerlake": _ICE, "rocketlake": _ICE, "alderlake": f"{_V3} avxvnni",
    "raptorlake": f"{_V3} avxvnni", "meteorlake": f"{_V3} avxvnni", "arrowlake": f"{_V3} avxvnni",
    "lunarlake": f"{_V3} avxvnni",
    "sierraforest": f"{_V3} avxvnni", "sapphirerapids": _SAPPHIRE, "emeraldrapids": _SAPPHIRE,
    "graniterapids": _SAPPHIRE,
    "bdver2": f"{_AVX} f16c fma", "znver1": _V3, "znver2": _V3, "znver3": _V3, "znver4": f"{_ICE} avx512bf16",
    "znver5": f"{_ICE} avx512bf16 avxvnni",
}
_AARCH64: Final = {
    "generic": "neon", "cortex-a53": "neon", "cortex-a57": "neon", "cortex-a72": "neon", "cortex-a73": "neon",
    "cortex-a55": _ARMV82, "cortex-a75": _ARMV82, "cortex-a76": _ARMV82, "cortex-a77": _ARMV82, "cortex-a78": _ARMV82,
    "cortex-x1": _ARMV82, "cortex-x2": f"{_ARMV82} bf16 i8mm", "neoverse-n1": _ARMV82, "neoverse-v1": _NEOVERSE_V1,
    "neoverse-n2": f"{_NEOVERSE_V1} sve2", "neoverse-v2": f"{_NEOVERSE_V1} sve2", "apple-m1": _ARMV82,
    "apple-m2": f"{_ARMV82} bf16 i8mm", "apple-m3": f"{_ARMV82} bf16 i8mm", "apple-m4": f"{_ARMV82} bf16 i8mm",
    "ampere1": f"{_ARMV82} bf16 i8mm", "a64fx": "neon fullfp16 sve",
}
_ARM: Final = {
    "generic": "", "cortex-a7": "neon vfp4", "cortex-a9": "neon", "cortex-a15": "neon vfp4", "cortex-a53": "neon vfp4",
    "cortex-a72": "neon vfp4",
}
_RISCV: Final = {
    "generic": "m a f d c", "generic-rv64": "m a f d c", "sifive-u54": "m a f d c", "sifive-u74": "m a f d c",
    "sifive-x280": "m a f d c v", "spacemit-x60": "m a f d c v"
}
_WASM: Final = {"generic": "", "mvp": "", "bleeding-edge": "simd128"}

CPUS: Final[dict[str, dict[str, str]]] = {"x86": _X86, "aarch64": _AARCH64, "arm": _ARM, "riscv": _RISCV, "wasm": _WASM}
"""CPU names by family, each with its features, separated by spaces."""

MICROCONTROLLERS: Final = {
    "cortex-m0": "", "cortex-m0plus": "", "cortex-m23": "", "cortex-m3": "", "cortex-m4": "dsp", "cortex-m7": "dsp",
    "cortex-m33": "dsp", "cortex-m35p": "dsp", "cortex-m55": "dsp mve", "cortex-m85": "dsp mve", "cortex-r5": "",
}
"""Processors for which models are written as C text, which their own compilers translate, and their extensions: `dsp`
has products of 8 and 16 bits, `mve` has vectors (Arm's manuals of the processors)."""
_LESS: Final = {"nodsp": {"dsp", "mve"}, "nomve": {"mve"}, "nofp": set[str]()}
"""Suffixes of a microcontroller after `+`, and the extensions that it lacks then."""

FAMILIES: Final = {
    "x86_64": "x86", "amd64": "x86", "aarch64": "aarch64", "arm64": "aarch64", "arm": "arm", "armv7": "arm",
    "armv7a": "arm",
    "armv7l": "arm", "armv8l": "arm", "thumbv7": "arm", "riscv64": "riscv", "wasm32": "wasm", "wasm64": "wasm",
}
"""The family by the first part of a triple."""
_ARCHS_OF_32_BITS: Final = frozenset({"arm", "armv7", "armv7a", "armv7l", "armv8l", "thumbv7", "wasm32"})
_FAMILIES_OF_THREADS: Final = frozenset({"x86", "aarch64", "riscv"})


def is_microcontroller(cpu: str) -> bool:
    """Return whether this is a microcontroller, with or without what it lacks: `cortex-m4+nodsp`."""
    name, *less = cpu.split("+")
    return name in MICROCONTROLLERS and all(word in _LESS for word in less)


def microcontroller_features(cpu: str, changes: Iterable[str] = ()) -> frozenset[str]:
    """Return the extensions of a microcontroller under these changes of features: `+nomve` and `-mve` remove one."""
    name, *less = cpu.split("+")
    found = set(MICROCONTROLLERS[name].split())
    for word in (*(f"+{w}" for w in less), *changes):
        if word[1:] in _LESS and word[0] == "+":
            found -= _LESS[word[1:]]
        elif word[0] == "-":
            found.discard(word[1:])
        else:
            found.add(word[1:])
    return frozenset(found)


def compilable(cpu: str) -> str:
    """Return the processor for which machine code is made: "generic" for microcontrollers, whose code is C text, and
    whose kernels run here only to be tested."""
    return "generic" if is_microcontroller(cpu) else cpu


def cpu_features(family: str, cpu: str) -> frozenset[str]:
    """Return the features of a named CPU; none of a microcontroller. Raises `KeyError` for an unknown name."""
    if is_microcontroller(cpu):
        return frozenset()
    return frozenset(CPUS[family][cpu].split())


def pointer_bytes(triple: str) -> int:
    """Return the bytes of an address and of C's `size_t`: 4 or 8."""
    return 4 if triple.split("-", maxsplit=1)[0] in _ARCHS_OF_32_BITS else 8


def has_threads(triple: str) -> bool:
    """Return whether parallel loops run on several threads; elsewhere the calling thread runs them."""
    return FAMILIES.get(triple.split("-", maxsplit=1)[0]) in _FAMILIES_OF_THREADS and "linux" in triple


def object_format(triple: str) -> str:
    """Return the format of object files for a triple: `elf`, `coff`, `macho` or `wasm`."""
    if triple.startswith("wasm"):
        return "wasm"
    system = triple.split("-", maxsplit=1)[-1]
    return (
        "coff" if "windows" in system else "macho" if any(s in system for s in ("apple", "darwin", "macos")) else "elf"
    )


def vector_bits(family: str, features: frozenset[str]) -> int:
    """Return the width of the widest vector register that code uses, in bits."""
    if family == "x86":
        return 512 if "avx512f" in features else 256 if "avx" in features else 128
    return 128


def has_fma(family: str, features: frozenset[str]) -> bool:
    """Return whether a multiply-add with one rounding is a single instruction."""
    if family == "x86":
        return "fma" in features or "avx512f" in features
    return family == "aarch64" or "vfp4" in features or (family == "riscv" and "f" in features)
