"""The cells of a run as LLVM text: allocation from chunks, release, writes, and the limit of the stack.

`backends/cpu/llvm/flow.py` describes cells and fills in the offsets of the state of a run.
"""

from __future__ import annotations

from typing import Final

RUNTIME: Final = """\
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare i32 @getrlimit(i32, ptr)
declare i32 @getpid()
declare i32 @gettid()
declare ptr @pthread_self()
declare i32 @pthread_getattr_np(ptr, ptr)
declare i32 @pthread_attr_getstack(ptr, ptr, ptr)
declare i32 @pthread_attr_destroy(ptr)
declare i64 @llvm.umax.i64(i64, i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

; A cell of a class, held once; null where there is no memory.
define internal ptr @flow.take(ptr %run, i64 %class) nounwind {{
  %slot = getelementptr [{classes} x ptr], ptr %run, i64 0, i64 %class
  %list = getelementptr i8, ptr %slot, i64 {lists}
  %head = load ptr, ptr %list
  %none = icmp eq ptr %head, null
  br i1 %none, label %fresh, label %reuse
reuse:
  %next = load ptr, ptr %head
  store ptr %next, ptr %list
  br label %done
fresh:
  {size_of}
  %size = load i64, ptr %size.at
  %from.at = getelementptr i8, ptr %run, i64 {free_from}
  %to.at = getelementptr i8, ptr %run, i64 {free_to}
  %from = load i64, ptr %from.at
  %to = load i64, ptr %to.at
  %end = add i64 %from, %size
  %fits = icmp ule i64 %end, %to
  br i1 %fits, label %cut, label %grow
grow:
  %room = add i64 %size, 64
  %bytes = call i64 @llvm.umax.i64(i64 %room, i64 262144)
  %chunk = call ptr @aligned_alloc(i64 64, i64 %bytes)
  %refused = icmp eq ptr %chunk, null
  br i1 %refused, label %fail, label %link
link:
  %chunks.at = getelementptr i8, ptr %run, i64 {chunks}
  %chunks = load ptr, ptr %chunks.at
  store ptr %chunks, ptr %chunk
  store ptr %chunk, ptr %chunks.at
  %base = ptrtoint ptr %chunk to i64
  %new = add i64 %base, 64
  %new.to = add i64 %base, %bytes
  store i64 %new.to, ptr %to.at
  br label %cut
cut:
  %start = phi i64 [ %from, %fresh ], [ %new, %link ]
  %stop = add i64 %start, %size
  store i64 %stop, ptr %from.at
  %made = inttoptr i64 %start to ptr
  br label %done
done:
  %cell = phi ptr [ %head, %reuse ], [ %made, %cut ]
  store i64 1, ptr %cell
  %class.at = getelementptr i8, ptr %cell, i64 12
  %number = trunc i64 %class to i32
  store i32 %number, ptr %class.at
  ret ptr %cell
fail:
  %status = getelementptr i8, ptr %run, i64 {status}
  store i64 {no_memory}, ptr %status
  ret ptr null
}}

; One holder less. Free cells wait in a list, linked by the word of their holders, until their fields are dropped.
define internal void @flow.drop(ptr %run, ptr %cell) nounwind {{
  %count = load i64, ptr %cell
  %less = add i64 %count, -1
  store i64 %less, ptr %cell
  %free = icmp eq i64 %less, 0
  br i1 %free, label %begin, label %done
done:
  ret void
begin:
  store ptr null, ptr %cell
  br label %next
next:
  %first = phi ptr [ %cell, %begin ], [ %rest, %give ]
  %following = load ptr, ptr %first
  %class.at = getelementptr i8, ptr %first, i64 12
  %class = load i32, ptr %class.at
  %number = zext i32 %class to i64
  %fields.at = getelementptr [{classes} x i64], ptr @flow.fields, i64 0, i64 %number
  %fields = load i64, ptr %fields.at
  br label %each
each:
  %k = phi i64 [ 0, %next ], [ %k.next, %again ]
  %rest = phi ptr [ %following, %next ], [ %rest.next, %again ]
  %more = icmp ult i64 %k, %fields
  br i1 %more, label %field, label %give
field:
  %slot = getelementptr ptr, ptr %first, i64 %k
  %slot.at = getelementptr i8, ptr %slot, i64 16
  %inner = load ptr, ptr %slot.at
  %inner.count = load i64, ptr %inner
  %inner.less = add i64 %inner.count, -1
  store i64 %inner.less, ptr %inner
  %inner.free = icmp eq i64 %inner.less, 0
  br i1 %inner.free, label %wait, label %again
wait:
  store ptr %rest, ptr %inner
  br label %again
again:
  %rest.next = phi ptr [ %rest, %field ], [ %inner, %wait ]
  %k.next = add i64 %k, 1
  br label %each
give:
  %list.slot = getelementptr [{classes} x ptr], ptr %run, i64 0, i64 %number
  %list = getelementptr i8, ptr %list.slot, i64 {lists}
  %head = load ptr, ptr %list
  store ptr %head, ptr %first
  store ptr %first, ptr %list
  %last = icmp eq ptr %rest, null
  br i1 %last, label %done, label %next
}}

; A writable tensor: the one in the cell where it has no other holder and owns its elements, else a copy.
define internal ptr @flow.writable(ptr %run, ptr %cell, i64 %class, i64 %offset, i64 %nbytes) nounwind {{
  %count = load i64, ptr %cell
  %alone = icmp eq i64 %count, 1
  %data.at = getelementptr i8, ptr %cell, i64 16
  %data = load ptr, ptr %data.at
  %near = getelementptr i8, ptr %cell, i64 %offset
  %own = icmp eq ptr %data, %near
  %mine = and i1 %alone, %own
  br i1 %mine, label %same, label %other
same:
  ret ptr %cell
other:
  %new = call ptr @flow.take(ptr %run, i64 %class)
  %refused = icmp eq ptr %new, null
  br i1 %refused, label %fail, label %copy
copy:
  %new.at = getelementptr i8, ptr %new, i64 16
  %elements = getelementptr i8, ptr %new, i64 %offset
  store ptr %elements, ptr %new.at
  call void @llvm.memcpy.p0.p0.i64(ptr %elements, ptr %data, i64 %nbytes, i1 false)
  call void @flow.drop(ptr %run, ptr %cell)
  ret ptr %new
fail:
  ret ptr null
}}

; Gives all chunks back.
define internal void @flow.finish(ptr %run) nounwind {{
  %chunks.at = getelementptr i8, ptr %run, i64 {chunks}
  %first = load ptr, ptr %chunks.at
  br label %next
next:
  %chunk = phi ptr [ %first, %0 ], [ %following, %one ]
  %none = icmp eq ptr %chunk, null
  br i1 %none, label %done, label %one
one:
  %following = load ptr, ptr %chunk
  call void @free(ptr %chunk)
  br label %next
done:
  ret void
}}

; The lowest address of frames: a quarter of the stack stays free. The stack of the first thread grows up to a limit,
; those of other threads have a fixed size.
define internal i64 @flow.limit(ptr %here) nounwind {{
  %attributes = alloca [128 x i8], align 16
  %lowest = alloca i64, align 8
  %size = alloca i64, align 8
  store i64 8388608, ptr %size
  %process = call i32 @getpid()
  %thread = call i32 @gettid()
  %now = ptrtoint ptr %here to i64
  %first = icmp eq i32 %process, %thread
  br i1 %first, label %grows, label %made
grows:
  %ignored = call i32 @getrlimit(i32 3, ptr %attributes)
  %limit = load i64, ptr %attributes
  %open = icmp ugt i64 %limit, 1099511627776
  %most = select i1 %open, i64 1048576, i64 %limit
  %most.quarter = lshr i64 %most, 2
  %room = mul i64 %most.quarter, 3
  %end = sub i64 %now, %room
  ret i64 %end
made:
  %self = call ptr @pthread_self()
  %refused = call i32 @pthread_getattr_np(ptr %self, ptr %attributes)
  %known = icmp eq i32 %refused, 0
  br i1 %known, label %ask, label %little
ask:
  %ignored.too = call i32 @pthread_attr_getstack(ptr %attributes, ptr %lowest, ptr %size)
  %ignored.three = call i32 @pthread_attr_destroy(ptr %attributes)
  %base = load i64, ptr %lowest
  %bytes = load i64, ptr %size
  %quarter = lshr i64 %bytes, 2
  %stop = add i64 %base, %quarter
  ret i64 %stop
little:
  %near = sub i64 %now, 32768
  ret i64 %near
}}"""
