"""The public names of TVM v0.8, v0.10 and v0.13 beside those of this package.

    python benchmarks/tvm_names.py FOLDER/tvm_names.json.xz             a line for each namespace
    python benchmarks/tvm_names.py FOLDER/tvm_names.json.xz tvm.tir     the names of one that are not here
    python benchmarks/tvm_names.py FOLDER/tvm_names.json.xz --page docs/tvm.md --absent

The file has facts about those versions: the functions, classes and imports of each module. A name is public if none of
its parts begins with an underscore. A name counts where it is defined (`tvm.tir.expr.Add`) and, once, where a package
exports it (`tvm.tir.Add`).
"""

from __future__ import annotations

import argparse
import functools
import importlib
import inspect
import json
import lzma
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from tilewright.base import absent

HERE, FEWER, MISSING, LEFT_OUT = "here", "here, fewer arguments", "not here yet", "left out, with a reason"
STATES: Final = (HERE, FEWER, MISSING, LEFT_OUT)
END: Final = "<!-- the end of the tables -->"
Parameters = tuple[str, ...] | None


@dataclass(slots=True)
class Name:
    """A public function, class or value of TVM."""

    path: str
    versions: list[str] = field(default_factory=list)
    parameters: Parameters = None
    """The parameters of a function, in the newest version that has it."""

    @property
    def module(self) -> str:
        return self.path.rpartition(".")[0]


def is_public(path: str) -> bool:
    return not any(part.startswith("_") and part != "_ffi" for part in path.split("."))


def absolute(module: str, is_package: bool, target: str) -> str:
    """Return the full name of a module that `module` imports as `target` (`..base`)."""
    dots = len(target) - len(target.lstrip("."))
    if not dots:
        return target
    package = module.split(".") if is_package else module.split(".")[:-1]
    return ".".join([*package[:len(package) - dots + 1], *filter(None, [target[dots:]])])


class Surface:
    """The names of one version: where each is defined, and what packages export."""

    def __init__(self, modules: Mapping[str, Mapping[str, Any]]) -> None:
        self._modules = modules
        self._packages = {m.rpartition(".")[0] for m in modules}
        self._exported = dict[str, dict[str, Parameters]]()

    def defined(self, module: str) -> dict[str, Parameters]:
        facts = self._modules.get(module, {})
        functions = {
            name: tuple(re.split(r"[=:]", p)[0].strip() for p in parameters)
            for name, parameters in facts.get("functions", {}).items()
        }
        return {**dict.fromkeys(facts.get("names", ())), **dict.fromkeys(facts.get("classes", {})), **functions}

    def exported(self, module: str) -> dict[str, Parameters]:
        """Return the public names of a module, those that it imports from modules of TVM included."""
        if module not in self._exported:
            self._exported[module] = found = dict[str, Parameters]()
            for line in self._modules.get(module, {}).get("imports", ()):
                source, _, name = line.partition(":")
                source = absolute(module, module in self._packages, source)
                name, _, alias = name.partition(" as ")
                if name and source.startswith("tvm"):
                    theirs = self.exported(source)
                    found.update(theirs if name == "*" else {alias or name: theirs[name]} if name in theirs else {})
            found.update(self.defined(module))
            for private in [n for n in found if n.startswith("_")]:
                del found[private]
        return self._exported[module]

    def names(self) -> Iterator[tuple[str, Parameters]]:
        for module in filter(is_public, self._modules):
            names = self.exported(module) if module in self._packages else self.defined(module)
            yield from ((f"{module}.{n}", p) for n, p in names.items() if not n.startswith("_"))


def names_of(file: Path) -> list[Name]:
    """Return the public names of all versions in the file, by path."""
    found = dict[str, Name]()
    with lzma.open(file) as stream:
        versions = json.load(stream)
    for version, facts in versions.items():
        for path, parameters in Surface(facts["modules"]).names():
            name = found.setdefault(path, Name(path))
            name.versions.append(version)
            name.parameters = parameters
    return [found[path] for path in sorted(found)]


