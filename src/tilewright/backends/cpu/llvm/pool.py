"""The thread pool that runs the parallel loops of generated code, as LLVM text.

    ptr  @tw_pool_create(i64 threads)     a tw_context* with threads - 1 workers, or null without memory
    void @tw_pool_destroy(ptr context)    stops the workers and frees the context

A job is published by making the word `job` odd and withdrawn by making it even again. A worker that sees a new odd
value joins (`active` + 1), checks that the job is still published, and takes chunks until none is left. Each thread has
its own queue, an equal run of adjacent chunks. It thus works on the same part as in the previous loop, whose data are
in its cache. When its queue is empty, it takes from the queues of the others. The caller takes chunks, too, withdraws
the job, and waits only for workers that have joined; a sleeping worker causes no delay. Joining and
withdrawing are sequentially consistent, so one of the two sides sees the other. Workers spin for some 30 us, then sleep
on a futex at `job`. A call while a job runs, from another thread or from inside a loop body, runs serially. On systems
without futexes every call does.

Workers avoid the caller's core, because a worker woken there would run only after the loop has ended. At the start of a
loop and while it waits, a caller checks whether its core has changed. It then lets the workers run on all other cores.
The system chooses the core of each worker among these, so that several processes do not choose the same. A worker that
loses its core to another process during a chunk finishes it on the core of the caller, which waits anyway. With fewer
cores than threads, or if the variable TILEWRIGHT_BIND_THREADS is 0, the system places workers freely.
"""

from __future__ import annotations

import functools
from typing import Final

from tilewright.backends.cpu.llvm.allocation import allocation_text
from tilewright.backends.cpu.llvm.compile import compile_text
from tilewright.backends.cpu.llvm.scratch_blocks import keeps_blocks, scratch_blocks_text
from tilewright.backends.targets.target import Target

_FUTEX: Final = {"x86": 202, "aarch64": 98, "riscv": 98}
_GETTID: Final = {"x86": 186, "aarch64": 178, "riscv": 178}
_SPINS: Final = {"x86": 2_000, "aarch64": 20_000, "riscv": 20_000}
_PAUSE: Final = {
    "x86": "call void @llvm.x86.sse2.pause()", "aarch64": "call void @llvm.aarch64.hint(i32 1)",
    "riscv": "fence seq_cst"
}
_DECLARE_PAUSE: Final = {
    "x86": "declare void @llvm.x86.sse2.pause()", "aarch64": "declare void @llvm.aarch64.hint(i32)", "riscv": ""
}

# parallel_for, num_threads, pool, refused (runtime/scratch.py), kept blocks (scratch_blocks.py) | job, asleep, stop |
# active | body, closure, n, grain | busy, left | cores | a line for each thread, the caller first
_FIELDS: Final = {
    "job": (64, "i32"), "asleep": (68, "i32"), "stop": (72, "i32"), "active": (128, "i32"), "body": (192, "ptr"),
    "closure": (200, "ptr"), "n": (208, "i64"), "grain": (216, "i64"), "busy": (256, "i32"), "left": (260, "i32"),
    "cores": (320, "<16 x i64>"), "lines": (448, "i8"),
}
"""Field -> its byte in the context and its type; fields that different threads write are on different cache lines.

`left` is the core that workers avoid, -1 for none, -2 for never. `cores` is a bit set of the cores on which the pool
was created.
"""
_STACK: Final = 1 << 20
"""Minimum stack size of a worker in bytes; kernels take up to two times 256 KiB (`scratch.py`)."""
_LINE: Final = {"end": 8, "handle": 16, "owner": 24, "thread": 32, "joined": 36, "clock": 40}
"""A thread's line of 64 bytes.

Its words are the next iteration of its queue, the end of the queue, the thread, and the context. Then follow the
system's number of the thread, a flag for a working thread, and its processor time at the caller's last check.
"""


@functools.lru_cache(maxsize=8)
def pool_object(target: Target) -> bytes:
    """Return the pool as an object file."""
    return compile_text(pool_text(target), target)


