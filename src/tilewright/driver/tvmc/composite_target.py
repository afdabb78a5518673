"""TVM's `tvmc.composite_target`: the accelerators that may precede the processor in `--target`."""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType
from typing import Any

from tilewright.base.errors import OptionError
from tilewright.base.settings import nearest
from tilewright.ir.module import IRModule
from tilewright.ir.op_attributes import known_targets
from tilewright.relay.op.contrib import partition_for


def get_codegen_names() -> list[str]:
    """Return the names of the accelerators."""
    return sorted(known_targets())


def get_codegen_by_target(name: str) -> dict[str, Any]:
    """Return `{"config_key": None, "pass_pipeline": partition}` of an accelerator: `partition(mod, params, mod_name=…,
    **options)` makes functions of the parts of a module that it computes. Raises `OptionError` for another name."""
    known = get_codegen_names()
    if name not in known:
        raise OptionError(
            f"--target: there is no accelerator '{name}'{nearest(name, known)}; choose from {', '.join(known)}",
            code="TW0203")
    return {"config_key": None, "pass_pipeline": _pipeline(name)}


def _pipeline(name: str) -> FunctionType:
    def partition(
        mod: IRModule, params: Mapping[str, Any] | None = None, mod_name: str = "default", **options: Any
    ) -> IRModule:
        return partition_for(name, mod, params, mod_name=mod_name, **options)

    assert isinstance(partition, FunctionType)
    return partition
