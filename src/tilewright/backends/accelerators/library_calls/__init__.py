"""Back ends that are C libraries: Arm Compute Library, BNNS, the drivers of Ethos-N and Ethos-U, CMSIS-NN.

    mod = relay.op.contrib.bnns.partition_for_bnns(mod, params)
    lib = relay.build(mod, "llvm")                    # relay.ext.bnns: a LibraryModule for each part
    print(lib.imported_modules[0].get_source())       # the C text, one call for each row of the pattern table
    with stand_in("bnns"): lib.executable(x)          # without the library: by the numpy meaning of the operators

A part of a network becomes C calls. A program with such parts needs a registered function `runtime.library.<name>`,
which runs the calls of a module. There is no default, so results never come from an unrequested stand-in. This package
does not import the compiler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tilewright.backends.accelerators.library_calls.module import LibraryModule, Step, Tensor
from tilewright.base.global_functions import FUNCTIONS, register_func
from tilewright.runtime.modules import register_module

__all__ = ["GENERATORS", "LibraryModule", "Step", "Tensor", "register_generators", "stand_in"]


def __getattr__(name: str) -> Any:
    if name == "stand_in":
        from tilewright.backends.accelerators.library_calls.by_meaning import stand_in

        return stand_in
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'", name=name)


def _calls_of(library: str) -> Callable[[Any], LibraryModule]:
    def generate(function: Any) -> LibraryModule:
        from tilewright.backends.accelerators.library_calls.codegen import library_module

        return library_module(library, function)

    return generate


def _command_stream(function: Any) -> LibraryModule:
    from tilewright.backends.accelerators.library_calls.ethos_u.codegen import command_stream_module

    return command_stream_module(function)


GENERATORS: Final = {
    **{name: _calls_of(name) for name in ("arm_compute_lib", "bnns", "cmsis-nn", "ethos-n")}, "ethos-u": _command_stream
}
"""Code generators by target: one call per row of the pattern table, and for Ethos-U one call of Vela's output."""


def register_generators() -> None:
    """Register the code generators as `relay.ext.<library>`, except for names that are registered already."""
    for library, generator in GENERATORS.items():
        if f"relay.ext.{library}" not in FUNCTIONS:
            register_func(f"relay.ext.{library}", generator)


register_module(LibraryModule)
register_generators()
