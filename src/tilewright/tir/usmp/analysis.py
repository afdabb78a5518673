"""Live ranges of the memory of a program: `tir.usmp.analysis.extract_buffer_info`.

The analysis runs through a main function and the functions that it calls, in order. A buffer is live from its first to
its last use; one that is used inside a loop, and allocated outside of it, is live in the whole loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tilewright.base.errors import CompileError
from tilewright.base.global_functions import register_func
from tilewright.ir.module import IRModule
from tilewright.scalar.expr import Call
from tilewright.tir.analysis import bytes_of
from tilewright.tir.stmt import PARALLEL, Allocate, AllocateConst, For, Let, PrimFunc, Stmt, bodies
from tilewright.tir.usmp.calls import Functions, Memory, passed, used
from tilewright.tir.usmp.utils import CANDIDATE_MEMORY_POOL_ATTR, INPUT, OUTPUT, BufferInfo

ALIGNMENT: Final = 16
"""Alignment of buffers in bytes, where the executor of a module gives no other one."""


@dataclass(frozen=True)
class BufferInfoAnalysis:
    """The buffers of a program, each with the statement that allocates it, and the largest number of bytes of workspace
    that are live at the same time."""

    buffer_info_stmts: dict[BufferInfo, Allocate]
    memory_pressure: int


@dataclass(eq=False)
class _Live:
    """One allocation at run time: its statement, the number of loops around it, and its first and last use."""

    stmt: Allocate
    depth: int
    start: int | None = None
    end: int = 0


@dataclass(eq=False)
class _Loop:
    start: int
    used: dict[_Live, None] = field(default_factory=dict)


class _Walk:
    """A walk through a program in the order of its execution."""

    def __init__(self, mod: IRModule) -> None:
        self.functions = Functions(mod)
        self.now = 0
        self.loops: list[_Loop] = []
        self.found: list[_Live] = []
        self.open: list[PrimFunc] = []
        self.uses: dict[Stmt, list[Any]] = {}

    def function(self, func: PrimFunc, known: dict[Memory, _Live]) -> None:
        if func in self.open:
            raise CompileError(
                f"'{func.name}' calls itself; memory is planned for programs without recursion", func.origin,
                code="TW0611")
        self.open.append(func)
        self.stmt(func.body, known, parallel=False)
        self.open.pop()

    def stmt(self, s: Stmt, known: dict[Memory, _Live], *, parallel: bool) -> None:
        self.now += 1
        calls = self.used(s, known)
        for e in calls:
            self.call(e, known)
        if isinstance(s, Let) and (memory := passed(s.value)) is not None and memory in known:
            known = {**known, s.var: known[memory]}
        elif isinstance(s, Allocate) and not parallel and s.annotations.get(CANDIDATE_MEMORY_POOL_ATTR):
            live = _Live(s, len(self.loops))
            self.found.append(live)
            known = {**known, s.buffer: live}
            if INPUT in s.annotations:  # the caller fills it before the program begins
                self.use(live)
        if isinstance(s, For):
            self.loops.append(_Loop(self.now))
        for b in bodies(s):
            self.stmt(b, known, parallel=parallel or (isinstance(s, For) and s.kind == PARALLEL))
        if isinstance(s, For):
            self.leave()
        elif isinstance(s, Allocate) and OUTPUT in s.annotations and s.buffer in known:
            self.now += 1
            self.use(known[s.buffer])

    def used(self, s: Stmt, known: Mapping[Memory, _Live]) -> list[Call]:
        """Note the uses of memory in a statement; return its calls."""
        uses = self.uses.get(s)
        if uses is None:
            uses = self.uses[s] = list(used(s, self.functions))
        for x in uses:
            if not isinstance(x, Call) and x in known:
                self.use(known[x])
        return [x for x in uses if isinstance(x, Call)]

    def use(self, live: _Live) -> None:
        around = self.loops[live.depth:]
        first = around[0].start if around else self.now
        live.start = first if live.start is None else min(live.start, first)
        live.end = self.now
        for loop in around:
            loop.used.setdefault(live)

    def leave(self) -> None:
        """End the innermost loop: what was used inside, and allocated outside, is live to its end."""
        self.now += 1
        loop = self.loops.pop()
        for live in loop.used:
            live.end = self.now

    def call(self, e: Call, known: Mapping[Memory, _Live]) -> None:
        """Run through a called function. Memory that it gets is used where it uses it, else at the call."""
        func, args = self.functions.called(e) or (None, ())
        given = [passed(a) for a in args]
        if func is None:
            for memory in given:
                if memory is not None and memory in known:
                    self.use(known[memory])
            return
        self.function(func, {
            p: known[memory] for p, memory in zip(func.params, given, strict=False)
            if memory is not None and memory in known})


def extract_buffer_info(main_func: PrimFunc, mod: IRModule) -> BufferInfoAnalysis:
    """Return the buffers that `main_func`, and the functions of `mod` that it calls, allocate with pools to choose from
    (annotation `candidate_memory_pools`), their conflicts, and the memory pressure.

    Memory inside of parallel loops is left out. Buffers of one name get a number. Raises `CompileError` for a size that
    is not a number, and for recursion.
    """
    walk = _Walk(mod)
    walk.function(main_func, {})
    alignments = _alignments(mod)
    infos: dict[Allocate, BufferInfo] = {}
    names: dict[str, int] = {}
    for live in walk.found:
        if live.stmt not in infos:
            infos[live.stmt] = _info(live.stmt, names, alignments)
    _set_conflicts(walk.found, infos)
    return BufferInfoAnalysis({b: s for s, b in infos.items()}, _pressure(walk.found, infos))


def _alignments(mod: IRModule) -> tuple[int, int]:
    """Return the alignments of workspace and constants, which the executor of a module may give."""
    executor = mod.attrs.get("executor")
    found = [
        executor[key] if executor is not None and key in executor else ALIGNMENT
        for key in ("workspace-byte-alignment", "constant-byte-alignment")]
    return int(found[0]), int(found[1])


def _info(s: Allocate, names: dict[str, int], alignments: tuple[int, int]) -> BufferInfo:
    nbytes = bytes_of(s.buffer)
    if nbytes is None:
        raise CompileError(
            f"memory is planned for known sizes, but '{s.buffer.name}' has the shape {list(s.buffer.shape)}; give its "
            "sizes as numbers", code="TW0611")
    number = names[s.buffer.name] = names.get(s.buffer.name, 0) + 1
    pools: Sequence[Any] = s.annotations[CANDIDATE_MEMORY_POOL_ATTR]
    name = s.buffer.name if number == 1 else f"{s.buffer.name}{number}"
    return BufferInfo(name, nbytes, pools, alignments[isinstance(s, AllocateConst)])


def _set_conflicts(found: Sequence[_Live], infos: Mapping[Allocate, BufferInfo]) -> None:
    """Note the buffers that are live at the same time. Constants are in memory all the time."""
    conflicts: dict[BufferInfo, dict[BufferInfo, None]] = {b: {} for b in infos.values()}
    constants = [b for s, b in infos.items() if isinstance(s, AllocateConst)]
    pairs = [(a, b) for a in constants for b in constants]
    live = sorted((x for x in found if not isinstance(x.stmt, AllocateConst) and x.start is not None), key=_start)
    for k, x in enumerate(live):
        for y in live[k + 1:]:
            if _start(y) > x.end:
                break
            pairs += [(infos[x.stmt], infos[y.stmt]), (infos[y.stmt], infos[x.stmt])]
    for a, b in pairs:
        if a is not b:
            conflicts[a].setdefault(b)
    for b, others in conflicts.items():
        b.set_conflicts(list(others))


def _start(x: _Live) -> int:
    return x.start or 0


def _pressure(found: Sequence[_Live], infos: Mapping[Allocate, BufferInfo]) -> int:
    """Return the most bytes of workspace that are live at the same time."""
    changes: dict[int, int] = {}
    for x in found:
        if x.start is not None and not isinstance(x.stmt, AllocateConst):
            size = int(infos[x.stmt].size_bytes.value)
            changes[x.start] = changes.get(x.start, 0) + size
            changes[x.end + 1] = changes.get(x.end + 1, 0) - size
    now = most = 0
    for t in sorted(changes):
        now += changes[t]
        most = max(most, now)
    return most


@register_func("tir.usmp.CreateArrayBufferInfo")
def create_array_buffer_info(buffer_info_map: Mapping[BufferInfo, Any]) -> list[BufferInfo]:
    """Return the buffers of an analysis as a list."""
    return list(buffer_info_map)


__all__ = ["BufferInfoAnalysis", "extract_buffer_info"]
