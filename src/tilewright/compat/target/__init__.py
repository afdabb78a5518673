"""The names of `tvm.target`: targets and hooks of target kinds."""

from typing import Any

from tilewright.backends.boards import micro
from tilewright.backends.compilation_config import CompilationConfig, make_compilation_config
from tilewright.backends.generic_func import (
    GenericFunc,
    generic_func,
    get_native_generic_func,
    override_native_generic_func,
)
from tilewright.backends.hooks import register_target_kind
from tilewright.backends.target import Target, TargetKind
from tilewright.compat.target import codegen
from tilewright.ir.virtual_device import VirtualDevice


def create(target: Any) -> Target:
    """Return the target of a text or of a dictionary; the former spelling of `Target(…)`."""
    return Target(target)


__all__ = [
    "CompilationConfig", "GenericFunc", "Target", "TargetKind", "VirtualDevice", "codegen", "create",
    "generic_func", "get_native_generic_func", "make_compilation_config", "micro", "override_native_generic_func",
    "register_target_kind",
]
