"""Random kernels and graphs, compiled for each kind of processor that this machine can run, against their numpy
meaning."""

from __future__ import annotations

import numpy as np
import pytest

import daily
from codegen_native import TARGETS
from random_graphs import Graph
from random_graphs import inputs as graph_inputs
from random_kernels import KINDS, Array, Maker
from tilewright.compat.target import Target
from tilewright.compiler.build import build_module
from tilewright.ir.module import IRModule
from tilewright.relay.interpreter import evaluate

pytestmark = pytest.mark.slow

FOUND = [("convolution", 5051), ("convolution", 5167), ("transposed", 5132), ("reduction", 5174)]
"""Seeds that led to a fault once."""
SEEDS = [
    *daily.sample([(kind, seed) for kind, (_, count) in KINDS.items() for seed in range(count)], 60, "kernels"), *FOUND
]


def agree(found: Array, wanted: Array) -> None:
    """Integers are equal; floats differ by rounding only, measured over the whole array and for each element."""
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    if wanted.dtype.kind != "f":
        np.testing.assert_array_equal(found, wanted)
        return
    assert np.linalg.norm(found - wanted) <= 1e-5 * np.linalg.norm(wanted) + 1e-30
    np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=1e-4)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.mcpu)
@pytest.mark.parametrize(("kind", "seed"), SEEDS)
def test_random_kernels(kind: str, seed: int, target: Target) -> None:
    made = Maker(seed).make(KINDS[kind][0])
    run = build_module(IRModule.from_expr(made.function), target).executable(threads=1 + seed % 2)
    agree(run(*made.arrays), evaluate(made.function, *made.arrays))


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.mcpu)
@pytest.mark.parametrize("seed", daily.sample(range(30), 12, "graphs"))
def test_random_graphs(seed: int, target: Target) -> None:
    function = Graph(seed).function(14)
    arrays = graph_inputs(seed)
    found = build_module(IRModule.from_expr(function), target).executable(threads=1 + seed % 2)(*arrays)
    for f, w in zip(found, evaluate(function, *arrays), strict=True):
        agree(f, w)
