"""TVM's `relay.backend.utils`: the names of compiled modules."""

from __future__ import annotations

from tilewright.base.errors import OptionError

__all__ = ["mangle_module_name"]


def mangle_module_name(mod_name: str | None) -> str:
    """Return the prefix of the names that a module of this name defines in C. Raises `OptionError` for other letters
    than those of ASCII."""
    if mod_name and not mod_name.isascii():
        raise OptionError(f"the name '{mod_name}' of a module has letters that C does not have; use ASCII letters",
                         code="TW0202")
    return f"tvmgen_{mod_name}" if mod_name else "tvmgen"
