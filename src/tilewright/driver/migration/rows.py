"""The state of each name of TVM that a program uses: here, with a difference, or not here with the reason."""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from tilewright.base import absent, settings
from tilewright.base.errors import TVMError
from tilewright.driver.migration.uses import GLOBAL_FUNCTION, PASS_OPTION, TARGET, Use, Uses, uses_below

HERE, DIFFERENT, ABSENT = "here", "with a difference", "not here"
STATES: Final = (ABSENT, DIFFERENT, HERE)
_UNNAMED: Final = "no function of this name is registered"
_UNKNOWN: Final = "not here yet"


@dataclass(frozen=True, slots=True)
class Row:
    """A name or a text, its state, the reason where it is not simply here, and each file and line that uses it."""

    name: str
    kind: str
    state: str
    reason: str
    places: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name, "kind": self.kind, "state": self.state, "reason": self.reason,
            "places": list(self.places)
        }


@dataclass(frozen=True, slots=True)
class Migration:
    """The rows of a program, in the order of their state and name, and the files that could not be read."""

    files: int
    rows: tuple[Row, ...]
    unread: tuple[str, ...] = field(default_factory=tuple)

    @property
    def works(self) -> bool:
        """Whether every name is here, and every file could be read."""
        return not self.unread and all(row.state == HERE for row in self.rows)

    def counts(self) -> dict[str, int]:
        return {state: sum(row.state == state for row in self.rows) for state in STATES}

    def to_json(self) -> str:
        return json.dumps({
            "files": self.files, "counts": self.counts(), "unread": list(self.unread),
            "rows": [row.as_dict() for row in self.rows]
        }, indent=1)

    def text(self, everything: bool = False) -> str:
        """Return the rows as text; those of names that are simply here only for `everything`."""
        counts = self.counts()
        lines = [f"{len(self.rows)} names of TVM in {self.files} files: " +
                 ", ".join(f"{counts[state]} {state}" for state in STATES)]
        for state in STATES if everything else STATES[:-1]:
            rows = [row for row in self.rows if row.state == state]
            lines += ["", state] if rows else []
            for row in rows:
                lines.append(f"  {row.name}{'' if row.kind == 'name' else f' ({row.kind})'}: {_places(row.places)}")
                lines += [f"      {row.reason}"] if row.reason else []
        lines += ["", "not read", *(f"  {text}" for text in self.unread)] if self.unread else []
        return "\n".join(lines)


def _places(places: tuple[str, ...], limit: int = 3) -> str:
    more = f" and {len(places) - limit} more" if len(places) > limit else ""
    return ", ".join(places[:limit]) + more


def migration(path: Path) -> Migration:
    """Return the state of every name of TVM that the Python files below `path` use."""
    uses = uses_below(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = _rows(uses)
    return Migration(uses.files, tuple(rows), tuple(uses.unread))


def _rows(uses: Uses) -> list[Row]:
    """Return one row for each name, kind and reason."""
    groups = dict[tuple[str, str, str, str], list[str]]()
    for use in uses.found:
        name, state, reason = _judged(use, uses.registered)
        if name != "tvm":
            groups.setdefault((name, use.kind, state, reason), []).append(f"{use.file}:{use.line}")
    rows = [Row(*key, tuple(dict.fromkeys(places))) for key, places in groups.items()]
    different = {(row.name, row.kind) for row in rows if row.state != HERE}
    rows = [row for row in rows if row.state != HERE or (row.name, row.kind) not in different]
    return sorted(rows, key=lambda row: (STATES.index(row.state), row.kind, row.name))


def _judged(use: Use, registered: Iterable[str]) -> tuple[str, str, str]:
    """Return the name, state and reason of a use."""
    if use.kind != "name":
        reason = "" if use.name in registered else _reason_of_text(use.name, use.kind)
        return use.name, ABSENT if reason else HERE, reason
    name, value, is_whole = resolved(use.name)
    if not is_whole:
        return name, ABSENT, _reason(name)
    lacking = missing_arguments(value, use)
    return name, DIFFERENT if lacking else HERE, lacking


@functools.cache
def resolved(name: str) -> tuple[str, Any, bool]:
    """Return a name up to its last part that is known before a program runs, its value, and whether it is here.

    Attributes of modules and of classes are known; those of other values are not looked at. A name that is not here
    ends with the first part that is absent.
    """
    value: Any = importlib.import_module("tilewright")
    parts = name.split(".")
    for count, part in enumerate(parts[1:], 2):
        if not isinstance(value, ModuleType | type):
            return ".".join(parts[:count - 1]), value, True
        try:
            value = getattr(value, part)
        except (AttributeError, ImportError):
            found = _module(parts[:count]) if isinstance(value, ModuleType) else None
            if found is None:
                return ".".join(parts[:count]), None, False
            value = found
    return name, value, True


def _module(parts: list[str]) -> ModuleType | None:
    """Return a module that its package does not import by itself."""
    try:
        return importlib.import_module(".".join(["tilewright", *parts[1:]]))
    except ImportError:
        return None


def _reason(name: str) -> str:
    family = absent.family_of(name.partition(".")[2])
    if family is None:
        return _UNKNOWN
    return family.why + (f"; use {family.instead}" if family.instead else "")


def missing_arguments(value: Any, use: Use) -> str:
    """Return which arguments of a call a function does not take, as text; "" if it takes all."""
    if use.positional < 0 and not use.keywords:
        return ""
    try:
        parameters = inspect.signature(value).parameters
    except (TypeError, ValueError):
        return ""
    kinds = [p.kind for p in parameters.values()]
    unknown = [] if inspect.Parameter.VAR_KEYWORD in kinds else [k for k in use.keywords if k not in parameters]
    if unknown:
        return f"without the argument {', '.join(unknown)}"
    room = sum(k in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for k in kinds)
    if inspect.Parameter.VAR_POSITIONAL not in kinds and use.positional > room:
        return f"takes {room} arguments by position, not {use.positional}"
    return ""


def _reason_of_text(text: str, kind: str) -> str:
    """Return why an option, a target or a registered function is not here; "" if it is."""
    try:
        _CHECKS[kind](text)
    except TVMError as error:
        return error.message if hasattr(error, "message") else str(error)
    except (ValueError, KeyError):
        return _UNNAMED
    return ""


def _check_function(name: str) -> None:
    importlib.import_module("tilewright").get_global_func(name)


def _check_target(text: str) -> None:
    _ = importlib.import_module("tilewright.target").Target(text).backend


_CHECKS: Final[Mapping[str, Callable[[str], Any]]] = {
    PASS_OPTION: settings.setting, GLOBAL_FUNCTION: _check_function, TARGET: _check_target
}
