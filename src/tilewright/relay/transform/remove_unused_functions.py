"""Remove unreachable functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.base.errors import OptionError
from tilewright.base.graphs import reachable
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay.expr import Expr, GlobalVar
from tilewright.relay.visitor import post_order


@dataclass(frozen=True)
class RemoveUnusedFunctions(Pass):
    """Remove the functions that no function of `entry_functions` reaches. Raises `OptionError` for an unknown entry
    function.
    """

    entry_functions: Sequence[str] = ("main",)

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        for name in self.entry_functions:
            if name not in mod:
                raise OptionError(f"the entry function '{name}' is not in the module; it has {', '.join(mod)}",
                                  code="TW0401")
        live = reached(mod, self.entry_functions)
        dead = [name for name in mod if name not in live]
        if not dead:
            return mod
        new = mod.copy()
        for name in dead:
            new.remove(name)
        return new


def reached(mod: IRModule, entries: Sequence[str]) -> set[str]:
    """Return the names of `entries` and of the functions that they call, directly or indirectly."""
    def called(name: str) -> list[str]:
        function = mod[name]
        below = post_order(function) if isinstance(function, Expr) else ()
        return [e.name_hint for e in below if isinstance(e, GlobalVar) and e in mod]

    return set(reachable((n for n in entries if n in mod), called))
