"""`tilewright tune MODEL --replay RECORDS`: records of other devices or times choose the kernels, without measuring."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import typer

from tilewright.base.errors import OptionError, TargetError

if TYPE_CHECKING:
    from tilewright.backends.targets.target import Target
    from tilewright.ir.module import IRModule
    from tilewright.search.autotvm.offline import Outcome

_SHOWN: Final = 20
_SOURCES: Final = {
    "recorded": "recorded", "cycles": "by cycles", "trained": "by the trained model", "own": "the compiler's own",
}


def tune_by_replay(mod: IRModule, output: Path, given: Path, wanted: str | Mapping[str, Any] | Target) -> None:
    """Record the choices of `given` records, and of reliable models, for a network, and print how reliable they are."""
    from tilewright.backends.targets.target import Target
    from tilewright.search.autotvm.offline import choose
    from tilewright.search.autotvm.task.relay_integration import tasks_of
    from tilewright.search.records import Records

    target = Target(wanted)
    if target.accelerators:
        raise TargetError(
            f"only kernels of the processor are tuned, but '{wanted}' has accelerators; give only the processor",
            code="TW1114")
    tasks = tasks_of(mod, None, target)
    if not tasks:
        raise OptionError(
            "the network has no tunable kernel; there is nothing to tune", code="TW1112")
    outcome = choose(tasks, Records(given))
    typer.echo(_described(outcome))
    outcome.write(Records(output))
    output.touch()
    counted = {s: sum(c.source == s for c in outcome.choices) for s in _SOURCES}
    sources = ", ".join(f"{n} {_SOURCES[s]}" for s, n in counted.items())
    typer.echo(f"Wrote {output}: of {len(tasks)} kernels {sources}. Nothing was measured.")


def _described(outcome: Outcome) -> str:
    """Return a line for each task, and how reliable the models are."""
    rows = []
    for c in sorted(outcome.choices, key=lambda c: -c.recorded)[:_SHOWN]:
        ranks = "  ".join(f"{m} {_figure(c.correlations[m])}" for m in outcome.certainty)
        ratio = ""
        if np.isfinite(c.ratio) and c.source != "own":
            ratio = (
                f", {100 * c.ratio:.0f} % of the own choice's time{'' if c.source == 'recorded' else ' (predicted)'}"
            )
        rows.append(
            f"{c.task.title[:60]:60}  {c.recorded:4d} recorded  rank correlation: {ranks}  -> "
            f"{_SOURCES[c.source]}{ratio}")
    if len(outcome.choices) > _SHOWN:
        rows.append(f"… and {len(outcome.choices) - _SHOWN} more")
    sure = ", ".join(f"{m} {_figure(x)}" for m, x in outcome.certainty.items())
    rows.append(
        f"How sure the models are: rank correlation with what is recorded, median of {outcome.judged} kernels: {sure}")
    return "\n".join(rows)


def _figure(x: float) -> str:
    return f"{x:5.2f}" if np.isfinite(x) else "    -"
