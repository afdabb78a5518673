"""How generated code asks for memory: by the C library's own functions, or by two of ours that know what these are called elsewhere.

    ptr aligned_alloc(i64 alignment, i64 bytes), void free(ptr)      where addresses have 64 bits
    ptr tw_allocate(i64 alignment, i64 bytes), void tw_free(ptr)     where `size_t` has 32 bits, and on Windows
"""

from __future__ import annotations

from typing import Final

from tilewright.backends.cpu import processors
from tilewright.backends.target import Target


def allocator(triple: str) -> tuple[str, str]:
    """The functions that give memory and take it back."""
    return ("tw_allocate", "tw_free") if _definitions(triple) else ("aligned_alloc", "free")


def allocation_text(target: Target) -> str:
    """What a module needs that asks for memory: our functions where they are needed, else the declarations of the C library's."""
    return _definitions(target.mtriple) or _DECLARED


def _definitions(triple: str) -> str:
    if processors.object_format(triple) == "coff":
        return _WINDOWS
    return _SMALL if processors.pointer_bytes(triple) == 4 else ""


_DECLARED: Final = """
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
"""
_SMALL: Final = """
declare ptr @aligned_alloc(i32, i32)
declare void @free(ptr)

; null where more is asked for than there can be
define ptr @tw_allocate(i64 %alignment, i64 %bytes) nounwind {
  %possible = icmp ult i64 %bytes, 2147483648
  br i1 %possible, label %ask, label %refuse
ask:
  %alignment.small = trunc i64 %alignment to i32
  %small = trunc i64 %bytes to i32
  %made = call ptr @aligned_alloc(i32 %alignment.small, i32 %small)
  ret ptr %made
refuse:
  ret ptr null
}

define void @tw_free(ptr %memory) nounwind {
  call void @free(ptr %memory)
  ret void
}
"""
_WINDOWS: Final = """
declare ptr @_aligned_malloc(i64, i64)
declare void @_aligned_free(ptr)

define ptr @tw_allocate(i64 %alignment, i64 %bytes) nounwind {
  %made = call ptr @_aligned_malloc(i64 %bytes, i64 %alignment)
  ret ptr %made
}

define void @tw_free(ptr %memory) nounwind {
  call void @_aligned_free(ptr %memory)
  ret void
}
"""
