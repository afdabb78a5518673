"""Tilewright: from a trained model to the fastest native code, in Python.

    import tilewright
    m = tilewright.compile("model.onnx")
    y = m(x)
    m.save("model.so"); m = tilewright.load("model.so")

The names that scripts written for TVM v0.8 to v0.13 use are here too (`import tilewright as tvm`): `relay`, `transform`, `build`, `lower`,
`te`, `tir`, `nd`, `device`, `target`, `contrib`, `IRModule`. They are imported when they are first used.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any, Final

__version__ = "0.1.0"

_MODULES: Final = frozenset({
    "arith", "auto_scheduler", "autotvm", "contrib", "driver", "error", "errors", "instrument", "ir", "logs", "micro", "nd", "params", "parser", "registry", "relay", "rpc", "runtime", "script", "serialization", "settings", "target", "te", "testing", "tir", "topi", "transform", "utils", "_ffi",
})
_NAMES: Final = {
    "IRModule": ("ir.module", "IRModule"), "Model": ("compiler.model", "Model"), "NDArray": ("nd", "NDArray"), "TVMError": ("errors", "TVMError"),
    "DataType": ("types", "DataType"), "DataTypeCode": ("types", "DataTypeCode"), "Target": ("backends.target", "Target"), "convert": ("ir.container", "convert"),
    "get_global_func": ("registry", "get_global_func"), "register_func": ("registry", "register_func"), "build": ("compiler.functions", "build"), "check": ("compiler.check", "check"), "compile": ("compiler.model", "compile"), "cpu": ("nd", "cpu"), "device": ("nd", "device"),
    "InferenceSession": ("onnx_session", "InferenceSession"), "SessionOptions": ("onnx_session", "SessionOptions"),
    "load": ("runtime.artifact", "load_executable"), "lower": ("compiler.functions", "lower"), "quantize": ("compiler.quantize", "quantize"),
}
"""Public name -> the module that has it, and its name there."""

if TYPE_CHECKING:
    from tilewright import (
        arith,
        auto_scheduler,
        autotvm,
        contrib,
        driver,
        error,
        errors,
        instrument,
        ir,
        logs,
        micro,
        nd,
        params,
        parser,
        registry,
        relay,
        rpc,
        runtime,
        script,
        serialization,
        settings,
        target,
        te,
        testing,
        tir,
        topi,
        transform,
        utils,
    )
    from tilewright.backends.target import Target
    from tilewright.compiler.check import check
    from tilewright.compiler.functions import build, lower
    from tilewright.compiler.model import Model, compile
    from tilewright.compiler.quantize import quantize
    from tilewright.errors import TVMError
    from tilewright.ir.container import convert
    from tilewright.ir.module import IRModule
    from tilewright.nd import NDArray, cpu, device
    from tilewright.onnx_session import InferenceSession, SessionOptions
    from tilewright.registry import get_global_func, register_func
    from tilewright.runtime.artifact import load_executable as load
    from tilewright.types import DataType, DataTypeCode


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"tilewright.{name}")
    if name not in _NAMES:
        raise AttributeError(f"module 'tilewright' has no attribute '{name}'")
    module, attribute = _NAMES[name]
    found = globals()[name] = getattr(importlib.import_module(f"tilewright.{module}"), attribute)
    return found


def __dir__() -> list[str]:
    return __all__


__all__ = [
    "DataType", "DataTypeCode", "IRModule", "InferenceSession", "Model", "NDArray", "SessionOptions", "TVMError", "Target", "__version__", "arith", "auto_scheduler", "autotvm", "build", "check", "compile", "contrib", "convert", "cpu", "device", "driver",
    "error", "errors", "get_global_func", "instrument", "ir", "load", "logs", "lower", "micro", "nd", "params", "parser", "quantize", "register_func", "registry", "relay", "rpc", "runtime", "script",
    "serialization", "settings", "target", "te", "testing", "tir", "topi", "transform", "utils",
]

if os.environ.get("TILEWRIGHT_LOG") or os.environ.get("TVM_LOG_DEBUG"):
    from tilewright.logs import configure

    configure(os.environ.get("TILEWRIGHT_LOG") or os.environ["TVM_LOG_DEBUG"])
