"""Values that a program computes from its constants at the first call that needs them, and keeps, as LLVM text.

    ptr  @tw_kept_value(ptr context, i64 needed, ptr cell, i64 bytes, ptr function, ptr source)
    void @tw_kept_users(i32 change)      counts the users of the program; frees all values if none is left

Each value has a cell, a null pointer at first. A thread that finds an empty cell computes the value in new memory and
publishes it. If several threads do so at the same time, the first one publishes, and the others free theirs. No thread
waits, so signals and forks are harmless. `tw_kept_value` returns null for a value that is not `needed`, and if memory
was refused: for the value, or for a kernel of the same context meanwhile. The latter ends the run (`NO_MEMORY`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.backends.cpu import processors
from tilewright.backends.cpu.llvm.allocation import allocator
from tilewright.backends.cpu.llvm.text import symbol
from tilewright.runtime.manifest import NO_MEMORY, Kept, Manifest
from tilewright.runtime.scratch import REFUSED_AT


def kept_values_text(manifest: Manifest) -> str:
    """Return the cells and the functions."""
    allocate, free = allocator(manifest.triple)
    has_pages = not manifest.triple or processors.has_threads(manifest.triple)
    text = _TEXT.format(
        count=len(manifest.kept), pointer=processors.pointer_bytes(manifest.triple), refused=REFUSED_AT, free=free,
        allocate=allocate, alignment=_PAGE if has_pages else 64, advise=_ADVICE if has_pages else "")
    return _DECLARE_ADVICE + text if has_pages else text


def kept_declarations(kept: Sequence[Kept]) -> list[str]:
    """Return the declarations for `kept_lines`."""
    if not kept:
        return []
    return [
        f"@tw_kept_cells = external global [{len(kept)} x ptr]",
        "declare ptr @tw_kept_value(ptr, i64, ptr, i64, ptr, ptr)",
        *(f"declare void {symbol(name)}(ptr, ptr, ptr)" for name in dict.fromkeys(k.symbol for k in kept))]


def kept_lines(number: int, kept: Kept, needed: str, source: str, pointer: int) -> list[str]:
    """Return the lines that define `%kept<number>`, the address of a value, or null if the sizes do not need it.

    `needed` and `source` are the condition and the address of the constant as operands, `pointer` the bytes of an
    address.
    """
    cell, name = f"getelementptr (i8, ptr @tw_kept_cells, i64 {pointer * number})", f"%kept{number}"
    return [
        f"  {name} = call ptr @tw_kept_value(ptr %ctx, i64 {needed}, ptr {cell}, i64 {-(-kept.nbytes // 64) * 64}, "
        f"ptr {symbol(kept.symbol)}, ptr {source})",
        f"  {name}.none = icmp eq ptr {name}, null", f"  {name}.needed = icmp sgt i64 {needed}, 0",
        f"  {name}.lacks = and i1 {name}.none, {name}.needed",
        f"  br i1 {name}.lacks, label %kept{number}.lacking, label %kept{number}.there", f"kept{number}.lacking:",
        f"  ret i32 {NO_MEMORY}", f"kept{number}.there:",
    ]


_PAGE: Final = 4096
"""Smallest page of memory in bytes."""
_DECLARE_ADVICE: Final = """
declare i32 @madvise(ptr, i64, i32)
"""
_ADVICE: Final = """\
  %advised = call i32 @madvise(ptr %fresh, i64 %bytes, i32 14)  ; MADV_HUGEPAGE: as numpy does for constants
"""
_TEXT: Final = """
@tw_kept_cells = hidden global [{count} x ptr] zeroinitializer, align {pointer}
@users = internal global i32 0

declare ptr @{allocate}(i64, i64)
declare void @{free}(ptr)

define hidden ptr @tw_kept_value(ptr %ctx, i64 %needed, ptr %cell, i64 %bytes, ptr %function, ptr %source) nounwind {{
entry:
  %wanted = icmp sgt i64 %needed, 0
  br i1 %wanted, label %look, label %none
none:
  ret ptr null
look:
  %known = load atomic ptr, ptr %cell acquire, align {pointer}
  %missing = icmp eq ptr %known, null
  br i1 %missing, label %ask, label %found
found:
  ret ptr %known
ask:
  %fresh = call ptr @{allocate}(i64 {alignment}, i64 %bytes)
  %lacking = icmp eq ptr %fresh, null
  br i1 %lacking, label %none, label %compute
compute:
{advise}  %refused.at = getelementptr i8, ptr %ctx, i64 {refused}
  %refused.before = load atomic i64, ptr %refused.at monotonic, align 8
  call void %function(ptr %ctx, ptr %source, ptr %fresh)
  %refused.after = load atomic i64, ptr %refused.at monotonic, align 8
  %complete = icmp eq i64 %refused.before, %refused.after
  br i1 %complete, label %publish, label %drop
drop:
  call void @{free}(ptr %fresh)
  ret ptr null
publish:
  %pair = cmpxchg ptr %cell, ptr null, ptr %fresh acq_rel acquire, align {pointer}
  %first = extractvalue {{ ptr, i1 }} %pair, 1
  br i1 %first, label %mine, label %theirs
mine:
  ret ptr %fresh
theirs:
  %other = extractvalue {{ ptr, i1 }} %pair, 0
  call void @{free}(ptr %fresh)
  ret ptr %other
}}

define void @tw_kept_users(i32 %change) nounwind {{
entry:
  %before = atomicrmw add ptr @users, i32 %change acq_rel, align 4
  %users = add i32 %before, %change
  %used = icmp sgt i32 %users, 0
  br i1 %used, label %done, label %cell
cell:
  %k = phi i64 [ 0, %entry ], [ %next, %cell ]
  %at = getelementptr ptr, ptr @tw_kept_cells, i64 %k
  %value = atomicrmw xchg ptr %at, ptr null acq_rel, align {pointer}
  call void @{free}(ptr %value)
  %next = add i64 %k, 1
  %more = icmp ult i64 %next, {count}
  br i1 %more, label %cell, label %done
done:
  ret void
}}
"""
