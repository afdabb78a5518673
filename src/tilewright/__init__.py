"""Tilewright: from a trained model to the fastest native code, in Python.

    import tilewright
    m = tilewright.compile("model.onnx")
    y = m(x)
    m.save("model.so"); m = tilewright.load("model.so")

The names that scripts written for TVM v0.8 to v0.13 use are here too (`import tilewright as tvm`): `relay`, `transform`,
`te`, `tir`, `nd`, `device`, `target`, `contrib`, `IRModule`. They are imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

__version__ = "0.1.0"

_MODULES: Final = frozenset({"arith", "contrib", "driver", "error", "errors", "ir", "nd", "relay", "runtime", "settings", "target", "te", "tir", "topi", "transform"})
_NAMES: Final = {
    "IRModule": "ir.module", "Model": "build.compiler", "compile": "build.compiler", "cpu": "nd", "device": "nd", "Target": "target.target",
    "TVMError": "errors",
}

if TYPE_CHECKING:
    from tilewright.build.compiler import Model, compile
    from tilewright.errors import TVMError
    from tilewright.ir.module import IRModule
    from tilewright.nd import cpu, device
    from tilewright.runtime.artifact import load_executable as load
    from tilewright.target.target import Target


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"tilewright.{name}")
    if name == "load":
        return importlib.import_module("tilewright.runtime.artifact").load_executable
    if name in _NAMES:
        return getattr(importlib.import_module(f"tilewright.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'tilewright' has no attribute '{name}'")


__all__ = ["IRModule", "Model", "TVMError", "Target", "__version__", "compile", "cpu", "device", "load"]
