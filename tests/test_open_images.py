"""One program for images of any height and width: convolutions, pools, resizes and whole networks, beside ONNX
Runtime."""

from __future__ import annotations

import ctypes
import gc
import re
import threading
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import daily
import tilewright
from small_models import onnxruntime_answers
from tilewright.backends.cpu.strategies.schedules.open_rows import cheapest_widths
from tilewright.backends.cpu.strategies.tiles import whole_tile
from tilewright.backends.kernel_options import KernelOptions
from tilewright.backends.targets.target import Target
from tilewright.base.errors import InputError
from tilewright.driver.report import show
from tilewright.runtime.artifact import load_executable
from tilewright.runtime.open_program import OpenExecutable
from tilewright.runtime.program import KernelCall
from tilewright.runtime.sizes import multiple_of
from tilewright.scalar.arith import Ranges, simplify
from tilewright.scalar.arith.evaluate import evaluate
from tilewright.scalar.arith.open_sizes import sample, samples
from tilewright.scalar.expr import Var
from tilewright.tir.stmt import PARALLEL, Allocate, For, IfThenElse, walk_stmt

SIZES = [(1, 1), (1, 7), (5, 3), (8, 8), (9, 13), (17, 31), (7, 100)]
Nodes = Sequence[onnx.NodeProto]


def node(kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, list(inputs), [output], **attributes)


def real(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def model(
    nodes: Nodes, channels: int, weights: dict[str, Any], sizes: Sequence[str] = ("h", "w")
) -> onnx.ModelProto:
    taken = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, channels, *sizes])
    stored = [numpy_helper.from_array(np.asarray(w), n) for n, w in weights.items()]
    graph = helper.make_graph(
        list(nodes), "g", [taken], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], stored
    )
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])


