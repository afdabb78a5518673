"""The report of a run: outcomes by category, rule and message, and the files of what was found."""

from __future__ import annotations

import collections
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from fuzz.outcomes import CATEGORIES, EXPLAINED, FINDINGS, INVALID, REFUSED
from fuzz.runner import Result

MANY: Final = 12
"""Kinds of messages that are listed."""


@dataclass
class Report:
    """Counts by kind, category and label; where findings are written."""

    folder: Path
    counts: dict[str, collections.Counter[tuple[str, str]]] = field(default_factory=dict)
    files: dict[str, list[str]] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    def add(self, result: Result) -> None:
        """Count a result; write the file of one that was made smaller."""
        if result.task.shrinks is None:
            counts = self.counts.setdefault(result.task.kind, collections.Counter())
            counts[result.outcome.category, result.outcome.label] += 1
        else:
            self.write(result)

    def write(self, result: Result) -> None:
        """The test of a finding, in a file named by its kind, label and case."""
        task, outcome = result.task, result.outcome
        label = re.sub(r"\W+", "_", outcome.label)[:60].strip("_")
        path = self.folder / f"test_{task.kind}_{label}_{task.seed}_{task.number}.py"
        self.folder.mkdir(parents=True, exist_ok=True)
        about = (
            f"{outcome.category}: {outcome.label}\n\n    python -m fuzz --kind {task.name} --count "
            f"1\n\n{outcome.detail}\n"
        )
        source = result.test.replace("{about}", about.replace("\\", "\\\\").replace('"""', "'''"), 1)
        path.write_text(source, encoding="utf-8")
        self.files.setdefault(f"{task.kind} {outcome.category}: {outcome.label}", []).append(path.name)

    def progress(self) -> str:
        """One line."""
        total = sum(c.total() for c in self.counts.values())
        found = sum(n for c in self.counts.values() for (category, _), n in c.items() if category in FINDINGS)
        seconds = time.monotonic() - self.began
        return f"{total} cases in {seconds:.0f} s, {total / max(seconds, 1e-9):.1f} a second, {found} findings"

    @property
    def found(self) -> int:
        return sum(n for c in self.counts.values() for (category, _), n in c.items() if category in FINDINGS)

    def lines(self) -> Iterator[str]:
        """The whole report."""
        yield f"{'kind':<10}" + "".join(f"{c:>11}" for c in CATEGORIES) + f"{'cases':>11}"
        for kind, counts in self.counts.items():
            sums = [sum(n for (c, _), n in counts.items() if c == category) for category in CATEGORIES]
            yield f"{kind:<10}" + "".join(f"{n:>11}" for n in sums) + f"{counts.total():>11}"
        for category, title in ((
            EXPLAINED, "explained, by rule"
        ), (REFUSED, "refused, by message"), (INVALID, "invalid"),
                                *((c, c) for c in FINDINGS)):
            rows = [
                (n, kind, label) for kind, c in self.counts.items() for (has, label), n in c.items() if has == category
            ]
            if rows:
                yield ""
                yield f"{title}:"
                shown = sorted(rows, reverse=True)[:None if category in (EXPLAINED, *FINDINGS) else MANY]
                yield from (f"{n:>7} {kind}: {label}" for n, kind, label in shown)
                if len(rows) > len(shown):
                    yield f"        and {len(rows) - len(shown)} more"
        if self.files:
            yield ""
            yield f"written to {self.folder}:"
            for label, names in sorted(self.files.items()):
                yield f"  {label}"
                yield from (f"    {name}" for name in names)
