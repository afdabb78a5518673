"""TVM's `target.codegen`: the version of LLVM that generates code, and numbers of its functions."""

from __future__ import annotations

import zlib

from tilewright.backends.cpu.llvm.extern import is_llvm_function
from tilewright.base.errors import OptionError

__all__ = ["llvm_get_intrinsic_name", "llvm_lookup_intrinsic_id", "llvm_version_major"]

_NAMES: dict[int, str] = {}
"""Names by their numbers, of functions that were looked up."""


def llvm_version_major(allow_none: bool = False) -> int | None:
    """Return the major version of LLVM. `allow_none` is ignored, because LLVM is always installed."""
    import llvmlite.binding as llvm

    return int(llvm.llvm_version_info[0])


def llvm_lookup_intrinsic_id(name: str) -> int:
    """Return a number for LLVM's function `name`, a checksum of the name; 0 if LLVM has no such function."""
    if not is_llvm_function(name):
        return 0
    number = zlib.crc32(name.encode())
    _NAMES[number] = name
    return number


def llvm_get_intrinsic_name(intrin_id: int) -> str:
    """Return the name of a function that was looked up. Raises `OptionError` for other numbers."""
    found = _NAMES.get(intrin_id)
    if found is None:
        raise OptionError(
            f"{intrin_id} is not the number of a function of LLVM; llvm_lookup_intrinsic_id gives numbers",
            code="TW0204")
    return found
