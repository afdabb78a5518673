"""TVM's `tvmc.target`: `--target` and the options of its parts, `--target-llvm-mcpu=…`, in an `argparse` parser.

    generate_target_args(parser)
    args = parser.parse_args()
    target, accelerators = target_from_cli(args.target, reconstruct_target_args(args))
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Mapping
from typing import Any, Final

from tilewright.backends.registry import backend_names, find_backend, has_backend
from tilewright.backends.targets.described import DESCRIBED, is_described
from tilewright.backends.targets.target import Target
from tilewright.base.errors import OptionError
from tilewright.driver.tvmc.composite_target import get_codegen_by_target, get_codegen_names
from tilewright.relay.op.contrib import option_names

_WORD: Final = re.compile(r"""(?:-[\w\-]+(?:=(?:"[^"]*"|'[^']*'|[^\s,"'][^\s"',]*(?:,[^\s,"']+)*))?)|[\w\-.]+|,""")


def tokenize_target(target: str) -> list[str]:
    """Split the text of a target into names, options with their values, and the commas between parts."""
    return _WORD.findall(target)


def parse_target(target: str) -> list[dict[str, Any]]:
    """Return the parts of a target, each `{"name", "opts", "raw", "is_tvm_target"}`: accelerators, and the processor.
    Raises `OptionError` for an option before any name."""
    found: list[dict[str, Any]] = []
    words: list[str] = []
    for word in [*tokenize_target(target), ","]:
        if word != ",":
            words.append(word)
        elif words:
            found.append(_part(words))
            words = []
    return found


def _part(words: list[str]) -> dict[str, Any]:
    name, *given = words
    if name.startswith("-"):
        raise OptionError(f"--target: the option '{name}' has no target before it; write llvm {name}", code="TW0202")
    options = {}
    for word in given:
        key, equals, value = word.lstrip("-").partition("=")
        options[key] = value.strip("'\"") if equals else ""
    is_processor = has_backend(name) or is_described(name)
    return {"name": name, "opts": options, "raw": " ".join(words), "is_tvm_target": is_processor}


def target_from_cli(
    target: str, additional_target_options: Mapping[str, Mapping[str, Any]] | None = None
) -> tuple[Target, list[dict[str, Any]]]:
    """Return the processor and the accelerators, as `parse_target` describes them, with further options by part. The
    last of two processors is the host of the first one: `opencl, llvm`.

    Raises `OptionError` for a part that is given twice, unknown, or lacks an option's part, and for more processors,
    and `TargetError` for an unknown option of a processor. """
    found = parse_target(target)
    for name, options in (additional_target_options or {}).items():
        chosen = [part for part in found if part["name"] == name]
        if not chosen:
            option = next(iter(options), "")
            raise OptionError(
                f"Passed --target-{name}-{option} but did not specify {name} target", code="TW0204")
        chosen[0]["opts"].update(options)
    names = [part["name"] for part in found]
    if double := next((n for n in names if names.count(n) > 1), None):
        raise OptionError(f"--target: '{double}' is given twice; give each target once", code="TW0204")
    processors = [part for part in found if part["is_tvm_target"]]
    accelerators = [part for part in found if not part["is_tvm_target"]]
    for part in accelerators:
        get_codegen_by_target(part["name"])  # refuses an unknown name
    if len(processors) not in (1, 2) or not found[-1]["is_tvm_target"]:
        raise OptionError(
            f"--target: '{target}' has {len(processors)} processors; write one, after the accelerators, or a device "
            "and its host", code="TW0204")
    made, *host = (
        Target(" ".join([p["name"], *(_word(k, v) for k, v in p["opts"].items())])) for p in processors)
    return made.with_host(host[0]) if host else made, accelerators


def _word(name: str, value: Any) -> str:
    return f"-{name}={shlex.quote(str(value))}" if value != "" else f"-{name}"


def _options() -> dict[str, list[str]]:
    """Return the options of processors, and of the partition functions of accelerators, by name."""
    processors = {name: sorted(find_backend(name).options) for name in backend_names()}
    processors |= {name: sorted(kind.attributes) for name, kind in DESCRIBED.items()}
    return {**processors, **{name: list(option_names(name)) for name in get_codegen_names()}}


def generate_target_args(parser: argparse.ArgumentParser) -> None:
    """Add `--target`, and `--target-<part>-<option>` for the options of each part."""
    parser.add_argument("--target", help="Target to compile the model for: accelerators, then the processor")
    for part, known in _options().items():
        group = parser.add_argument_group(f"target {part}")
        for option in known:
            group.add_argument(f"--target-{part}-{option}", help=f"target {part} {option}")


def reconstruct_target_args(args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Return the given options by part, for `target_from_cli`."""
    found: dict[str, dict[str, Any]] = {}
    for part, known in _options().items():
        for option in known:
            value = getattr(args, f"target_{part}_{option}".replace("-", "_"), None)
            if value is not None:
                found.setdefault(part, {})[option] = value
    return found
