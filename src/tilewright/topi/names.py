"""The public names of a package, collected from `__all__` of its modules and imported at first use."""

from __future__ import annotations

import importlib
from typing import Any


class Names:
    """The names that the modules `sources` of `package` list."""

    def __init__(self, package: str, sources: tuple[str, ...]) -> None:
        self.package, self.sources = package, sources
        self._where: dict[str, str] | None = None

    def all(self) -> dict[str, str]:
        """Return the module of each name."""
        if self._where is None:
            self._where = {n: source for source in self.sources for n in self._module(source).__all__}
        return self._where

    def get(self, name: str) -> Any:
        """Return the object of that name. Raises `AttributeError` for an unknown name."""
        source = None if name.startswith("_") else self.all().get(name)
        if source is None:
            raise AttributeError(f"module '{self.package}' has no attribute '{name}'", name=name)
        return getattr(self._module(source), name)

    def _module(self, source: str) -> Any:
        return importlib.import_module(f"{self.package}.{source}")
