"""The native entry functions of a program, as LLVM text.

`emit_entry` gives one function per run of native steps, `i32 tw_run(ptr context, ptr args)`; `args` points at inputs…,
outputs…, constants, workspace. `emit_c_entry` gives what a C program calls: `int32_t <name>_run(inputs, outputs)`, which
brings its own context and workspace, and `void <name>_close(void)`; it is compiled only into files that leave the process.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from tilewright.errors import InternalError
from tilewright.runtime.manifest import MEMORY_FAULT, NO_SCRATCH, Manifest
from tilewright.runtime.program import CONSTANT, INPUT, OUTPUT, PIECE, Copy, KernelCall, Place, Step, entry_symbols, segments
from tilewright.runtime.scratch import REFUSED_AT
from tilewright.runtime.sizes import Size
from tilewright.runtime.table import first_piece, part_bytes, positions
from tilewright.target.llvm import faults
from tilewright.target.llvm.external import EXTERNAL, emit_external

_PLAIN: Final = re.compile(r"[A-Za-z_.$][\w.$]*", re.ASCII)


_MOST_FETCHED: Final = 1 << 20
"""Bytes of an input that fit into a second-level cache."""
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


def emit_entry(manifest: Manifest, mark: str = "") -> str:
    """All entry functions of the program, and the declarations of its kernels; `mark` is a line before the first step of each and after every step."""
    native = [part for part in segments(manifest.steps) if isinstance(part, tuple)]
    lines = _declarations((step for part in native for step in part), len(manifest.symbols))
    lines += [faults.declaration()] if manifest.sites else []
    for symbol, part in zip(entry_symbols(manifest.steps), native, strict=True):
        lines += _Function(manifest, mark=mark).emit(symbol, part)
        if manifest.parts != 1:
            lines.append(_loop(manifest, symbol))
    return "\n".join(lines) + "\n"


def emit_blocks(blocks: Sequence[Manifest], calls: Sequence[int] = ()) -> str:
    """The straight-line parts of a program with control flow, each as a function `flow.block.<n>` of its own inputs and outputs.

    `calls` are the numbers of arrays of the calls that leave native code: a block that makes one returns its status.
    """
    lines = [faults.declaration()] if any(b.sites for b in blocks) else []
    lines += [emit_external(calls), *_declarations(step for block in blocks for step in block.steps if not fails(step))]
    for k, block in enumerate(blocks):
        lines += _Function(block, fetches=False).emit(f"flow.block.{k}", block.steps, "internal ")
        if block.parts != 1:
            lines.append(_loop(block, f"flow.block.{k}"))
    return "\n".join(lines) + "\n"


def _declarations(steps: Iterable[Step], numbers: int = 0) -> list[str]:
    kernels = {step.symbol: len(step.args) for step in steps if isinstance(step, KernelCall)}
    lines = [f"declare void @{_quoted(symbol)}({', '.join(['ptr'] * (1 + count) + ['i64'] * numbers)})" for symbol, count in kernels.items()]
    return [*lines, _FETCH, "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"]


def fails(step: Step) -> bool:
    """Whether a step leaves native code, and may fail there."""
    return isinstance(step, KernelCall) and step.symbol.startswith(EXTERNAL)


class _Function:
    """One entry function; a pointer is loaded, and an address computed, where it is first used."""

    def __init__(self, manifest: Manifest, fetches: bool = True, mark: str = "") -> None:
        count = len(manifest.inputs)
        self._fetches = fetches
        self._mark = [mark] if mark else []
        constants = count + len(manifest.outputs)
        self._first = {INPUT: 0, OUTPUT: count, CONSTANT: constants, "workspace": constants + 1}
        self._sizes = {INPUT: count, OUTPUT: len(manifest.outputs)}
        self._parts, self._checked = manifest.parts, bool(manifest.sites)
        self._numbers = {id(step): k for k, step in enumerate(manifest.steps)}
        self._heap = manifest.scratch.heap
        lengths = part_bytes(manifest)
        self._lengths = {INPUT: lengths[:count], OUTPUT: lengths[count:]}
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
                self._body.append(f"  call void @llvm.memcpy.p0.p0.i64(ptr {destination}, ptr {source}, i64 {self._size(step.nbytes)}, i1 false)")
            elif isinstance(step, KernelCall):
                if self._fetches:
                    self._fetch_inputs(step)
                args = "".join(f", ptr {self._pointer(place)}" for place in step.args) + "".join(f", i64 {self._entry(k)}" for k in range(self._symbols))
                if fails(step):
                    self._fallible(step, args)
                else:
                    self._body.append(f"  call void @{_quoted(step.symbol)}(ptr %ctx{args})")
                    if self._checked:
                        self._reported(self._numbers[id(step)])
            self._body += self._mark
        head = f"define {linkage}i32 @{symbol}(ptr %ctx, ptr %args) nounwind {{"
        if self._parts != 1:
            head = f"define internal void @{symbol}_part(ptr %ctx, ptr %args) nounwind {{"
            return [head, *self._head, *self._body, "  ret void", "}"]
        before, after = _ending(self._heap)
        return [head, *before, *self._head, *self._body, *after, "}"]

    def _reported(self, number: int) -> None:
        """The end of the function where step `number` has reported a wrong access."""
        n = len(self._body)
        self._body += [
            f"  %told{n} = load i64, ptr {faults.word(0)}, align 8", f"  %right{n} = icmp eq i64 %told{n}, 0",
            f"  br i1 %right{n}, label %go{n}, label %fault{n}", f"fault{n}:", f"  store i64 {number}, ptr {faults.word(2)}, align 8",
            f"  ret {'void' if self._parts != 1 else f'i32 {MEMORY_FAULT}'}", f"go{n}:",
        ]

    def _fallible(self, step: KernelCall, args: str) -> None:
        """A call after which the function ends, with its status, where it failed."""
        if self._parts != 1:
            raise InternalError(f"'{step.symbol}' leaves native code, and stands in a block that is computed in {self._parts} parts")
        n = len(self._body)
        self._body += [
            f"  %status{n} = call i32 @{step.symbol}(ptr %ctx{args})", f"  %done{n} = icmp eq i32 %status{n}, 0",
            f"  br i1 %done{n}, label %after{n}, label %failed{n}", f"failed{n}:", f"  ret i32 %status{n}", f"after{n}:",
        ]

    def _fetch_inputs(self, step: KernelCall) -> None:
        """Inputs come from outside of the caches: read in order they arrive sooner than as the windows of a kernel ask for them."""
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
        if place.kind == PIECE:
            piece = self._after(self._base(self._first["workspace"]), self._entry(self._pieces + offset), f"%piece.{offset}")
            return self._after(piece, place.skip, f"%piece.{offset}.skip{len(self._known)}")
        if not 0 <= offset <= self._bytes[place.kind]:
            raise InternalError(f"a step names byte {offset} of the {place.kind}, which has {self._bytes[place.kind]}")
        return self._after(self._base(self._first[place.kind]), offset, f"%{place.kind}")

    def _after(self, base: str, count: Size, name: str) -> str:
        """The address `count` bytes after `base`."""
        if not count:
            return base
        text = self._size(count)
        address = f"{name}.{text.removeprefix('%')}"
        if address not in self._addresses:
            self._addresses.add(address)
            self._head.append(f"  {address} = getelementptr inbounds i8, ptr {base}, i64 {text}")
        return address

    def _size(self, size: Size) -> str:
        """A size as an operand: a number, or what the table says."""
        if isinstance(size, int):
            return str(size)
        return size if size.startswith("%") else self._entry(self._positions[size])

    def _entry(self, position: int) -> str:
        """What stands in the table."""
        name = f"%size{position}"
        if name not in self._addresses:
            self._addresses.add(name)
            self._head.append(f"  {name}.at = getelementptr inbounds i64, ptr {self._base(self._table)}, i64 {position}")
            self._head.append(f"  {name} = load i64, ptr {name}.at, align 8")
        return name

    def _base(self, slot: int) -> str:
        name = self._bases.get(slot)
        if name is None:
            name = self._bases[slot] = f"%arg{slot}"
            self._head.append(f"  {name}.slot = getelementptr inbounds ptr, ptr %args, i64 {slot}")
            self._head.append(f"  {name} = load ptr, ptr {name}.slot, align 8")
        return name


def _ending(heap: int, checked: bool = False) -> tuple[list[str], list[str]]:
    """Lines for the begin and the end of a function that has made all its calls, and returns its status.

    Where kernels take memory of the C library (`heap`), that is `NO_SCRATCH` if one was refused it; where they are `checked`, `MEMORY_FAULT` if one has reported.
    """
    before, after, status = [], [], "0"
    if heap:
        before = [f"  %refused.at = getelementptr i8, ptr %ctx, i64 {REFUSED_AT}", "  %refused.before = load atomic i64, ptr %refused.at monotonic, align 8"]
        after = [
            "  %refused.after = load atomic i64, ptr %refused.at monotonic, align 8", "  %refused.none = icmp eq i64 %refused.before, %refused.after",
            f"  %complete = select i1 %refused.none, i32 0, i32 {NO_SCRATCH}",
        ]
        status = "%complete"
    if checked:
        after += [
            f"  %told = load i64, ptr {faults.word(0)}, align 8", "  %right = icmp eq i64 %told, 0",
            f"  %status = select i1 %right, i32 {status}, i32 {MEMORY_FAULT}",
        ]
        status = "%status"
    return before, [*after, f"  ret i32 {status}"]


_LOOP: Final = """\
define i32 @{symbol}(ptr %ctx, ptr %args) nounwind {{
entry:
  %moved = alloca [{slots} x ptr], align 8
  call void @llvm.memcpy.p0.p0.i64(ptr %moved, ptr %args, i64 {bytes}, i1 false)
{sizes}{before}  br label %part
part:
  %k = phi i64 [ 0, %entry ], [ %next, %part ]
  call void @{symbol}_part(ptr %ctx, ptr %moved)
{moves}
  %next = add nuw nsw i64 %k, 1
  %more = icmp ult i64 %next, {parts}
  br i1 %more, label %part, label %done
done:
{after}
}}"""
_MOVE: Final = """\
  %slot{k} = getelementptr inbounds ptr, ptr %moved, i64 {k}
  %old{k} = load ptr, ptr %slot{k}, align 8
  %new{k} = getelementptr i8, ptr %old{k}, i64 {bytes}
  store ptr %new{k}, ptr %slot{k}, align 8"""


def _loop(manifest: Manifest, symbol: str) -> str:
    """The function that computes the batch part by part: the addresses of inputs and outputs move on."""
    steps = part_bytes(manifest)
    table, known = len(steps) + 2, positions(manifest)
    names: dict[Size, str] = {size: f"%size{known[size]}" for size in dict.fromkeys((manifest.parts, *steps)) if isinstance(size, str)}
    sizes = "".join(
        f"  {name}.at = getelementptr inbounds i64, ptr %table, i64 {known[str(size)]}\n  {name} = load i64, ptr {name}.at, align 8\n"
        for size, name in names.items()
    )
    if names:
        sizes = f"  %table.at = getelementptr inbounds ptr, ptr %args, i64 {table}\n  %table = load ptr, ptr %table.at, align 8\n{sizes}"
    moves = "\n".join(_MOVE.format(k=k, bytes=names.get(size, str(size))) for k, size in enumerate(steps))
    before, after = _ending(manifest.scratch.heap, bool(manifest.sites))
    lines = {"before": "".join(f"{line}\n" for line in before), "after": "\n".join(after)}
    slots = len(steps) + (3 if manifest.symbols else 2)
    return _LOOP.format(symbol=symbol, slots=slots, bytes=8 * slots, moves=moves, parts=names.get(manifest.parts, str(manifest.parts)), sizes=sizes, **lines)


def _quoted(symbol: str) -> str:
    """A symbol as LLVM text spells it: in quotes, odd bytes in hexadecimal, unless it is plain."""
    if _PLAIN.fullmatch(symbol):
        return symbol
    plain = set(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.$-")
    return '"' + "".join(chr(byte) if byte in plain else f"\\{byte:02X}" for byte in symbol.encode()) + '"'


_C_ENTRY: Final = """\
%shared = type {{ ptr, i32 }}
@tw_constants = external constant i8
@variable = private constant [24 x i8] c"TILEWRIGHT_NUM_THREADS\\00\\00"
@shared = internal global ptr null
@spare = internal global ptr null

