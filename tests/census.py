"""Counts of collected and skipped tests, by reason, held against what `census.toml` allows.

A full run fails where fewer tests were collected than the file says, where a whole module was skipped, or where a test
was skipped for a reason that the file does not list, that does not hold on this machine, or more often than it says.
"""

from __future__ import annotations

import collections
import glob
import importlib.util
import platform
import re
import shutil
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "census.toml"
_ROOT = Path(__file__).parent.parent


def _is_installed(package: str) -> bool:
    """Whether a package can be imported, by the name that one imports; of a dotted name, its first part is looked
    for."""
    return importlib.util.find_spec(package.partition(".")[0]) is not None


_ABSENT: dict[str, Callable[[str], bool]] = {
    "tool": lambda name: shutil.which(name) is None,
    "package": lambda name: not _is_installed(name),
    "path": lambda name: not any(glob.iglob(str(_ROOT / name))),  # noqa: PTH207  # names may be absolute
    "cpu": lambda flag: flag not in Path("/proc/cpuinfo").read_text().split(),
    "machine": lambda name: platform.machine() != name,
}
"""When a skip is fair: something that it needs is absent."""


@dataclass(frozen=True)
class Skip:
    r"""A pattern of reasons for which at most `most` tests may be skipped: where one of `without` is absent, or
    anywhere if there is none.

    `without` may name what the reason names: `\1` is the first group of the pattern.
    """

    reason: str
    most: int
    without: Sequence[str] = ()

    def needs(self, reason: str) -> list[str]:
        """What has to be absent for a skip with this reason to be fair, in `kind:name`s; `reason` fits the pattern."""
        match = re.search(self.reason, reason)
        assert match is not None
        return [need for need in map(match.expand, self.without) if not need.endswith(":")]

    def is_fair(self, reason: str) -> bool:
        return not self.without or any(
            _ABSENT[kind](name) for kind, _, name in (need.partition(":") for need in self.needs(reason))
        )


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
        """What is wrong with a full run of `collected` tests: `skipped` counts by reason, `modules` those skipped as a
        whole."""
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
            if not self.skips[at].is_fair(reason):
                found.append(
                    f"{count} skipped as '{reason}', though {' and '.join(self.skips[at].needs(reason))} are here"
                )
        for at, count in counts.items():
            skip = self.skips[at]
            if count > skip.most:
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
