"""`Prelude`: lists, options, trees and their functions, written in Relay (`relay/std/prelude.rly`)."""

from __future__ import annotations

from typing import Any

from tilewright.ir.module import IRModule


class Prelude:
    """Adds the standard definitions to a module; each function is an attribute.

        p = Prelude(mod)
        list_type, cons, nil = p.mod.get_type("List")
        call = p.map(f, cons(x, nil()))

    Existing definitions of the module are kept.
    """

    def __init__(self, mod: IRModule | None = None) -> None:
        self.mod = IRModule() if mod is None else mod
        if "List" not in {header.name_hint for header in self.mod.type_definitions}:
            self.mod.import_from_std("prelude.rly")

    def __getattr__(self, name: str) -> Any:
        if name == "mod" or name not in self.mod:
            raise AttributeError(f"the prelude has no function '{name}'")
        return self.mod.get_global_var(name)

    def __dir__(self) -> list[str]:
        return ["mod", *self.mod]

    def get_type(self, name: str) -> tuple[Any, ...]:
        """Return a data type's name and its constructors."""
        return self.mod.get_type(name)
