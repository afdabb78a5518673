"""`tvmc run`: a package on arrays, in this process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from tilewright.compiler.grouping import flat
from tilewright.driver import files, tensors
from tilewright.driver.tvmc.package import TVMCPackage
from tilewright.driver.tvmc.result import TVMCResult
from tilewright.errors import OptionError

DEVICES: Final[Mapping[str, str]] = {
    "cpu": "",
    **dict.fromkeys(("cuda", "cl", "metal", "vulkan", "rocm"), "code is made for processors, and none for graphics cards; compile for llvm and run on cpu"),
    "micro": "nothing here speaks to boards; compile with -f mlf, and link its objects into the project of the board",
}
"""The field's devices, and why a package does not run there."""


def run_module(
    tvmc_package: TVMCPackage,
    device: str = "cpu",
    hostname: str | None = None,
    rpc_key: str | None = None,
    inputs: Mapping[str, np.ndarray[Any, Any]] | str | os.PathLike[str] | None = None,
    fill_mode: str = "random",
    benchmark: bool = False,
    repeat: int = 10,
    number: int = 10,
    profile: bool = False,
    end_to_end: bool = False,
) -> TVMCResult:
    """Run the package once, and with `benchmark` time it: `repeat` measurements of `number` runs, with `end_to_end` of copying the tensors in and out, too;
    with `profile`, time each of its steps.

    `inputs` are arrays by name, or the path of a `.npz`; the others are filled (`zeros`, `ones`, `random`). Raises `OptionError` for a device that is not
    here, `InputError` for inputs that do not fit, `ArtifactError` for a package that cannot run here.
    """
    if device not in DEVICES:
        raise OptionError(f"--device: there is no device '{device}'; choose from {', '.join(DEVICES)}", code="TW0203")
    if DEVICES[device]:
        raise OptionError(f"--device {device}: {DEVICES[device]}", code="TW0204")
    if hostname or rpc_key:
        raise OptionError("--rpc-tracker, --rpc-key: packages run in this process, not over the network; copy the package there and run it", code="TW0204")
    if fill_mode not in list(tensors.Fill):
        raise OptionError(f"--fill-mode: there is no '{fill_mode}'; choose from {', '.join(tensors.Fill)}", code="TW0203")
    given = files.read_arrays(Path(inputs)) if isinstance(inputs, (str, os.PathLike)) else dict(inputs or {})
    program = tvmc_package.executable()
    fed = tensors.feed(program.inputs, given, tensors.Fill(fill_mode))
    answer = program(fed)
    answers = flat(answer if isinstance(answer, tuple) else (answer,))
    times = program.benchmark(fed, repeat=repeat, number=number, end_to_end=end_to_end) if benchmark else None
    profiled = str(program.profile(fed, number=number)) if profile else ""
    return TVMCResult({f"output_{k}": a for k, a in enumerate(answers)}, times, profiled)