@functools.cache
def module_named(name: str) -> ModuleType | None:
    """Return the module of this package with TVM's name (`tvm.relay`), or None."""
    try:
        return importlib.import_module(f"tilewright{name.removeprefix('tvm')}")
    except ImportError:
        return None


def missing_parameters(name: Name, value: Any) -> list[str]:
    """Return the parameters that TVM's function has and ours does not take."""
    if name.parameters is None or inspect.isclass(value):
        return []
    try:
        ours = inspect.signature(value).parameters
    except (TypeError, ValueError):
        return []
    if any(p.kind is p.VAR_KEYWORD for p in ours.values()):
        return []
    return [p for p in name.parameters if not p.startswith("*") and p not in ours]


def state(name: Name) -> tuple[str, list[str]]:
    """Return whether the name is here, and the parameters that it lacks."""
    module = module_named(name.module)
    try:
        value = getattr(module, name.path.rpartition(".")[2])
    except (AttributeError, ImportError):
        return (LEFT_OUT if absent.family_of(name.path.partition(".")[2]) else MISSING), []
    lacking = missing_parameters(name, value)
    return (FEWER if lacking else HERE), lacking


def counted(names: Sequence[Name], depth: int) -> dict[str, dict[str, int]]:
    """Return how many names of each namespace are in each state."""
    counts = dict[str, dict[str, int]]()
    for name in names:
        key = ".".join(name.module.split(".")[:depth])
        counts.setdefault(key, dict.fromkeys(STATES, 0))[state(name)[0]] += 1
    return counts


def table(counts: Mapping[str, Mapping[str, int]]) -> str:
    totals = {s: sum(c[s] for c in counts.values()) for s in STATES}
    rows = [f"| {key} | " + " | ".join(str(row[s]) for s in STATES) + " |"
            for key, row in [*((f"`{k}`", c) for k, c in sorted(counts.items())), ("all", totals)]]
    return "\n".join(["| namespace | " + " | ".join(STATES) + " |", "| --- |" + " --- |" * len(STATES), *rows])


def reasons() -> str:
    """Return the table of what is left out."""
    rows = [f"| {f.title} | {f.why} | {f.instead} |" for f in absent.FAMILIES]
    return "\n".join(["| left out | why | instead |", "| --- | --- | --- |", *rows])


def absent_names(names: Sequence[Name]) -> str:
    """Return the names that are not here: a line for each module."""
    found = dict[str, list[str]]()
    for name in names:
        if state(name)[0] == MISSING:
            found.setdefault(name.module, []).append(name.path.rpartition(".")[2])
    return "".join(f"{module} {' '.join(sorted(last))}\n" for module, last in sorted(found.items()))


def write_page(page: Path, tables: str) -> None:
    """Replace the tables of the page."""
    before, start, rest = page.read_text().partition("<!-- the tables")
    first, _, rest = rest.partition("\n")
    page.write_text(f"{before}{start}{first}\n\n{tables}\n\n{END}{rest.partition(END)[2]}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="tvm_names.json.xz")
    parser.add_argument("namespace", nargs="?", help="list the names below this one that are not here")
    parser.add_argument("--depth", type=int, default=2, help="parts of a namespace in the table")
    parser.add_argument("--page", type=Path, help="write the tables into this page")
    parser.add_argument(
        "--absent", nargs="?", type=Path, const=absent.ABSENT_NAMES,
        help="write the list of names that the messages of errors need")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    below = f"{options.namespace}." if options.namespace else ""
    names = [n for n in names_of(options.file) if f"{n.path}.".startswith(below)]
    for name in names if below else ():
        found, lacking = state(name)
        if found in (FEWER, MISSING):
            versions = ", ".join(v.removesuffix(".0") for v in name.versions)
            print(f"{name.path} · {versions} · {', '.join(lacking) or found}")
    text = table(counted(names, options.depth))
    print(text)
    if options.page is not None:
        write_page(options.page, f"{text}\n\n{reasons()}")
    if options.absent is not None:
        options.absent.write_text(absent_names(names), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
