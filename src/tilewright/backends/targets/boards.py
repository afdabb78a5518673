"""Targets by the names of boards, processors and devices: TVM's `tvm.target.arm_cpu`, `riscv_cpu`, `micro`, `cuda`, …

    arm_cpu("rasp3b")      ->   llvm -keys=arm_cpu,cpu -device=arm_cpu -model=bcm2837 -mtriple=armv7l-linux-gnueabihf …
    micro("nrf5340dk")     ->   c -keys=arm_cpu,cpu -mcpu=cortex-m33 -model=nrf5340dk
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Final

from tilewright.backends.targets.tags import add_tag, tag_names
from tilewright.backends.targets.target import Target
from tilewright.base.errors import MovedModuleWarning, TargetError
from tilewright.base.settings import nearest

MICRO: Final[Mapping[str, str]] = {
    "host": "", "atsamd51": "cortex-m4", "cxd5602gg": "cortex-m4", "esp32": "", "imxrt10xx": "cortex-m7",
    "mps2_an521": "cortex-m33", "mps3_an547": "cortex-m55", "nrf52840": "cortex-m4+nodsp", "nrf5340dk": "cortex-m33",
    "rp2040": "cortex-m0", "sam3x8e": "cortex-m3", "stm32f746xx": "cortex-m7", "stm32h7xx": "cortex-m7",
    "stm32l4r5zi": "cortex-m4", "stm32u5xx": "cortex-m33", "zynq_mp_r5": "cortex-r5",
}
"""The processor of each microcontroller; none for this machine and for one that is not an Arm."""
_V7, _V8, _V8_ANDROID = "armv7l-linux-gnueabihf", "aarch64-linux-gnu", "aarch64-linux-android"
ARM: Final[Mapping[str, tuple[str, str, str, str]]] = {
    "pixel2": ("snapdragon835", _V8_ANDROID, "+neon", ""), "mate10": ("kirin970", _V8_ANDROID, "+neon", ""),
    "mate10pro": ("kirin970", _V8_ANDROID, "+neon", ""), "p20": ("kirin970", _V8_ANDROID, "+neon", ""),
    "p20pro": ("kirin970", _V8_ANDROID, "+neon", ""), "rk3399": ("rk3399", _V8, "+neon", ""),
    "rasp3b": ("bcm2837", _V7, "+neon", ""), "rasp4b": ("bcm2711", "armv8l-linux-gnueabihf", "+neon", "cortex-a72"),
    "rasp4b64": ("bcm2711", _V8, "+neon", "cortex-a72"), "pynq": ("pynq", "armv7a-linux-eabi", "+neon", ""),
    "ultra96": ("ultra96", _V8, "+neon", ""),
    "beagleai": ("beagleai", "armv7a-linux-gnueabihf", "+neon,+vfp4,+thumb2", "cortex-a15"),
    "stm32mp1": ("stm32mp1", "armv7a-linux-gnueabihf", "+neon,+vfp4,+thumb2", "cortex-a7"),
}
"""Board -> its chip, triple, features and CPU (empty for the baseline of the architecture)."""
RISCV: Final[Mapping[str, str]] = {"sifive-u54": "sifive-u54", "sifive-u74": "sifive-u74"}
_RISCV_OF_32_BITS: Final = ("sifive-e31", "sifive-e76")

Options = str | Sequence[str] | None


def _target(words: Sequence[str], options: Options) -> Target:
    return Target(" ".join([*words, *(options.split() if isinstance(options, str) else options or ())]))


def micro(model: str = "unknown", options: Options = None) -> Target:
    """Return the target of kind c for a microcontroller, with more options of a target.

    Raises `TargetError` with the nearest name for another one.
    """
    if model not in MICRO:
        raise TargetError(
            f"there is no microcontroller '{model}'{nearest(model, MICRO)}; the known ones are {', '.join(MICRO)}",
            code="TW0502")
    mcpu = MICRO[model]
    keys = f"-keys={'arm_cpu,cpu' if mcpu else 'cpu'}"
    return _target(["c", keys, *([f"-mcpu={mcpu}"] if mcpu else []), f"-model={model}"], options)


def arm_cpu(model: str = "unknown", options: Options = None) -> Target:
    """Return the target of an Arm board of `ARM`, with more options; another model is only named, and its triple and
    CPU come from `options`."""
    chip, triple, features, cpu = ARM.get(model, (model, "", "", ""))
    given = {"model": chip, "mtriple": triple, "mattr": features, "mcpu": cpu}
    words = [f"-{name}={value}" for name, value in given.items() if value]
    return _target(["llvm", "-keys=arm_cpu,cpu", "-device=arm_cpu", *words], options)


def rasp(options: Options = None) -> Target:
    """Return the target of a Raspberry Pi 3B; the former name of `arm_cpu("rasp3b")`."""
    warnings.warn("tvm.target.rasp() is now tvm.target.arm_cpu('rasp3b')", MovedModuleWarning, stacklevel=2)
    return arm_cpu("rasp3b", options)


def riscv_cpu(model: str = "sifive-u54", options: Options = None) -> Target:
    """Return the target of a RISC-V processor of 64 bits, with more options. Raises `TargetError` for one of 32 bits,
    and with the nearest name for an unknown one."""
    if model in _RISCV_OF_32_BITS:
        raise TargetError(f"'{model}' has 32 bits, and code is generated for RISC-V of 64 bits only", code="TW0503")
    if model not in RISCV:
        raise TargetError(
            f"there is no RISC-V processor '{model}'{nearest(model, RISCV)}; the known ones are {', '.join(RISCV)}",
            code="TW0503")
    return _target(
        ["llvm", "-keys=cpu", f"-model={model}", "-mtriple=riscv64-unknown-linux-gnu",
         f"-mcpu={RISCV[model]}", "-mabi=lp64d"], options)


def cuda(model: str = "unknown", arch: str | None = None, options: Options = None) -> Target:
    """Return a description of an NVIDIA GPU: its name, and its architecture (`sm_75`). No code is generated for it."""
    return _target(["cuda", f"-model={model}", *([f"-arch={arch}"] if arch else [])], options)


def rocm(model: str = "unknown", options: Options = None) -> Target:
    """Return a description of an AMD GPU. No code is generated for it."""
    return _target(["rocm", f"-model={model}"], options)


def mali(model: str = "unknown", options: Options = None) -> Target:
    """Return a description of an Arm Mali GPU of the Midgard family. No code is generated for it."""
    return _target(["opencl", "-device=mali", f"-model={model}"], options)


def bifrost(model: str = "unknown", options: Options = None) -> Target:
    """Return a description of an Arm Mali GPU of the Bifrost family. No code is generated for it."""
    return _target(["opencl", "-device=bifrost", f"-model={model}"], options)


def adreno(model: str = "unknown", options: Options = None) -> Target:
    """Return a description of a Qualcomm Adreno GPU. No code is generated for it."""
    return _target(["opencl", "-device=adreno", f"-model={model}"], options)


def intel_graphics(model: str = "unknown", options: Options = None) -> Target:
    """Return a description of an Intel GPU. No code is generated for it."""
    return _target(["opencl", "-device=intel_graphics", f"-model={model}", "-thread_warp_size=16"], options)


def vta(model: str = "unknown", options: Options = None) -> Target:
    """Return a description of the accelerator VTA. No code is generated for it."""
    return _target(["ext_dev", "-keys=vta,cpu", "-device=vta", f"-model={model}"], options)


def list_tags() -> dict[str, Target]:
    """Return the targets that have a tag, by tag."""
    return {name: Target(name) for name in tag_names()}


def register_tag(name: str, config: Mapping[str, object], override: bool = False) -> Target:
    """Give a target, as a dictionary, a tag, and return it. Raises `OptionError` for a tag that exists, unless
    `override` is set, and `TargetError` for an unsuitable dictionary."""
    Target(config)
    add_tag(name, config, override)
    return Target(name)
