"""Reports of invalid accesses in checked code, as LLVM text; `tilewright.base.memory_faults` describes the names.

The first report of all threads is kept: the thread that changes the first word of the record from 0 to 1 writes the
report and sets the word to 2.
"""

from __future__ import annotations

from typing import Final

from tilewright.base.memory_faults import ARITIES, FAULT, HEADER, OVERLAPS, RECORD

WORDS: Final = HEADER + ARITIES[-1]
TYPE: Final = f"[{WORDS} x i64]"

_OVERLAPS: Final = f"""\
define i64 @{OVERLAPS}(ptr %a, i64 %a.bytes, ptr %b, i64 %b.bytes, i64 %in_place) nounwind {{
  %a.begin = ptrtoint ptr %a to i64
  %b.begin = ptrtoint ptr %b to i64
  %a.end = add i64 %a.begin, %a.bytes
  %b.end = add i64 %b.begin, %b.bytes
  %left = icmp ult i64 %a.begin, %b.end
  %right = icmp ult i64 %b.begin, %a.end
  %meet = and i1 %left, %right
  %same = icmp eq i64 %a.begin, %b.begin
  %allows = icmp ne i64 %in_place, 0
  %planned = and i1 %same, %allows
  %alone = xor i1 %planned, true
  %shared = and i1 %meet, %alone
  %result = zext i1 %shared to i64
  ret i64 %result
}}"""


def faults_text() -> str:
    """Return the record and the reporting functions as a module."""
    record = f"@{RECORD} = global {TYPE} zeroinitializer, align 8"
    return "\n".join([record, *map(_report, ARITIES), _OVERLAPS, ""])


def declaration() -> str:
    """Return the declaration of the record, for other modules."""
    return f"@{RECORD} = external global {TYPE}, align 8"


def word(number: int) -> str:
    """Return the address of a word of the record."""
    return f"getelementptr inbounds (i64, ptr @{RECORD}, i64 {number})"


def _report(count: int) -> str:
    stores = [f"  store i64 %v{k}, ptr {word(HEADER + k)}, align 8" for k in range(count)]
    return "\n".join([
        f"define void @{FAULT}{count}(i64 %site{''.join(f', i64 %v{k}' for k in range(count))}) cold nounwind {{",
        f"  %pair = cmpxchg ptr @{RECORD}, i64 0, i64 1 acq_rel acquire, align 8",
        "  %first = extractvalue { i64, i1 } %pair, 1",
        "  br i1 %first, label %tell, label %known",
        "tell:",
        f"  store i64 %site, ptr {word(1)}, align 8",
        f"  store i64 -1, ptr {word(2)}, align 8",
        *stores,
        f"  store atomic i64 2, ptr @{RECORD} release, align 8",
        "  ret void",
        "known:",
        "  ret void",
        "}",
    ])
