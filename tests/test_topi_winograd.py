"""Convolutions by Winograd's algorithm: the matrices, where it is chosen, and how close it comes."""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import te_numpy
from codegen_native import on_every_target
from tilewright import relay, te
from tilewright.backends.cpu.strategies.winograd import convolution
from tilewright.backends.cpu.strategies.winograd_choice import Cut, VolumeCut, cut, volume_cut
from tilewright.backends.cpu.strategies.winograd_volume import volume_convolution
from tilewright.backends.kernel_options import KernelOptions, winograd_setting
from tilewright.backends.machine import Machine
from tilewright.base.errors import OptionError
from tilewright.base.types import DataType
from tilewright.compat.target import Target
from tilewright.compiler.build import build_module
from tilewright.compiler.kernel import lower
from tilewright.compiler.report import BuildReport
from tilewright.ir.module import IRModule
from tilewright.ir.transform import PassContext
from tilewright.relay import nn
from tilewright.relay.expr import Function, const, var
from tilewright.relay.interpreter import evaluate
from tilewright.topi.winograd import matrices

pytestmark = pytest.mark.slow

Array = np.ndarray[Any, Any]
WIDE = Machine(vector_bits=512, vector_registers=32, l1_bytes=48 << 10, l2_bytes=1 << 20)
FLOAT32 = DataType("float32")
LIMITS = {"2x2": 1e-6, "4x4": 5e-6}


@pytest.mark.parametrize("m", [2, 4])
def test_the_matrices_make_a_correlation(m: int) -> None:
    """Exactly, in fractions: `At ((G w) * (Bt d))`."""
    at = matrices(m)
    for seed in range(5):
        number = random.Random(seed)
        w, d = ([Fraction(number.randint(-9, 9)) for _ in range(n)] for n in (3, m + 2))
        products = [
            sum(g * x for g, x in zip(gs, w, strict=True)) * sum(b * x for b, x in zip(bs, d, strict=True))
            for gs, bs in zip(at.weights, at.inputs, strict=True)
        ]
        assert [
            sum(a * p for a, p in zip(row, products, strict=True)) for row in at.outputs
        ] == [sum(w[k] * d[y + k] for k in range(3)) for y in range(m)]


@pytest.mark.parametrize(("m", "block"), [(2, 1), (2, 5), (4, 1), (4, 3)])
def test_what_the_expressions_mean(m: int, block: int) -> None:
    """Stage by stage in numpy; the weights packed by the expression and by `prepack` agree."""
    numbers = np.random.default_rng(m)
    data, weight = te.placeholder((2, 9, 8, 5)), te.placeholder((7, 5, 3, 3), constant=True)
    x, w = numbers.standard_normal((2, 9, 8, 5), np.float32), numbers.standard_normal((7, 5, 3, 3), np.float32)
    out = convolution(data, weight, (0, 1, 2, 3), Cut(2, 9, 8, 5, 7, (2, 1, 1, 0), m, block), KernelOptions(WIDE))
    found = te_numpy.evaluate(out, {data: x, weight: w})
    image = var("x", shape=(2, 5, 9, 8))
    wanted = nn.conv2d(image, const(w), padding=(2, 1, 1, 0), kernel_size=(3, 3), channels=7)
    function = Function((image,), wanted)
    np.testing.assert_allclose(
        found.transpose(0, 3, 1, 2), evaluate(function, x.transpose(0, 3, 1, 2)), rtol=1e-4, atol=1e-4
    )
    packed = _stage(out, "packed")
    np.testing.assert_allclose(te_numpy.evaluate(packed, {weight: w}), packed.op.prepack(w), rtol=1e-5, atol=1e-6)


def _stage(t: te.Tensor, name: str) -> Any:
    stack = [t]
    while stack:
        t = stack.pop()
        if t.name == name:
            return t
        stack.extend(t.op.inputs)
    raise AssertionError(f"there is no stage '{name}'")


