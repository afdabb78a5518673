"""The call graph of a module."""

from __future__ import annotations

from typing import Any

from tilewright.base.graphs import post_order, reachable
from tilewright.ir.module import IRModule
from tilewright.relay.analysis.variables import called_functions
from tilewright.relay.expr import Function


class CallGraph:
    """The functions that each function of `module` refers to, one entry per reference."""

    def __init__(self, module: IRModule) -> None:
        self.module = module
        self.calls: dict[str, list[str]] = {
            name: [g.name_hint for g in called_functions(f) if g in module] if isinstance(f, Function) else []
            for name, f in module.items()}

    def __getitem__(self, name: Any) -> list[str]:
        """Return the names of the functions that a function calls."""
        return self.calls[name if isinstance(name, str) else name.name_hint]

    def __str__(self) -> str:
        return "".join(self.print_var(name) for name in self.calls)

    def global_call_count(self, name: Any) -> int:
        """Return the number of references to functions of the module in a function."""
        return len(self[name])

    def ref_count(self, name: Any) -> int:
        """Return the number of references to a function in the module, those in itself included."""
        wanted = name if isinstance(name, str) else name.name_hint
        return sum(called.count(wanted) for called in self.calls.values())

    def print_var(self, name: Any) -> str:
        """Return a function's number of references, and the functions that it calls, as text."""
        shown = name if isinstance(name, str) else name.name_hint
        called = "".join(f"  calls @{other}\n" for other in self[name])
        return f"@{shown} #refs = {self.ref_count(name)}\n{called}"

    def callers(self, name: Any) -> list[str]:
        """Return the names of the functions that call a function."""
        wanted = name if isinstance(name, str) else name.name_hint
        return [caller for caller, called in self.calls.items() if wanted in called]

    def is_recursive(self, name: Any) -> bool:
        """Return whether a function calls itself, directly or indirectly."""
        wanted = name if isinstance(name, str) else name.name_hint
        return wanted in self.reached(self[wanted])

    def reached(self, names: list[str]) -> set[str]:
        """Return `names` and all functions that they call, directly or indirectly."""
        return set(reachable(names, self.calls.__getitem__))

    def topological_order(self) -> list[str]:
        """Return callees before callers; mutually recursive functions keep the order of the module."""
        return post_order([*self.calls], self.calls.__getitem__)
