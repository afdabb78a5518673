"""The call graph of a module."""

from __future__ import annotations

from typing import Any

from tilewright.ir.module import IRModule
from tilewright.relay.analysis.variables import called_functions
from tilewright.relay.expr import Function


class CallGraph:
    """The functions that each function of `module` refers to, one entry per reference."""

    def __init__(self, module: IRModule) -> None:
        self.module = module
        self.calls: dict[str, list[str]] = {
            name: [g.name_hint for g in called_functions(f) if g in module] if isinstance(f, Function) else []
            for name, f in module.items()
        }

    def __getitem__(self, name: Any) -> list[str]:
        """Return the names of the functions that a function calls."""
        return self.calls[name if isinstance(name, str) else name.name_hint]

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
        found: set[str] = set()
        stack = list(names)
        while stack:
            n = stack.pop()
            if n not in found:
                found.add(n)
                stack += self.calls[n]
        return found

    def topological_order(self) -> list[str]:
        """Return callees before callers; mutually recursive functions keep the order of the module."""
        order: dict[str, None] = {}
        for start in self.calls:
            stack, open_ones = [(start, False)], set()
            while stack:
                n, done = stack.pop()
                if done:
                    order[n] = None
                elif n not in order and n not in open_ones:
                    open_ones.add(n)
                    stack.append((n, True))
                    stack += [(c, False) for c in reversed(self.calls[n])]
        return list(order)
