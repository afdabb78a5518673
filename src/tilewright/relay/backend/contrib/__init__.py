"""TVM's `relay.backend.contrib`: code generators for accelerators (`uma`)."""

from typing import Any

__all__ = ["uma"]


def __getattr__(name: str) -> Any:
    if name == "uma":
        import importlib

        return importlib.import_module("tilewright.relay.backend.contrib.uma")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'", name=name)
