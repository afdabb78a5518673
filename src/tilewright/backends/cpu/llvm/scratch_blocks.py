"""Blocks of scratch memory that a thread pool keeps for the next request, as LLVM text.

    ptr  @tw_scratch_take(ptr context, i64 bytes)   a kept block of at least this size, or a new one; null if refused
    void @tw_scratch_give(ptr context, ptr block)   keep the block if there is room for it, or free it; accepts null
    void @tw_scratch_drop(ptr context)              free all kept blocks

Kernels with symbolic sizes request large blocks in every call. The C library may return such blocks to the system,
which clears each page of the next one. For the padded copies of a network's images, that took up to a third of a call.

The context has `SLOTS` words from byte `KEPT_AT` on, each with a kept block or null. All threads exchange them
atomically. A kept block that is too small is freed, so few large blocks remain. The line before a block has its size.
"""

from __future__ import annotations

from typing import Final

from tilewright.backends.targets.target import Target

KEPT_AT: Final = 32
"""Byte offset in a context of the kept blocks."""
SLOTS: Final = 3
MOST_KEPT: Final = 256 << 20
"""Largest size in bytes of a block that is kept."""


def keeps_blocks(target: Target) -> bool:
    """Return whether contexts of this target have room for blocks: those of pools of threads, for 64-bit addresses."""
    return target.has_threads and target.pointer_bytes == 8


def scratch_blocks_text(target: Target) -> str:
    """Return the functions that take and give blocks; empty if contexts have no room for them."""
    return _TEXT if keeps_blocks(target) else ""


_TEXT: Final = f"""
declare i64 @llvm.uadd.sat.i64(i64, i64)

define ptr @tw_scratch_take(ptr %ctx, i64 %bytes) nounwind {{
entry:
  br label %slot
slot:
  %k = phi i64 [ 0, %entry ], [ %next, %missed ]
  %offset = shl i64 %k, 3
  %place = add i64 %offset, {KEPT_AT}
  %at = getelementptr i8, ptr %ctx, i64 %place
  %kept = atomicrmw xchg ptr %at, i64 0 acquire, align 8
  %empty = icmp eq i64 %kept, 0
  br i1 %empty, label %missed, label %found
found:
  %old = inttoptr i64 %kept to ptr
  %room = load i64, ptr %old, align 64
  %fits = icmp uge i64 %room, %bytes
  br i1 %fits, label %taken, label %small
small:
  call void @free(ptr %old)
  br label %missed
missed:
  %next = add i64 %k, 1
  %more = icmp ult i64 %next, {SLOTS}
  br i1 %more, label %slot, label %ask
ask:
  %whole = call i64 @llvm.uadd.sat.i64(i64 %bytes, i64 64)
  %made = call ptr @aligned_alloc(i64 64, i64 %whole)
  %none = icmp eq ptr %made, null
  br i1 %none, label %lacking, label %fresh
lacking:
  ret ptr null
fresh:
  store i64 %bytes, ptr %made, align 64
  br label %taken
taken:
  %line = phi ptr [ %old, %found ], [ %made, %fresh ]
  %block = getelementptr i8, ptr %line, i64 64
  ret ptr %block
}}

define void @tw_scratch_give(ptr %ctx, ptr %block) nounwind {{
entry:
  %none = icmp eq ptr %block, null
  br i1 %none, label %done, label %given
given:
  %line = getelementptr i8, ptr %block, i64 -64
  %number = ptrtoint ptr %line to i64
  %room = load i64, ptr %line, align 64
  %large = icmp ugt i64 %room, {MOST_KEPT}
  br i1 %large, label %full, label %slot
slot:
  %k = phi i64 [ 0, %given ], [ %next, %taken ]
  %offset = shl i64 %k, 3
  %place = add i64 %offset, {KEPT_AT}
  %at = getelementptr i8, ptr %ctx, i64 %place
  %pair = cmpxchg ptr %at, i64 0, i64 %number release monotonic, align 8
  %kept = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %kept, label %done, label %taken
taken:
  %next = add i64 %k, 1
  %more = icmp ult i64 %next, {SLOTS}
  br i1 %more, label %slot, label %full
full:
  call void @free(ptr %line)
  br label %done
done:
  ret void
}}

define void @tw_scratch_drop(ptr %ctx) nounwind {{
entry:
  br label %slot
slot:
  %k = phi i64 [ 0, %entry ], [ %next, %slot ]
  %offset = shl i64 %k, 3
  %place = add i64 %offset, {KEPT_AT}
  %at = getelementptr i8, ptr %ctx, i64 %place
  %kept = atomicrmw xchg ptr %at, i64 0 acquire, align 8
  %block = inttoptr i64 %kept to ptr
  call void @free(ptr %block)
  %next = add i64 %k, 1
  %more = icmp ult i64 %next, {SLOTS}
  br i1 %more, label %slot, label %done
done:
  ret void
}}
"""
