"""TVM's `relay.build_module`: compile a module, and bind the parameters of a function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.relay.transform.bind_params import bind_params_by_name

if TYPE_CHECKING:
    from tilewright.compiler.build import build
    from tilewright.compiler.executor import create_executor

__all__ = ["bind_params_by_name", "build", "create_executor"]


def __getattr__(name: str) -> Any:
    from tilewright import relay

    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'", name=name)
    return getattr(relay, name)
