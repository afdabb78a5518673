"""TVM's `tvm._ffi`: the registry of functions. Everything is Python, so there is no foreign function interface."""

from tilewright.compat._ffi import base, registry
from tilewright.compat._ffi.registry import get_global_func, register_func

__all__ = ["base", "get_global_func", "register_func", "registry"]
