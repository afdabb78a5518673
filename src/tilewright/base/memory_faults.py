"""Memory faults in checked programs: the checked accesses, and the message when a check fails.

A checked program (`tir.instrument_bound_checkers` and similar passes) has a `Site` for each access that is not proven
valid. Instead of an invalid access its code calls `FAULT<n>(site, n values)`, which keeps the first report in `RECORD`.
The runtime reads the record after the call. The values of a site are the indices, the dynamic sizes of the buffer, and
the variables of the enclosing loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tilewright.base.errors import MemoryFault

READ, WRITE, UNINITIALIZED, OVERLAP = "read", "write", "uninitialized", "overlap"
"""Kinds of sites: a read or a write out of bounds, a read of uninitialized memory, arguments that share memory."""

RECORD: Final = "tw_fault"
"""Name of the variable that holds the report as 64-bit words: a flag, the site, the step of the program, the values."""
FAULT: Final = "tw_fault_"
"""Prefix of the reporting functions; their number of values follows."""
ARITIES: Final = (4, 8, 16, 32)
"""Numbers of values for which there are reporting functions."""
OVERLAPS: Final = "tw_fault_overlaps"
"""`int64_t (void* a, int64_t bytes, void* b, int64_t bytes, int64_t in_place)`: whether two memory ranges overlap; with
`in_place`, they may begin at the same address."""
HEADER: Final = 3
"""Number of words of the record before the values."""


@dataclass(frozen=True, slots=True)
class Site:
    """A checked access of `buffer` (of `dtype` and `shape`: numbers, or text for a symbolic dimension) in function
    `kernel`.

    `loops` are the names of the loops whose values are reported, outermost first; `origin` is the node of the model, as
    text. The access is `width` characters of `text`, line `line` of the function's loops, from `column` on. `other` is
    the second buffer of an overlap.
    """

    kind: str
    kernel: str
    buffer: str
    dtype: str
    shape: tuple[int | str, ...]
    loops: tuple[str, ...]
    origin: str = ""
    line: int = 0
    text: str = ""
    column: int = 0
    width: int = 0
    other: str = ""

    def to_json(self) -> list[Any]:
        """Return the site as plain lists, for the manifest."""
        return [
            self.kind, self.kernel, self.buffer, self.dtype, list(self.shape), list(self.loops), self.origin, self.line,
            self.text, self.column, self.width, self.other,
        ]

    @staticmethod
    def from_json(fields: Any) -> Site:
        """Return the site that `to_json` encoded; raises `ValueError` for other data."""
        match fields:
            case [
                str(kind), str(kernel), str(buffer), str(dtype), [*shape], [*loops], str(origin), int(line), str(text),
                int(column), int(width), str(other)
            ]:
                sizes = tuple(d if isinstance(d, int) else str(d) for d in shape)
                return Site(
                    kind, kernel, buffer, dtype, sizes, tuple(map(str, loops)), origin, line, text, column, width, other
                )
            case _:
                raise ValueError(f"{str(fields)[:80]!r} is not the site of a check")

    def fault(self, values: Sequence[int], node: str = "") -> MemoryFault:
        """Return the error for a report with these values. `node` is the node of the model that ran, if the caller
        knows it more precisely than the site."""
        given = iter(values)
        indices = [next(given, 0) for _ in (self.shape if self.kind != OVERLAP else ())]
        sizes = [d if isinstance(d, int) else next(given, 0) for d in (self.shape if self.kind != OVERLAP else ())]
        what = self._what(indices, sizes)
        around = ", ".join(f"{name} = {value}" for name, value in zip(self.loops, given, strict=False))
        where = node or self.origin
        lines = [f"'{self.kernel}' {what}"]
        lines += [f"  where {around}"] if around else []
        lines += [f"  computes {where}"] if where else []
        if self.text:
            number = f"{self.line:5} | "
            lines += [number + self.text, f"{'| ':>{len(number)}}{' ' * self.column}{'^' * max(1, self.width)}"]
        lines.append(f"  {_ADVICE[self.kind]}")
        return MemoryFault("\n".join(lines), buffer=self.buffer, kind=self.kind, node=where)

    def _what(self, indices: Sequence[int], sizes: Sequence[int]) -> str:
        declared = f"{self.dtype} {self.buffer}[{', '.join(map(str, self.shape))}]"
        if self.kind == OVERLAP:
            return f"was given memory for '{self.other}' that overlaps that of {declared}"
        element = f"{self.buffer}[{', '.join(map(str, indices))}]"
        if self.kind == UNINITIALIZED:
            return f"reads {element}, which nothing has written yet ({declared})"
        wrong = [
            f"index {k} is {i}, and may be 0 to {n - 1}" for k,
            (i, n) in enumerate(zip(indices, sizes, strict=True)) if not 0 <= i < n]
        return f"{self.kind}s out of bounds: {element} of {declared}: {'; '.join(wrong)}"


_ADVICE: Final = {
    READ: "correct the index or the ends of the loop, or read under a condition: if_then_else(0 <= i < n, data[i], 0)",
    WRITE: "correct the index or the ends of the loop, or make the buffer larger",
    UNINITIALIZED: "store to the element before it is read, or begin with a loop that fills the buffer",
    OVERLAP: "give each array its own memory; functions are compiled for arguments that do not overlap",
}
