"""The C text of a model as a module: TVM's `lib.imported_modules[0]` of a model that was built for the target c.

    module = relay.build(mod, "c").get_lib().imported_modules[0]
    module.type_key, module.get_source()          "c", one C file
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import ClassVar

from tilewright.runtime.modules import ModuleNode


class CSourceModule(ModuleNode):
    """One C file with the function `tvmgen_<name>_run(inputs, outputs)`, which takes arrays of pointers."""

    type_key: ClassVar[str] = "c"

    def __init__(self, write: Callable[[], tuple[str, str, str, int, int]]) -> None:
        """`write` returns the model's name in C, source, header, and its numbers of inputs and outputs."""
        self._write = write

    def get_source(self, fmt: str = "c") -> str:
        """Return the C text. Raises `CompileError` for a model that cannot be one C file."""
        return self._text

    def get_function(self, name: str) -> None:
        """Return None: the text has no compiled function."""

    @cached_property
    def _text(self) -> str:
        name, source, header, inputs, outputs = self._write()
        include = f'#include "{name}.h"\n'
        head, _, rest = source.partition(include)
        run = f"TVM_DLL int32_t tvmgen_{name.rstrip('_')}_run(const void *const *inputs, void *const *outputs)"
        arguments = [*(f"inputs[{k}]" for k in range(inputs)), *(f"outputs[{k}]" for k in range(outputs))]
        call = f"{name}_run({', '.join(arguments)});"
        body = f"  return {call}" if f"\nint {name}_run(" in source else f"  {call}\n  return 0;"
        return (
            "// The model's function returns 0, or the number of an error.\n#include <stdint.h>\n#ifndef TVM_DLL\n"
            f"#define TVM_DLL\n#endif\n{run};\n\n{header}{head}{rest}\n{run} {{\n{body}\n}}\n")
