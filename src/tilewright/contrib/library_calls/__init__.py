"""Back ends that are libraries of C functions: BNNS, the driver of Ethos-N, CMSIS-NN. A part of a network becomes calls in C.

    mod = relay.op.contrib.bnns.partition_for_bnns(mod, params)
    lib = relay.build(mod, "llvm")                    # relay.ext.bnns: a LibraryModule for each part
    print(lib.imported_modules[0].get_source())       # the C text, one call for each row of the pattern table
    with stand_in("bnns"): lib.executable(x)          # here, without the library: by the meaning of the operators, in numpy

A program that holds such parts runs where something registered `runtime.library.<name>`, which runs the calls of a module; nothing
does by itself, so no answer comes from a stand-in that nobody asked for. Importing this needs no compiler.
"""

from __future__ import annotations

from typing import Any, Final

from tilewright.contrib.library_calls.module import LibraryModule, Step, Tensor
from tilewright.global_functions import FUNCTIONS, register_func
from tilewright.runtime.modules import register_module

LIBRARIES: Final = ("bnns", "cmsis-nn", "ethos-n")

__all__ = ["LIBRARIES", "LibraryModule", "Step", "Tensor", "register_generators", "stand_in"]


def __getattr__(name: str) -> Any:
    if name == "stand_in":
        from tilewright.contrib.library_calls.by_meaning import stand_in

        return stand_in
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'", name=name)


def _generator(library: str) -> Any:
    def generate(function: Any) -> LibraryModule:
        from tilewright.contrib.library_calls.codegen import library_module

        return library_module(library, function)

    return generate


def register_generators() -> None:
    """Make the code generators known, `relay.ext.<library>`, but for those that somebody registered before."""
    for library in LIBRARIES:
        if f"relay.ext.{library}" not in FUNCTIONS:
            register_func(f"relay.ext.{library}", _generator(library))


register_module(LibraryModule)
register_generators()