def pool_text(target: Target) -> str:
    """Return the pool as an LLVM module."""
    if not target.has_threads:
        return "\n".join([allocation_text(target), _SERIAL, _CREATE_SERIAL])
    text = "\n".join([
        allocation_text(target), scratch_blocks_text(target), _SERIAL, _CORES + _THREADED + _CREATE])
    text = text.replace("DROP", "  call void @tw_scratch_drop(ptr %ctx)\n" if keeps_blocks(target) else "")
    for field, (offset, _) in _FIELDS.items():
        text = text.replace(f"FIELD({field})", f"getelementptr i8, ptr %ctx, i64 {offset}")
    for field, offset in _LINE.items():
        text = text.replace(f"OF_LINE({field})", f"getelementptr i8, ptr %line, i64 {offset}")
    family = target.family
    numbers = {
        "SPINS": _SPINS[family], "FUTEX": _FUTEX[family], "GETTID": _GETTID[family], "HEADER": _FIELDS["lines"][0],
        "STACK": _STACK
    }
    for word, number in numbers.items():
        text = text.replace(word, str(number))
    return f"{_DECLARE_PAUSE[family]}\n{text.replace('PAUSE', _PAUSE[family])}"


_SERIAL: Final = """
define internal void @tw_serial_for(ptr %ctx, ptr %body, ptr %closure, i64 %n, i64 %grain) nounwind {
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %run, label %done
run:
  call void %body(ptr %closure, i64 0, i64 %n)
  br label %done
done:
  ret void
}
"""

_CREATE_SERIAL: Final = """
; One context for all: nothing in it changes but the count of refused requests.
@tw_serial_context = global { ptr, i64, ptr, i64 } { ptr @tw_serial_for, i64 1, ptr null, i64 0 }, align 16

define ptr @tw_pool_create(i64 %threads) nounwind {
  ret ptr @tw_serial_context
}

define void @tw_pool_destroy(ptr %ctx) nounwind {
  ret void
}
"""

