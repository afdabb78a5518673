"""Calls from native code to functions that are not native, inside the blocks of programs with control flow.

    i32 @external.<k>(ptr context, ptr…)   call number k: passes the addresses of its arrays to `*tw_external`
    ptr @tw_external                       i32 (i64 number, ptr addresses), set by the runtime before the first run

A call returns `DONE`. Any other value ends the program with the status `CALL_FAILED`: a Python callback that raises
before its first line returns 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.runtime.callbacks import CALL_FAILED, CALLBACK, DONE
from tilewright.runtime.program import external_symbol


def emit_external(counts: Sequence[int]) -> str:
    """Return the functions of the calls; `counts` are their numbers of arrays. The text is empty without calls."""
    if not counts:
        return ""
    return "\n".join([f"@{CALLBACK} = global ptr null, align 8", *(_function(k, n) for k, n in enumerate(counts)), ""])


def _function(number: int, count: int) -> str:
    lines = [
        f"define internal i32 @{external_symbol(number)}(ptr %ctx{''.join(f', ptr %a{k}' for k in range(count))}) "
        "nounwind {",
        f"  %args = alloca [{max(1, count)} x ptr], align 8"
    ]
    for k in range(count):
        lines += [
            f"  %at{k} = getelementptr inbounds ptr, ptr %args, i64 {k}", f"  store ptr %a{k}, ptr %at{k}, align 8"
        ]
    return "\n".join([
        *lines,
        f"  %callback = load ptr, ptr @{CALLBACK}, align 8",
        f"  %answer = call i32 %callback(i64 {number}, ptr %args)",
        f"  %done = icmp eq i32 %answer, {DONE}",
        f"  %status = select i1 %done, i32 0, i32 {CALL_FAILED}",
        "  ret i32 %status",
        "}",
    ])