@pytest.mark.parametrize(("groups", "parts"), [(8, 2), (2, 2), (4, 1)])
def test_what_the_expressions_of_groups_mean(groups: int, parts: int) -> None:
    """The same for groups, several of them in one product with zeros between them."""
    numbers = np.random.default_rng(groups)
    data, weight = te.placeholder((1, 9, 8, 16)), te.placeholder((32, 16 // groups, 3, 3), constant=True)
    x, w = numbers.standard_normal((1, 9, 8, 16), np.float32), numbers.standard_normal(
        (32, 16 // groups, 3, 3), np.float32
    )
    z = Cut(1, 9, 8, 16, 32, (1, 1, 1, 1), 4, 1, groups, parts)
    out = convolution(data, weight, (0, 1, 2, 3), z, KernelOptions(WIDE))
    found = te_numpy.evaluate(out, {data: x, weight: w})
    image = var("x", shape=(1, 16, 9, 8))
    wanted = nn.conv2d(
        image, const(w), padding=(1, 1), kernel_size=(3, 3), channels=32, groups=groups
    )
    function = Function((image,), wanted)
    np.testing.assert_allclose(
        found.transpose(0, 3, 1, 2), evaluate(function, x.transpose(0, 3, 1, 2)), rtol=1e-4, atol=1e-4
    )
    packed = _stage(out, "packed")
    np.testing.assert_allclose(te_numpy.evaluate(packed, {weight: w}), packed.op.prepack(w), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("m", "span", "taps"), [(2, 1, 3), (2, 4, 3), (4, 2, 3), (4, 4, 1), (4, 1, 2)])
def test_what_the_expressions_of_volumes_mean(m: int, span: int, taps: int) -> None:
    """The same for slices in groups of `span`, padded in front and behind so that there are four."""
    numbers = np.random.default_rng(m)
    front = (taps - 1) // 2
    back = taps - 1 - front
    data, weight = te.placeholder((2, 4, 9, 8, 5)), te.placeholder((7, 5, taps, 3, 3), constant=True)
    x, w = numbers.standard_normal((2, 4, 9, 8, 5), np.float32), numbers.standard_normal((7, 5, taps, 3, 3), np.float32)
    v = VolumeCut(Cut(2, 9, 8, 5, 7, (2, 1, 1, 0), m, 1), 4, taps, front, back, span)
    out = volume_convolution(data, weight, (0, 1, 2, 3, 4), v, KernelOptions(WIDE))
    found = te_numpy.evaluate(out, {data: x, weight: w})
    padding = (front, 2, 1, back, 1, 0)
    image = var("x", shape=(2, 5, 4, 9, 8))
    wanted = nn.conv3d(image, const(w), padding=padding, kernel_size=(taps, 3, 3), channels=7)
    function = Function((image,), wanted)
    np.testing.assert_allclose(
        found.transpose(0, 4, 1, 2, 3), evaluate(function, x.transpose(0, 4, 1, 2, 3)), rtol=1e-4, atol=1e-4
    )
    packed = _stage(out, "packed")
    np.testing.assert_allclose(te_numpy.evaluate(packed, {weight: w}), packed.op.prepack(w), rtol=1e-5, atol=1e-6)


def block(seed: int) -> tuple[Function, list[Array]]:
    """A convolution of random size with a bias, a residual and a relu behind it."""
    pick, numbers = random.Random(seed), np.random.default_rng(seed)
    n, height, width = pick.randint(1, 3), pick.randint(7, 30), pick.randint(7, 30)
    depth, channels = pick.randint(4, 70), pick.randint(4, 70)
    x = var("x", shape=(n, height, width, depth))
    weight = const(numbers.standard_normal((3, 3, depth, channels), np.float32) / np.float32(np.sqrt(9 * depth)))
    padding = tuple(pick.randrange(3) for _ in range(4))
    y = nn.conv2d(
        x, weight, padding=padding, channels=channels, kernel_size=(3, 3), data_layout="NHWC", kernel_layout="HWIO"
    )
    residual = var("residual", shape=y.tensor_type.shape)
    y = relay.add(y, const(numbers.standard_normal((1, 1, 1, channels), np.float32)))
    return Function((x, residual), nn.relu(relay.add(y, residual))), [
        numbers.standard_normal(v.tensor_type.shape, np.float32) for v in (x, residual)
    ]


def grouped(seed: int) -> tuple[Function, list[Array]]:
    """A convolution of groups."""
    pick, numbers = random.Random(seed), np.random.default_rng(seed)
    n, height, width = pick.randint(1, 2), pick.randint(7, 20), pick.randint(7, 20)
    each, groups = pick.choice((4, 8, 16, 24, 32)), pick.choice((4, 8))
    channels = each * groups
    x = var("x", shape=(n, height, width, channels))
    weight = const(numbers.standard_normal((3, 3, each, channels), np.float32) / np.float32(np.sqrt(9 * each)))
    shape = {"channels": channels, "kernel_size": (3, 3), "groups": groups}
    y = nn.conv2d(x, weight, padding=(1, 1), data_layout="NHWC", kernel_layout="HWIO", **shape)
    return Function((x,), nn.relu(y)), [numbers.standard_normal(x.tensor_type.shape, np.float32)]


def volume(seed: int) -> tuple[Function, list[Array]]:
    """The same for volumes, with one to four taps in depth."""
    pick, numbers = random.Random(seed), np.random.default_rng(seed)
    n, slices, height, width = pick.randint(1, 2), pick.randint(2, 9), pick.randint(9, 20), pick.randint(9, 20)
    depth, channels, taps = pick.randint(4, 50), pick.randint(4, 50), pick.randint(1, 4)
    front = pick.randrange(taps)
    x = var("x", shape=(n, slices, height, width, depth))
    weight = const(
        numbers.standard_normal((taps, 3, 3, depth, channels), np.float32) / np.float32(np.sqrt(9 * taps * depth))
    )
    padding = (front, pick.randrange(3), pick.randrange(3), taps - 1 - front, pick.randrange(3), pick.randrange(3))
    y = nn.conv3d(
        x, weight, padding=padding, channels=channels, kernel_size=(taps, 3, 3), data_layout="NDHWC",
        kernel_layout="DHWIO"
    )
    residual = var("residual", shape=y.tensor_type.shape)
    y = relay.add(y, const(numbers.standard_normal((1, 1, 1, 1, channels), np.float32)))
    return Function((x, residual), nn.relu(relay.add(y, residual))), [
        numbers.standard_normal(v.tensor_type.shape, np.float32) for v in (x, residual)
    ]


def compiled(function: Function, target: Target, tiles: str, level: int = 3) -> tuple[Any, str]:
    """The program, and the text of its kernels."""
    report = BuildReport()
    with PassContext(opt_level=level, config={"relay.backend.winograd": tiles}):
        artifact = build_module(IRModule.from_expr(function), target, report=report)
    return artifact, "\n".join(str(k.func) for k in report.kernels.values())


@pytest.mark.sampled(48)
@on_every_target
@pytest.mark.parametrize("tiles", ["2x2", "4x4"])
@pytest.mark.parametrize(
    ("seed", "make"), [*((s, block) for s in range(12)), *((s, make) for make in (volume, grouped) for s in range(6))]
)
def test_random_shapes(
    seed: int, make: Callable[[int], tuple[Function, list[Array]]], tiles: str, target: Target
) -> None:
    function, arrays = make(seed)
    artifact, text = compiled(function, target, tiles)
    assert "spectrum" in text
    wanted = evaluate(function, *arrays)
    one = artifact.executable(threads=1)(*arrays)
    assert np.linalg.norm(one - wanted) <= LIMITS[tiles] * np.linalg.norm(wanted)
    np.testing.assert_array_equal(artifact.executable(threads=2)(*arrays), one)


def test_a_large_layer() -> None:
    """More than one block, weights that leave the second-level cache, and several threads inside of a block."""
    numbers = np.random.default_rng(0)
    for size, depth in ((28, 256), (14, 512)):
        x = var("x", shape=(1, size, size, depth))
        weight = const(numbers.standard_normal((3, 3, depth, 64), np.float32) / np.float32(np.sqrt(9 * depth)))
        function = Function(
            (x,),
            nn.conv2d(
                x, weight, padding=(1, 1), channels=64, kernel_size=(3, 3), data_layout="NHWC", kernel_layout="HWIO"
            )
        )
        data = numbers.standard_normal((1, size, size, depth), np.float32)
        wanted = evaluate(function, data)
        for tiles, limit in LIMITS.items():
            found = compiled(function, Target("llvm"), tiles)[0].executable(threads=2)(data)
            assert np.linalg.norm(found - wanted) <= limit * np.linalg.norm(wanted)


def current_options() -> KernelOptions:
    """The options of a kernel in the current pass context, on a machine with wide vectors."""
    return KernelOptions(WIDE, winograd_tiles=winograd_setting())


def chosen(
    size: int, depth: int, channels: int, padding: int = 1, tiles: str = "auto", level: int = 3, **options: Any
) -> int | None:
    """The tile that a layer gets on a machine with wide vectors, or None."""
    dtype = options.pop("dtype", "float32")
    data = te.placeholder((1, size, size, depth), dtype)
    weight = te.placeholder((channels, depth, 3, 3), dtype, constant=options.pop("constant", True))
    out_dtype = DataType(options.pop("out_dtype", dtype))
    given = {"ksize": (3, 3), "strides": (1, 1), "dilation": (1, 1), "out_dtype": out_dtype, **options}
    with PassContext(opt_level=level, config={"relay.backend.winograd": tiles}):
        found = cut(data, weight, depth, channels, padding=(padding,) * 4, options=current_options(), **given)
    return None if found is None else found.m


def test_where_it_is_chosen() -> None:
    assert [
        chosen(n, c, c) for n, c in ((224, 64), (112, 128), (56, 64), (28, 128), (14, 256), (7, 512))
    ] == [4, 4, 4, 4, 2, None]
    assert chosen(224, 3, 64) is None
    assert chosen(7, 512, 512, tiles="4x4") == 4
    assert chosen(56, 64, 64, tiles="2x2") == 2
    assert chosen(56, 64, 64, level=2) is None
    assert chosen(56, 64, 64, level=2, tiles="4x4") == 4
    assert chosen(56, 64, 64, tiles="off") is None


def test_where_it_is_chosen_for_groups() -> None:
    """Where whole groups fill vectors, and the zeros between them do not cost what is gained."""
    assert chosen(56, 128, 128, groups=32) == 4
    assert chosen(14, 512, 512, groups=32) is None
    assert chosen(14, 512, 512, groups=32, tiles="2x2") == 2
    assert chosen(56, 24, 24, groups=3, tiles="4x4") is None


def chosen_volume(
    slices: int, size: int, channels: int, taps: int = 3, pad: int = 1, tiles: str = "auto", **options: Any
) -> tuple[int, int] | None:
    """The tile of a volume's slices and how many of these are made together, on a machine with wide vectors."""
    data = te.placeholder((1, slices, size, size, channels), "float32")
    weight = te.placeholder((channels, channels, taps, 3, 3), "float32", constant=True)
    given = {"ksize": (taps, 3, 3), "strides": (1, 1, 1), "dilation": (1, 1, 1), "out_dtype": FLOAT32, **options}
    with PassContext(opt_level=3, config={"relay.backend.winograd": tiles}):
        sides = (pad, 1, 1, pad, 1, 1)
        found = volume_cut(data, weight, channels, channels, padding=sides, options=current_options(), **given)
    return None if found is None else (found.image.m, found.span)


def test_where_it_is_chosen_for_volumes() -> None:
    assert [
        chosen_volume(*s) for s in ((8, 56, 64), (4, 28, 128), (2, 14, 256), (1, 7, 512))
    ] == [(4, 8), (4, 4), (4, 2), None]
    assert chosen_volume(8, 56, 64, tiles="off") is None
    assert chosen_volume(8, 56, 64, pad=3) is None
    assert chosen_volume(1, 56, 64, pad=0) is None
    assert chosen_volume(8, 56, 64, strides=(2, 1, 1)) is None
    assert chosen_volume(8, 56, 64, ksize=(3, 3, 1)) is None
    assert chosen_volume(1, 7, 512, tiles="4x4") == (4, 1)


@pytest.mark.parametrize(
    "options",
    [
        {"constant": False}, {"strides": (1, 2)}, {"dilation": (2, 2)}, {"ksize": (3, 1)}, {"dtype": "float64"},
        {"out_dtype": "float64"}
    ],
    ids=lambda o: next(iter(o)),
)
def test_where_it_does_not_apply(options: dict[str, Any]) -> None:
    assert chosen(56, 64, 64, tiles="4x4", **options) is None


def test_a_block_stays_in_the_cache_when_the_weights_do() -> None:
    with PassContext(opt_level=3):
        for size, c in ((56, 64), (28, 128)):
            data, weight = te.placeholder((1, size, size, c)), te.placeholder((c, c, 3, 3), constant=True)
            found = cut(data, weight, c, c, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), FLOAT32, current_options())
            assert found is not None
            assert 8 * found.points**2 * found.block * found.tiles * c <= WIDE.l2_bytes


@pytest.mark.parametrize("tiles", ["2x2", "4x4"])
@pytest.mark.parametrize(("batch", "size", "depth"), [(1, 147, 32), (2, 147, 32), (1, 30, 40), (3, 27, 24)])
def test_a_block_makes_only_its_own_rows(batch: int, size: int, depth: int, tiles: str) -> None:
    """Also where the register tiles of the products overrun the block."""
    data, weight = te.placeholder((batch, size, size, depth)), te.placeholder((3, 3, depth, 64), constant=True)
    with PassContext(config={"relay.backend.winograd": tiles}):
        found = cut(data, weight, depth, 64, (3, 3), (1, 1), (0,) * 4, (1, 1), FLOAT32, current_options())
        x = var("x", shape=(batch, size, size, depth))
        w = var("weight", shape=(3, 3, depth, 64))
        y = nn.conv2d(x, w, channels=64, kernel_size=(3, 3), data_layout="NHWC", kernel_layout="HWIO")
        text = str(lower(Function((x, w), y), (False, True), WIDE, "f").func)
    assert found is not None
    assert (
        f"T.allocate(({found.points**2 * found.block * found.tiles * depth},), \"float32\", \"global\") as spectrum" in text  # noqa: E501
    )


@pytest.mark.parametrize(
    ("kind", "expected"), [("constant", True), ("parameter", False), ("grouped", True), ("NCHW", False)]
)
def test_the_direct_way_is_taken_otherwise(kind: str, expected: bool) -> None:
    groups = 2 if kind == "grouped" else 1
    x, weight = var("x", shape=(1, 16, 16, 16)), var("weight", shape=(3, 3, 16 // groups, 16))
    layout = "NCHW" if kind == "NCHW" else "NHWC"
    y = nn.conv2d(
        x, weight, padding=(1, 1), groups=groups, channels=16, kernel_size=(3, 3), data_layout=layout,
        kernel_layout="HWIO"
    )
    with PassContext(config={"relay.backend.winograd": "4x4"}):
        kernel = lower(Function((x, weight), y), (False, kind != "parameter"), WIDE, "f")
    assert ("spectrum" in str(kernel.func)) is expected


def test_the_setting_has_few_values() -> None:
    with pytest.raises(
        OptionError,
        match=r"configuration option 'relay\.backend\.winograd' takes one of auto, off, 2x2, 4x4, not '3x3'"
    ):
        PassContext(config={"relay.backend.winograd": "3x3"})