_CORES: Final = """
@tw_bind_variable = private constant [24 x i8] c"TILEWRIGHT_BIND_THREADS\\00"
declare ptr @getenv(ptr)
declare i32 @clock_gettime(i32, ptr)
declare i32 @sched_getcpu()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_setaffinity(i32, i64, ptr)
declare <16 x i64> @llvm.ctpop.v16i64(<16 x i64>)
declare i64 @llvm.vector.reduce.add.v16i64(<16 x i64>)

; the cores on which the calling thread may run; none when the system does not say
define internal <16 x i64> @tw_cores() nounwind {
  %mask = alloca <16 x i64>, align 8
  store <16 x i64> zeroinitializer, ptr %mask, align 8
  %error = call i32 @sched_getaffinity(i32 0, i64 128, ptr %mask)
  %cores = load <16 x i64>, ptr %mask, align 8
  ret <16 x i64> %cores
}

; one core, of 1024
define internal <16 x i64> @tw_core(i32 %core) nounwind {
  %word = lshr i32 %core, 6
  %within = and i32 %word, 15
  %place = and i32 %core, 63
  %wide = zext i32 %place to i64
  %bit = shl i64 1, %wide
  %cores = insertelement <16 x i64> zeroinitializer, i64 %bit, i32 %within
  ret <16 x i64> %cores
}

; a thread runs on some cores; where the system refuses, it runs where it did
define internal void @tw_bind(i32 %thread, <16 x i64> %cores) nounwind {
  %mask = alloca <16 x i64>, align 8
  store <16 x i64> %cores, ptr %mask, align 8
  %refused = call i32 @sched_setaffinity(i32 %thread, i64 128, ptr %mask)
  ret void
}

; whether there is a core for each of some threads
define internal i1 @tw_suffices(<16 x i64> %cores, i64 %threads) nounwind {
  %counts = call <16 x i64> @llvm.ctpop.v16i64(<16 x i64> %cores)
  %count = call i64 @llvm.vector.reduce.add.v16i64(<16 x i64> %counts)
  %enough = icmp sge i64 %count, %threads
  ret i1 %enough
}

; remembers the cores of a new pool, and whether its workers are to keep off one of them
define internal void @tw_find_cores(ptr %ctx, i64 %threads) nounwind {
entry:
  %cores.at = FIELD(cores)
  %left.at = FIELD(left)
  %cores = call <16 x i64> @tw_cores()
  store <16 x i64> %cores, ptr %cores.at, align 8
  %enough = call i1 @tw_suffices(<16 x i64> %cores, i64 %threads)
  %text = call ptr @getenv(ptr @tw_bind_variable)
  %unset = icmp eq ptr %text, null
  br i1 %unset, label %decide, label %read
read:
  %letter = load i8, ptr %text
  %zero = icmp eq i8 %letter, 48
  %wanted = xor i1 %zero, true
  br label %decide
decide:
  %binds = phi i1 [ true, %entry ], [ %wanted, %read ]
  %both = and i1 %binds, %enough
  %left = select i1 %both, i32 -1, i32 -2
  store i32 %left, ptr %left.at
  ret void
}

; The workers avoid `core`, the caller's. A caller with too few cores of its own leaves those of the pool to the workers.
; A worker that has not started yet does so at the next loop.
define internal void @tw_leave_core(ptr %ctx, i32 %core) nounwind {
entry:
  %count.at = getelementptr i8, ptr %ctx, i64 8
  %cores.at = FIELD(cores)
  %left.at = FIELD(left)
  %threads = load i64, ptr %count.at
  %of.pool = load <16 x i64>, ptr %cores.at, align 8
  %of.caller = call <16 x i64> @tw_cores()
  %enough = call i1 @tw_suffices(<16 x i64> %of.caller, i64 %threads)
  %cores = select i1 %enough, <16 x i64> %of.caller, <16 x i64> %of.pool
  %own = call <16 x i64> @tw_core(i32 %core)
  %common = and <16 x i64> %cores, %own
  %others = xor <16 x i64> %cores, %common
  %known = icmp ult i32 %core, 1024
  br i1 %known, label %next, label %done
next:
  %k = phi i64 [ 1, %entry ], [ %k.next, %moved ]
  %left = phi i32 [ %core, %entry ], [ %left.next, %moved ]
  %line = call ptr @tw_line(ptr %ctx, i64 %k)
  %thread.at = OF_LINE(thread)
  %thread = load atomic i32, ptr %thread.at monotonic, align 4
  %started = icmp ne i32 %thread, 0
  %left.next = select i1 %started, i32 %left, i32 -1
  br i1 %started, label %move, label %moved
move:
  call void @tw_bind(i32 %thread, <16 x i64> %others)
  br label %moved
moved:
  %k.next = add i64 %k, 1
  %more = icmp slt i64 %k.next, %threads
  br i1 %more, label %next, label %finish
finish:
  store i32 %left.next, ptr %left.at
  br label %done
done:
  ret void
}

; whether a thread has run since the last look at its line
define internal i1 @tw_has_run(ptr %line) nounwind {
  %time = alloca [2 x i64], align 8
  %thread.at = OF_LINE(thread)
  %clock.at = OF_LINE(clock)
  %thread = load atomic i32, ptr %thread.at monotonic, align 4
  %inverse = xor i32 %thread, -1
  %shifted = shl i32 %inverse, 3
  %clock = or i32 %shifted, 6
  %error = call i32 @clock_gettime(i32 %clock, ptr %time)
  %unknown = icmp ne i32 %error, 0
  br i1 %unknown, label %yes, label %compare
yes:
  ret i1 true
compare:
  %seconds = load i64, ptr %time
  %rest.at = getelementptr i8, ptr %time, i64 8
  %rest = load i64, ptr %rest.at
  %scaled = mul i64 %seconds, 1000000000
  %now = add i64 %scaled, %rest
  %before = load i64, ptr %clock.at
  store i64 %now, ptr %clock.at
  %ran = icmp ne i64 %now, %before
  ret i1 %ran
}

; Called by the thread that waits for the end of a job. A worker with a chunk that has not run since the last look has
; lost its core to another process: it continues on this core, which the caller is about to yield, and leaves it at the
; next job.
define internal void @tw_fetch(ptr %ctx) nounwind {
entry:
  %count.at = getelementptr i8, ptr %ctx, i64 8
  %left.at = FIELD(left)
  %threads = load i64, ptr %count.at
  %left = load i32, ptr %left.at
  %apart = icmp sge i32 %left, 0
  br i1 %apart, label %locate, label %done
locate:
  %core = call i32 @sched_getcpu()
  %stayed = icmp eq i32 %core, %left
  br i1 %stayed, label %next, label %moved
moved:
  call void @tw_leave_core(ptr %ctx, i32 %core)
  ret void
next:
  %k = phi i64 [ 1, %locate ], [ %k.next, %looked ]
  %line = call ptr @tw_line(ptr %ctx, i64 %k)
  %joined.at = OF_LINE(joined)
  %joined = load atomic i32, ptr %joined.at monotonic, align 4
  %works = icmp ne i32 %joined, 0
  br i1 %works, label %look, label %looked
look:
  %runs = call i1 @tw_has_run(ptr %line)
  br i1 %runs, label %looked, label %fetch
fetch:
  %thread.at = OF_LINE(thread)
  %thread = load atomic i32, ptr %thread.at monotonic, align 4
  %here = call <16 x i64> @tw_core(i32 %core)
  call void @tw_bind(i32 %thread, <16 x i64> %here)
  store i32 -1, ptr %left.at
  br label %looked
looked:
  %k.next = add i64 %k, 1
  %more = icmp slt i64 %k.next, %threads
  br i1 %more, label %next, label %done
done:
  ret void
}

; called by the thread that publishes a job: if it has moved, the workers leave it the core where it is now
define internal void @tw_keep_off(ptr %ctx) nounwind {
  %left.at = FIELD(left)
  %left = load i32, ptr %left.at
  %binds = icmp ne i32 %left, -2
  br i1 %binds, label %locate, label %done
locate:
  %core = call i32 @sched_getcpu()
  %stayed = icmp eq i32 %core, %left
  br i1 %stayed, label %done, label %moved
moved:
  call void @tw_leave_core(ptr %ctx, i32 %core)
  br label %done
done:
  ret void
}
"""  # noqa: E501