def convolution(
    channels: int, outputs: int, kernel: int, stride: int = 1, padding: Sequence[int] | int | None = None,
    dilation: int = 1, group: int = 1
) -> onnx.ModelProto:
    pads = (kernel - 1) * dilation // 2 if padding is None else padding
    weights = {
        "w": real(outputs, channels // group, kernel, kernel) / np.float32(kernel * (channels / group) ** 0.5),
        "b": real(outputs)
    }
    conv = node(
        "Conv", "xwb", "c", strides=[stride] * 2, pads=[pads] * 4 if isinstance(pads, int) else list(pads),
        dilations=[dilation] * 2, group=group
    )
    return model([conv, node("Relu", "c", "y")], channels, weights)


def pool(kind: str, kernel: int, stride: int, padding: int, channels: int = 24, **attributes: Any) -> onnx.ModelProto:
    nodes = [
        node("Conv", "xw", "c"),
        node(kind, "c", "y", kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[padding] * 4, **attributes)
    ]
    return model(nodes, channels, {"w": real(channels, channels, 1, 1) / 4})


def resized(
    mode: str, transformation: str, rounding: str = "round_prefer_floor", scales: Sequence[float] = ()
) -> onnx.ModelProto:
    """Half of the image, resized by `scales`, or back to the size of the image."""
    how = {"mode": mode, "coordinate_transformation_mode": transformation, "nearest_mode": rounding}
    weights: dict[str, Any] = {"w": real(8, 3, 3, 3) / 5, "v": real(6, 8, 1, 1)}
    nodes = [node("Conv", "xw", "c", pads=[1] * 4, strides=[2, 2])]
    if scales:
        weights["s"] = np.array([1, 1, *scales], np.float32)
        nodes.append(node("Resize", ["c", "", "s"], "u", **how))
    else:
        weights |= {"lead": np.array([1, 8]), "from": np.array([2]), "to": np.array([4])}
        nodes += [
            node("Shape", "x", "shape"), node("Slice", ["shape", "from", "to"], "hw"),
            node("Concat", ["lead", "hw"], "all", axis=0)
        ]
        nodes.append(node("Resize", ["c", "", "", "all"], "u", **how))
    return model([*nodes, node("Conv", "uv", "y")], 3, weights)


def check(of: onnx.ModelProto, shape: Sequence[Any], sizes: Sequence[tuple[int, int]], **options: Any) -> Any:
    """Compile without a warning, and compare with ONNX Runtime at each size."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = tilewright.compile(of, shapes={"x": tuple(shape)}, threads=2, **options)
    for h, w in sizes:
        x = real(1, int(shape[1]), h, w)
        (wanted,) = onnxruntime_answers(of, {"x": x})
        np.testing.assert_allclose(program(x), wanted, rtol=1e-3, atol=1e-5, err_msg=f"{h} by {w}")
    assert isinstance(program.executable, OpenExecutable)
    assert len(program.executable._plans) == len(set(sizes))
    return program


@pytest.mark.parametrize("arguments", [
    (16, 32, 3), (3, 16, 3, 2), (32, 48, 1), (32, 48, 1, 2), (8, 24, 5, 1, (0, 2, 4, 1)), (16, 16, 3, 2, 2, 2),
    (16, 32, 3, 1, 1, 1, 2), (16, 200, 3), (16, 24, 3, 1, None, 9), (16, 32, 3, 2, (1, 2, 1, 0), 1, 2), (4, 40, 7, 3),
])
def test_convolutions(arguments: tuple[Any, ...]) -> None:
    check(
        convolution(*arguments), (1, arguments[0], "h", "w"), SIZES if arguments[2] < 5 else [(5, 3), (9, 13), (7, 100)]
    )


@pytest.mark.parametrize(("arguments", "is_whole"), [
    ((24, 32, 3, 2), False), ((32, 64, 3, 2, 1, 1, 4), False), ((24, 32, 3, 1, 9, 9), True), ((24, 600, 3, 2), True),
], ids=str)
def test_bands_of_rows_are_copied_where_they_overlap_little(arguments: tuple[Any, ...], is_whole: bool) -> None:
    channels, *_ = arguments
    of = convolution(*arguments)
    of.graph.input[0].type.tensor_type.shape.dim[0].ClearField("dim_value")
    of.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    program = tilewright.compile(of, shapes={"x": ("n", channels, "h", "w")}, threads=2)
    for n, h, w in [(1, 1, 1), (3, 2, 3), (2, 17, 6), (1, 40, 12)]:
        x = real(n, channels, h, w)
        np.testing.assert_allclose(program(x), onnxruntime_answers(of, {"x": x})[0], rtol=1e-3, atol=1e-5)
    (kernel,) = [k for name, k in program.report.kernels.items() if "conv2d" in name]
    body = kernel.declared.body
    loops = [s for s in walk_stmt(body) if isinstance(s, For)]
    outside = {a.buffer.name for a in walk_stmt(body) if isinstance(a, Allocate)}
    inside = {a.buffer.name for loop in loops for a in walk_stmt(loop.body) if isinstance(a, Allocate)}
    assert any("padded" in n for n in outside) and is_whole == any("padded" in n for n in outside - inside)


def test_threads_have_sums_of_their_own_where_their_bounds_cannot_be_proved() -> None:
    weights = {"w": real(80, 4, 3, 2, 2) / 7, "b": real(80)}
    conv = node("Conv", "xwb", "c", strides=[3, 1, 1], pads=[1, 0, 1, 2, 0, 1], group=2)
    of = model([conv, node("Relu", "c", "y")], 8, weights, ("d", "h", "w"))
    of.graph.input[0].type.tensor_type.shape.dim[0].ClearField("dim_value")
    of.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    program = tilewright.compile(of, shapes={"x": ("n", 8, "d", "h", "w")}, threads=2)
    for sizes in [(1, 34, 15, 34), (2, 7, 5, 9), (1, 33, 15, 34)]:
        x = real(sizes[0], 8, *sizes[1:])
        np.testing.assert_allclose(program(x), onnxruntime_answers(of, {"x": x})[0], rtol=1e-3, atol=1e-4)
    (kernel,) = [k for name, k in program.report.kernels.items() if "conv3d" in name]
    for allocated in (a for a in walk_stmt(kernel.declared.body) if isinstance(a, Allocate)):
        if allocated.buffer.scope == "local":
            assert not any(isinstance(loop, For) and loop.kind == PARALLEL for loop in walk_stmt(allocated.body))


@pytest.mark.parametrize("processor", ["znver4", "x86-64-v4"])
def test_tiles_of_a_symbolic_width_have_whole_vectors(processor: str) -> None:
    w, options = Var("w"), KernelOptions(Target(f"llvm -mcpu={processor}").machine)
    with samples({w: 24}, least={}):
        assert whole_tile(16, sample(w, 24), 32, options).lanes == 16


@pytest.mark.parametrize("cycles", [lambda width: width, lambda width: width + 1, lambda width: max(width, 6)])
def test_tiles_have_the_width_for_which_a_row_takes_the_fewest_cycles(cycles: Any) -> None:
    w = Var("w")
    with samples({w: 61}, least={}):
        choices = cheapest_widths(sample(w, 61), 8, cycles)
    assert [width for width, _ in choices] == [3, 5, 8]
    for outputs in range(1, 50):
        taken = next((width for width, condition in choices if evaluate(condition, {w: outputs})), 8)
        whole = {width: -(-outputs // width) * cycles(width) for width, _ in choices}
        assert whole[taken] == min(whole.values())


@pytest.mark.parametrize("arguments", [
    (12, 20, 3, 1, 0), (8, 40, 3, 1, (1, 0, 2, 1)), (64, 64, 3, 1, None, 1, 4)], ids=str)
def test_winograd_tiles(arguments: tuple[Any, ...]) -> None:
    sizes = [(h, w) for h, w in [*SIZES, (30, 41)] if min(h, w) > 2]
    program = check(convolution(*arguments), (1, arguments[0], "h=3..", "w=3.."), sizes)
    assert "spectrum" in program.dump("tir")


@pytest.mark.parametrize("arguments", [(64, 64, 3), (40, 56, 3, 1, (1, 0, 2, 1)), (64, 64, 3, 1, None, 1, 4)], ids=str)
def test_winograd_tiles_of_two_sizes_share_their_weights(
    arguments: tuple[Any, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = [(3, 3), (3, 8), (9, 13), (40, 61), (80, 90)]
    of = convolution(*arguments)
    program = check(of, (1, arguments[0], "h=3..", "w=3.."), sizes)
    assert len(program.artifact.manifest.kept) == 1 and "kept" in program.dump("tir")
    weights = of.graph.initializer[0].raw_data
    assert len(program.artifact.constants) < 2.1 * len(weights)
    if arguments == (64, 64, 3):
        shapes: Any = {"x": (1, 64, "h=3..", "w=3..")}
        show(report := tilewright.check(of, shapes))
        assert report.kept == 4 * len(weights)
        assert "weights that calls with large sizes add: 576 kB" in capsys.readouterr().out


def two_convolutions() -> onnx.ModelProto:
    """Two convolutions of one kernel, with weights of their own."""
    weights = {"w": real(64, 64, 3, 3) / 24, "v": real(65, 64, 3, 3)[:64] / 24}
    nodes = [node("Conv", "xw", "c", pads=[1] * 4), node("Conv", "cv", "y", pads=[1] * 4)]
    return model(nodes, 64, weights)


@pytest.mark.slow
def test_weights_of_large_winograd_tiles_are_computed_once(tmp_path: Path) -> None:
    """Threads that compute them at the same time agree, later calls read no packed weights, and libraries that the
    system loads once share them."""
    of = two_convolutions()
    program = tilewright.compile(of, shapes={"x": (1, 64, "h=3..", "w=3..")}, threads=2)
    kept = program.artifact.manifest.kept
    assert len(kept) == 2 and len({k.symbol for k in kept}) == 1
    path = program.save(tmp_path / "model.so")
    assert path.stat().st_size < len(program.artifact.constants) + sum(k.nbytes for k in kept)
    small, large = real(1, 64, 6, 7), real(1, 64, 60, 70)
    wanted = onnxruntime_answers(of, {"x": large})[0]
    start = threading.Barrier(6)

    def first_call() -> Any:
        start.wait()
        return program(large)

    with ThreadPoolExecutor(6) as pool:
        for made in [pool.submit(first_call) for _ in range(6)]:
            np.testing.assert_allclose(made.result(), wanted, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(program(small), onnxruntime_answers(of, {"x": small})[0], rtol=1e-3, atol=1e-5)
    constants = program.executable._constants
    ctypes.memset(constants.ctypes.data, 0, constants.nbytes)
    np.testing.assert_allclose(program(large), wanted, rtol=1e-3, atol=1e-5)
    assert not program(small).any()
    one, other = load_executable(path), load_executable(path)
    for opened in (one, other):
        np.testing.assert_allclose(opened(large), wanted, rtol=1e-3, atol=1e-5)
    del one, opened
    gc.collect()
    np.testing.assert_allclose(other(large), wanted, rtol=1e-3, atol=1e-5)


def test_winograd_tiles_in_a_loop() -> None:
    """A program with control flow computes weights at the first iteration that needs them."""
    step = [node("Conv", "sw", "t", pads=[1] * 4), node("Identity", ["go"], "e")]
    values: dict[str, Any] = {
        "i": (TensorProto.INT64, []), "go": (TensorProto.BOOL, []), "e": (TensorProto.BOOL, []),
        "s": (TensorProto.FLOAT, [1, 64, "h", "w"]), "t": (TensorProto.FLOAT, [1, 64, "h", "w"])}
    ins, outs = (
        [helper.make_tensor_value_info(n, *values[n]) for n in names] for names in (("i", "go", "s"), ("e", "t")))
    rows = helper.make_node("Loop", ["count", "", "x"], ["y"], body=helper.make_graph(step, "b", ins, outs))
    of = model([rows], 64, {"w": real(64, 64, 3, 3) / 24})
    of.graph.input.append(helper.make_tensor_value_info("count", TensorProto.INT64, []))
    program = tilewright.compile(of, shapes={"x": (1, 64, "h=3..", "w=3..")}, threads=2)
    assert len(program.artifact.manifest.kept) == 1 and not program.artifact.manifest.steps
    for h, w in [(6, 7), (60, 70)]:
        feeds = {"x": real(1, 64, h, w), "count": np.array(2)}
        np.testing.assert_allclose(program(**feeds), onnxruntime_answers(of, feeds)[0], rtol=1e-3, atol=1e-5)


def test_register_tiles_of_few_winograd_tiles() -> None:
    check(convolution(64, 72, 3), (1, 64, "h", "w"), [(2, 2), (4, 4), (6, 6), (4, 14), (6, 10), (6, 14), (8, 8)])


def test_winograd_tiles_of_several_images() -> None:
    of = convolution(16, 32, 3)
    of.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 3
    program = tilewright.compile(of, shapes={"x": (3, 16, "h", "w")}, threads=2)
    for h, w in [(1, 1), (5, 6), (13, 9)]:
        x = real(3, 16, h, w)
        np.testing.assert_allclose(program(x), onnxruntime_answers(of, {"x": x})[0], rtol=1e-3, atol=1e-5)
    assert isinstance(program.executable, OpenExecutable) and "spectrum" in program.dump("tir")


def test_tiles_of_a_convolution_with_a_stride_have_no_conditions() -> None:
    program = check(convolution(40, 48, 1, 2, 0), (1, 40, "h=32..:32", "w=32..:32"), [(32, 64), (96, 32)])
    (kernel,) = [k for name, k in program.report.kernels.items() if "conv2d" in name]
    loops = [s for s in walk_stmt(kernel.declared.body) if isinstance(s, For)]
    assert loops and not any(isinstance(s, IfThenElse) for loop in loops for s in walk_stmt(loop.body))


def test_products_of_odd_images_have_no_conditions() -> None:
    pool = node("MaxPool", "x", "p", kernel_shape=[3, 3], strides=[2, 2])
    of = model([pool, node("Conv", "pw", "y", kernel_shape=[1, 1])], 16, {"w": real(48, 16, 1, 1)})
    of.graph.input[0].type.tensor_type.shape.dim[0].ClearField("dim_value")
    of.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    program = tilewright.compile(of, shapes={"x": ("n", 16, "h=32..:32", "w=32..:32")}, threads=2)
    for n, h, w in [(1, 32, 32), (3, 64, 32), (2, 96, 160)]:
        x = real(n, 16, h, w)
        np.testing.assert_allclose(program(x), onnxruntime_answers(of, {"x": x})[0], rtol=1e-3, atol=1e-5)
    (kernel,) = [k for name, k in program.report.kernels.items() if "conv2d" in name]
    loops = [s for s in walk_stmt(kernel.declared.body) if isinstance(s, For)]
    assert loops and not any(isinstance(s, IfThenElse) for loop in loops for s in walk_stmt(loop.body))


WIDE = "llvm -mcpu=znver4"
"""A processor on which these choices are known; they depend on the number of registers."""


def test_weights_for_a_symbolic_batch_are_those_for_one_image() -> None:
    of = convolution(512, 512, 3)
    of.graph.input[0].type.tensor_type.shape.dim[0].ClearField("dim_value")
    of.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    program = tilewright.compile(of, shapes={"x": ("n", 512, 7, 7)}, threads=2)
    for n in (1, 2, 5):
        x = real(n, 512, 7, 7)
        np.testing.assert_allclose(program(x), onnxruntime_answers(of, {"x": x})[0], rtol=1e-3, atol=1e-5)
    wide = tilewright.compile(of, shapes={"x": ("n", 512, 7, 7)}, target=WIDE)
    assert len(wide.artifact.constants) < 1.1 * len(of.graph.initializer[0].raw_data)


def test_a_convolution_without_padding_has_a_smallest_image() -> None:
    check(convolution(16, 16, 3, 1, 0), (1, 16, "h=3..", "w=3.."), [(3, 3), (3, 9), (17, 31)])


def test_small_images_are_gathered_for_a_product() -> None:
    of = convolution(256, 256, 3, 2)
    of.graph.input[0].type.tensor_type.shape.dim[0].ClearField("dim_value")
    of.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    program = tilewright.compile(of, shapes={"x": ("n", 256, "h", "w")}, threads=2)
    assert "gathered" in program.dump("tir")
    for n, h, w in [(1, 1, 1), (2, 1, 1), (1, 3, 4), (1, 5, 3), (3, 2, 4), (2, 7, 8), (5, 9, 5), (1, 15, 31)]:
        x = real(n, 256, h, w)
        np.testing.assert_allclose(program(x), onnxruntime_answers(of, {"x": x})[0], rtol=1e-3, atol=1e-5)


def test_large_images_keep_transforms_of_weights_that_are_packed_for_small_ones() -> None:
    of = convolution(512, 512, 3)
    check(of, (1, 512, "h", "w"), [(1, 1), (2, 3), (7, 7), (31, 9), (16, 20)])
    program = tilewright.compile(of, shapes={"x": (1, 512, "h", "w")}, target=WIDE)
    weights = of.graph.initializer[0].raw_data
    assert [9 * k.nbytes for k in program.artifact.manifest.kept] == [16 * len(weights)]
    assert len(program.artifact.constants) < 1.1 * len(weights)


@pytest.mark.parametrize(("channels", "kernel", "stride"), [(32, 3, 1), (40, 5, 2), (8, 3, 2), (33, 3, 1)])
def test_depthwise_convolutions(channels: int, kernel: int, stride: int) -> None:
    check(convolution(channels, channels, kernel, stride, group=channels), (1, channels, "h", "w"), SIZES)


@pytest.mark.parametrize("of", [
    pool("MaxPool", 3, 2, 1), pool("AveragePool", 3, 2, 1), pool("AveragePool", 3, 1, 1, count_include_pad=1),
    pool("MaxPool", 1, 2, 0),
], ids=["max", "mean", "mean with padding", "every other"])
def test_pools(of: onnx.ModelProto) -> None:
    check(of, (1, 24, "h", "w"), SIZES)


@pytest.mark.parametrize("arguments", [
    ("nearest", "asymmetric", "floor", (2, 2)), ("nearest", "half_pixel", "round_prefer_floor", (2, 3)),
    ("linear", "half_pixel", "floor", (2, 2)),
    ("linear", "half_pixel", "floor", (1.5, 2.5)), ("linear", "align_corners", "floor", (2, 2)),
    ("linear", "pytorch_half_pixel", "floor", (4, 2)),
    ("linear", "half_pixel"), ("linear", "asymmetric"), ("linear", "align_corners"), ("linear", "pytorch_half_pixel"),
    ("nearest", "asymmetric", "floor"), ("nearest", "half_pixel"),
], ids=str)
def test_resizes(arguments: tuple[Any, ...]) -> None:
    check(resized(*arguments), (1, 3, "h=3..", "w=3.."), [(3, 3), (5, 3), (9, 13), (17, 30)])


def test_a_cubic_resize() -> None:
    check(resized("cubic", "half_pixel"), (1, 3, "h=3..", "w=3.."), [(5, 3), (9, 13)])


@pytest.mark.slow
def test_one_side_is_open() -> None:
    of = model([
        node("Conv", "xw", "c", pads=[1] * 4), node("Conv", "cv", "d", pads=[1] * 4, group=16),
        node("GlobalAveragePool", "d", "y")
    ], 3, {
        "w": real(16, 3, 3, 3) / 5, "v": real(16, 1, 3, 3) / 3})
    check(of, (1, 3, 12, "w"), [(12, 1), (12, 17), (12, 50)])
    check(of, (1, 3, "h", 7), [(1, 7), (17, 7), (30, 7)])


def classifier() -> onnx.ModelProto:
    """A stem, a residual block that halves the image, an inverted one with a gate of channels, and what is left after
    the mean over the image."""
    shapes = {"stem": (16, 3, 3, 3), "a": (32, 16, 3, 3), "b": (
        32, 32, 3, 3
    ), "short": (32, 16, 1, 1), "up": (64, 32, 1, 1), "depth": (64, 1, 5, 5), "less": (8, 64, 1, 1),
              "more": (64, 8, 1, 1), "down": (32, 64, 1, 1)}
    weights: dict[str, Any] = {
        k: real(*s) / np.float32(np.prod(s[1:]) ** 0.5) for k, s in shapes.items()
    } | {"last": real(32, 10) / 4}
    nodes = [
        node("Conv", ["x", "stem"], "c0", pads=[1] * 4, strides=[2, 2]), node("Relu", ["c0"], "r0"),
        node("MaxPool", ["r0"], "p0", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
        node("Conv", ["p0", "a"], "c1", pads=[1] * 4, strides=[2, 2]), node("Relu", ["c1"], "r1"),
        node("Conv", ["r1", "b"], "c2", pads=[1] * 4),
        node("Conv", ["p0", "short"], "c3", strides=[2, 2]), node("Add", ["c2", "c3"], "a0"),
        node("Relu", ["a0"], "r2"),
        node("Conv", ["r2", "up"], "c4"), node("HardSwish", ["c4"], "h0"),
        node("Conv", ["h0", "depth"], "c5", pads=[2] * 4, group=64), node("HardSwish", ["c5"], "h1"),
        node("GlobalAveragePool", ["h1"], "g0"), node("Conv", ["g0", "less"], "c6"), node("Relu", ["c6"], "r3"),
        node("Conv", ["r3", "more"], "c7"), node("HardSigmoid", ["c7"], "s0"),
        node("Mul", ["h1", "s0"], "m0"), node("Conv", ["m0", "down"], "c8"), node("Add", ["c8", "r2"], "a1"),
        node("GlobalAveragePool", ["a1"], "g1"), node("Flatten", ["g1"], "f"), node("Gemm", ["f", "last"], "y"),
    ]
    return model(nodes, 3, weights)


def pyramid() -> onnx.ModelProto:
    """An image halved three times, and the halves joined again on the way back, as detectors of text have it."""
    weights: dict[str, Any] = {
        f"d{k}": real(16, 3 if k == 0 else 16, 3, 3) / 6 for k in range(3)
    } | {f"s{k}": real(8, 16, 1, 1) / 4 for k in range(3)}
    weights |= {
        "scales": np.array([1, 1, 2, 2], np.float32), "wide": real(4, 16, 3, 3) / 6, "t0": real(4, 4, 2, 2),
        "t1": real(4, 1, 2, 2)
    }
    nodes = [n for k in range(3) for n in (
        node("Conv", ["x" if k == 0 else f"r{k - 1}", f"d{k}"], f"c{k}", pads=[1] * 4, strides=[2, 2]),
        node("Relu", [f"c{k}"], f"r{k}"), node("Conv", [f"r{k}", f"s{k}"], f"l{k}"))]
    for k, above in ((1, "l2"), (0, "m1")):
        nodes += [
            node(
                "Resize", [above, "", "scales"], f"u{k}", mode="nearest", coordinate_transformation_mode="asymmetric",
                nearest_mode="floor"
            ), node("Add", [f"l{k}", f"u{k}"], f"m{k}")
        ]
    nodes += [node("Concat", ["m0", "u0"], "j", axis=1), node("Conv", ["j", "wide"], "v", pads=[1] * 4), node(
        "ConvTranspose", ["v", "t0"], "w0", strides=[2, 2]
    ),
              node("Relu", ["w0"], "w1"), node("ConvTranspose", ["w1", "t1"], "w2", strides=[2, 2]),
              node("Sigmoid", ["w2"], "y")]
    return model(nodes, 3, weights)


def test_an_enlarged_image_stays_in_the_layout_of_its_convolutions() -> None:
    program = check(resized("nearest", "asymmetric", "floor", (2, 2)), (1, 3, "h", "w"), [(5, 8), (31, 18)])
    names = [step.symbol for step in program.artifact.manifest.steps if isinstance(step, KernelCall)]
    assert not any("repeat" in name or "transpose" in name for name in names[:-1]), names


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
def test_rows_of_padded_images_are_copied_in_whole_vectors(mode: str) -> None:
    pads = {"p": np.array([0, 0, 2, 3, 0, 0, 1, 4])}
    of = model([node("Pad", "xp", "y", mode=mode)], 2, pads)
    program = check(of, (1, 2, "h", "w"), [(5, 5), (7, 16), (6, 64), (9, 75)])
    stores = [line for line in program.dump("tir").splitlines() if "] = " in line and "p0[" in line]
    if mode != "edge":  # its indices are limited, not tested
        assert any("masked" not in line and "T.broadcast(w" not in line for line in stores), stores
    assert not any(", -1, 16)" in line and "masked" not in line for line in stores)  # the edges are not the long part


def test_the_sums_of_a_transposed_convolution_are_those_of_a_tile() -> None:
    of = model([node("ConvTranspose", "xw", "y", strides=[2, 2])], 64, {"w": real(64, 32, 2, 2) / 8})
    program = check(of, (1, 64, "h=2..:2", "w=2..:2"), [(2, 2), (4, 6), (10, 16)])
    assert not re.search(r"conv_transpose\w* = T.allocate\(\([^)]*[hw]_by_2", program.dump("tir"))


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_channels_become_pixels_row_by_row(mode: str) -> None:
    of = model([node("DepthToSpace", "x", "y", blocksize=3, mode=mode)], 18, {})
    program = check(of, (1, 18, "h", "w"), [(1, 1), (4, 5), (3, 16), (2, 37)])
    text = program.dump("tir")
    assert not re.search(r"(//|%) T.broadcast\(w", text), text  # no division by the width for each element


@pytest.mark.slow
def test_a_classifier() -> None:
    check(classifier(), (1, 3, "h=16..", "w=16.."), [(16, 16), (17, 31), (64, 48), (40, 57)])


@pytest.mark.slow
def test_multiples_of_a_number(tmp_path: Path) -> None:
    program = check(pyramid(), (1, 3, "h=8..64:8", "w:8"), [(8, 8), (16, 40), (64, 24)])
    assert [str(t) for t in program.inputs] == ["float32 x[1, 3, (h_by_8 * 8), (w_by_8 * 8)]"]
    assert [str(s) for s in program.artifact.manifest.symbols] == ["h_by_8 from 1 to 8", "w_by_8 from 1"]
    loaded = load_executable(program.save(tmp_path / "pyramid.so"))
    x = real(1, 3, 24, 8)
    np.testing.assert_array_equal(loaded(x), program(x))
    with pytest.raises(
        InputError,
        match="dimension 2 of input 'x' is 12, and must be a multiple of 8"
    ):
        loaded(real(1, 3, 12, 8))
    told = (
        "dimension 2 of input 'x' is 72, but the program was compiled for multiples of 8 from 8 to 64; compile it with "
        "a wider range in shapes="
    )
    with pytest.raises(InputError, match=re.escape(told)):
        loaded(real(1, 3, 72, 8))


@pytest.mark.slow
def test_sizes_that_must_be_multiples_become_multiples() -> None:
    program = check(pyramid(), (1, 3, "h", "w"), [(8, 16), (40, 24)])
    assert [str(s) for s in program.artifact.manifest.symbols] == ["h_by_8 from 1", "w_by_8 from 1"]
    told = "dimension 2 of input 'x' is 9, and must be a multiple of 8"
    with pytest.raises(InputError, match=re.escape(told)):
        program(real(1, 3, 9, 16))


@pytest.mark.parametrize(("shape", "message"), [
    ((1, 3, "h=9..15:8", 8), "dimension 'h' is given as multiples of 8 from 9 to 15, but there are none"),
    ((1, 3, "h:8", "h:16"), "dimension 'h' is given in multiples of two numbers; dimension 3 of input 'x' has 'h:16'"),
    ((1, 3, "h:0", 8), "dimension 2 of input 'x' is 'h:0'; write a number, a name"),
])
def test_multiples_that_make_no_sense_are_refused(shape: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        tilewright.compile(pyramid(), shapes={"x": shape})


def test_multiples_on_the_command_line() -> None:
    from tilewright.driver.options import input_shapes

    assert input_shapes("x:[1,3,h=32..1280:32,w:32]") == {"x": (1, 3, "h=32..1280:32", "w:32")}


def test_a_size_that_is_a_multiple_of_a_name() -> None:
    assert [multiple_of(s) for s in ("n", "(n * 32)", "(n + 1)", 3)] == [("n", 1), ("n", 32), None, None]
    h = Var("h")
    assert str(simplify((h * 32 - 1) // 2 + 1, Ranges())) == "(h * 16)"


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "transformation", "exclude", "given"), daily.sample([
    (mode, transformation, exclude, given) for mode in ("linear", "cubic")
    for transformation in ("half_pixel", "half_pixel_symmetric", "align_corners", "asymmetric", "pytorch_half_pixel")
    for exclude in (0, 1) for given in ("scales", "sizes")], 4, "antialiased symbolic sizes"))
def test_antialiased_resizes(mode: str, transformation: str, exclude: int, given: str) -> None:
    """The weights of symbolic sizes are those of the program for these sizes."""
    known = np.array([1, 1, 0.625, 0.4375], np.float32) if given == "scales" else np.array([1, 2, 7, 3])
    resize = node("Resize", ["x", "", "s"] if given == "scales" else ["x", "", "", "s"], "y", mode=mode, antialias=1,
                  exclude_outside=exclude, coordinate_transformation_mode=transformation)
    m = model([resize], 2, {"s": known})
    m.opset_import[0].version = 19
    program = tilewright.compile(m, symbolic=True)
    for h, w in ((4, 4), (5, 9), (16, 7), (33, 20), (7, 3)):
        fixed = tilewright.compile(m, shapes={"x": (1, 2, h, w)}, symbolic=False)
        np.testing.assert_allclose(program(real(1, 2, h, w)), fixed(real(1, 2, h, w)), 1e-4, 1e-5)
