"""Computations of operators on tensors: `topi.sort`, `topi.vision.roi_align`. Each is imported when it is first used."""

from __future__ import annotations

import importlib
from typing import Any, Final

_MODULES: Final = frozenset({"image", "random", "vision"})
_NAMES: Final = {
    "contraction": ("einsum",),
    "scans": ("cumprod", "cumsum"),
    "scattering": ("invert_permutation", "scatter_elements", "scatter_nd", "sparse_reshape", "sparse_to_dense"),
    "sorting": ("argsort", "searchsorted", "sort", "topk", "unique"),
    "spectra": ("dft", "stft"),
}
"""Module -> the public names that it has."""
_HOMES: Final = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"tilewright.topi.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'tilewright.topi' has no attribute '{name}'", name=name)
    found = globals()[name] = getattr(importlib.import_module(f"tilewright.topi.{_HOMES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return __all__


__all__ = [
    "argsort", "cumprod", "cumsum", "dft", "einsum", "image", "invert_permutation", "random", "scatter_elements", "scatter_nd", "searchsorted", "sort",
    "sparse_reshape", "sparse_to_dense", "stft", "topk", "unique", "vision",
]
