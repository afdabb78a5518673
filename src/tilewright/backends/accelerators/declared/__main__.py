"""Commands for authors of accelerators.

    python -m tilewright.contrib.accelerator npu                    its page, as Markdown
    python -m tilewright.contrib.accelerator npu --test 50          its conformance with 50 programs per operator
    python -m tilewright.contrib.accelerator npu --cycles m.tflite  the cycles of a network, layer by layer
    python -m tilewright.contrib.accelerator npu --commands m.tflite

The name is that of an entry point, or a file: `mine.py:accelerator`.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from tilewright.backends.accelerators.declared import page, share
from tilewright.backends.accelerators.declared.declaration import Accelerator
from tilewright.backends.accelerators.declared.report import cycle_reports, modules_of
from tilewright.backends.accelerators.declared.testing import conformance
from tilewright.base.errors import OptionError, TVMError, with_code
from tilewright.base.plugins import accelerator_names, find_accelerator


def accelerator_of(name: str) -> Accelerator:
    """Return the accelerator of an entry point, or of `file.py:name`. Raises `OptionError` for an unknown one."""
    path, _, attribute = name.rpartition(":")
    if path.endswith(".py"):
        spec = importlib.util.spec_from_file_location(Path(path).stem, Path(path).resolve())
        if spec is None or spec.loader is None or not Path(path).exists():
            raise OptionError(f"there is no file {path}", code="TW0901")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        found = getattr(module, attribute, None)
    else:
        found = find_accelerator(name)
    if not isinstance(found, Accelerator):
        raise OptionError(
            f"'{name}' is not an accelerator; the accelerators are: {', '.join(accelerator_names())}; or write "
            "file.py:name",
            code="TW0901")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    parser = argparse.ArgumentParser(
        "python -m tilewright.backends.accelerators.declared",
        description="The page of an accelerator, its tests, and what networks cost on it.")
    parser.add_argument("name", help="an entry point, or file.py:name")
    parser.add_argument("--test", type=int, metavar="N", help="run N random programs of each operator")
    parser.add_argument("--cycles", metavar="MODEL", help="the cycles of a network's parts, layer by layer")
    parser.add_argument("--commands", metavar="MODEL", help="the commands of a network's parts")
    given = parser.parse_args(arguments)
    try:
        return _run(given)
    except TVMError as error:
        print(f"Error: {with_code(error)}", file=sys.stderr)
        return 1


def _run(given: argparse.Namespace) -> int:
    accelerator = accelerator_of(given.name)
    if given.test is not None:
        found = conformance(accelerator, samples=given.test)
        print(found)
        return 0 if found else 1
    model = given.cycles or given.commands
    if model is None:
        print(page(accelerator, conformance(accelerator, samples=4).refused), end="")
        return 0
    from tilewright.compiler.formats import format_of
    from tilewright.relay import build

    mod, params = format_of(model).read(model, None)[:2]
    partitioned = accelerator.partition_for(mod, params)
    program = build(partitioned, "llvm")
    if given.commands:
        print("\n".join(m.simulator.text() for m in modules_of(program)))
        return 0
    taken, everything = share(partitioned)
    print(
        f"{accelerator.name} computes {taken:,} of {everything:,} multiply-accumulates "
        f"({taken / max(everything, 1):.1%})")
    for cycles in cycle_reports(program):
        print(cycles)
    return 0


if __name__ == "__main__":
    sys.exit(main())
