"""TVM's `target.codegen`: the version of LLVM that generates code."""

from __future__ import annotations

__all__ = ["llvm_version_major"]


def llvm_version_major(allow_none: bool = False) -> int | None:
    """Return the major version of LLVM. `allow_none` is ignored, because LLVM is always installed."""
    import llvmlite.binding as llvm

    return int(llvm.llvm_version_info[0])
