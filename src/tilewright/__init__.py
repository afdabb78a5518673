"""Tilewright: from a trained model to the fastest native code, in Python.

    import tilewright
    m = tilewright.compile("model.onnx")
    y = m(x)
    m.save("model.so"); m = tilewright.load("model.so")

Scripts for TVM v0.8 to v0.13 find its names here (`import tilewright as tvm`): `relay`, `transform`, `build`, `lower`,
`te`, `tir`, `nd`, `device`, `target`, `contrib`, `IRModule`. Each is imported at its first use.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any, Final

from tilewright.base import absent, aliases, public_names

__version__ = "0.1.0"

_PACKAGES: Final = ("driver", "ir", "relay", "runtime", "te", "tir", "topi")
_MODULES: Final = frozenset((*_PACKAGES, *(name for name in public_names.PUBLIC if "." not in name)))
_NAMES: Final = {
    "DataType": ("base.types", "DataType"),
    "DataTypeCode": ("base.types", "DataTypeCode"),
    "IRModule": ("ir.module", "IRModule"),
    "InferenceSession": ("compat.onnx_session", "InferenceSession"),
    "Model": ("compiler.model", "Model"),
    "NDArray": ("base.nd", "NDArray"),
    "SessionOptions": ("compat.onnx_session", "SessionOptions"),
    "TVMError": ("base.errors", "TVMError"),
    "Target": ("backends.targets.target", "Target"),
    "build": ("compiler.functions", "build"),
    "check": ("compiler.check", "check"),
    "compile": ("compiler.model", "compile"),
    "container": ("ir", "container"),
    "convert": ("ir.container", "convert"),
    "cpu": ("base.nd", "cpu"),
    **{name: ("base.nd", name) for name in (
        "cl", "cuda", "ext_dev", "hexagon", "metal", "opencl", "rocm", "vpi", "vulkan", "webgpu")},
    "device": ("base.nd", "device"),
    "get_global_func": ("compat.registry", "get_global_func"),
    "load": ("runtime.artifact", "load_executable"),
    "lower": ("compiler.functions", "lower"),
    "quantize": ("compiler.quantize", "quantize"),
    "register_func": ("compat.registry", "register_func"),
    **{name: ("ir.memory_pools", name) for name in (
        "ConstantMemoryPools", "ConstantPoolInfo", "PoolInfo", "PoolInfoProperties", "WorkspaceMemoryPools",
        "WorkspacePoolInfo")},
}
"""Public name -> its module, and its name there."""

if TYPE_CHECKING:
    from tilewright import driver, ir, relay, runtime, te, tir, topi
    from tilewright.backends.targets.target import Target
    from tilewright.base import errors, logs, nd, params, settings
    from tilewright.base.errors import TVMError
    from tilewright.base.nd import (
        NDArray,
        cl,
        cpu,
        cuda,
        device,
        ext_dev,
        hexagon,
        metal,
        opencl,
        rocm,
        vpi,
        vulkan,
        webgpu,
    )
    from tilewright.base.types import DataType, DataTypeCode
    from tilewright.compat import contrib, error, instrument, parser, registry, target, testing, transform, utils
    from tilewright.compat.onnx_session import InferenceSession, SessionOptions
    from tilewright.compat.registry import get_global_func, register_func
    from tilewright.compiler import micro
    from tilewright.compiler.check import check
    from tilewright.compiler.functions import build, lower
    from tilewright.compiler.model import Model, compile
    from tilewright.compiler.quantize import quantize
    from tilewright.ir import container
    from tilewright.ir.container import convert
    from tilewright.ir.memory_pools import (
        ConstantMemoryPools,
        ConstantPoolInfo,
        PoolInfo,
        PoolInfoProperties,
        WorkspaceMemoryPools,
        WorkspacePoolInfo,
    )
    from tilewright.ir.module import IRModule
    from tilewright.relay import serialization
    from tilewright.runtime import rpc
    from tilewright.runtime.artifact import load_executable as load
    from tilewright.scalar import arith
    from tilewright.search import auto_scheduler, autotvm, meta_schedule
    from tilewright.tir import script

__all__ = [
    "ConstantMemoryPools", "ConstantPoolInfo", "DataType", "DataTypeCode", "IRModule", "InferenceSession", "Model",
    "NDArray", "PoolInfo", "PoolInfoProperties", "SessionOptions", "TVMError", "Target", "WorkspaceMemoryPools",
    "WorkspacePoolInfo",
    "__version__", "arith", "auto_scheduler", "autotvm", "build", "check", "cl", "compile", "container",
    "contrib", "convert", "cpu", "cuda", "device",
    "driver", "error", "errors", "ext_dev", "get_global_func", "hexagon", "instrument", "ir", "load", "logs", "lower",
    "meta_schedule", "metal", "micro", "nd", "opencl",
    "params",
    "parser", "quantize", "register_func", "registry", "relay", "rocm", "rpc", "runtime", "script",
    "serialization", "settings",
    "target", "te", "testing", "tir", "topi", "transform", "utils",
    "vpi", "vulkan", "webgpu",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return _imported(name)
    if name not in _NAMES:
        raise AttributeError(absent.message(f"tilewright.{name}") or f"module 'tilewright' has no attribute '{name}'")
    module, attribute = _NAMES[name]
    found = globals()[name] = getattr(_imported(module), attribute)
    return found


def _imported(module: str) -> Any:
    """Return a module of the package. Hundreds of modules make objects that stay, so nothing is collected meanwhile."""
    from tilewright.base.garbage_collection import no_garbage_collection

    with no_garbage_collection():
        return importlib.import_module(f"tilewright.{module}")


def __dir__() -> list[str]:
    return __all__


aliases.install()
if os.environ.get("TILEWRIGHT_LOG") or os.environ.get("TVM_LOG_DEBUG"):
    from tilewright.base.logs import configure

    configure(os.environ.get("TILEWRIGHT_LOG") or os.environ["TVM_LOG_DEBUG"])
