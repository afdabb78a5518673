"""The native entry functions of a program, as LLVM text.

`emit_entry` writes one function for each run of native steps, `i32 tw_run(ptr context, ptr args)`; `args` points to
inputs, outputs, constants and workspace, in this order. `c_entry.py` has the functions for C programs. A program with
long runs also has `i32 tw_run_interruptible(ptr context, ptr args, ptr pending)`, which checks for signals
(`interrupts.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tilewright.backends.cpu import processors
from tilewright.backends.cpu.llvm import faults
from tilewright.backends.cpu.llvm.external import emit_external
from tilewright.backends.cpu.llvm.interrupts import DECLARATIONS, entries_text, look_lines
from tilewright.backends.cpu.llvm.kept_values import kept_declarations, kept_lines
from tilewright.base.errors import InternalError
from tilewright.runtime.manifest import FIRST_MESSAGE, MEMORY_FAULT, NO_SCRATCH, Manifest
from tilewright.runtime.program import (
    CONSTANT,
    INPUT,
    KEPT,
    OUTPUT,
    PIECE,
    Check,
    Copy,
    KernelCall,
    Place,
    Step,
    entry_symbols,
    is_external,
    segments,
)
from tilewright.runtime.scratch import REFUSED_AT
from tilewright.runtime.size_table import first_piece, part_bytes, positions
from tilewright.runtime.sizes import Size

_PLAIN: Final = re.compile(r"[A-Za-z_.$][\w.$]*", re.ASCII)


_MOST_FETCHED: Final = 1 << 20
"""Largest size in bytes of an input that is prefetched, because it fits into a second-level cache."""
_FETCH: Final = """\
declare void @llvm.prefetch.p0(ptr, i32 immarg, i32 immarg, i32 immarg)
define internal void @fetch(ptr %from, i64 %bytes) nounwind {
entry:
  br label %lines
lines:
  %at = phi i64 [ 0, %entry ], [ %next, %lines ]
  %line = getelementptr i8, ptr %from, i64 %at
  call void @llvm.prefetch.p0(ptr %line, i32 0, i32 2, i32 1)
  %next = add nuw nsw i64 %at, 64
  %more = icmp ult i64 %next, %bytes
  br i1 %more, label %lines, label %done
done:
  ret void
}"""


def emit_entry(manifest: Manifest, mark: str = "", looks: frozenset[int] | None = None) -> str:
    """Return all entry functions of the program, and the declarations of its kernels.

    `mark` is a line before the first step of each and after every step. `looks` are the numbers of the steps after
    which a run looks for pending signals; None for entries that never look.
    """
    native = [part for part in segments(manifest.steps) if isinstance(part, tuple)]
    lines = _declarations((step for part in native for step in part), len(manifest.symbols))
    lines += [faults.declaration()] if manifest.sites else []
    lines += kept_declarations(manifest.kept)
    lines += [] if looks is None else [DECLARATIONS]
    for symbol, part in zip(entry_symbols(manifest.steps), native, strict=True):
        lines += _whole(manifest, symbol if looks is None else f"{symbol}.steps", part, mark=mark, looks=looks)
        lines += [] if looks is None else [entries_text(symbol)]
    return "\n".join(lines) + "\n"


def emit_blocks(
    blocks: Sequence[Manifest], calls: Sequence[int] = (), looks: Mapping[int, frozenset[int]] | None = None
) -> str:
    """Return the straight-line parts of a program with control flow, each as a function `flow.block.<n>` of its inputs
    and outputs.

    `calls` are the numbers of arrays of the calls that leave native code; a block with such a call returns its status.
    `looks` has the blocks that look for pending signals, and the numbers of the steps after which they look; these
    blocks take the third argument of `tw_run_interruptible`.
    """
    lines = [faults.declaration()] if any(b.sites for b in blocks) else []
    lines += kept_declarations(blocks[0].kept if blocks else ())
    lines += [
        emit_external(calls), *_declarations(step for block in blocks for step in block.steps if not is_external(step))
    ]
    for k, block in enumerate(blocks):
        lines += _whole(
            block, f"flow.block.{k}", block.steps, "internal ", fetches=False,
            looks=None if looks is None else looks.get(k))
    return "\n".join(lines) + "\n"


def _whole(
    manifest: Manifest, symbol: str, steps: Sequence[Step], linkage: str = "", fetches: bool = True, mark: str = "",
    looks: frozenset[int] | None = None,
) -> list[str]:
    """Return the function of some steps, and the loop over the parts of the program."""
    lines = _Function(manifest, fetches, mark, looks).emit(symbol, steps, linkage)
    return lines if manifest.parts == 1 else [*lines, _loop(manifest, symbol, linkage, looks is not None)]


def _declarations(steps: Iterable[Step], numbers: int = 0) -> list[str]:
    kernels = {step.symbol: len(step.args) for step in steps if isinstance(step, KernelCall)}
    lines = [
        f"declare void @{_quoted(symbol)}({', '.join(['ptr'] * (1 + count) + ['i64'] * numbers)})"
        for symbol, count in kernels.items()]
    return [*lines, _FETCH, "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"]


class _Function:
    """One entry function; pointers are loaded and addresses computed at their first use."""

    def __init__(self, manifest: Manifest, fetches: bool, mark: str, looks: frozenset[int] | None) -> None:
        count = len(manifest.inputs)
        self._looks = frozenset() if looks is None else looks
        self._has_pending, self._params = looks is not None, _parameters(looks is not None)
        self._fetches = fetches
        self._mark = [mark] if mark else []
        constants = count + len(manifest.outputs)
        self._first = {INPUT: 0, OUTPUT: count, CONSTANT: constants, "workspace": constants + 1}
        self._sizes = {INPUT: count, OUTPUT: len(manifest.outputs)}
        self._pointer_bytes = processors.pointer_bytes(manifest.triple)
        self._parts, self._checked = manifest.parts, bool(manifest.sites)
        self._numbers = {id(step): k for k, step in enumerate(manifest.steps)}
        self._heap = manifest.scratch.heap
        lengths = part_bytes(manifest)
        self._lengths = {INPUT: lengths[:count], OUTPUT: lengths[count:]}
        self._kept = manifest.kept
        self._table, self._symbols = constants + 2, len(manifest.symbols)
        self._positions, self._pieces = positions(manifest), first_piece(manifest)
        self._bytes = {CONSTANT: manifest.constants_bytes, "workspace": manifest.workspace_bytes}
        self._bases: dict[int, str] = {}
        self._known: dict[Place, str] = {}
        self._addresses: set[str] = set()
        self._head: list[str] = []
        self._body: list[str] = []

    def emit(self, symbol: str, steps: Sequence[Step], linkage: str = "") -> list[str]:
        self._body += self._mark
        for step in steps:
            if isinstance(step, Copy):
                destination, source = self._pointer(step.destination), self._pointer(step.source)
                self._body.append(
                    f"  call void @llvm.memcpy.p0.p0.i64(ptr {destination}, ptr {source}, i64 "
                    f"{self._size(step.nbytes)}, i1 false)")
            elif isinstance(step, KernelCall):
                if self._fetches:
                    self._fetch_inputs(step)
                args = "".join(f", ptr {self._pointer(place)}" for place in step.args) + "".join(
                    f", i64 {self._entry(k)}" for k in range(self._symbols))
                for check in step.checks:
                    self._check(check)
                if is_external(step):
                    self._fallible(step, args)
                else:
                    self._body.append(f"  call void @{_quoted(step.symbol)}(ptr %ctx{args})")
                    if self._checked:
                        self._reported(self._numbers[id(step)])
            self._body += self._mark
            if self._numbers[id(step)] in self._looks:
                self._body += look_lines(str(len(self._body)))
        head = f"define {linkage}i32 @{symbol}({self._params}) nounwind {{"
        if self._parts != 1:
            head = f"define internal i32 @{symbol}_part({self._params}) nounwind {{"
            return [head, *self._head, *self._body, "  ret i32 0", "}"]
        before, after = _ending(self._heap)
        return [head, *before, *self._head, *self._body, *after, "}"]

    def _reported(self, number: int) -> None:
        """End the function if step `number` has reported an invalid access."""
        n = len(self._body)
        self._body += [
            f"  %told{n} = load i64, ptr {faults.word(0)}, align 8", f"  %right{n} = icmp eq i64 %told{n}, 0",
            f"  br i1 %right{n}, label %go{n}, label %fault{n}", f"fault{n}:",
            f"  store i64 {number}, ptr {faults.word(2)}, align 8",
            f"  ret i32 {MEMORY_FAULT}", f"go{n}:",
        ]

    def _check(self, check: Check) -> None:
        """End the function with the number of the message if a check fails."""
        n = len(self._body)
        self._body += [
            f"  %faults{n} = load i32, ptr {self._pointer(check.place)}, align 4",
            f"  %none{n} = icmp eq i32 %faults{n}, 0",
            f"  br i1 %none{n}, label %passed{n}, label %failed{n}", f"failed{n}:",
            f"  ret i32 {FIRST_MESSAGE + check.number}", f"passed{n}:",
        ]

    def _fallible(self, step: KernelCall, args: str) -> None:
        """Write a call after which the function ends with its status if it failed."""
        if self._has_pending:
            self._body += look_lines(f".call{len(self._body)}", now=True)
        n = len(self._body)
        self._body += [
            f"  %status{n} = call i32 @{step.symbol}(ptr %ctx{args})", f"  %done{n} = icmp eq i32 %status{n}, 0",
            f"  br i1 %done{n}, label %after{n}, label %failed{n}", f"failed{n}:", f"  ret i32 %status{n}",
            f"after{n}:",
        ]

    def _fetch_inputs(self, step: KernelCall) -> None:
        """Prefetch inputs, which are outside the caches: sequential reads are faster than the windows of a kernel."""
        for place in step.args:
            if place.kind == INPUT and place not in self._known:
                pointer, size = self._pointer(place), self._lengths[INPUT][place.offset]
                if isinstance(size, int) and 0 < size <= _MOST_FETCHED:
                    self._body.append(f"  call void @fetch(ptr {pointer}, i64 {size})")

    def _pointer(self, place: Place) -> str:
        known = self._known.get(place)
        if known is None:
            known = self._known[place] = self._compute(place)
        return known

    def _compute(self, place: Place) -> str:
        offset = place.offset
        if place.kind in self._sizes:
            if offset >= self._sizes[place.kind]:
                raise InternalError(f"a step names {place.kind} {offset}, the program has {self._sizes[place.kind]}")
            length = self._lengths[place.kind][offset]
            if isinstance(place.skip, int) and isinstance(length, int) and not 0 <= place.skip < max(1, length):
                raise InternalError(f"a step names byte {place.skip} of {place.kind} {offset}, which has {length}")
            return self._after(self._base(self._first[place.kind] + offset), place.skip, f"%{place.kind}.{offset}")
        if place.kind == KEPT:
            kept = self._kept[offset]
            needed, source = self._size(kept.needed), self._pointer(kept.source)
            self._head += kept_lines(offset, kept, needed, source, self._pointer_bytes)
            return f"%kept{offset}"
        if place.kind == PIECE:
            piece = self._after(
                self._base(self._first["workspace"]), self._entry(self._pieces + offset), f"%piece.{offset}")
            return self._after(piece, place.skip, f"%piece.{offset}.skip{len(self._known)}")
        if not 0 <= offset <= self._bytes[place.kind]:
            raise InternalError(f"a step names byte {offset} of the {place.kind}, which has {self._bytes[place.kind]}")
        return self._after(self._base(self._first[place.kind]), offset, f"%{place.kind}")

    def _after(self, base: str, count: Size, name: str) -> str:
        """Return the address `count` bytes after `base`."""
        if not count:
            return base
        text = self._size(count)
        address = f"{name}.{text.removeprefix('%')}"
        if address not in self._addresses:
            self._addresses.add(address)
            self._head.append(f"  {address} = getelementptr inbounds i8, ptr {base}, i64 {text}")
        return address

    def _size(self, size: Size) -> str:
        """Return a size as an operand: a number, or an entry of the table of sizes."""
        if isinstance(size, int):
            return str(size)
        return size if size.startswith("%") else self._entry(self._positions[size])

    def _entry(self, position: int) -> str:
        """Return an entry of the table of sizes."""
        name = f"%size{position}"
        if name not in self._addresses:
            self._addresses.add(name)
            self._head.append(
                f"  {name}.at = getelementptr inbounds i64, ptr {self._base(self._table)}, i64 {position}")
            self._head.append(f"  {name} = load i64, ptr {name}.at, align 8")
        return name

    def _base(self, slot: int) -> str:
        name = self._bases.get(slot)
        if name is None:
            name = self._bases[slot] = f"%arg{slot}"
            self._head.append(f"  {name}.slot = getelementptr inbounds ptr, ptr %args, i64 {slot}")
            self._head.append(f"  {name} = load ptr, ptr {name}.slot, align {self._pointer_bytes}")
        return name


def _parameters(looks: bool) -> str:
    return "ptr %ctx, ptr %args, ptr %pending" if looks else "ptr %ctx, ptr %args"


def _ending(heap: int) -> tuple[list[str], list[str]]:
    """Return the lines for the start and the end of a function that has made all its calls, and returns its status.

    If kernels take memory of the C library (`heap`), the status is `NO_SCRATCH` if a request was refused.
    """
    before, after, status = [], [], "0"
    if heap:
        before = [
            f"  %refused.at = getelementptr i8, ptr %ctx, i64 {REFUSED_AT}",
            "  %refused.before = load atomic i64, ptr %refused.at monotonic, align 8"
        ]
        after = [
            "  %refused.after = load atomic i64, ptr %refused.at monotonic, align 8",
            "  %refused.none = icmp eq i64 %refused.before, %refused.after",
            f"  %complete = select i1 %refused.none, i32 0, i32 {NO_SCRATCH}",
        ]
        status = "%complete"
    return before, [*after, f"  ret i32 {status}"]


_LOOP: Final = """\
define {linkage}i32 @{symbol}({params}) nounwind {{
entry:
  %moved = alloca [{slots} x ptr], align 8
  call void @llvm.memcpy.p0.p0.i64(ptr %moved, ptr %args, i64 {bytes}, i1 false)
{sizes}{before}  br label %part
part:
  %k = phi i64 [ 0, %entry ], [ %next, %moving ]
  %part.status = call i32 @{symbol}_part({args})
  %part.done = icmp eq i32 %part.status, 0
  br i1 %part.done, label %passed, label %failed
failed:
  ret i32 %part.status
passed:
{look}  br label %moving
moving:
{moves}
  %next = add nuw nsw i64 %k, 1
  %more = icmp ult i64 %next, {parts}
  br i1 %more, label %part, label %done
done:
{after}
}}"""
_MOVE: Final = """\
  %slot{k} = getelementptr inbounds ptr, ptr %moved, i64 {k}
  %old{k} = load ptr, ptr %slot{k}, align {pointer}
  %new{k} = getelementptr i8, ptr %old{k}, i64 {bytes}
  store ptr %new{k}, ptr %slot{k}, align {pointer}"""


def _loop(manifest: Manifest, symbol: str, linkage: str, looks: bool) -> str:
    """Return the function that computes the batch part by part; the addresses of inputs and outputs advance.

    It `looks` for signals after each part, or never.
    """
    steps = part_bytes(manifest)
    table, known = len(steps) + 2, positions(manifest)
    pointer = processors.pointer_bytes(manifest.triple)
    names: dict[Size, str] = {
        size: f"%size{known[size]}" for size in dict.fromkeys((manifest.parts, *steps)) if isinstance(size, str)}
    sizes = "".join(
        f"  {name}.at = getelementptr inbounds i64, ptr %table, i64 {known[str(size)]}\n  {name} = load i64, ptr "
        f"{name}.at, align 8\n"
        for size, name in names.items())
    if names:
        at = f"  %table.at = getelementptr inbounds ptr, ptr %args, i64 {table}"
        sizes = f"{at}\n  %table = load ptr, ptr %table.at, align {pointer}\n{sizes}"
    moves = "\n".join(
        _MOVE.format(k=k, pointer=pointer, bytes=names.get(size, str(size))) for k, size in enumerate(steps))
    before, after = _ending(manifest.scratch.heap)
    lines = {
        "before": "".join(f"{line}\n" for line in before), "after": "\n".join(after), "linkage": linkage,
        "params": _parameters(looks),
        "args": "ptr %ctx, ptr %moved, ptr %pending" if looks else "ptr %ctx, ptr %moved",
        "look": "".join(f"{line}\n" for line in look_lines(".part") if looks),
    }
    slots = len(steps) + (3 if manifest.symbols else 2)
    return _LOOP.format(
        symbol=symbol, slots=slots, bytes=pointer * slots, moves=moves,
        parts=names.get(manifest.parts, str(manifest.parts)), sizes=sizes, **lines)


def _quoted(symbol: str) -> str:
    """Return a symbol as LLVM spells it: in quotes, odd bytes in hexadecimal, unless it is plain."""
    if _PLAIN.fullmatch(symbol):
        return symbol
    plain = set(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.$-")
    return '"' + "".join(chr(byte) if byte in plain else f"\\{byte:02X}" for byte in symbol.encode()) + '"'
