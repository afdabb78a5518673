"""The names of `tvm.target`: targets and hooks of target kinds."""

from tilewright.backends.generic_func import GenericFunc, generic_func, get_native_generic_func, override_native_generic_func
from tilewright.backends.hooks import register_target_kind
from tilewright.backends.target import Target, TargetKind

__all__ = [
    "GenericFunc", "Target", "TargetKind", "generic_func", "get_native_generic_func", "override_native_generic_func", "register_target_kind",
]
