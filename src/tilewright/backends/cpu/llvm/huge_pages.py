"""The address of a program's constants in a C program, as LLVM text.

    ptr  @get_constants()       the constants of the file, or their copy in huge pages
    void @drop_constants()      frees the copy

`runtime/huge_pages.py` has the reason, and does the same in Python. The first call copies. If several threads do so at
the same time, the first one publishes its copy, and the others free theirs.
"""

from __future__ import annotations

from typing import Final

from tilewright.backends.cpu import processors
from tilewright.backends.cpu.llvm.text import c_string
from tilewright.runtime.huge_pages import LEAST, NEVER, SETTING, SHARED, SYSTEM
from tilewright.runtime.manifest import Manifest


def constants_text(manifest: Manifest) -> str:
    """Return the functions, and the declaration of the constants."""
    triple, nbytes = manifest.triple, manifest.constants_bytes
    copies = nbytes >= LEAST and not manifest.sanitizer and (
        not triple or (processors.has_threads(triple) and processors.pointer_bytes(triple) == 8))
    if not copies:
        return _DECLARED + _DIRECT
    names = {"setting": SETTING, "system": SYSTEM, "never": NEVER, "shared_pages": SHARED}
    return _DECLARED + "".join(f"@{n} = private constant {c_string(v)}\n" for n, v in names.items()) + _COPIED.format(
        nbytes=nbytes)


_DECLARED: Final = """\
@tw_constants = external constant i8
"""
_DIRECT: Final = """
define internal ptr @get_constants() nounwind {
  ret ptr @tw_constants
}

define internal void @drop_constants() nounwind {
  ret void
}
"""
_COPIED: Final = """\
@constants = internal global ptr null

declare i32 @madvise(ptr, i64, i32)
declare i32 @open(ptr, i32, ...)
declare i64 @read(i32, ptr, i64)
declare i32 @close(i32)
declare i32 @strcmp(ptr, ptr)
declare ptr @strstr(ptr, ptr)

; Whether the environment and the system allow huge pages.
define internal i1 @has_huge_pages() nounwind {{
  %text = alloca [128 x i8], align 8
  %given = call ptr @getenv(ptr @setting)
  %unset = icmp eq ptr %given, null
  br i1 %unset, label %ask, label %parse
parse:
  %order = call i32 @strcmp(ptr %given, ptr @shared_pages)
  %is_zero = icmp eq i32 %order, 0
  br i1 %is_zero, label %no, label %ask
ask:
  %file = call i32 (ptr, i32, ...) @open(ptr @system, i32 524288)  ; O_CLOEXEC
  %none = icmp slt i32 %file, 0
  br i1 %none, label %no, label %look
look:
  %count = call i64 @read(i32 %file, ptr %text, i64 127)
  %closed = call i32 @close(i32 %file)
  %empty = icmp sle i64 %count, 0
  br i1 %empty, label %no, label %search
search:
  %end = getelementptr i8, ptr %text, i64 %count
  store i8 0, ptr %end
  %found = call ptr @strstr(ptr %text, ptr @never)
  %allowed = icmp eq ptr %found, null
  ret i1 %allowed
no:
  ret i1 false
}}

define internal ptr @get_constants() nounwind {{
  %known = load atomic ptr, ptr @constants acquire, align 8
  %missing = icmp eq ptr %known, null
  br i1 %missing, label %ask, label %found
found:
  ret ptr %known
ask:
  %allowed = call i1 @has_huge_pages()
  br i1 %allowed, label %allocate, label %keep
allocate:
  %fresh = call ptr @aligned_alloc(i64 2097152, i64 {nbytes})
  %refused = icmp eq ptr %fresh, null
  br i1 %refused, label %keep, label %copy
copy:
  %advised = call i32 @madvise(ptr %fresh, i64 {nbytes}, i32 14)  ; MADV_HUGEPAGE
  call void @llvm.memcpy.p0.p0.i64(ptr %fresh, ptr @tw_constants, i64 {nbytes}, i1 false)
  br label %publish
keep:
  br label %publish
publish:
  %made = phi ptr [ %fresh, %copy ], [ @tw_constants, %keep ]
  %pair = cmpxchg ptr @constants, ptr null, ptr %made acq_rel acquire, align 8
  %first = extractvalue {{ ptr, i1 }} %pair, 1
  br i1 %first, label %mine, label %theirs
mine:
  call void @release_constants(ptr %made)
  ret ptr %made
theirs:
  call void @free_constants(ptr %made)
  %other = extractvalue {{ ptr, i1 }} %pair, 0
  ret ptr %other
}}

; Releases the pages of the file if the constants were copied.
define internal void @release_constants(ptr %made) nounwind {{
  %is_file = icmp eq ptr %made, @tw_constants
  br i1 %is_file, label %done, label %release
release:
  %start = ptrtoint ptr @tw_constants to i64
  %start.over = add i64 %start, 4095
  %begin = and i64 %start.over, -4096
  %stop = add i64 %start, {nbytes}
  %end = and i64 %stop, -4096
  %length = sub i64 %end, %begin
  %begin.at = inttoptr i64 %begin to ptr
  %released = call i32 @madvise(ptr %begin.at, i64 %length, i32 4)  ; MADV_DONTNEED
  br label %done
done:
  ret void
}}

define internal void @free_constants(ptr %made) nounwind {{
  %is_file = icmp eq ptr %made, @tw_constants
  br i1 %is_file, label %done, label %drop
drop:
  call void @free(ptr %made)
  br label %done
done:
  ret void
}}

define internal void @drop_constants() nounwind {{
  %made = atomicrmw xchg ptr @constants, ptr null acq_rel, align 8
  call void @free_constants(ptr %made)
  ret void
}}

"""
