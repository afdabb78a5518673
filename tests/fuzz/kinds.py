"""The kinds of programs, by name; each is imported when it is asked for."""

from __future__ import annotations

import importlib
from typing import Final

from fuzz.outcomes import Kind

_PLACES: Final = {
    "onnx": ("fuzz.onnx_kind", "OnnxKind"),
    "open": ("fuzz.open_kind", "OpenKind"),
    "torch": ("fuzz.torch_kind", "TorchKind"),
    "tflite": ("fuzz.tflite_kind", "TfliteKind"),
    "relay": ("fuzz.relay_kind", "RelayKind"),
    "schedules": ("fuzz.schedules_kind", "SchedulesKind"),
}
KINDS: Final = tuple(_PLACES)


_COMPILER: Final = (
    "tilewright.compiler.build", "tilewright.compiler.stage_growth", "tilewright.compiler.functions",
    "tilewright.relay.interpreter",
    "tilewright.backends.cpu.llvm.jit", "tilewright.tir.interpreter", "tilewright.relay.frontend.onnx",
    "tilewright.relay.frontend.tflite",
)
"""Modules that compiling imports when they are needed."""


def load(name: str) -> Kind:
    """A kind, with all that its cases are drawn from and the compiler, so that workers need not import anything."""
    for part in _COMPILER:
        importlib.import_module(part)
    module, kind = _PLACES[name]
    made: Kind = getattr(importlib.import_module(module), kind)()
    made.prepare()
    return made
