"""The entry functions of a program with a clock read before the first step and after each step, for profiles.

    tw_run, tw_run_0, …    as in the program itself; kernels are called by their addresses, times go to `tw_times`
    tw_watched             a context that passes parallel loops on to that of a pool, and records the chunks

A clock read takes 30 ns, between kernels. The clock is that of `time.perf_counter_ns` on Linux; other systems are not
supported.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from tilewright.backends.cpu.llvm.compile import compile_text
from tilewright.backends.cpu.llvm.entry import emit_entry
from tilewright.backends.cpu.llvm.jit import LoadedCode
from tilewright.backends.targets.target import Target
from tilewright.base.memory_faults import RECORD
from tilewright.runtime import compiler_hooks
from tilewright.runtime.manifest import Manifest
from tilewright.runtime.program import entry_symbols, kernel_symbols

Array = np.ndarray[Any, Any]
CHUNK_WORDS: Final = 5
"""Words of a chunk: the thread, its first iteration, the one after its last, and the nanoseconds of its start and end.
"""
_CALL: Final = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)

_MARK: Final = "  call void @tw_mark()"
_CLOCK: Final = """
@tw_times = global ptr null
declare i32 @clock_gettime(i32, ptr)
declare i64 @pthread_self()

define internal i64 @tw_now() nounwind {
  %time = alloca [2 x i64], align 8
  %error = call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time
  %rest.at = getelementptr i8, ptr %time, i64 8
  %rest = load i64, ptr %rest.at
  %scaled = mul i64 %seconds, 1000000000
  %now = add i64 %scaled, %rest
  ret i64 %now
}

define internal void @tw_mark() nounwind {
  %at = load ptr, ptr @tw_times
  %now = call i64 @tw_now()
  store i64 %now, ptr %at
  %next = getelementptr i8, ptr %at, i64 8
  store ptr %next, ptr @tw_times
  ret void
}

; parallel_for, threads, pool, refused, the context of the pool, memory for chunks, its capacity, the number of chunks
@tw_watched = global [8 x i64] zeroinitializer, align 64

define void @tw_watch(ptr %real, ptr %chunks, i64 %room) nounwind {
  %threads.at = getelementptr i8, ptr %real, i64 8
  %threads = load i64, ptr %threads.at
  store ptr @tw_watched_for, ptr @tw_watched
  store i64 %threads, ptr getelementptr inbounds (i64, ptr @tw_watched, i64 1)
  store ptr %real, ptr getelementptr inbounds (i64, ptr @tw_watched, i64 4)
  store ptr %chunks, ptr getelementptr inbounds (i64, ptr @tw_watched, i64 5)
  store i64 %room, ptr getelementptr inbounds (i64, ptr @tw_watched, i64 6)
  store i64 0, ptr getelementptr inbounds (i64, ptr @tw_watched, i64 7)
  ret void
}

define internal void @tw_watched_for(ptr %ctx, ptr %body, ptr %closure, i64 %n, i64 %grain) nounwind {
  %both = alloca [2 x ptr], align 8
  store ptr %body, ptr %both
  %second = getelementptr i8, ptr %both, i64 8
  store ptr %closure, ptr %second
  %real.at = getelementptr i8, ptr %ctx, i64 32
  %real = load ptr, ptr %real.at
  %for = load ptr, ptr %real
  call void %for(ptr %real, ptr @tw_watched_body, ptr %both, i64 %n, i64 %grain)
  ret void
}

define internal void @tw_watched_body(ptr %both, i64 %begin, i64 %end) nounwind {
entry:
  %body = load ptr, ptr %both
  %second = getelementptr i8, ptr %both, i64 8
  %closure = load ptr, ptr %second
  %from = call i64 @tw_now()
  call void %body(ptr %closure, i64 %begin, i64 %end)
  %to = call i64 @tw_now()
  %k = atomicrmw add ptr getelementptr inbounds (i64, ptr @tw_watched, i64 7), i64 1 monotonic
  %room = load i64, ptr getelementptr inbounds (i64, ptr @tw_watched, i64 6)
  %fits = icmp slt i64 %k, %room
  br i1 %fits, label %keep, label %done
keep:
  %chunks = load ptr, ptr getelementptr inbounds (i64, ptr @tw_watched, i64 5)
  %chunk = getelementptr [5 x i64], ptr %chunks, i64 %k
  %thread = call i64 @pthread_self()
  store i64 %thread, ptr %chunk
  %begin.at = getelementptr i64, ptr %chunk, i64 1
  store i64 %begin, ptr %begin.at
  %end.at = getelementptr i64, ptr %chunk, i64 2
  store i64 %end, ptr %end.at
  %from.at = getelementptr i64, ptr %chunk, i64 3
  store i64 %from, ptr %from.at
  %to.at = getelementptr i64, ptr %chunk, i64 4
  store i64 %to, ptr %to.at
  br label %done
done:
  ret void
}
"""


class TimedEntries:
    """The timed entry functions of a program in this process; one run at a time."""

    def __init__(self, manifest: Manifest, kernels: Mapping[str, int]) -> None:
        """`kernels` has the address of each kernel, and for checked code that of the record of faults."""
        target = Target("llvm")
        symbols = entry_symbols(manifest.steps)
        objects = [compile_text(emit_entry(manifest, _MARK) + _CLOCK, target)]
        self._code = LoadedCode(objects, [*symbols, "tw_times", "tw_watched", "tw_watch"], kernels)
        self.entries = [_CALL(self._code.address(s)) for s in symbols]
        self._times = ctypes.c_uint64.from_address(self._code.address("tw_times"))
        self._watch = ctypes.CFUNCTYPE(
            None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64
        )(self._code.address("tw_watch"))

    def times_into(self, memory: Array) -> None:
        """Set where the next clock reads are written: int64, in nanoseconds."""
        self._times.value = memory.ctypes.data

    def watched(self, context: int, chunks: Array) -> int:
        """Return a context for the calls of `context` that records the chunks of parallel loops in `chunks`.

        `chunks` is an int64 array of rows of `CHUNK_WORDS`.
        """
        self._watch(context, chunks.ctypes.data, len(chunks))
        return self._code.address("tw_watched")

    @property
    def chunk_count(self) -> int:
        """Return the number of chunks run since `watched`; those beyond the array are not recorded."""
        return ctypes.c_int64.from_address(self._code.address("tw_watched") + 56).value


@compiler_hooks.timed_entries.provide
def timed_entries(manifest: Manifest, address: Callable[[str], int]) -> TimedEntries | None:
    """Return the timed entries of a program whose symbols are at `address(symbol)`; None if native code has no clock.
    """
    if not sys.platform.startswith("linux"):
        return None
    symbols = (*kernel_symbols(manifest.steps), *([RECORD] if manifest.sites else []))
    return TimedEntries(manifest, {symbol: address(symbol) for symbol in symbols})
