"""`aligned_alloc` and `free` of a WebAssembly module, as LLVM text, for modules that are linked without a C library.

Memory is a stack that grows from the end of the constants. A block returns to the stack when it and all blocks above it
are free. Kernels free memory in reverse order, so their blocks return immediately. 64 bytes precede each block:

    ptr below | i32 whether it is free | i32 previous end of the stack
"""

from __future__ import annotations

from typing import Final

MEMORY: Final = """\
@__heap_base = external global i8
@top = internal global ptr null
@end = internal global i32 0

declare i32 @llvm.umax.i32(i32, i32)
declare i32 @llvm.wasm.memory.size.i32(i32)
declare i32 @llvm.wasm.memory.grow.i32(i32, i32)

define ptr @aligned_alloc(i32 %alignment, i32 %bytes) nounwind {
  %known = load i32, ptr @end
  %first = icmp eq i32 %known, 0
  %base = ptrtoint ptr @__heap_base to i32
  %from = select i1 %first, i32 %base, i32 %known
  %wide = call i32 @llvm.umax.i32(i32 %alignment, i32 64)
  %less = sub i32 %wide, 1
  %behind = add i32 %from, 64
  %over = add i32 %behind, %less
  %mask = xor i32 %less, -1
  %place = and i32 %over, %mask
  %end = add i32 %place, %bytes
  %wrapped = icmp ult i32 %end, %from
  br i1 %wrapped, label %refuse, label %room
room:
  %pages = call i32 @llvm.wasm.memory.size.i32(i32 0)
  %whole = lshr i32 %end, 16
  %needed = add i32 %whole, 1
  %missing = sub i32 %needed, %pages
  %fits = icmp sle i32 %missing, 0
  br i1 %fits, label %give, label %grow
grow:
  %before = call i32 @llvm.wasm.memory.grow.i32(i32 0, i32 %missing)
  %refused = icmp eq i32 %before, -1
  br i1 %refused, label %refuse, label %give
give:
  %memory = inttoptr i32 %place to ptr
  %block = getelementptr i8, ptr %memory, i32 -64
  %below = load ptr, ptr @top
  store ptr %below, ptr %block
  %free.at = getelementptr i8, ptr %block, i32 4
  store i32 0, ptr %free.at
  %from.at = getelementptr i8, ptr %block, i32 8
  store i32 %from, ptr %from.at
  store ptr %block, ptr @top
  store i32 %end, ptr @end
  ret ptr %memory
refuse:
  ret ptr null
}

define void @free(ptr %memory) nounwind {
  %none = icmp eq ptr %memory, null
  br i1 %none, label %done, label %mark
mark:
  %block = getelementptr i8, ptr %memory, i32 -64
  %free.at = getelementptr i8, ptr %block, i32 4
  store i32 1, ptr %free.at
  br label %next
next:
  %top = load ptr, ptr @top
  %empty = icmp eq ptr %top, null
  br i1 %empty, label %done, label %look
look:
  %top.free.at = getelementptr i8, ptr %top, i32 4
  %is = load i32, ptr %top.free.at
  %is.free = icmp ne i32 %is, 0
  br i1 %is.free, label %take, label %done
take:
  %from.at = getelementptr i8, ptr %top, i32 8
  %from = load i32, ptr %from.at
  store i32 %from, ptr @end
  %below = load ptr, ptr %top
  store ptr %below, ptr @top
  br label %next
done:
  ret void
}
"""
