"""The cost models that ship: trees that were trained on measurements, in `cost_models.npz` beside this file.

    shipped("kernels").predict(rows)         # decisions of kernels (autotvm/prior.py)
    shipped("programs").predict(rows)        # scheduled programs (auto_scheduler/features.py)

The file is a numpy archive without pickles. For each model NAME it has the arrays of `BoostedTrees.to_arrays` as `NAME/edges`, `NAME/lengths`,
`NAME/feature`, `NAME/cut`, `NAME/value`, `NAME/base`. `benchmarks/cost_model.py train` writes it; the same measurements give the same bytes.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from tilewright.base.errors import InternalError
from tilewright.search.cost_model import BoostedTrees

FILE: Final = Path(__file__).with_name("cost_models.npz")


@functools.cache
def shipped(name: str) -> BoostedTrees:
    """The model of that name, read once. Raises `InternalError` where the installed package lacks it."""
    if not FILE.is_file():
        raise InternalError(f"the package lacks {FILE.name}; install it again, or train it with benchmarks/cost_model.py")
    return read(FILE, name)


def read(path: Path, name: str) -> BoostedTrees:
    """The model of that name in a file."""
    with np.load(path, allow_pickle=False) as found:
        arrays = {key.removeprefix(f"{name}/"): found[key] for key in found.files if key.startswith(f"{name}/")}
    if not arrays:
        raise InternalError(f"{path.name} has no model '{name}'; train it with benchmarks/cost_model.py")
    return BoostedTrees.from_arrays(arrays)


def write(path: Path, models: Mapping[str, BoostedTrees]) -> None:
    """A file of these models; what it has depends on them alone."""
    arrays: dict[str, Any] = {f"{name}/{key}": array for name, model in models.items() for key, array in model.to_arrays().items()}
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)
