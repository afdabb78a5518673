"""Timelines of runs for trace viewers: the work of each thread, and the used part of the workspace.

    run             |----------------------- model ------------------------|
    caller          | kernel_0 | kernel_1                        | kernel_2 |
                    | 0-4      |  0-8    16-24                   |          |     chunks of parallel loops
    worker 1          4-8         8-16         24-32
    arena           __####____####################################____          bytes of values that are alive

Two forms: Chrome's JSON (chrome://tracing, Perfetto, Speedscope), and the protobuf of Perfetto (ui.perfetto.dev),
written by `runtime/perfetto.py`.
"""

from __future__ import annotations

import bisect
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tilewright.base.errors import OptionError
from tilewright.base.memory_placement import alive_bytes
from tilewright.runtime.files import write_whole
from tilewright.runtime.manifest import Manifest
from tilewright.runtime.profile import Profile, Run

CALLER: Final = "caller"
ARENA: Final = "arena in use"
FORMATS: Final = (".json", ".pftrace")


@dataclass(frozen=True, slots=True)
class Slice:
    """An activity of a lane between two times in nanoseconds, with nested slices."""

    name: str
    begin: int
    end: int
    details: Mapping[str, str | int] = field(default_factory=dict)
    inside: tuple[Slice, ...] = ()


@dataclass(frozen=True, slots=True)
class Trace:
    """Lanes by name, the caller's first, each with its slices in order; and the used bytes of the workspace from each
    time on."""

    program: str
    lanes: Mapping[str, tuple[Slice, ...]]
    arena: tuple[tuple[int, int], ...]

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write `.json` or `.pftrace` atomically. Raises `OptionError` for another extension."""
        from tilewright.runtime.perfetto import perfetto_bytes

        file = Path(path)
        check_format(file)
        content = chrome_json(self).encode() if file.suffix == FORMATS[0] else perfetto_bytes(self)
        write_whole(file, content)
        return file


def check_format(path: Path) -> None:
    """Raise `OptionError` for a file without an extension of a trace format."""
    if path.suffix not in FORMATS:
        raise OptionError(f"'{path}' has none of the extensions of a trace: {', '.join(FORMATS)}", code="TW0206")


def trace_of(profile: Profile, manifest: Manifest) -> Trace:
    """Return the timeline of a profile. Raises `OptionError` if it was made without one."""
    run = profile.timeline
    if run is None:
        raise OptionError("no timeline was recorded: profile with timeline=True", code="TW0211")
    chunks = _chunks(profile, run)
    steps = []
    for k, span in enumerate(run.spans):
        step = profile.steps[span.step]
        details: dict[str, str | int] = {"step": span.step, "origin": step.origin}
        if profile.parts > 1:
            details["part"] = span.part
        if step.note is not None:
            details |= {
                "operators": ", ".join(step.note.operators), "operations": step.note.operations,
                "bytes": step.note.nbytes
            }
        steps.append(Slice(step.name, span.begin, span.end, details, tuple(chunks.get(run.caller, {}).get(k, ()))))
    lanes: dict[str, tuple[Slice, ...]] = {CALLER: (Slice(profile.program, run.begin, run.end, {}, tuple(steps)),)}
    workers = [thread for thread in chunks if thread != run.caller]
    for number, thread in enumerate(workers, 1):
        lanes[f"worker {number}"] = tuple(s for found in chunks[thread].values() for s in found)
    return Trace(profile.program, lanes, tuple(_arena(run, manifest)))


def _chunks(profile: Profile, run: Run) -> dict[int, dict[int, list[Slice]]]:
    """Return the chunks of each thread, in order, by the number of their span."""
    begins = [span.begin for span in run.spans]
    found: dict[int, dict[int, list[Slice]]] = {}
    for chunk in sorted(run.chunks, key=lambda c: c.begin):
        at = max(0, bisect.bisect_right(begins, chunk.begin) - 1)
        name = f"{profile.steps[run.spans[at].step].name} [{chunk.first}, {chunk.last})"
        found.setdefault(chunk.thread, {}).setdefault(at, []).append(
            Slice(name, chunk.begin, chunk.end, {"iterations": chunk.last - chunk.first}))
    return found


def _arena(run: Run, manifest: Manifest) -> list[tuple[int, int]]:
    """Return the live bytes of the memory plan during each step."""
    if not manifest.arena:
        return []
    used = [alive_bytes(manifest.arena, k) for k in range(len(manifest.steps))]
    return [(run.begin, 0), *((span.begin, used[span.step]) for span in run.spans), (run.end, 0)]


def chrome_json(trace: Trace) -> str:
    """Return events of Chrome's trace format, in microseconds from the beginning of the run."""
    start = trace.lanes[CALLER][0].begin
    pid = 1
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": f"tilewright: {trace.program}"}}
    ]
    for tid, (lane, slices) in enumerate(trace.lanes.items(), 1):
        events.append({"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": lane}})
        events += _chrome_slices(slices, start, pid, tid)
    events += [
        {"ph": "C", "name": ARENA, "pid": pid, "tid": 0, "ts": (time - start) / 1000, "args": {"bytes": count}}
        for time, count in trace.arena]
    return json.dumps({"displayTimeUnit": "ns", "traceEvents": events})


def _chrome_slices(slices: Sequence[Slice], start: int, pid: int, tid: int) -> list[dict[str, Any]]:
    made = []
    for s in slices:
        made.append({
            "ph": "X", "cat": "tilewright", "name": s.name, "pid": pid, "tid": tid, "ts": (s.begin - start) / 1000,
            "dur": (s.end - s.begin) / 1000, "args": dict(s.details),
        })
        made += _chrome_slices(s.inside, start, pid, tid)
    return made
