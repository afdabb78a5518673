"""Memory requests of generated code: functions of the C library, or functions defined in the module if their types
differ.

    ptr aligned_alloc(i64 alignment, i64 bytes), void free(ptr)      for 64-bit addresses
    ptr tw_allocate(i64 alignment, i64 bytes), void tw_free(ptr)     for a 32-bit `size_t`, and on Windows
"""

from __future__ import annotations

from typing import Final

from tilewright.backends.cpu import processors
from tilewright.backends.targets.target import Target


def allocator(triple: str) -> tuple[str, str]:
    """Return the names of the functions that allocate and free memory."""
    return ("tw_allocate", "tw_free") if _definitions(triple) else ("aligned_alloc", "free")


def allocation_text(target: Target) -> str:
    """Return the text that a module with memory requests needs: definitions, or declarations of C library functions."""
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
