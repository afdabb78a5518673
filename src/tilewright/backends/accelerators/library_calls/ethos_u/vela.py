"""Runs Vela, Arm's compiler for Ethos-U, as a separate program: from a TFLite file to a command stream and weights."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np

from tilewright.base.errors import CompileError, PackageError

Array = np.ndarray[Any, Any]

CONFIGS: Final = (
    "ethos-u55-32", "ethos-u55-64", "ethos-u55-128", "ethos-u55-256", "ethos-u65-256", "ethos-u65-512",
    "ethos-u85-128", "ethos-u85-256", "ethos-u85-512", "ethos-u85-1024", "ethos-u85-2048",
)
_SECONDS: Final = 600
_MEMORY: Final = (
    "weight_region", "scratch_size", "scratch_region", "scratch_fast_size", "scratch_fast_region", "input_region",
    "input_offset", "output_region", "output_offset",
)


@dataclass(frozen=True, slots=True)
class CommandStream:
    """The input of the device: commands, weights, memory sizes, and for each input and output its region and offset in
    bytes."""

    commands: Array
    weights: Array
    memory: dict[str, Any]


def is_installed() -> bool:
    """Whether Vela is installed."""
    return find_spec("ethosu") is not None and find_spec("ethosu.vela") is not None


def compile_model(model: bytes, config: str, name: str) -> CommandStream:
    """Compile a TFLite model to the command stream of the device `config`, which must support all of its operators.

    Raises `PackageError` if Vela is not installed, and `CompileError` with Vela's message if it does not know the
    device or refuses the model.
    """
    if config not in CONFIGS:
        raise CompileError(f"there is no Ethos-U '{config}'; Vela compiles for {', '.join(CONFIGS)}", code="TW0914")
    if not is_installed():
        raise PackageError(f"@{name} is for Ethos-U, and its compiler Vela is not installed; pip install ethos-u-vela")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "part.tflite")
        path.write_bytes(model)
        command = [
            sys.executable, "-m", "ethosu.vela", str(path), "--accelerator-config", config, "--output-dir", folder,
            "--output-format", "raw"
        ]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
        made = list(Path(folder).glob("part_vela*.npz"))
        if ran.returncode or len(made) != 1:
            said = "\n".join((ran.stderr or ran.stdout).strip().splitlines()[-5:])
            raise CompileError(
                f"Vela did not compile @{name} for {config}: {said or 'it wrote no command stream'}", code="TW0914")
        with np.load(made[0]) as found:
            memory = {name: found[name].reshape(-1).astype(int).tolist() for name in _MEMORY}
            commands, weights = (np.frombuffer(found[name].tobytes(), np.uint8) for name in ("cmd_data", "weight_data"))
            return CommandStream(commands, weights, memory)
