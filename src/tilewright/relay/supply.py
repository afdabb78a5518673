"""Names that are used once: TVM's `tvm.ir.supply`.

    names = NameSupply("prefix")
    names.fresh_name("conv"), names.fresh_name("conv")   ->   "prefix_conv", "prefix_conv_1"
"""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.base.errors import CompileError
from tilewright.ir.module import IRModule
from tilewright.relay.expr import GlobalVar

__all__ = ["GlobalVarSupply", "NameSupply"]


class NameSupply:
    """Names that differ from each other, with a common `prefix`."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self._last: dict[str, int] = {}

    def fresh_name(self, name: str, add_prefix: bool = True, add_underscore: bool = True) -> str:
        """Return `name`, or the first of `name_1`, `name_2`, … that is free, and reserve it."""
        wanted = self._full(name, add_prefix)
        found, number = wanted, self._last.get(wanted, 0)
        while found in self._last:
            number += 1
            found = f"{wanted}_{number}" if add_underscore else f"{wanted}{number}"
        self._last[wanted] = number
        self._last.setdefault(found, 0)
        return found

    def reserve_name(self, name: str, add_prefix: bool = True) -> str:
        """Reserve a name, and return it with the prefix."""
        wanted = self._full(name, add_prefix)
        self._last.setdefault(wanted, 0)
        return wanted

    def contains_name(self, name: str, add_prefix: bool = True) -> bool:
        """Return whether a name is reserved."""
        return self._full(name, add_prefix) in self._last

    def _full(self, name: str, add_prefix: bool) -> str:
        return f"{self.prefix}_{name}" if add_prefix and self.prefix else name


class GlobalVarSupply:
    """Names of global functions, one `GlobalVar` for each. `value` is a `NameSupply`, or modules with their names.

    The prefix of names for modules is the attribute `mod_name` of the first one, by default `tvmgen_default`.
    """

    def __init__(self, value: NameSupply | IRModule | Iterable[IRModule] | None = None) -> None:
        given = [] if isinstance(value, NameSupply) else value or []
        modules = [given] if isinstance(given, IRModule) else list(given)
        prefix = str(modules[0].attrs.get("mod_name", "tvmgen_default")) if modules else ""
        self.name_supply = value if isinstance(value, NameSupply) else NameSupply(prefix)
        self._known: dict[str, GlobalVar] = {}
        for mod in modules:
            for variable in mod.get_global_vars():
                self.reserve_global(variable)

    def fresh_global(self, name: str, add_prefix: bool = True) -> GlobalVar:
        """Return a variable with a name that is not used yet."""
        found = self.name_supply.fresh_name(name, add_prefix)
        self._known[found] = GlobalVar(found)
        return self._known[found]

    def unique_global_for(self, name: str, add_prefix: bool = True) -> GlobalVar:
        """Return the variable of that name, created by the first call."""
        found = self.name_supply.reserve_name(name, add_prefix)
        return self._known.setdefault(found, GlobalVar(found))

    def reserve_global(self, global_var: GlobalVar, allow_conflict: bool = False) -> None:
        """Reserve the name of a variable. Raises `CompileError` if another variable has it, unless `allow_conflict`."""
        known = self._known.setdefault(global_var.name_hint, global_var)
        if known is not global_var and not allow_conflict:
            raise CompileError(f"there are two variables '@{global_var.name_hint}'", code="TW0307")
        self.name_supply.reserve_name(global_var.name_hint, add_prefix=False)