declare i32 @tw_run(ptr, ptr)
declare ptr @tw_pool_create(i64)
declare void @tw_pool_destroy(ptr)
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare ptr @getenv(ptr)
declare i32 @getpid()
declare i32 @atoi(ptr)
declare i32 @sched_getaffinity(i32, i64, ptr)
declare <16 x i64> @llvm.ctpop.v16i64(<16 x i64>)
declare i64 @llvm.vector.reduce.add.v16i64(<16 x i64>)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

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
  %record = call ptr @aligned_alloc(i64 16, i64 16)
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
  call void @free(ptr %record)
  %winning = load ptr, ptr %winner, align 8
  ret ptr %winning
release:
  call void @free(ptr %record)
  br label %fail
fail:
  ret ptr null
}}

; Ends the threads and frees the workspace; a later call starts again.
define void @{name}_close() nounwind {{
  %workspace = atomicrmw xchg ptr @spare, ptr null acq_rel, align 8
  call void @free(ptr %workspace)
  %old = atomicrmw xchg ptr @shared, ptr null acq_rel, align 8
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
  call void @free(ptr %old)
  br label %done
done:
  ret void
}}

; 0: done; 1, -1: out of memory. A call takes the spare workspace, or allocates one, and leaves it as the spare.
define i32 @{name}_run(ptr %inputs, ptr %outputs) nounwind {{
  %args = alloca [{slots} x ptr], align 8
  call void @llvm.memcpy.p0.p0.i64(ptr %args, ptr %inputs, i64 {input_bytes}, i1 false)
  %args.outputs = getelementptr inbounds i8, ptr %args, i64 {input_bytes}
  call void @llvm.memcpy.p0.p0.i64(ptr %args.outputs, ptr %outputs, i64 {output_bytes}, i1 false)
  %args.constants = getelementptr inbounds i8, ptr %args, i64 {constants_slot}
  store ptr @tw_constants, ptr %args.constants, align 8
  %context = call ptr @get_context()
  %no_context = icmp eq ptr %context, null
  br i1 %no_context, label %no_memory, label %find
find:
  %spare = atomicrmw xchg ptr @spare, ptr null acq_rel, align 8
  %no_spare = icmp eq ptr %spare, null
  br i1 %no_spare, label %allocate, label %run
allocate:
  %fresh = call ptr @aligned_alloc(i64 64, i64 {workspace_bytes})
  %refused = icmp eq ptr %fresh, null
  br i1 %refused, label %no_memory, label %run
run:
  %workspace = phi ptr [ %spare, %find ], [ %fresh, %allocate ]
  %args.workspace = getelementptr inbounds i8, ptr %args, i64 {workspace_slot}
  store ptr %workspace, ptr %args.workspace, align 8
  %status = call i32 @tw_run(ptr %context, ptr %args)
  %other = atomicrmw xchg ptr @spare, ptr %workspace acq_rel, align 8
  call void @free(ptr %other)
  ret i32 %status
no_memory:
  ret i32 1
}}
"""


def emit_c_entry(manifest: Manifest) -> str:
    """`int32_t <name>_run(const void* const* inputs, void* const* outputs)` and `void <name>_close(void)`, over `tw_run`."""
    input_bytes, output_bytes = 8 * len(manifest.inputs), 8 * len(manifest.outputs)
    return _C_ENTRY.format(
        name=manifest.c_name,
        threads=manifest.threads,
        slots=len(manifest.inputs) + len(manifest.outputs) + 2,
        input_bytes=input_bytes,
        output_bytes=output_bytes,
        constants_slot=input_bytes + output_bytes,
        workspace_slot=input_bytes + output_bytes + 8,
        workspace_bytes=max(64, -(-manifest.workspace_bytes // 64) * 64),
    )
