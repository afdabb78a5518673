"""TVM's example of another code generator, `ccompiler`: sums, differences and products as C, compiled by the system's C
compiler.

    f = relay.Function([x, y], x + y).with_attr("Compiler", "ccompiler").with_attr("global_symbol", "ccompiler_0")
    lib = relay.build(tvm.IRModule.from_expr(relay.Call(f, [a, b])), "llvm")
    print(lib.imported_modules[0].get_source())

`Target({"kind": "ccompiler", "header": "#define SIZE 8"})` beside the processor puts a text before the functions.
"""

from __future__ import annotations

from typing import Any, Final

from tilewright.backends.accelerators.ccompiler.module import CompiledCModule
from tilewright.backends.offload_kinds import register_offload_kind
from tilewright.base.global_functions import FUNCTIONS, register_func

__all__ = ["NAME", "CompiledCModule"]

NAME: Final = "ccompiler"
"""The name of the code generator."""


def _generate(function: Any) -> CompiledCModule:
    from tilewright.backends.accelerators.ccompiler.codegen import c_module

    return c_module(function)


register_offload_kind(NAME, {"header": ""})
if f"relay.ext.{NAME}" not in FUNCTIONS:
    register_func(f"relay.ext.{NAME}", _generate)
