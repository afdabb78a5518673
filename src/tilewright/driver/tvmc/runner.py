"""`tvmc run`: runs a package on arrays in this process or on a device of a tracker, or a project on its board."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import numpy as np

from tilewright.base.errors import OptionError
from tilewright.base.types import DataType
from tilewright.compiler.micro.project import GeneratedProject
from tilewright.compiler.sequences import flat
from tilewright.driver import files, tensors
from tilewright.driver.measuring import MeasuringOptions, address
from tilewright.driver.profile import reported
from tilewright.driver.tvmc.package import TVMCPackage
from tilewright.driver.tvmc.result import TVMCResult
from tilewright.runtime.program import TensorInfo

DEVICES: Final[Mapping[str, str]] = {
    "cpu": "",
    **dict.fromkeys(
        ("cuda", "cl", "metal", "vulkan", "rocm"),
        "GPUs are not supported; compile for llvm and run on cpu"),
    "micro": "",
}
"""TVM's devices, and the reasons why packages do not run on them."""


def generate_tensor_data(shape: Sequence[int], dtype: str, fill_mode: str) -> np.ndarray[Any, Any]:
    """Return an array filled by `zeros`, `ones` or `random` (floats of [0, 1), integers 0 and 1). Raises
    `OptionError` for another mode."""
    return tensors.filled(
        TensorInfo("array", tuple(shape), DataType(dtype)), _fill(fill_mode), np.random.default_rng())


def _fill(mode: str) -> tensors.Fill:
    if mode not in list(tensors.Fill):
        raise OptionError(
            f"--fill-mode: there is no '{mode}'; choose from {', '.join(tensors.Fill)}", code="TW0203")
    return tensors.Fill(mode)


def run_module(
    tvmc_package: TVMCPackage | GeneratedProject,
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
    port: int | str | None = None,
    options: Mapping[str, str] | None = None,
    input_shapes: Mapping[str, tuple[Any, ...]] | None = None,
) -> TVMCResult:
    """Run the package once. `benchmark` times `repeat` measurements of `number` runs, with `end_to_end` including
    copies of the tensors; `profile` times each step. With `rpc_key`, it runs on a device of that key of the tracker at
    `hostname` (and `port`, or `host:port`); with `hostname` and `port` alone, on the server at that address.

    For the device `micro`, `tvmc_package` is a `micro.GeneratedProject` that was built, and `options` are those of its
    template.

    `inputs` are arrays by name, or the path of a `.npz`; missing inputs are filled (`zeros`, `ones`, `random`), those
    with symbolic dimensions for the sizes in `input_shapes`. Raises
    `OptionError` for an unavailable device, `InputError` for unsuitable inputs, `ArtifactError` for a package that
    cannot run here, and the errors of `GeneratedProject.run`.
    """
    if device not in DEVICES:
        raise OptionError(f"--device: there is no device '{device}'; choose from {', '.join(DEVICES)}", code="TW0203")
    if DEVICES[device]:
        raise OptionError(f"--device {device}: {DEVICES[device]}", code="TW0204")
    if (device == "micro") is not isinstance(tvmc_package, GeneratedProject):
        raise OptionError(
            "--device micro runs the project of a board, a folder made by tvmc micro create-project; give that folder, "
            "or omit --device to run a package"
            if device == "micro"
            else f"'{tvmc_package.folder}' is the project of a board; add --device micro",  # type: ignore[union-attr]
            code="TW0204")
    at = f"{hostname}:{port}" if hostname and port else hostname or ""
    server = at if port and not rpc_key else ""
    place = MeasuringOptions(tracker="" if server else at, rpc_key=rpc_key or "")
    fill = _fill(fill_mode)
    given = files.read_arrays(Path(inputs)) if isinstance(inputs, (str, os.PathLike)) else dict(inputs or {})
    if isinstance(tvmc_package, GeneratedProject):
        if at:
            raise OptionError(
                "--rpc-tracker, --rpc-key: a project runs on the board of its template; omit these options",
                code="TW0204")
        if benchmark or profile:
            raise OptionError(
                "--print-time, --profile: the time of a program on a board is not measured; omit the option",
                code="TW0204")
        found = tvmc_package.run(tensors.feed(tvmc_package.inputs, given, fill), options)
        return TVMCResult({f"output_{k}": a for k, a in enumerate(found)})
    if at:
        return _on_device(
            tvmc_package, place, server, given, fill, repeat if benchmark else 0, number, profile,
            end_to_end, input_shapes)
    program = tvmc_package.executable()
    fed = tensors.feed(program.inputs, given, fill, input_shapes)
    answer = program(fed)
    answers = flat(answer if isinstance(answer, tuple) else (answer,))
    times = program.benchmark(fed, repeat=repeat, number=number, end_to_end=end_to_end) if benchmark else None
    profiled = reported(program, fed, number).table(aggregate=False) if profile else ""
    return TVMCResult({f"output_{k}": a for k, a in enumerate(answers)}, times, profiled)


def _on_device(
    package: TVMCPackage, place: MeasuringOptions, server: str, given: Mapping[str, np.ndarray[Any, Any]],
    fill: tensors.Fill, repeat: int, number: int, profile: bool, end_to_end: bool,
    shapes: Mapping[str, tuple[Any, ...]] | None,
) -> TVMCResult:
    """Run the package in a session on a device: the server at an address, or one of a tracker. Raises `RPCError` for a
    missing device, `WorkerError` for errors on the device."""
    from tilewright.runtime.rpc import RemoteModel, connect, connect_tracker

    with ExitStack() as stack:
        if server:
            session = stack.enter_context(connect(*address(server)))
        else:
            tracker = stack.enter_context(connect_tracker(*address(place.tracker)))
            session = stack.enter_context(tracker.request(place.rpc_key))
        library = package.library()
        program = RemoteModel(session, library.name, library.read_bytes())
        answers, times, profiled = program.run(
            tensors.feed(program.inputs, given, fill, shapes), repeat, number, end_to_end, profile)
    return TVMCResult({f"output_{k}": a for k, a in enumerate(answers)}, times, profiled)
