"""Ethos-U by Arm's own compiler: a part of a network as a TFLite file, through Vela, as a command stream and weights in the program.

    mod = relay.op.contrib.ethosu.partition_for_ethosu(mod, params, accelerator_config="ethos-u55-128")
    lib = relay.build(mod, "llvm")        # needs Vela: pip install ethos-u-vela

The module of a part (`library_calls.LibraryModule`) has one call, `ethos_u_invoke`, of the inputs, then the command stream and the
weights; its attributes say where in the scratch memory inputs and outputs are. It runs on the device only; `stand_in("ethos-u")` computes the
operators' meaning instead.
"""

from __future__ import annotations

from typing import Any

from tilewright.contrib.library_calls import LibraryModule
from tilewright.global_functions import FUNCTIONS, register_func

__all__ = ["register_generator"]


def _generate(function: Any) -> LibraryModule:
    from tilewright.contrib.ethos_u.codegen import command_stream_module

    return command_stream_module(function)


def register_generator() -> None:
    """Make the code generator known, `relay.ext.ethos-u`, unless somebody registered one before."""
    if "relay.ext.ethos-u" not in FUNCTIONS:
        register_func("relay.ext.ethos-u", _generate)


register_generator()
