"""TIR passes, one per file; as module passes under TVM's names: `tir.transform.Simplify()(mod)`."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name[:1].isupper():
        from tilewright.tir.transform.module_passes import PASSES

        if name in PASSES:
            return PASSES[name]
    if name in ("HoistedConditionals", "HoistedLetBindings"):
        from tilewright.tir.transform import hoist_conditions

        return getattr(hoist_conditions, name)
    if name in ("Apply", "PrimFuncPass", "prim_func_pass"):
        from tilewright.tir.transform import module_passes

        return getattr(module_passes, name)
    raise AttributeError(f"module 'tilewright.tir.transform' has no attribute '{name}'")
