"""The names of `tvm.target`: targets and hooks of target kinds."""

from typing import Any

from tilewright.backends.generic_func import (
    GenericFunc,
    generic_func,
    get_native_generic_func,
    override_native_generic_func,
)
from tilewright.backends.hooks import register_target_kind
from tilewright.backends.targets.boards import (
    adreno,
    arm_cpu,
    bifrost,
    cuda,
    intel_graphics,
    list_tags,
    mali,
    micro,
    rasp,
    register_tag,
    riscv_cpu,
    rocm,
    vta,
)
from tilewright.backends.targets.compilation_config import CompilationConfig, make_compilation_config
from tilewright.backends.targets.features import Features as TargetFeatures
from tilewright.backends.targets.target import Target, TargetKind
from tilewright.compat.target import codegen
from tilewright.ir.virtual_device import VirtualDevice


def create(target: Any) -> Target:
    """Return the target of a text or of a dictionary; the former spelling of `Target(…)`."""
    return Target(target)


__all__ = [
    "CompilationConfig", "GenericFunc", "Target", "TargetFeatures", "TargetKind", "VirtualDevice", "adreno", "arm_cpu",
    "bifrost", "codegen", "create", "cuda", "generic_func", "get_native_generic_func", "intel_graphics", "list_tags",
    "make_compilation_config", "mali", "micro", "override_native_generic_func", "rasp", "register_tag",
    "register_target_kind", "riscv_cpu", "rocm", "vta",
]
