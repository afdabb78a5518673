"""Counts of collected and skipped tests, by reason, held against what `census.toml` allows.

A full run fails where fewer tests were collected than the file says, where a whole module was skipped, or where a test was skipped for
a reason that the file does not list, that does not hold on this machine, or more often than it says.
"""

from __future__ import annotations

import collections
import importlib.util
import re
import shutil
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "census.toml"
_ABSENT: dict[str, Callable[[str], bool]] = {
    "tool": lambda name: shutil.which(name) is None,
    "package": lambda name: importlib.util.find_spec(name) is None,
    "path": lambda name: not Path(__file__).parent.parent.joinpath(name).exists(),
    "cpu": lambda flag: flag not in Path("/proc/cpuinfo").read_text().split(),
}
"""When a skip is fair: something that it needs is absent."""


@dataclass(frozen=True)
class Skip:
    """A reason for which at most `most` tests may be skipped, where one of `without` is absent, or anywhere if there is none."""

    reason: str
    most: int
    without: Sequence[str] = ()

    def is_fair(self) -> bool:
        return not self.without or any(_ABSENT[kind](name) for kind, _, name in (w.partition(":") for w in self.without))


@dataclass(frozen=True)
class Census:
    """What a full run collects at least, and which skips it may have."""

    collected: int
    skips: Sequence[Skip]

    @classmethod
    def read(cls, path: Path = FILE) -> Census:
        said = tomllib.loads(path.read_text(encoding="utf-8"))
        return cls(said["collected"], [Skip(**s) for s in said["skip"]])

    def complaints(self, collected: int, skipped: Mapping[str, int], modules: Sequence[str] = ()) -> list[str]:
        """What is wrong with a full run of `collected` tests: `skipped` counts by reason, `modules` those skipped as a whole."""
        found = [f"the whole module {module} was skipped" for module in modules]
        if collected < self.collected:
            found.append(f"{collected} tests were collected, fewer than the {self.collected} of {FILE.name}")
        counts: collections.Counter[int] = collections.Counter()
        for reason, count in skipped.items():
            at = next((n for n, s in enumerate(self.skips) if re.search(s.reason, reason)), None)
            if at is None:
                found.append(f"{count} skipped for a reason that {FILE.name} does not list: {reason}")
                continue
            counts[at] += count
        for at, count in counts.items():
            skip = self.skips[at]
            if not skip.is_fair():
                found.append(f"{count} skipped as '{skip.reason}', though {' and '.join(skip.without)} are here")
            elif count > skip.most:
                found.append(f"{count} skipped as '{skip.reason}', more than the {skip.most} of {FILE.name}")
        return found


@dataclass(frozen=True)
class Run:
    """What pytest's terminal reporter knows of a run that has ended."""

    collected: int
    skipped: collections.Counter[str]
    modules: list[str]

    @classmethod
    def of(cls, stats: Mapping[str, Sequence[Any]]) -> Run:
        ran = {r.nodeid for kind in ("passed", "failed", "error", "xfailed", "xpassed") for r in stats.get(kind, ())}
        skips = stats.get("skipped", ())
        reasons = collections.Counter(str(r.longrepr[2]).removeprefix("Skipped: ") for r in skips)
        modules = sorted(r.nodeid for r in skips if "::" not in r.nodeid)
        return cls(len(ran | {r.nodeid for r in skips}), reasons, modules)

    def lines(self) -> list[str]:
        """A table to print."""
        rows = [f"  {count:5}  {reason[:150]}" for reason, count in self.skipped.most_common()]
        return [f"{self.collected} tests collected, {self.skipped.total()} skipped:", *rows]
