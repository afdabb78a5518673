"""`relay.vm`: TVM's interface for programs with control flow. It compiles the same native program as `relay.build`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.backends.target import Target
from tilewright.compiler.build import build
from tilewright.ir.module import IRModule
from tilewright.runtime.module import FactoryModule


def compile(
    mod: Any, target: str | Mapping[str, Any] | Target | None = None, target_host: str | Target | None = None,
    params: Mapping[str, Any] | None = None,
) -> FactoryModule:
    """Compile a module for `runtime.vm.VirtualMachine`. Raises `CompileError`."""
    return build(mod, target, target_host, params)


class VMCompiler:
    """Compiles in steps: `set_params`, `lower`, `get_exec`."""

    def __init__(self) -> None:
        self._params: dict[str, Any] = {}
        self._made: FactoryModule | None = None

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Set values of parameters of `main`, by name."""
        self._params.update(params)

    def lower(
        self, mod: IRModule, target: str | Mapping[str, Any] | Target | None = None,
        target_host: str | Target | None = None
    ) -> None:
        """Compile `mod`."""
        self._made = compile(mod, target, target_host, self._params)

    def codegen(self) -> None:
        """Do nothing: `lower` has made the code."""

    def get_exec(self) -> FactoryModule | None:
        """Return the result of `lower`."""
        return self._made
