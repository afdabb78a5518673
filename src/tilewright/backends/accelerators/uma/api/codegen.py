"""Generates C of the loop programs of a backend, after the text of its `includes`, and compiles it.

The text declares or defines the functions that the loop programs call (`T.call_extern`), or includes files that do.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tilewright.backends.hooks import hook_of, register_target_kind
from tilewright.backends.targets.target import Target
from tilewright.base.errors import OptionError
from tilewright.ir.module import IRModule
from tilewright.runtime import compiler_hooks
from tilewright.runtime.functions import FunctionModule
from tilewright.runtime.module import load_module
from tilewright.runtime.modules import ModuleNode, register_module

__all__ = ["UMACodegen", "UMAModule"]


class UMACodegen:
    """The code generator of one target."""

    def __init__(self, target_name: str) -> None:
        self.target_name = target_name
        self._includes: Callable[[], str] | None = None
        self._options: Sequence[str] = ()

    def _register_codegen(self, fmt: str = "c", **kwargs: Any) -> None:
        """Set the form of the code, which is "c", and its `includes`, a function that returns C text. `options` are
        those of the C compiler, such as `-I` with a folder. Raises `OptionError` for others."""
        if fmt != "c":
            raise OptionError(f"a UMA backend generates 'c', not '{fmt}'", code="TW0204")
        self._register_c_codegen(**kwargs)

    def _register_c_codegen(self, includes: Callable[[], str] | None = None, options: Sequence[str] = ()) -> None:
        self._includes, self._options = includes, tuple(options)

    def register(self) -> None:
        """Make this the code generator of the target's loop programs (`TIRToRuntime`), if it has `includes`. Others are
        compiled with the code of the host."""
        if self._includes is not None and hook_of(self.target_name, "TIRToRuntime") is None:
            register_target_kind(self.target_name, {"TIRToRuntime": self._module})

    def _module(self, mod: IRModule, _target: Target) -> UMAModule:
        from tilewright.compiler.functions import build as build_functions

        assert self._includes is not None
        plain = build_functions(mod, target="c")
        own = "|".join(map(re.escape, [*plain.artifact.manifest.functions, "tw_"]))
        # the text of `includes` declares the called functions, perhaps with narrower integers
        rest = re.sub(rf"^\w+ \**(?!{own})\w+\([^;{{}}]*\);\n", "", plain.get_source("c"), flags=re.MULTILINE)
        text = f"{self._includes()}\n{rest}"
        made = compiler_hooks.compiled_again(plain.artifact, text, None, self._options)
        return UMAModule(FunctionModule(made), text)


@register_module
class UMAModule(ModuleNode):
    """The functions of a UMA backend as native code."""

    type_key = "uma"

    def __init__(self, functions: FunctionModule, text: str) -> None:
        self._functions, self._text = functions, text

    def get_function(self, name: str) -> Callable[..., Any] | None:
        return self._functions[name] if name in self._functions.artifact.manifest.functions else None

    def get_source(self, fmt: str = "c") -> str:
        """Return the C text."""
        return self._text

    def save_to_binary(self) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "functions.tar"
            self._functions.artifact.save(path)
            code, text = path.read_bytes(), self._text.encode()
        return len(text).to_bytes(8, "little") + text + code

    @classmethod
    def load_from_binary(cls, blob: bytes) -> UMAModule:
        length = int.from_bytes(blob[:8], "little")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "functions.tar"
            path.write_bytes(blob[8 + length:])
            found = load_module(path)
        assert isinstance(found, FunctionModule)
        return cls(found, blob[8:8 + length].decode())
