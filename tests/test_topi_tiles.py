"""The analytical choice of register tiles."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tilewright import relay
from tilewright.backends.cpu.machine import machine_of
from tilewright.backends.cpu.strategies.tiles import OPEN_ROWS, Tile, conv_tile, cycles_in_tiles, register_tile
from tilewright.backends.kernel_options import KernelOptions
from tilewright.backends.machine import Machine
from tilewright.backends.targets.target import Target
from tilewright.compiler.build import build_module
from tilewright.compiler.kernel import lower
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Constant, Function, var
from tilewright.relay.interpreter import evaluate
from tilewright.tir.stmt import For, walk_stmt

pytestmark = pytest.mark.slow

WIDE = Machine(vector_bits=512, vector_registers=32)


@pytest.mark.parametrize(
    ("columns", "lanes"), [(1, 1), (2, 2), (3, 4), (4, 4), (9, 16), (16, 16), (24, 16), (1000, 16)]
)
def test_few_columns_get_narrow_vectors(columns: int, lanes: int) -> None:
    assert register_tile(64, columns, 24, KernelOptions(WIDE)).lanes == lanes


@pytest.mark.parametrize("columns", [1, 3, 8, 24, 64, 1000])
@pytest.mark.parametrize("machine", [Machine(), WIDE], ids=["128 bits", "512 bits"])
def test_a_tile_fits_the_registers(columns: int, machine: Machine) -> None:
    for rows in (1, 7, 56, 4096):
        tile = register_tile(rows, columns, 96, KernelOptions(machine))
        assert 1 <= tile.rows <= rows
        assert tile.rows * tile.vectors + tile.vectors < machine.vector_registers


@pytest.mark.parametrize("rows", [1, 7, 196, 3136])
def test_a_tile_has_no_more_accumulators_than_asked_for(rows: int) -> None:
    tile = register_tile(rows, 256, 64, KernelOptions(WIDE), most_sums=16)
    assert tile.rows * tile.vectors <= 16


def test_of_tiles_that_take_as_long_a_symbolic_number_of_rows_gets_the_tallest() -> None:
    machine = machine_of(Target("llvm -mcpu=cascadelake"))
    cycles = [cycles_in_tiles(Tile(rows, v, 16), OPEN_ROWS, 768, 768, machine) for rows, v in ((7, 2), (8, 3))]
    assert cycles[0] < cycles[1] < 1.02 * cycles[0]
    assert register_tile(OPEN_ROWS, 768, 768, KernelOptions(machine), most_rows=8) == Tile(8, 3, 16)
    assert register_tile(OPEN_ROWS // 2, 768, 768, KernelOptions(machine), most_rows=8) == Tile(7, 2, 16)


NARROW = Machine(vector_bits=256, vector_registers=16)


@pytest.mark.parametrize(
    ("width", "channels", "stride", "taps"), [(56, 64, 1, 3), (14, 256, 1, 3), (17, 192, 1, 7), (35, 64, 1, 5)]
)
def test_taps_share_inputs_where_there_are_registers_for_them(
    width: int, channels: int, stride: int, taps: int
) -> None:
    tile, shared = conv_tile(width, channels, 9 * channels, KernelOptions(WIDE), stride, taps)
    assert shared
    assert tile.rows * tile.vectors + tile.vectors + tile.rows + taps - 1 < 32
    tile, shared = conv_tile(width, channels, 9 * channels, KernelOptions(NARROW), stride, taps)
    assert not shared
    assert tile.rows * tile.vectors >= 8
    assert not conv_tile(width, channels, 9 * channels, KernelOptions(WIDE), stride, 1)[1]


@pytest.mark.parametrize("kernel", [(3, 3), (1, 5), (7, 1), (5, 4)])
@pytest.mark.parametrize(
    ("strides", "padding"), [((1, 1), (1, 2, 0, 2)), ((2, 2), (1, 1, 1, 1)), ((1, 3), (0, 0, 0, 0))]
)
@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=x86-64-v2"])
def test_convolutions_of_either_order_of_steps(
    kernel: tuple[int, int], strides: tuple[int, int], padding: tuple[int, ...], target: str
) -> None:
    """Few registers and many, sums in pieces and whole, the weights constant and given at run time."""
    random = np.random.default_rng(sum(kernel))
    for depth, channels in ((5, 24), (160, 40)):
        x, shape = var("x", shape=(1, 11, 13, depth)), (*kernel, depth, channels)
        weight = random.standard_normal(shape, np.float32)
        for w in (Constant(weight), var("w", shape=shape)):
            y = relay.nn.conv2d(
                x, w, strides=strides, padding=padding, channels=channels, kernel_size=kernel, data_layout="NHWC",
                kernel_layout="HWIO"
            )
            function = Function((x,) if isinstance(w, Constant) else (x, w), y)
            arrays = [
                random.standard_normal((1, 11, 13, depth), np.float32), *([] if isinstance(w, Constant) else [weight])
            ]
            found = build_module(IRModule.from_expr(function), target).executable(threads=2)(*arrays)
            np.testing.assert_allclose(found, evaluate(function, *arrays), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("channels", [1, 2, 3, 5, 20])
def test_transposed_convolutions_without_overlap(channels: int) -> None:
    random = np.random.default_rng(channels)
    x, weight = var("x", shape=(1, 24, 6, 10)), random.standard_normal((24, channels, 2, 2), np.float32)
    y = relay.sigmoid(
        relay.nn.conv2d_transpose(x, Constant(weight), strides=(2, 2), kernel_size=(2, 2), channels=channels)
    )
    function = Function((x,), y)
    data = random.standard_normal((1, 24, 6, 10), np.float32)
    found = build_module(IRModule.from_expr(function)).executable(threads=1)(data)
    np.testing.assert_allclose(found, evaluate(function, data), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("width", "channels", "ksize", "loops"),
    [
        # vectors of channels, rows, tiles
        (56, 144, 3, [9, 56, 14]), (112, 16, 3, [1, 112, 28]), (56, 96, 7, [6, 56, 8]), (160, 96, 7, [6, 160, 32]),
        # tiles of seven, rows, vectors of channels
        (112, 32, 3, [16, 112, 2]), (56, 128, 3, [8, 56, 8]), (28, 256, 3, [4, 28, 16]),
        (14, 512, 3, [4, 14, 32]), (28, 384, 3, [7, 28, 24]),  # tiles of four, whose channels fit the first-level cache
        (14, 768, 3, [48, 14, 2]), (7, 1024, 3, [1, 7, 64]), (28, 192, 7, [12, 28, 4]),
    ],
)  # fmt: skip
def test_channels_that_crowd_the_first_level_cache_are_gone_down_together(
    width: int, channels: int, ksize: int, loops: list[int]
) -> None:
    x, w = var("x", shape=(1, width, width, channels)), var("w", shape=(ksize, ksize, channels, 1))
    options = {"padding": (ksize // 2,) * 2, "groups": channels, "channels": channels, "kernel_size": (ksize, ksize)}
    y = relay.nn.conv2d(x, w, data_layout="NHWC", kernel_layout="HWOI", **options)
    kernel = lower(
        Function([x, w], y), [False, True], Machine(512, 32, 48 << 10, 1 << 20), "depthwise", keep_stages=True
    )
    found = [f.extent for f in walk_stmt(kernel.stages["scheduled"].body) if isinstance(f, For)]
    nest: Iterator[object] = iter(found)
    assert all(n in nest for n in loops if n > 1), found


def test_columns_that_half_vectors_fill_get_them_where_units_take_no_more_at_once() -> None:
    whole = KernelOptions(Machine(512, 32, 32 << 10, 1 << 20))
    halves = KernelOptions(Machine(512, 32, 32 << 10, 1 << 20, pipe_bits=256))
    assert register_tile(3136, 24, 144, whole) == Tile(7, 2, 16)
    assert register_tile(3136, 24, 144, halves) == Tile(4, 3, 8)  # 24 columns, not 32
    assert register_tile(3136, 32, 144, halves) == register_tile(3136, 32, 144, whole)  # nothing to fill
    assert conv_tile(160, 24, 432, halves, 2, 3)[0].columns == 24
    assert Target("llvm -mcpu=znver4").machine.pipe_bits == 256
    assert Target(
        "llvm -mcpu=znver4 -vector-width=256"
    ).machine.pipe_bits == Target("llvm -mcpu=icelake-server").machine.pipe_bits == 0
