"""TVM's `tvm._ffi`: the registry of functions. Everything is Python, so there is no foreign function interface."""

import importlib
import sys

from tilewright.compat._ffi import base, registry, runtime_ctypes
from tilewright.compat._ffi.registry import get_global_func, list_global_func_names, register_func

__all__ = ["base", "get_global_func", "register_func", "registry", "runtime_ctypes"]


_REGISTERED_BY = {"relay.ext.cmsisnn.transform": "tilewright.relay.op.contrib.cmsisnn_passes"}
"""Namespaces of functions of this package, and the modules that register them."""


def _init_api(namespace: str, target_module_name: str | None = None) -> None:
    """Add the registered functions `<namespace>.<name>` to a module by name, each as `<name>`.

    The default module is the one called `namespace`. Functions that are registered later are not added.
    """
    module = sys.modules[target_module_name or namespace]
    if namespace in _REGISTERED_BY:
        importlib.import_module(_REGISTERED_BY[namespace])
    for full in list_global_func_names():
        place, _, name = full.rpartition(".")
        if place == namespace.removeprefix("tvm."):
            setattr(module, name, get_global_func(full))
