"""`relay.vm`: the field's door to programs with control flow. What it compiles is the same native program as
`relay.build`'s."""

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
    """The same in steps: `set_params`, `lower`, `get_exec`."""

    def __init__(self) -> None:
        self._params: dict[str, Any] = {}
        self._made: FactoryModule | None = None

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Values of parameters of `main`, by name."""
        self._params.update(params)

    def lower(
        self, mod: IRModule, target: str | Mapping[str, Any] | Target | None = None,
        target_host: str | Target | None = None
    ) -> None:
        """Compile `mod`."""
        self._made = compile(mod, target, target_host, self._params)

    def codegen(self) -> None:
        """Nothing is left to do after `lower`."""

    def get_exec(self) -> FactoryModule | None:
        """What `lower` made."""
        return self._made
