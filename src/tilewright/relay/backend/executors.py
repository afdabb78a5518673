"""TVM's `relay.backend.Executor` and `Runtime`: how a program is called, and the runtime that it is linked with.

    relay.build(mod, "c", executor=Executor("aot", {"unpacked-api": True}), runtime=Runtime("crt"))

A program is machine code and constants with one entry function, so it is the same program under each of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Self

from tilewright.base.errors import OptionError
from tilewright.base.settings import nearest

_TYPES: Final[dict[type, str]] = {bool: "IntImm", int: "IntImm", float: "FloatImm", str: "runtime.String"}
"""Python type of an option -> its name in TVM."""
_LINK: Final = {"link-params": bool}


@dataclass(frozen=True)
class _Kind:
    """A kind by `name`, with values of its options: `kind["link-params"]`, `"link-params" in kind`."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    kinds: ClassVar[Mapping[str, Mapping[str, type]]]
    """Name -> the type of each option."""

    def __post_init__(self) -> None:
        known = self._options_of(self.name)
        word = type(self).__name__
        for option, value in (self.options or {}).items():
            if option not in known:
                raise OptionError(
                    f'Attribute "{option}" is not available on this {word}; {self.name} has '
                    f"{', '.join(known) or 'none'}{nearest(option, known)}", code="TW0203")
            wanted, given = _TYPES[known[option]], _TYPES.get(type(value), type(value).__name__)
            if given != wanted:
                raise OptionError(
                    f'Attribute "{option}" should have type "{wanted}" but instead found "{given}"', code="TW0202")
        object.__setattr__(self, "options", {k: known[k](v) for k, v in (self.options or {}).items()})

    @classmethod
    def _options_of(cls, name: str) -> Mapping[str, type]:
        if name not in cls.kinds:
            raise OptionError(
                f'{cls.__name__} "{name}" is not defined; choose from {", ".join(cls.kinds)}'
                f"{nearest(name, cls.kinds)}", code="TW0203")
        return cls.kinds[name]

    @classmethod
    def list_registered(cls) -> list[str]:
        """Return the names of the kinds."""
        return list(cls.kinds)

    @classmethod
    def list_registered_options(cls, name: str | Self) -> dict[str, str]:
        """Return the options of a kind, each with the name of its type."""
        return {k: _TYPES[t] for k, t in cls._options_of(str(name)).items()}

    def __contains__(self, option: str) -> bool:
        return option in self.options

    def __getitem__(self, option: str) -> Any:
        """Return the value of an option; without one, its default, or None. Raises `OptionError` for another name."""
        if option not in self._options_of(self.name):
            raise OptionError(f'{self.name} has no option "{option}"', code="TW0203")
        return self.options.get(option, False if self.kinds[self.name][option] is bool else None)

    def __str__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return hash((self.name, *sorted(self.options.items())))


@dataclass(frozen=True)
class Executor(_Kind):
    """The executor of a program: `graph` for Python, `aot` for one C function, `vm` for control flow."""

    name: str = "graph"
    kinds: ClassVar[Mapping[str, Mapping[str, type]]] = {
        "graph": _LINK,
        "aot": {
            **_LINK, "interface-api": str, "unpacked-api": bool, "workspace-byte-alignment": int,
            "constant-byte-alignment": int},
        "vm": {},
    }
    __hash__ = _Kind.__hash__
    __str__ = _Kind.__str__


@dataclass(frozen=True)
class Runtime(_Kind):
    """The runtime that a program is linked with. Programs only call libc, so they run with either."""

    name: str = "cpp"
    kinds: ClassVar[Mapping[str, Mapping[str, type]]] = {"cpp": {"system-lib": bool}, "crt": {"system-lib": bool}}
    __hash__ = _Kind.__hash__
    __str__ = _Kind.__str__


def check_conventions(executor: Executor, runtime: Runtime, config: Mapping[str, Any]) -> None:
    """Raise `OptionError` for conventions of calls that a runtime does not have, as TVM does: C++ calls functions by
    their packed interface, and C needs one of the two forms that have no wrapper. `config` are options of the pass
    context.
    """
    if executor.name != "aot":
        return
    api, unpacked = executor["interface-api"] or "packed", int(executor["unpacked-api"])
    if config.get("tir.usmp.use_workspace_io") and api != "c":
        raise OptionError(
            "tir.usmp.use_workspace_io option is only compatible with interface_api c.\nPlease use interface_api c to "
            "be able to enable tir.usmp.use_workspace_io", code="TW0202")
    if runtime.name == "cpp" and (unpacked or api != "packed"):
        raise OptionError(
            f'Need unpacked-api == false (got: {unpacked}) and interface-api == "packed" (got: {api}) when targeting '
            'c++ runtime; or give runtime=Runtime("crt")', code="TW0202")
    if runtime.name == "crt" and api != "packed" and not unpacked:
        raise OptionError(
            f'Either need interface_api == "packed" (got: {api}) or unpacked-api == true (got: {unpacked}) when '
            "targeting c runtime", code="TW0202")


__all__ = ["Executor", "Runtime", "check_conventions"]
