"""The distance of each step from the peaks of the machine, its bottleneck, and advice.

The minimum time of a step is the longer of two: its operations at the peak for their dtype, and its bytes at the
bandwidth of their memory. This is the roofline model (Williams, Waterman and Patterson, "Roofline: an insightful visual
performance model", 2009). Values between steps were just written, so they are in the smallest cache that holds them.
Constants are in the smallest memory that holds the whole program.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tilewright.base.errors import InputError
from tilewright.base.json_reading import read_json
from tilewright.base.types import DataType
from tilewright.runtime.notes import Note
from tilewright.runtime.profiling import Count, Duration, Metric, Percent, Ratio, Report

if TYPE_CHECKING:
    from tilewright.runtime.profile import Profile, StepTime

BETWEEN: Final = "(between steps)"
_FLOAT, _HALF, _BYTE = "float32", "bfloat16", "int8"
_NEAR: Final = 0.6
"""Ratio of minimum to measured time above which a step counts as near the machine's limit."""
_SHORT: Final = 10e-6
"""Seconds below which overhead (starting, waking threads, ending) may dominate a step."""


class Bound(enum.StrEnum):
    """The bottleneck of a step."""

    COMPUTE = "compute"
    MEMORY = "memory"
    OVERHEAD = "overhead"
    PYTHON = "python"
    UNKNOWN = ""


