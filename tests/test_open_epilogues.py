"""Epilogues of kernels with symbolic sizes: the operators that are fused after a product or a convolution."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import relay
from tilewright.base.types import TensorType
from tilewright.relay.expr import Function
from tilewright.scalar.expr import Call, IntImm, Var
from tilewright.scalar.walk import walk
from tilewright.tir.stmt import UNROLLED, Block, For, Stmt, bodies, expressions, walk_stmt

pytestmark = pytest.mark.slow


def layers_with_activation(kind: str, rows: Any) -> Function:
    """A dense layer, a convolution or a depthwise convolution before a sigmoid, for a number of rows."""
    rng = np.random.default_rng(3)
    if kind == "dense":
        x = relay.Var("x", TensorType([rows, 40]))
        sums = relay.nn.dense(x, relay.const(rng.standard_normal((72, 40), np.float32)))
    else:
        x = relay.Var("x", TensorType([1, 48, 13, rows]))
        groups = 48 if kind == "depthwise" else 1
        weight = relay.const(rng.standard_normal((48, 48 // groups, 3, 3), np.float32))
        sums = relay.nn.conv2d(x, weight, padding=(1, 1), groups=groups)
    return relay.Function([x], relay.multiply(sums, relay.sigmoid(sums)))


@pytest.mark.parametrize("kind", ["dense", "convolution", "depthwise"])
def test_long_epilogues_are_in_loops_over_the_rows_of_tiles(kind: str) -> None:
    opened = tilewright.compile(tilewright.IRModule.from_expr(layers_with_activation(kind, Var("n"))), threads=1)
    lowered = [k for k in opened.report.kernels.values() if k.versions and "sigmoid" in k.func.name]
    vectors = [
        math.prod(unrolled) for k in lowered for _, version in k.versions
        for unrolled in _unrolled_around(version.body, [], "sigmoid")]
    assert vectors and max(vectors) <= 5
    for rows in (1, 2, 5, 7, 19):
        alone = tilewright.compile(tilewright.IRModule.from_expr(layers_with_activation(kind, rows)), threads=1)
        shape = [rows if isinstance(d, str) else d for d in opened.inputs[0].shape]
        x = np.random.default_rng(rows).standard_normal(shape, np.float32)
        np.testing.assert_allclose(opened(x), alone(x), rtol=1e-4, atol=1e-4)


def _unrolled_around(s: Stmt, extents: list[int], function: str) -> Iterator[list[int]]:
    """Yield the extents of the unrolled loops around each block that calls a function."""
    if isinstance(s, Block) and any(
        isinstance(e, Call) and e.op.spelling == function
        for x in walk_stmt(s) for top in expressions(x) for e in walk(top)
    ):
        yield extents
    if isinstance(s, For) and s.kind == UNROLLED and isinstance(s.extent, IntImm):
        extents = [*extents, s.extent.value]
    for inner in bodies(s):
        yield from _unrolled_around(inner, extents, function)
