"""`tvm.contrib`: executors, external libraries and accelerators, each imported at its first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

_MODULES: Final = {
    "cc": "compat.contrib.cc", "clang": "compat.contrib.clang", "cudnn": "compat.contrib.cudnn",
    "debugger": "runtime.debugger", "dlpack": "compat.contrib.dlpack", "download": "compat.contrib.download",
    "graph_executor": "runtime.graph_executor", "nvcc": "compat.contrib.nvcc",
    "pickle_memoize": "compat.contrib.pickle_memoize", "popen_pool": "compat.contrib.popen_pool",
    "relay_viz": "compat.contrib.relay_viz", "tar": "compat.contrib.tar", "tedd": "compat.contrib.tedd",
    "tflite_runtime": "compat.contrib.tflite_runtime", "utils": "compat.contrib.utils",
}
"""Attribute -> the module, without `tilewright.`."""

if TYPE_CHECKING:
    from tilewright.compat.contrib import (
        cc,
        clang,
        cudnn,
        dlpack,
        download,
        nvcc,
        pickle_memoize,
        popen_pool,
        relay_viz,
        tar,
        tedd,
        tflite_runtime,
        utils,
    )
    from tilewright.runtime import debugger, graph_executor

__all__ = [
    "cc", "clang", "cudnn", "debugger", "dlpack", "download", "graph_executor", "nvcc", "pickle_memoize", "popen_pool",
    "relay_viz", "tar", "tedd", "tflite_runtime", "utils",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        found = globals()[name] = importlib.import_module(f"tilewright.{_MODULES[name]}")
        return found
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
