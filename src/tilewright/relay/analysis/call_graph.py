"""Which functions of a module call which."""

from __future__ import annotations

from typing import Any

from tilewright.base.graphs import post_order, reachable
from tilewright.ir.module import IRModule
from tilewright.relay.analysis.variables import called_functions
from tilewright.relay.expr import Function


class CallGraph:
    """The functions that each function of `module` refers to, once for each reference."""

    def __init__(self, module: IRModule) -> None:
        self.module = module
        self.calls: dict[str, list[str]] = {
            name: [g.name_hint for g in called_functions(f) if g in module] if isinstance(f, Function) else []
            for name, f in module.items()
        }

    def __getitem__(self, name: Any) -> list[str]:
        """The names of the functions that a function calls."""
        return self.calls[name if isinstance(name, str) else name.name_hint]

    def callers(self, name: Any) -> list[str]:
        """The names of the functions that call a function."""
        wanted = name if isinstance(name, str) else name.name_hint
        return [caller for caller, called in self.calls.items() if wanted in called]

    def is_recursive(self, name: Any) -> bool:
        """Whether a function calls itself, directly or through others."""
        wanted = name if isinstance(name, str) else name.name_hint
        return wanted in self.reached(self[wanted])

    def reached(self, names: list[str]) -> set[str]:
        """`names` and all that they call, directly or not."""
        return set(reachable(names, self.calls.__getitem__))

    def topological_order(self) -> list[str]:
        """Callees before callers; functions that call each other in the order of the module."""
        return post_order([*self.calls], self.calls.__getitem__)
