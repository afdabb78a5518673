"""Hooks of a target kind: compilers for the functions of a network that are marked for it.

    RelayToTIR     module of graphs -> module of loop programs of the same names: inputs, then outputs, as buffers
    TIRToRuntime   module of loop programs, target -> ModuleNode that has these functions

Without `TIRToRuntime`, the loop programs are compiled for the host and called as kernels. The hooks are the registered
functions `relay.ext.<kind>.relay_to_tir` and `relay.ext.<kind>.tir_to_runtime`; a plugin may register these directly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tilewright.base.errors import OptionError
from tilewright.base.global_functions import GlobalFunction, get_global_func, register_func
from tilewright.base.settings import nearest

HOOKS: Final = {"RelayToTIR": "relay_to_tir", "TIRToRuntime": "tir_to_runtime"}
"""TVM's names of the hooks, and the names under which the functions are registered."""


def register_target_kind(kind: str, hooks: Mapping[str, Callable[..., Any]], override: bool = False) -> None:
    """Register the hooks of a kind of target by TVM's names.

    Raises `OptionError` for an unknown hook, and for a kind that has the hook already.
    """
    for name in hooks:
        if name not in HOOKS:
            raise OptionError(
                f"a target has no hook '{name}'{nearest(name, HOOKS)}; there are {', '.join(HOOKS)}", code="TW0213")
    if "TIRToRuntime" in hooks and "RelayToTIR" not in hooks and hook_of(kind, "RelayToTIR") is None:
        raise OptionError(
            f"the target '{kind}' has TIRToRuntime but no hook that makes loop programs; give it RelayToTIR, too",
            code="TW0911")
    for name, function in hooks.items():
        register_func(f"relay.ext.{kind}.{HOOKS[name]}", function, override=override)


def hook_of(kind: str, name: str) -> GlobalFunction | None:
    """Return a hook of a target kind, or None."""
    return get_global_func(f"relay.ext.{kind}.{HOOKS[name]}", allow_missing=True)
