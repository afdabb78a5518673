"""Functions of torch as programs: exported, compiled and run, and compared with torch itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright

pytest.importorskip("torch")
import torch


class Applied(torch.nn.Module):
    """A module that is one function of its inputs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def compiled(function: Callable[..., Any], *inputs: Any) -> list[Any]:
    """What the exported and compiled function gives: its results in one list."""
    found = tilewright.compile(torch.export.export(Applied(function), inputs), threads=1)(*(x.numpy() for x in inputs))
    return list(found) if isinstance(found, (list, tuple)) else [found]


def agrees(function: Callable[..., Any], *inputs: Any, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """Assert that the compiled function gives what torch gives, in the same types and shapes. Float64 has no absolute
    tolerance."""
    wanted = torch.utils._pytree.tree_leaves(function(*inputs))
    for got, value in zip(compiled(function, *inputs), wanted, strict=True):
        known = value.resolve_conj().numpy()
        assert (got.dtype, got.shape) == (known.dtype, known.shape)
        np.testing.assert_allclose(got, known, rtol=rtol, atol=0 if got.dtype == np.float64 else atol)