@dataclass(frozen=True)
class Peaks:
    """Peak rates of a machine for a number of threads: operations per second by dtype (`float32`, and if supported
    `int8` and `bfloat16`), and bytes per second for working sets of increasing size."""

    threads: int
    operations: Mapping[str, float]
    bandwidths: tuple[tuple[int, float], ...]

    def rate(self, dtype: DataType) -> float:
        """Return the operations per second on numbers of a dtype."""
        kind = (
            _BYTE if dtype.code in ("int", "uint") and dtype.bits == 8 else _HALF
            if dtype.code == "bfloat" and dtype.bits == 16 else _FLOAT
        )
        return self.operations.get(kind, self.operations[_FLOAT])

    def bandwidth(self, nbytes: int) -> float:
        """Return the bytes per second for a working set of `nbytes`."""
        return next((rate for limit, rate in self.bandwidths if nbytes <= limit), self.bandwidths[-1][1])

    def to_json(self) -> str:
        return json.dumps(
            {
                "threads": self.threads, "operations": dict(self.operations),
                "bandwidths": [list(b) for b in self.bandwidths]
            })

    @staticmethod
    def from_json(text: str | bytes) -> Peaks:
        """Read the text that `to_json` returned. Raises `InputError` for any other text."""
        try:
            content = read_json(text)
            found = Peaks(
                int(content["threads"]), {str(k): float(v) for k, v in content["operations"].items()},
                tuple((int(n), float(r)) for n, r in content["bandwidths"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"these are not peaks of a machine: {error!r}; give what Peaks.to_json() returned", code="TW0716"
            ) from None
        if not found.bandwidths or _FLOAT not in found.operations:
            raise InputError(
                "peaks of a machine need the rate of float32 operations, and the bandwidth of at least one "
                "size", code="TW0716")
        return found


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a step: minimum seconds of the machine, their share of the measured time, bottleneck, and advice.
    """

    least: float
    share: float
    bound: Bound
    advice: str


def judge(note: Note, seconds: float, peaks: Peaks, program_bytes: int, parts: int = 1) -> Verdict:
    """Judge a native step by its seconds for all `parts` of a program with `program_bytes` of constants and workspace.
    """
    compute = parts * note.operations / peaks.rate(note.dtype)
    moved = note.reads + note.writes
    memory = (
        parts * (moved / peaks.bandwidth(moved) + note.constants / peaks.bandwidth(max(program_bytes, note.nbytes)))
    )
    least = max(compute, memory)
    share = least / seconds if seconds > 0 else 0.0
    if seconds < _SHORT * parts and share < 0.5:
        return Verdict(least, share, Bound.OVERHEAD, "--threads 1" if peaks.threads > 1 else "larger batches")
    bound = Bound.COMPUTE if compute >= memory else Bound.MEMORY
    if share < _NEAR:
        return Verdict(least, share, bound, "tilewright tune, then --tuning-records")
    return Verdict(least, share, bound, _smaller_types(note, bound, peaks))


def _smaller_types(note: Note, bound: Bound, peaks: Peaks) -> str:
    """Return the advice to use a narrower dtype for a step at the peak rate of its dtype."""
    if not (note.dtype.code == "float" and note.dtype.bits == 32):
        return ""
    if bound is Bound.MEMORY:
        return "tilewright quantize" if note.constants > note.reads + note.writes else "--mixed-precision bfloat16"
    base = peaks.operations[_FLOAT]
    if peaks.operations.get(_HALF, 0) > 1.3 * base:
        return "--mixed-precision bfloat16"
    return "tilewright quantize" if peaks.operations.get(_BYTE, 0) > 1.3 * base else ""


def report_of(profile: Profile, peaks: Peaks | None) -> Report:
    """Return the rows of a profile: one for each step, and one for the time between them; they sum up to a run."""
    whole = profile.wall or 1.0
    rows = [_row(s, profile, peaks) for s in profile.steps]
    rows.append({"Name": BETWEEN, **_times(profile.unattributed, whole), "Count": Count(0)})
    total: dict[str, Metric] = {**_times(profile.wall, whole), "Count": Count(profile.parts * len(profile.steps))}
    said: dict[str, Any] = {
        "Program": profile.program, "Threads": Count(profile.threads), "Runs": Count(len(profile.all_runs)),
        "Clock": profile.clock,
        "Fastest run (us)": Duration(1e6 * min(profile.all_runs)),
        "Slowest run (us)": Duration(1e6 * max(profile.all_runs)),
    }
    if profile.clock == "python":
        said["Note"] = (
            "no compiler is installed here, so Python calls the steps, and each is a microsecond longer than in a run"
        )
    if peaks is not None:
        said.update({f"Peak {kind} (Gop/s)": Ratio(rate / 1e9) for kind, rate in peaks.operations.items()})
        said.update({f"Bandwidth within {_size(n)} (GB/s)": Ratio(rate / 1e9) for n, rate in peaks.bandwidths})
    return Report(rows, {"cpu0": total}, said)


def _row(s: StepTime, profile: Profile, peaks: Peaks | None) -> dict[str, Metric]:
    row: dict[str, Metric] = {"Name": s.name, **_times(s.seconds, profile.wall or 1.0), "Count": Count(profile.parts)}
    note = s.note
    if note is not None:
        seconds = max(s.seconds, 1e-12)
        operations = profile.parts * note.operations
        row["FLOPs"], row["Bytes"] = Count(operations), Count(profile.parts * note.nbytes)
        row["GFLOP/s"], row["GB/s"] = (
            Ratio(operations / seconds / 1e9), Ratio(profile.parts * note.nbytes / seconds / 1e9)
        )
    if not s.is_native:
        row["Bound"], row["Try"] = str(Bound.PYTHON), "an operator with a kernel"
    elif note is not None and peaks is not None:
        verdict = judge(note, s.seconds, peaks, profile.nbytes, profile.parts)
        row["Roofline (%)"], row["Bound"], row["Try"] = Percent(100 * verdict.share), str(verdict.bound), verdict.advice
    return {**row, "Origin": s.origin.partition(" (")[0]}


def _times(seconds: float, whole: float) -> dict[str, Metric]:
    return {"Duration (us)": Duration(1e6 * seconds), "Percent": Percent(100 * seconds / whole)}


def _size(nbytes: int) -> str:
    return f"{nbytes >> 20} MB" if nbytes >= 1 << 20 else f"{nbytes >> 10} kB"
