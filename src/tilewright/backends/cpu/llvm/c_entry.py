"""The functions that a C program calls, as LLVM text: `int32_t <name>_run(inputs, outputs)` and `void
<name>_close(void)`.

They provide a context and a workspace, call `tw_run` (`entry.py`), and are compiled only into saved files. On systems
with threads, the first call starts them; elsewhere all calls share one constant context.
"""

from __future__ import annotations

from typing import Final

from tilewright.backends.cpu import processors
from tilewright.backends.cpu.llvm.allocation import allocator
from tilewright.backends.cpu.llvm.huge_pages import constants_text
from tilewright.runtime.manifest import Manifest


def emit_c_entry(manifest: Manifest) -> str:
    """Return the text of `<name>_run(const void* const* inputs, void* const* outputs)` and `<name>_close(void)`.

    For dynamic shapes, `<name>_run` also takes the shapes of the inputs (`open_entry.py`).
    """
    pointer = processors.pointer_bytes(manifest.triple)
    input_bytes, output_bytes = pointer * len(manifest.inputs), pointer * len(manifest.outputs)
    allocate, free = allocator(manifest.triple)
    threaded = not manifest.triple or processors.has_threads(manifest.triple)
    drop = "  call void @drop_constants()\n" + ("  call void @tw_kept_users(i32 0)\n" if manifest.kept else "")
    declared = "declare void @tw_kept_users(i32)\n" if manifest.kept else ""
    context = declared + constants_text(manifest) + (_THREADED if threaded else _SERIAL).format(
        drop=drop, name=manifest.c_name, threads=manifest.threads, pointer=pointer, allocate=allocate, free=free)
    if manifest.symbols:
        from tilewright.backends.cpu.llvm.open_entry import emit_open_functions

        return context + emit_open_functions(manifest)
    return context + _RUN.format(
        name=manifest.c_name, pointer=pointer, allocate=allocate, free=free,
        slots=len(manifest.inputs) + len(manifest.outputs) + 2, input_bytes=input_bytes, output_bytes=output_bytes,
        constants_slot=input_bytes + output_bytes, workspace_slot=input_bytes + output_bytes + pointer,
        workspace_bytes=max(64, -(-manifest.workspace_bytes // 64) * 64))


_THREADED: Final = """\
%shared = type {{ ptr, i32 }}
@variable = private constant [24 x i8] c"TILEWRIGHT_NUM_THREADS\\00\\00"
@shared = internal global ptr null

declare ptr @tw_pool_create(i64)
declare void @tw_pool_destroy(ptr)
declare ptr @getenv(ptr)
declare i32 @getpid()
declare i32 @atoi(ptr)
declare i32 @sched_getaffinity(i32, i64, ptr)
declare <16 x i64> @llvm.ctpop.v16i64(<16 x i64>)
declare i64 @llvm.vector.reduce.add.v16i64(<16 x i64>)
; TILEWRIGHT_NUM_THREADS, or the number that the model was made for, or every processor that the process may use
define internal i64 @count_threads() nounwind {{
  %text = call ptr @getenv(ptr @variable)
  %unset = icmp eq ptr %text, null
  br i1 %unset, label %made_for, label %parse
parse:
  %number = call i32 @atoi(ptr %text)
  %wide = sext i32 %number to i64
  %usable = icmp sgt i64 %wide, 0
  br i1 %usable, label %given, label %made_for
given:
  ret i64 %wide
made_for:
  %any = icmp eq i64 {threads}, 0
  br i1 %any, label %ask, label %fixed
fixed:
  ret i64 {threads}
ask:
  %mask = alloca [128 x i8], align 8
  store <16 x i64> zeroinitializer, ptr %mask, align 8
  %ignored = call i32 @sched_getaffinity(i32 0, i64 128, ptr %mask)
  %bits = load <16 x i64>, ptr %mask, align 8
  %counts = call <16 x i64> @llvm.ctpop.v16i64(<16 x i64> %bits)
  %total = call i64 @llvm.vector.reduce.add.v16i64(<16 x i64> %counts)
  %none = icmp eq i64 %total, 0
  %result = select i1 %none, i64 1, i64 %total
  ret i64 %result
}}

; The shared context, with the process that made it: after a fork its threads are not there, so the child makes its own.
; The loser of a race destroys what it made.
define internal ptr @get_context() nounwind {{
  %pid = call i32 @getpid()
  %old = load atomic ptr, ptr @shared acquire, align 8
  %none = icmp eq ptr %old, null
  br i1 %none, label %create, label %check
check:
  %owner.at = getelementptr inbounds %shared, ptr %old, i64 0, i32 1
  %owner = load i32, ptr %owner.at, align 8
  %ours = icmp eq i32 %owner, %pid
  br i1 %ours, label %known, label %create
known:
  %context = load ptr, ptr %old, align 8
  ret ptr %context
create:
  %record = call ptr @{allocate}(i64 16, i64 16)
  %refused = icmp eq ptr %record, null
  br i1 %refused, label %fail, label %fill
fill:
  %threads = call i64 @count_threads()
  %fresh = call ptr @tw_pool_create(i64 %threads)
  %no_pool = icmp eq ptr %fresh, null
  br i1 %no_pool, label %release, label %publish
publish:
  store ptr %fresh, ptr %record, align 8
  %record.owner = getelementptr inbounds %shared, ptr %record, i64 0, i32 1
  store i32 %pid, ptr %record.owner, align 8
  %pair = cmpxchg ptr @shared, ptr %old, ptr %record acq_rel acquire, align 8
  %won = extractvalue {{ ptr, i1 }} %pair, 1
  br i1 %won, label %mine, label %theirs
mine:
  ret ptr %fresh
theirs:
  %winner = extractvalue {{ ptr, i1 }} %pair, 0
  call void @tw_pool_destroy(ptr %fresh)
  call void @{free}(ptr %record)
  %winning = load ptr, ptr %winner, align 8
  ret ptr %winning
release:
  call void @{free}(ptr %record)
  br label %fail
fail:
  ret ptr null
}}

; Ends the threads and frees the workspace; a later call starts again.
define void @{name}_close() nounwind {{
  %workspace = atomicrmw xchg ptr @spare, ptr null acq_rel, align 8
  call void @{free}(ptr %workspace)
{drop}  %old = atomicrmw xchg ptr @shared, ptr null acq_rel, align 8
  %none = icmp eq ptr %old, null
  br i1 %none, label %done, label %check
check:
  %pid = call i32 @getpid()
  %owner.at = getelementptr inbounds %shared, ptr %old, i64 0, i32 1
  %owner = load i32, ptr %owner.at, align 8
  %ours = icmp eq i32 %owner, %pid
  br i1 %ours, label %destroy, label %done
destroy:
  %context = load ptr, ptr %old, align 8
  call void @tw_pool_destroy(ptr %context)
  call void @{free}(ptr %old)
  br label %done
done:
  ret void
}}

"""
_SERIAL: Final = """\
@tw_serial_context = external global i8

define internal ptr @get_context() nounwind {{
  ret ptr @tw_serial_context
}}

; Frees the workspace; a later call makes another.
define void @{name}_close() nounwind {{
  %workspace = atomicrmw xchg ptr @spare, ptr null acq_rel, align {pointer}
  call void @{free}(ptr %workspace)
{drop}  ret void
}}

"""
DECLARATIONS: Final = """\
@spare = internal global ptr null

declare i32 @tw_run(ptr, ptr)
declare ptr @{allocate}(i64, i64)
declare void @{free}(ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""
"""The declarations for `<name>_run`."""
ARGUMENTS: Final = """\
  call void @llvm.memcpy.p0.p0.i64(ptr %args, ptr %inputs, i64 {input_bytes}, i1 false)
  %args.outputs = getelementptr inbounds i8, ptr %args, i64 {input_bytes}
  call void @llvm.memcpy.p0.p0.i64(ptr %args.outputs, ptr %outputs, i64 {output_bytes}, i1 false)
  %args.constants = getelementptr inbounds i8, ptr %args, i64 {constants_slot}
  %constants = call ptr @get_constants()
  store ptr %constants, ptr %args.constants, align {pointer}
  %context = call ptr @get_context()
  %no_context = icmp eq ptr %context, null
  br i1 %no_context, label %no_memory, label %find
find:
  %spare = atomicrmw xchg ptr @spare, ptr null acq_rel, align {pointer}
  %no_spare = icmp eq ptr %spare, null
"""
"""Fills the arguments of `tw_run` but for the workspace, and takes the spare workspace: `%spare`, `%no_spare`."""
_RUN: Final = DECLARATIONS + """\

; 0: done; 1, -1: out of memory. A call takes the spare workspace, or allocates one, and leaves it as the spare.
define i32 @{name}_run(ptr %inputs, ptr %outputs) nounwind {{
  %args = alloca [{slots} x ptr], align 8
""" + ARGUMENTS + """\
  br i1 %no_spare, label %allocate, label %run
allocate:
  %fresh = call ptr @{allocate}(i64 64, i64 {workspace_bytes})
  %refused = icmp eq ptr %fresh, null
  br i1 %refused, label %no_memory, label %run
run:
  %workspace = phi ptr [ %spare, %find ], [ %fresh, %allocate ]
  %args.workspace = getelementptr inbounds i8, ptr %args, i64 {workspace_slot}
  store ptr %workspace, ptr %args.workspace, align {pointer}
  %status = call i32 @tw_run(ptr %context, ptr %args)
  %other = atomicrmw xchg ptr @spare, ptr %workspace acq_rel, align {pointer}
  call void @{free}(ptr %other)
  ret i32 %status
no_memory:
  ret i32 1
}}
"""
