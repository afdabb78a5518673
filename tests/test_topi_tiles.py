"""The analytical choice of register tiles."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import relay
from tilewright.compiler.build import build_module
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Constant, Function, var
from tilewright.relay.interpreter import evaluate
from tilewright.topi.machine import Machine
from tilewright.topi.tiles import register_tile

WIDE = Machine(vector_bits=512, vector_registers=32)


@pytest.mark.parametrize(("columns", "lanes"), [(1, 1), (2, 2), (3, 4), (4, 4), (9, 16), (16, 16), (24, 16), (1000, 16)])
def test_few_columns_get_narrow_vectors(columns: int, lanes: int) -> None:
    assert register_tile(64, columns, 24, WIDE).lanes == lanes


@pytest.mark.parametrize("columns", [1, 3, 8, 24, 64, 1000])
@pytest.mark.parametrize("machine", [Machine(), WIDE], ids=["128 bits", "512 bits"])
def test_a_tile_fits_the_registers(columns: int, machine: Machine) -> None:
    for rows in (1, 7, 56, 4096):
        tile = register_tile(rows, columns, 96, machine)
        assert 1 <= tile.rows <= rows
        assert tile.rows * tile.vectors + tile.vectors < machine.vector_registers


@pytest.mark.parametrize("channels", [1, 2, 3, 5, 20])
def test_transposed_convolutions_without_overlap(channels: int) -> None:
    random = np.random.default_rng(channels)
    x, weight = var("x", shape=(1, 24, 6, 10)), random.standard_normal((24, channels, 2, 2), np.float32)
    y = relay.sigmoid(relay.nn.conv2d_transpose(x, Constant(weight), strides=(2, 2), kernel_size=(2, 2), channels=channels))
    function = Function((x,), y)
    data = random.standard_normal((1, 24, 6, 10), np.float32)
    found = build_module(IRModule.from_expr(function)).executable(threads=1)(data)
    np.testing.assert_allclose(found, evaluate(function, data), rtol=1e-5, atol=1e-6)