_THREADED: Final = """
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_getstacksize(ptr, ptr)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_attr_destroy(ptr)
declare i32 @pthread_join(i64, ptr)
declare i64 @syscall(i64, ...)
declare i32 @sched_yield()
declare ptr @memset(ptr, i32, i64)

define internal ptr @tw_line(ptr %ctx, i64 %k) nounwind {
  %lines = FIELD(lines)
  %line = getelementptr [64 x i8], ptr %lines, i64 %k
  ret ptr %line
}

; takes chunks of the published job until none is left: of thread `self` first, then of those after it
define internal void @tw_take_chunks(ptr %ctx, i64 %self) nounwind {
entry:
  %count.at = getelementptr i8, ptr %ctx, i64 8
  %body.at = FIELD(body)
  %closure.at = FIELD(closure)
  %grain.at = FIELD(grain)
  %threads = load i64, ptr %count.at
  %body = load ptr, ptr %body.at
  %closure = load ptr, ptr %closure.at
  %grain = load i64, ptr %grain.at
  br label %queue
queue:
  %k = phi i64 [ 0, %entry ], [ %k.next, %empty ]
  %from = add i64 %self, %k
  %past = sub i64 %from, %threads
  %wraps = icmp sge i64 %past, 0
  %whose = select i1 %wraps, i64 %past, i64 %from
  %line = call ptr @tw_line(ptr %ctx, i64 %whose)
  %last.at = OF_LINE(end)
  %last = load i64, ptr %last.at
  br label %take
take:
  %begin = atomicrmw add ptr %line, i64 %grain monotonic
  %left = icmp slt i64 %begin, %last
  br i1 %left, label %run, label %empty
run:
  %reach = add i64 %begin, %grain
  %whole = icmp slt i64 %reach, %last
  %end = select i1 %whole, i64 %reach, i64 %last
  call void %body(ptr %closure, i64 %begin, i64 %end)
  br label %take
empty:
  %k.next = add i64 %k, 1
  %more = icmp slt i64 %k.next, %threads
  br i1 %more, label %queue, label %done
done:
  ret void
}

; shares out `n` iterations in chunks of `grain`: equally many neighbouring chunks for each thread
define internal void @tw_fill_queues(ptr %ctx, i64 %n, i64 %grain) nounwind {
entry:
  %count.at = getelementptr i8, ptr %ctx, i64 8
  %threads = load i64, ptr %count.at
  %up = add i64 %grain, -1
  %filled = add i64 %n, %up
  %chunks = udiv i64 %filled, %grain
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k.next, %next ]
  %begin = phi i64 [ 0, %entry ], [ %end, %next ]
  %k.next = add i64 %k, 1
  %share = mul i64 %chunks, %k.next
  %upto = udiv i64 %share, %threads
  %reach = mul i64 %upto, %grain
  %over = icmp sgt i64 %reach, %n
  %end = select i1 %over, i64 %n, i64 %reach
  %line = call ptr @tw_line(ptr %ctx, i64 %k)
  %last.at = OF_LINE(end)
  store i64 %end, ptr %last.at
  store atomic i64 %begin, ptr %line monotonic, align 8
  %more = icmp slt i64 %k.next, %threads
  br i1 %more, label %next, label %done
done:
  ret void
}

define internal ptr @tw_worker(ptr %line) nounwind {
entry:
  %owner = OF_LINE(owner)
  %ctx = load ptr, ptr %owner
  %lines = FIELD(lines)
  %own = ptrtoint ptr %line to i64
  %first = ptrtoint ptr %lines to i64
  %away = sub i64 %own, %first
  %self = lshr i64 %away, 6
  %job = FIELD(job)
  %asleep = FIELD(asleep)
  %active = FIELD(active)
  %stop = FIELD(stop)
  %joined.at = OF_LINE(joined)
  %thread.at = OF_LINE(thread)
  %wide = call i64 (i64, ...) @syscall(i64 GETTID)
  %thread = trunc i64 %wide to i32
  store atomic i32 %thread, ptr %thread.at monotonic, align 4
  br label %idle
idle:
  %last = phi i32 [ 0, %entry ], [ %seen, %leave ], [ %last, %idle.again ]
  br label %look
look:
  %spun = phi i32 [ 0, %idle ], [ %spun.next, %spin ]
  %seen = load atomic i32, ptr %job seq_cst, align 4
  %odd = and i32 %seen, 1
  %is.open = icmp ne i32 %odd, 0
  %is.new = icmp ne i32 %seen, %last
  %go = and i1 %is.open, %is.new
  br i1 %go, label %join, label %check
check:
  %stopping = load atomic i32, ptr %stop seq_cst, align 4
  %is.stopping = icmp ne i32 %stopping, 0
  br i1 %is.stopping, label %exit, label %wait
wait:
  %spun.next = add i32 %spun, 1
  %more = icmp ult i32 %spun.next, SPINS
  br i1 %more, label %spin, label %sleep
spin:
  PAUSE
  br label %look
sleep:
  %a0 = atomicrmw add ptr %asleep, i32 1 seq_cst
  %r = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %job, i32 128, i32 %seen, ptr null, ptr null, i32 0)
  %a1 = atomicrmw sub ptr %asleep, i32 1 seq_cst
  br label %idle.again
idle.again:
  br label %idle
join:
  %j0 = atomicrmw add ptr %active, i32 1 seq_cst
  %still = load atomic i32, ptr %job seq_cst, align 4
  %same = icmp eq i32 %still, %seen
  br i1 %same, label %work, label %leave
work:
  store atomic i32 1, ptr %joined.at monotonic, align 4
  call void @tw_take_chunks(ptr %ctx, i64 %self)
  store atomic i32 0, ptr %joined.at monotonic, align 4
  br label %leave
leave:
  %j1 = atomicrmw sub ptr %active, i32 1 seq_cst
  br label %idle
exit:
  ret ptr null
}

define internal void @tw_parallel_for(ptr %ctx, ptr %body, ptr %closure, i64 %n, i64 %grain) nounwind {
entry:
  %several = icmp sgt i64 %n, %grain
  br i1 %several, label %try, label %serially
try:
  %busy = FIELD(busy)
  %swap = cmpxchg ptr %busy, i32 0, i32 1 seq_cst seq_cst
  %ours = extractvalue { i32, i1 } %swap, 1
  br i1 %ours, label %publish, label %serially
serially:
  call void @tw_serial_for(ptr %ctx, ptr %body, ptr %closure, i64 %n, i64 %grain)
  ret void
publish:
  %body.at = FIELD(body)
  %closure.at = FIELD(closure)
  %n.at = FIELD(n)
  %grain.at = FIELD(grain)
  %job = FIELD(job)
  %asleep = FIELD(asleep)
  %active = FIELD(active)
  store ptr %body, ptr %body.at
  store ptr %closure, ptr %closure.at
  store i64 %n, ptr %n.at
  %positive = icmp sgt i64 %grain, 1
  %chunk = select i1 %positive, i64 %grain, i64 1
  store i64 %chunk, ptr %grain.at
  call void @tw_fill_queues(ptr %ctx, i64 %n, i64 %chunk)
  call void @tw_keep_off(ptr %ctx)
  %opened = atomicrmw add ptr %job, i32 1 seq_cst
  %sleepers = load atomic i32, ptr %asleep seq_cst, align 4
  %wake = icmp ne i32 %sleepers, 0
  br i1 %wake, label %rouse, label %work
rouse:
  %r = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %job, i32 129, i32 2147483647, ptr null, ptr null, i32 0)
  br label %work
work:
  call void @tw_take_chunks(ptr %ctx, i64 0)
  %closed = atomicrmw add ptr %job, i32 1 seq_cst
  br label %wait
wait:
  %spun = phi i32 [ 0, %work ], [ %spun.next, %spin ], [ 0, %yield ]
  %running = load atomic i32, ptr %active seq_cst, align 4
  %done = icmp eq i32 %running, 0
  br i1 %done, label %finish, label %hold
hold:
  %spun.next = add i32 %spun, 1
  %more = icmp ult i32 %spun.next, SPINS
  br i1 %more, label %spin, label %yield
spin:
  PAUSE
  br label %wait
yield:
  call void @tw_fetch(ptr %ctx)
  %y = call i32 @sched_yield()
  br label %wait
finish:
  store atomic i32 0, ptr %busy seq_cst, align 4
  ret void
}
"""

