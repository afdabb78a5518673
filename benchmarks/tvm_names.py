"""The public names of TVM v0.8, v0.10 and v0.13 beside those of this package.

    python benchmarks/tvm_names.py FOLDER/tvm_names.json.xz             a line for each namespace
    python benchmarks/tvm_names.py FOLDER/tvm_names.json.xz tvm.tir     the names of one that are not here

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

import tilewright
from tilewright.base import absent

HERE, FEWER, MISSING, LEFT_OUT = "here", "here, fewer arguments", "not here yet", "left out, with a reason"
STATES: Final = (HERE, FEWER, MISSING, LEFT_OUT)
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
    try:
        return importlib.import_module(name)
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


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="tvm_names.json.xz")
    parser.add_argument("namespace", nargs="?", help="list the names below this one that are not here")
    parser.add_argument("--depth", type=int, default=2, help="parts of a namespace in the table")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    sys.modules["tvm"] = tilewright
    counts = dict[str, dict[str, int]]()
    for name in names_of(options.file):
        if options.namespace and not f"{name.path}.".startswith(f"{options.namespace}."):
            continue
        found, lacking = state(name)
        key = ".".join(name.module.split(".")[:options.depth])
        counts.setdefault(key, dict.fromkeys(STATES, 0))[found] += 1
        if options.namespace and found not in (HERE, LEFT_OUT):
            print(name.path, "·", ", ".join(v.removesuffix(".0") for v in name.versions), "·", *(lacking or [found]))
    print("| namespace | " + " | ".join(STATES) + " |\n|---|" + "---|" * len(STATES))
    totals = {s: sum(c[s] for c in counts.values()) for s in STATES}
    for key, row in [*sorted(counts.items()), ("all", totals)]:
        print(f"| `{key}` | " + " | ".join(str(row[s]) for s in STATES) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
