"""TVM's `runtime.executor`: the executor of programs that are built with `Executor("aot")`.

    AotModule(relay.build(mod, "llvm", executor=relay.backend.Executor("aot"))["default"](tvm.cpu()))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.base.errors import InputError
from tilewright.runtime.graph_executor import GraphModule
from tilewright.runtime.name_transforms import sanitize_name

__all__ = ["AotModule"]


class AotModule(GraphModule):
    """A model with its own input and output arrays. It is the same program as for `contrib.graph_executor`.

    Inputs have the names of the model, or these as identifiers of C (`input_0` for `input:0`). Unknown names raise
    `InputError`.
    """

    def set_input(self, key: str | int | Mapping[str, Any] | None = None, value: Any = None, **params: Any) -> None:
        """Copy values into inputs: one by name or number, or several by name."""
        if isinstance(key, str):
            key = self.get_input_index(key)
        super().set_input(key, value)
        for name, entry in params.items():
            self.module.set_input(self.get_input_index(name), entry)

    def get_input(self, index: str | int, out: Any = None) -> Any:
        """Return the array of an input, or `out` with a copy of it."""
        return super().get_input(self.get_input_index(index) if isinstance(index, str) else index, out)

    def get_input_index(self, name: str) -> int:
        """Return the position of the input."""
        names = [t.name for t in self.module.input_infos]
        for known in (names, [sanitize_name(n) for n in names]):
            if name in known:
                return known.index(name)
        raise InputError(
            f"Invalid input name. The model has no input '{name}'; it has {', '.join(names) or 'none'}", code="TW0702")

    def get_input_name(self, index: int) -> str:
        """Return the name of the input at a position."""
        return self.module.input_infos[self.module.input_index(index)].name
