"""Calls from native code of functions that are not: what programs with control flow do inside of their blocks.

    i32 @external.<k>(ptr context, ptr…)     the call number k: gives the addresses of its arrays to what `tw_external` points to
    ptr @tw_external                         i32 (i64 number, ptr addresses), which the runtime puts there before the first run

A call returns `DONE`. Whatever else it returns ends the program, with the status `CALL_FAILED`: a callback of Python that raises
before its first line returns 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.runtime.callbacks import CALL_FAILED, CALLBACK, DONE

EXTERNAL: Final = "external."
"""What the symbols of the functions begin with."""


def symbol_of(number: int) -> str:
    """The function of call `number`."""
    return f"{EXTERNAL}{number}"


def emit_external(counts: Sequence[int]) -> str:
    """The functions of the calls; `counts` are how many arrays each has. Nothing without calls."""
    if not counts:
        return ""
    return "\n".join([f"@{CALLBACK} = global ptr null, align 8", *(_function(k, n) for k, n in enumerate(counts)), ""])


def _function(number: int, count: int) -> str:
    lines = [f"define internal i32 @{symbol_of(number)}(ptr %ctx{''.join(f', ptr %a{k}' for k in range(count))}) nounwind {{", f"  %args = alloca [{max(1, count)} x ptr], align 8"]
    for k in range(count):
        lines += [f"  %at{k} = getelementptr inbounds ptr, ptr %args, i64 {k}", f"  store ptr %a{k}, ptr %at{k}, align 8"]
    return "\n".join([
        *lines,
        f"  %callback = load ptr, ptr @{CALLBACK}, align 8",
        f"  %answer = call i32 %callback(i64 {number}, ptr %args)",
        f"  %done = icmp eq i32 %answer, {DONE}",
        f"  %status = select i1 %done, i32 0, i32 {CALL_FAILED}",
        "  ret i32 %status",
        "}",
    ])
