"""`tilewright profile`: time, bottleneck and memory of each step of a model, as text, csv or json, and as a trace."""

from __future__ import annotations

import enum
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tilewright.base.errors import OptionError
from tilewright.driver import files

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tilewright.runtime.executable import Executable
    from tilewright.runtime.memory_report import MemoryReport
    from tilewright.runtime.profiling import Report


class Form(enum.StrEnum):
    """The format of a report."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def reported(program: Executable, inputs: Mapping[str, Any], runs: int, with_peaks: bool = True) -> Report:
    """Return the profile of a program on these inputs, compared with the peaks of this machine."""
    from tilewright.compiler.peaks import peaks

    profile = program.profile(inputs, number=runs)
    return profile.report(peaks(program.threads) if with_peaks else None)


def profile_to(
    program: Executable, inputs: Mapping[str, Any], runs: int, form: Form, output: Path | None, trace: Path | None,
    with_memory: bool, with_peaks: bool, aggregate: bool,
) -> None:
    """Profile a program; write the report to the terminal or a file, and the trace to its file."""
    from tilewright.compiler.peaks import peaks
    from tilewright.runtime.memory_report import memory_report
    from tilewright.runtime.trace import check_format, trace_of

    if trace is not None:
        check_format(trace)
    memory = memory_report(program.manifest) if with_memory else None
    best = peaks(program.threads) if with_peaks else None
    profile = program.profile(inputs, number=runs, timeline=trace is not None)
    text = _written(profile.report(best), memory, form, aggregate)
    if output is None:
        typer.echo(text, nl=False)
    else:
        files.write_text(output, text)
        typer.echo(f"Wrote {output}")
    if trace is not None:
        trace_of(profile, program.manifest).save(trace)
        typer.echo(f"Wrote {trace}; open it at https://ui.perfetto.dev", err=output is None and form is not Form.TABLE)


def _written(report: Report, memory: MemoryReport | None, form: Form, aggregate: bool) -> str:
    if form is Form.TABLE:
        return report.table(aggregate=aggregate) + (f"\n{memory}\n" if memory is not None else "")
    if form is Form.CSV:
        if memory is not None:
            raise OptionError("--memory cannot be written in this format; use --format table or json", code="TW0204")
        return report.csv()
    content = json.loads(report.json())
    return json.dumps({**content, "memory": memory.as_dict()} if memory is not None else content) + "\n"