_CREATE: Final = """
define ptr @tw_pool_create(i64 %threads) nounwind {
entry:
  %attributes = alloca [128 x i8], align 16
  %usual = alloca i64, align 8
  %least = icmp sgt i64 %threads, 1
  %wanted = select i1 %least, i64 %threads, i64 1
  %workers = sub i64 %wanted, 1
  %list = mul i64 %wanted, 64
  %size = add i64 %list, HEADER
  %ctx = call ptr @aligned_alloc(i64 64, i64 %size)
  %none = icmp eq ptr %ctx, null
  br i1 %none, label %failed, label %fill
failed:
  ret ptr null
fill:
  %m = call ptr @memset(ptr %ctx, i32 0, i64 %size)
  %i = call i32 @pthread_attr_init(ptr %attributes)
  %g = call i32 @pthread_attr_getstacksize(ptr %attributes, ptr %usual)
  %stack = load i64, ptr %usual, align 8
  %little = icmp ult i64 %stack, STACK
  %room = select i1 %little, i64 STACK, i64 %stack
  %s = call i32 @pthread_attr_setstacksize(ptr %attributes, i64 %room)
  %pool = getelementptr i8, ptr %ctx, i64 16
  store ptr %ctx, ptr %pool
  call void @tw_find_cores(ptr %ctx, i64 %wanted)
  br label %next
next:
  %k = phi i64 [ 0, %fill ], [ %count, %try ]
  %count = add i64 %k, 1
  %enough = icmp sge i64 %k, %workers
  br i1 %enough, label %ready, label %try
try:
  %line = call ptr @tw_line(ptr %ctx, i64 %count)
  %owner = OF_LINE(owner)
  %slot = OF_LINE(handle)
  store ptr %ctx, ptr %owner
  %error = call i32 @pthread_create(ptr %slot, ptr %attributes, ptr @tw_worker, ptr %line)
  %ok = icmp eq i32 %error, 0
  br i1 %ok, label %next, label %ready
ready:
  %d = call i32 @pthread_attr_destroy(ptr %attributes)
  %count.at = getelementptr i8, ptr %ctx, i64 8
  store i64 %count, ptr %count.at
  %alone = icmp eq i64 %k, 0
  %run = select i1 %alone, ptr @tw_serial_for, ptr @tw_parallel_for
  store ptr %run, ptr %ctx
  ret ptr %ctx
}

define void @tw_pool_destroy(ptr %ctx) nounwind {
entry:
  %stop = FIELD(stop)
  %job = FIELD(job)
  store atomic i32 1, ptr %stop seq_cst, align 4
  %even = atomicrmw add ptr %job, i32 2 seq_cst
  %r = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %job, i32 129, i32 2147483647, ptr null, ptr null, i32 0)
  %count.at = getelementptr i8, ptr %ctx, i64 8
  %threads = load i64, ptr %count.at
  br label %next
next:
  %k = phi i64 [ 1, %entry ], [ %k.next, %join ]
  %more = icmp slt i64 %k, %threads
  br i1 %more, label %join, label %done
join:
  %line = call ptr @tw_line(ptr %ctx, i64 %k)
  %slot = OF_LINE(handle)
  %handle = load i64, ptr %slot
  %e = call i32 @pthread_join(i64 %handle, ptr null)
  %k.next = add i64 %k, 1
  br label %next
done:
DROP  call void @free(ptr %ctx)
  ret void
}
"""
