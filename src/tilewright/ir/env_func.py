"""`EnvFunc`: a registered function as a value of attributes and type relations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.base.global_functions import GlobalFunction, get_global_func


@dataclass(frozen=True, slots=True)
class EnvFunc:
    """A function found by its name in the registry. Compared by name."""

    name: str

    @staticmethod
    def get(name: str) -> EnvFunc:
        """Return the function of that name. Raises `OptionError` if none is registered."""
        get_global_func(name)
        return EnvFunc(name)

    @property
    def func(self) -> GlobalFunction:
        """The registered function."""
        return get_global_func(self.name)

    def __call__(self, *args: Any) -> Any:
        return self.func(*args)
