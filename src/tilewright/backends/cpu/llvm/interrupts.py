"""Checks for pending signals between kernels, as LLVM text: a separate object that is the same for all programs.

    i32 @tw_look(ptr pending)        0, or `INTERRUPTED` where a signal's handler has raised; 0 for a null pointer
    i32 @tw_look_now(ptr pending)    the same, also where no look is due
    void @tw_begin(ptr pending)      records the start of a run, so that its first look is due `INTERVAL` later

`pending` points to eight words of the runtime (`runtime/interrupts.py`): four functions of Python's C interface, space
for an exception, and the time of the next check. On systems with a clock, an earlier check only reads it and takes no
lock. Handlers run inside `PyErr_CheckSignals`, under the interpreter's lock. An exception that a handler
raises is taken out of the thread's state and kept for the runtime.
"""

from __future__ import annotations

from typing import Final

from tilewright.backends.cpu import processors
from tilewright.runtime.manifest import INTERRUPTED
from tilewright.runtime.program import interruptible_symbol

INTERVAL: Final = 25_000_000
"""Nanoseconds between two checks that take the interpreter's lock."""
_CLOCK: Final = """\
declare i32 @clock_gettime(i32, ptr)

define internal i64 @tw_clock() nounwind {
  %time = alloca [2 x i64], align 8
  %error = call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time, align 8
  %rest.at = getelementptr i8, ptr %time, i64 8
  %rest = load i64, ptr %rest.at, align 8
  %scaled = mul i64 %seconds, 1000000000
  %now = add i64 %scaled, %rest
  ret i64 %now
}
"""
_NO_CLOCK: Final = """\
define internal i64 @tw_clock() nounwind {
  ret i64 0
}
"""
_LOOK: Final = """\
define void @tw_begin(ptr %pending) nounwind {{
  %now = call i64 @tw_clock()
  %due = add i64 %now, {interval}
  %due.at = getelementptr i64, ptr %pending, i64 7
  store i64 %due, ptr %due.at, align 8
  ret void
}}

define i32 @tw_look(ptr %pending) nounwind {{
  %none = icmp eq ptr %pending, null
  br i1 %none, label %quiet, label %clock
clock:
  %now = call i64 @tw_clock()
  %due.at = getelementptr i64, ptr %pending, i64 7
  %due = load i64, ptr %due.at, align 8
  %early = icmp slt i64 %now, %due
  br i1 %early, label %quiet, label %look
look:
  %later = add i64 %now, {interval}
  store i64 %later, ptr %due.at, align 8
  %found = call i32 @tw_look_now(ptr %pending)
  ret i32 %found
quiet:
  ret i32 0
}}

define i32 @tw_look_now(ptr %pending) nounwind {{
  %none = icmp eq ptr %pending, null
  br i1 %none, label %quiet, label %look
look:
  %ensure = load ptr, ptr %pending, align 8
  %check.at = getelementptr i64, ptr %pending, i64 1
  %check = load ptr, ptr %check.at, align 8
  %state = call i32 %ensure()
  %raised = call i32 %check()
  %calm = icmp eq i32 %raised, 0
  br i1 %calm, label %release, label %take
take:
  %fetch.at = getelementptr i64, ptr %pending, i64 2
  %fetch = load ptr, ptr %fetch.at, align 8
  %kind = getelementptr i64, ptr %pending, i64 4
  %value = getelementptr i64, ptr %pending, i64 5
  %trace = getelementptr i64, ptr %pending, i64 6
  call void %fetch(ptr %kind, ptr %value, ptr %trace)
  br label %release
release:
  %release.at = getelementptr i64, ptr %pending, i64 3
  %release.f = load ptr, ptr %release.at, align 8
  call void %release.f(i32 %state)
  %status = select i1 %calm, i32 0, i32 {interrupted}
  ret i32 %status
quiet:
  ret i32 0
}}
"""
DECLARATIONS: Final = "declare i32 @tw_look(ptr)\ndeclare i32 @tw_look_now(ptr)\ndeclare void @tw_begin(ptr)"
_ENTRIES: Final = """\
define i32 @{symbol}(ptr %ctx, ptr %args) nounwind {{
  %status = tail call i32 @{symbol}.steps(ptr %ctx, ptr %args, ptr null)
  ret i32 %status
}}

define i32 @{interruptible}(ptr %ctx, ptr %args, ptr %pending) nounwind {{
  call void @tw_begin(ptr %pending)
  %status = tail call i32 @{symbol}.steps(ptr %ctx, ptr %args, ptr %pending)
  ret i32 %status
}}"""


def look_text(triple: str) -> str:
    """Return `tw_look` and `tw_begin` for a system."""
    has_clock = processors.pointer_bytes(triple) == 8 and (not triple or "linux" in triple)
    return (_CLOCK if has_clock else _NO_CLOCK) + _LOOK.format(
        interval=INTERVAL if has_clock else 0, interrupted=INTERRUPTED)


def entries_text(symbol: str) -> str:
    """Return the two entries of a run of steps whose function is `<symbol>.steps`.

    One checks for signals, the other does not.
    """
    return _ENTRIES.format(symbol=symbol, interruptible=interruptible_symbol(symbol))


def look_lines(name: str, now: bool = False) -> list[str]:
    """Return a check of `%pending`, if due or always (`now`), which ends the function if a handler has raised."""
    return [
        f"  %look{name} = call i32 @tw_look{'_now' if now else ''}(ptr %pending)",
        f"  %calm{name} = icmp eq i32 %look{name}, 0", f"  br i1 %calm{name}, label %on{name}, label %stop{name}",
        f"stop{name}:", f"  ret i32 %look{name}", f"on{name}:",
    ]
