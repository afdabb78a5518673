"""Memory between the stages of a kernel, as LLVM text: on the stack up to a limit, above it from the C library.

    memory:   %a = alloca …                        buffers that fit into MOST_ON_STACK, in their order
              %b = call ptr @aligned_alloc(…)      the others
              br i1 %there, label %entry, label %refused
    entry:    %c = call ptr @aligned_alloc(…)      buffers whose size is known when the function is called
              br i1 %there, label %sized, label %lacking
    sized:    …  free, ret void
    lacking:  free the memory of `entry`
    refused:  free the memory of `memory`, count the refusal in the context, ret void

A function of symbolic sizes asks for the memory of `memory` at once, and takes blocks that the thread pool keeps from
call to call (`scratch_blocks.py`), where pools do.

A function without its memory computes nothing, and its caller sees the count (`runtime/scratch.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.backends.cpu.llvm.allocation import allocator
from tilewright.backends.cpu.llvm.function import FunctionText
from tilewright.backends.cpu.llvm.scratch_blocks import keeps_blocks
from tilewright.runtime.scratch import REFUSED_AT

MOST_ON_STACK: Final = 256 << 10
"""Largest number of stack bytes of one function; the body of a parallel loop is a separate function."""
MEMORY_ALIGNMENT: Final = 64
_BLOCK: Final = "%memory.block"


class ScratchText:
    """The memory of one function while its text is written.

    `stack` and `heap` are its bytes so far; a symbolic size counts as one byte. With `at_once`, buffers of known sizes
    are parts of one block, and blocks are those of the thread pool.
    """

    def __init__(self, f: FunctionText, at_once: bool = False) -> None:
        self.f, self.at_once = f, at_once
        self._kept = at_once and keeps_blocks(f.target)
        self._block_at, self._block_bytes = -1, 0
        """Position of the line that allocates the block, and its size."""
        self.stack = self.heap = 0
        self._given: list[str] = []
        self._open: list[str] = []

    def known(self, name: str, size: int) -> str:
        """Allocate `size` bytes for the whole function; return the `name`."""
        rounded = max(1, -(-size // MEMORY_ALIGNMENT)) * MEMORY_ALIGNMENT
        if self.stack + rounded <= MOST_ON_STACK:
            self.stack += rounded
            self.f.entry.append(f"  {name} = alloca [{rounded} x i8], align {MEMORY_ALIGNMENT}")
        else:
            self._on_heap(name, rounded)
            self.heap += rounded
        return name

    def _on_heap(self, name: str, size: int) -> None:
        if not self.at_once:
            self.f.entry.append(self._ask(name, str(size)))
            self._given.append(name)
            return
        if self._block_at < 0:
            self._block_at = len(self.f.entry)
            self.f.entry.append("")
            self._given.append(_BLOCK)
        self.f.entry.append(f"  {name} = getelementptr i8, ptr {_BLOCK}, i64 {self._block_bytes}")
        self._block_bytes += size
        self.f.entry[self._block_at] = self._ask(_BLOCK, str(self._block_bytes))

    def open(self, name: str, size: str) -> None:
        """Allocate the number of bytes in the register `size` at the current place."""
        self.heap += 1
        self.f.do(self._ask(name, size).lstrip())
        self._open.append(name)

    def check_open(self) -> None:
        """Continue where all memory of symbolic sizes was allocated."""
        found = self._all_there(self._open, "open")
        for line in found:
            self.f.do(line.lstrip())
        self.f.start_block("sized", "br i1 %open.there, label %sized, label %lacking")
        self.f.fresh_chunk()

    def body(self, at: str = "") -> list[str]:
        """Return the blocks of the function; `at` is the location of its end, if there is debug information."""
        first, *rest = self.f.chunks
        lines = [line for chunk in rest for line in chunk]
        frees = {"given": self._frees(self._given), "open": self._frees(self._open)}
        done = [*frees["given"], *frees["open"], f"  ret void{at}"]
        if not self._given and not self._open:
            return ["entry:", *first, *lines, *done]
        head = ["entry:", *first]
        if self._given:
            head = [
                "memory:", *first, *self._all_there(self._given, "given"),
                "  br i1 %given.there, label %entry, label %refused", "entry:"
            ]
        lacking = ["lacking:", *frees["open"], "  br label %refused"] if self._open else []
        counted = [
            f"  %refused.at = getelementptr i8, ptr %ctx, i64 {REFUSED_AT}",
            "  %refused.before = atomicrmw add ptr %refused.at, i64 1 monotonic, align 8", "  ret void",
        ]
        return [*head, *lines, *done, *lacking, "refused:", *frees["given"], *counted]

    def _ask(self, name: str, size: str) -> str:
        if self._kept:
            return f"  {name} = call ptr {self.f.declare('tw_scratch_take', 'ptr', 'ptr, i64')}(ptr %ctx, i64 {size})"
        function = self.f.declare(allocator(self.f.target.mtriple)[0], "ptr", "i64, i64")
        return f"  {name} = call ptr {function}(i64 {MEMORY_ALIGNMENT}, i64 {size})"

    def _frees(self, names: Sequence[str]) -> list[str]:
        if not names:
            return []
        if self._kept:
            give = self.f.declare("tw_scratch_give", "void", "ptr, ptr")
            return [f"  call void {give}(ptr %ctx, ptr {name})" for name in names]
        free = self.f.declare(allocator(self.f.target.mtriple)[1], "void", "ptr")
        return [f"  call void {free}(ptr {name})" for name in names]

    def _all_there(self, names: Sequence[str], kind: str) -> list[str]:
        """Return lines that define `%<kind>.there`."""
        lines, before = [], "true"
        for k, name in enumerate(names):
            last = k == len(names) - 1
            lines.append(f"  %{kind}.got{k} = icmp ne ptr {name}, null")
            lines.append(f"  %{kind}.{'there' if last else f'so{k}'} = and i1 {before}, %{kind}.got{k}")
            before = f"%{kind}.so{k}"
        return lines
