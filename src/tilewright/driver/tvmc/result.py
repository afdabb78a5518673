"""The result of a run of a package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.base.errors import InputError
from tilewright.driver import files
from tilewright.runtime.benchmark import BenchmarkResult


class TVMCResult:
    """The outputs by name (`output_0`, `output_1`, …), and the times, an empty list if none were measured."""

    def __init__(
        self, outputs: Mapping[str, np.ndarray[Any, Any]] | None,
        times: BenchmarkResult | Sequence[float] | None = None, profile: str = "",
    ) -> None:
        self.outputs, self.times, self.profile = dict(outputs or {}), times or [], profile

    def format_times(self) -> str:
        """Return the times as a table, in milliseconds. Raises `InputError` if none were measured."""
        if not self.times:
            raise InputError(
                "no times were measured; run the package with benchmark=True, on the command line with --print-time",
                code="TW0708")
        return str(self.times)

    def get_output(self, name: str) -> np.ndarray[Any, Any]:
        """Return an output by name. Raises `InputError` for an unknown name."""
        if name not in self.outputs:
            raise InputError(
                f"there is no output '{name}'; there are {', '.join(self.outputs) or 'none'}", code="TW0707")
        return self.outputs[name]

    def save(self, output_path: str | Path) -> None:
        """Write the outputs to a `.npz`."""
        files.write_arrays(Path(output_path), self.outputs)

    def __str__(self) -> str:
        shown = [f"{name}: {a.dtype}[{', '.join(map(str, a.shape))}]" for name, a in self.outputs.items()]
        return "\n".join(
            [*([self.format_times()] if self.times else []), "Output names:", *(f"  {line}" for line in shown)])
