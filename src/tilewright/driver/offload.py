"""The steps of `tilewright offload`: read a model, partition it for the accelerators of the target, and show the
result."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tilewright.base.errors import OptionError
from tilewright.base.plugins import run_plugin
from tilewright.driver import files

if TYPE_CHECKING:
    from tilewright.backends.targets.accelerators import Accelerator
    from tilewright.ir.module import IRModule
    from tilewright.relay.offload import Offload

PICTURES: Final = (".svg", ".html")
_SHARE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(%?)")


def accelerators_of(target: str) -> tuple[Accelerator, ...]:
    """Return the accelerators of a target, which precede the processor. Raises `OptionError` for a target without
    accelerators."""
    from tilewright.backends.registry import has_backend
    from tilewright.backends.targets.accelerators import parts
    from tilewright.backends.targets.target import Target

    processor = has_backend(parts(target)[-1].split(" ", maxsplit=1)[0])
    found = Target(target if processor else f"{target}, llvm").accelerators
    if not found:
        raise OptionError(
            f"--target: '{target}' names no accelerator; name it before the processor: --target \"npu, llvm\"",
            code="TW0204")
    return found


def share(option: str, text: str) -> float:
    """Return `95%` or `0.95` as a number between 0 and 1. Raises `OptionError` for any other text."""
    found = _SHARE.fullmatch(text.strip())
    value = float(found[1]) / (100 if found[2] else 1) if found else -1.0
    if not 0 <= value <= 1:
        raise OptionError(f"{option}: '{text}' is not a share; write 95% or 0.95", code="TW0202")
    return value


def load_plugins(paths: Sequence[str]) -> None:
    """Run Python files or import modules that register accelerators. Raises `OptionError` for missing ones."""
    for path in paths:
        run_plugin(path)


def explained(model: Path, target: str, shapes: Mapping[str, Any] | None) -> Offload:
    """Return the report of a model file for the accelerators of a target."""
    from tilewright.compiler.formats import format_of
    from tilewright.relay.offload import table_of

    for a in accelerators_of(target):
        table_of(a.name)
    return explained_module(*format_of(model).read(model, shapes), target)


def explained_module(mod: IRModule, params: Mapping[str, Any], target: str) -> Offload:
    """Return the report of a network in memory."""
    from tilewright.relay.offload import explain_offload
    from tilewright.relay.transform.bind_params import bind_params

    chosen = accelerators_of(target)
    options = {a.name: {k.replace("-", "_"): v for k, v in a.options} for a in chosen}
    return explain_offload(bind_params(mod, params), [a.name for a in chosen], options=options)


def check_picture(path: Path | None) -> None:
    """Raise `OptionError` early if a picture cannot be written to `path`."""
    if path is not None and path.suffix not in PICTURES:
        raise OptionError(
            f"--output: '{path}' has none of the supported extensions: {', '.join(PICTURES)}", code="TW0206")


def write_picture(report: Offload, path: Path) -> None:
    """Write the picture of a partition."""
    files.write_text(path, report.to_svg() if path.suffix == ".svg" else report.to_html())
