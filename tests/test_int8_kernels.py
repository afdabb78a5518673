"""Kernels that multiply bytes, bit for bit against numpy, for every instruction set that has a way of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codegen_native import Native
from codegen_processors import OF_BYTES, Work, run_all, why_not
from tilewright import te
from tilewright.backends.cpu.llvm.codegen import emit
from tilewright.backends.cpu.llvm.compile import assembly
from tilewright.base.nd import aligned_empty
from tilewright.compat.target import Target
from tilewright.compiler.kernel import lower
from tilewright.ir.structural import structural_equal
from tilewright.relay.expr import Function, var
from tilewright.relay.interpreter import evaluate
from tilewright.relay.op.fixed_point import HighProduct
from tilewright.relay.op.nn import BatchMatmul, Conv2d, Dense, Matmul
from tilewright.runtime.host import host_arch, host_features
from tilewright.scalar.intrinsics import dot4
from tilewright.te.create import create_prim_func
from tilewright.tir.interpreter import run
from tilewright.tir.parser import parse
from tilewright.tir.transform.lower_blocks import lower_blocks
from tilewright.tir.transform.pipeline import lower_loops

pytestmark = pytest.mark.slow

Array = np.ndarray[Any, Any]
X86 = [
    Target(f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}")
    for cpu in ("x86-64", "haswell", "alderlake", "skylake-avx512", "znver5")
]
HERE = [t for t in X86 if host_arch() == "x86_64" and t.features <= host_features()] or [Target("llvm")]
INSTRUCTIONS = {
    "x86-64": "pmaddwd", "haswell": "vpmaddwd", "alderlake": "vpdpbusd", "skylake-avx512": "vpmaddwd",
    "znver5": "vpdpbusd"
}


def conv(shape: tuple[int, ...], kernel: tuple[int, ...], **attrs: Any) -> Function:
    x, w = var("x", shape=shape, dtype="uint8"), var("w", shape=kernel, dtype="int8")
    return Function(
        (x, w), Conv2d(data_layout="NHWC", kernel_layout="HWIO", out_dtype="int32", **attrs)(x, w),
        attrs={"Primitive": 1}
    )


def planes(shape: tuple[int, ...], kernel: tuple[int, ...], **attrs: Any) -> Function:
    x, w = var("x", shape=shape, dtype="uint8"), var("w", shape=kernel, dtype="int8")
    op = Conv2d(data_layout="NCHW", kernel_layout="HWIO", out_layout="NHWC", out_dtype="int32", **attrs)
    return Function((x, w), op(x, w), attrs={"Primitive": 1})


def dense(rows: int, depth: int, columns: int) -> Function:
    x, w = var("x", shape=(rows, depth), dtype="uint8"), var("w", shape=(columns, depth), dtype="int8")
    return Function((x, w), Dense(out_dtype="int32")(x, w), attrs={"Primitive": 1})


def matmul(a: tuple[int, ...], b: tuple[int, ...], op: type[Matmul] | type[BatchMatmul], **attrs: Any) -> Function:
    x, w = var("x", shape=a, dtype="uint8"), var("w", shape=b, dtype="int8")
    return Function((x, w), op(out_dtype="int32", **attrs)(x, w), attrs={"Primitive": 1})


KERNELS: dict[str, Callable[[], Function]] = {
    "3x3": lambda: conv((1, 9, 11, 8), (3, 3, 8, 21), padding=1),
    "3x3 stride 2, batch": lambda: conv((2, 7, 8, 4), (3, 3, 4, 50), padding=1, strides=2),
    "5x4 dilated": lambda: conv((1, 13, 12, 4), (5, 4, 4, 3), padding=2, dilation=2),
    "1x1": lambda: conv((1, 5, 7, 12), (1, 1, 12, 37)),
    "1x1 stride 2": lambda: conv((1, 5, 7, 12), (1, 1, 12, 16), strides=2),
    "depthwise": lambda: conv((1, 9, 10, 37), (3, 3, 1, 37), padding=1, groups=37),
    "depthwise 5x3, not padded": lambda: conv((1, 9, 10, 32), (5, 3, 1, 32), groups=32),
    "depthwise 4x4, uneven padding": lambda: conv((2, 9, 10, 19), (4, 4, 1, 19), padding=(1, 2, 2, 1), groups=19),
    "depthwise, dilated": lambda: conv((1, 11, 12, 16), (3, 3, 1, 16), padding=2, dilation=2, groups=16),
    "depthwise, stride 2": lambda: conv((1, 9, 10, 24), (3, 3, 1, 24), padding=1, strides=2, groups=24),
    "depthwise, stride 2 down": lambda: conv((1, 9, 10, 24), (3, 3, 1, 24), padding=1, strides=(2, 1), groups=24),
    "depthwise, two outputs a channel": lambda: conv((1, 6, 7, 5), (3, 3, 1, 10), padding=1, groups=5),
    "runs of one channel": lambda: conv((1, 9, 31, 1), (3, 8, 1, 21), strides=(1, 3)),
    "runs of one channel, few outputs": lambda: conv((2, 7, 40, 1), (2, 12, 1, 5), strides=(2, 2), dilation=(2, 1)),
    "runs of planes": lambda: planes((1, 3, 9, 20), (3, 4, 3, 19)),
    "runs of planes, stride 2": lambda: planes((2, 2, 9, 21), (7, 8, 2, 8), strides=2),
    "short depth, three taps": lambda: conv((1, 6, 32, 4), (3, 3, 4, 16), padding=1),
    "no whole words": lambda: conv((1, 5, 6, 7), (3, 3, 7, 9), padding=1),
    "dense": lambda: dense(13, 44, 70),
    "dense, one row": lambda: dense(1, 128, 1000),
    "dense, one column": lambda: dense(5, 16, 1),
    "groups of whole words": lambda: conv((1, 6, 7, 16), (3, 3, 8, 10), padding=1, groups=2),
    "matmul": lambda: matmul((9, 20), (20, 35), Matmul),
    "matmul, both transposed": lambda: matmul((20, 9), (35, 20), Matmul, transpose_a=True, transpose_b=True),
    "batch of products": lambda: matmul((3, 9, 20), (3, 35, 20), BatchMatmul),
    "batch of products, the first transposed": lambda: matmul((3, 20, 9), (1, 35, 20), BatchMatmul, transpose_a=True),
}


def inputs(function: Function) -> tuple[Array, Array]:
    """The ends of the ranges among them: 255 * -128 four times is where saturating instructions go wrong."""
    rng = np.random.default_rng(5)
    x, w = (p.checked_type.shape for p in function.params)  # type: ignore[attr-defined]
    return rng.choice(
        np.asarray([0, 1, 127, 128, 254, 255], np.uint8), x
    ), rng.choice(np.asarray([-128, -127, -1, 0, 3, 127], np.int8), w)


def aligned(a: Array) -> Array:
    made = aligned_empty(a.shape, a.dtype)
    made[...] = a
    return made


def answer(function: Function, target: Target, constant: bool) -> Array:
    """What the compiled kernel makes of `inputs(function)`, its weights known while compiling or not."""
    kernel = lower(function, [False, constant], target.machine, "kernel")
    values = inputs(function)
    args = [
        aligned(np.asarray(a.pack(*(values[i] for i in a.sources)) if a.pack else values[a.sources[0]]))
        for a in kernel.arguments
    ]
    out = aligned(np.full(function.body.tensor_type.concrete_shape, 99, np.int32))
    native = Native(kernel.func, target)
    native(*args, out)
    native.close()
    return out


@pytest.mark.parametrize("constant", [True, False], ids=["packed", "packed at run time"])
@pytest.mark.parametrize("target", HERE, ids=lambda t: t.mcpu)
@pytest.mark.parametrize("name", KERNELS)
def test_kernel(name: str, target: Target, constant: bool) -> None:
    function = KERNELS[name]()
    np.testing.assert_array_equal(answer(function, target, constant), evaluate(function, *inputs(function)))


@pytest.mark.parametrize("name", ["3x3", "1x1", "dense, one column"])
def test_loops_mean_the_same(name: str) -> None:
    function = KERNELS[name]()
    kernel = lower(function, [False, True], X86[-1].machine, "kernel")
    values = inputs(function)
    args = [
        np.asarray(a.pack(*(values[i] for i in a.sources)) if a.pack else values[a.sources[0]])
        for a in kernel.arguments
    ]
    out = np.zeros(function.body.tensor_type.concrete_shape, np.int32)
    run(kernel.func, [*args, out])
    np.testing.assert_array_equal(out, evaluate(function, *values))


def test_their_text_is_read_back() -> None:
    kernel = lower(KERNELS["3x3"](), [False, True], X86[-1].machine, "kernel", keep_stages=True)
    for func in (kernel.func, *kernel.stages.values()):
        assert structural_equal(parse(str(func)), func)


@pytest.mark.parametrize("target", X86, ids=lambda t: t.mcpu)
def test_the_instruction_of_the_processor_is_used(target: Target) -> None:
    kernel = lower(KERNELS["1x1"](), [False, True], target.machine, "kernel")
    assert INSTRUCTIONS[target.mcpu] in assembly(emit(kernel.func, target), target)


@pytest.mark.parametrize(
    ("cpu", "instruction"), [("neoverse-n2", "usdot"), ("cortex-a76", "sdot"), ("cortex-a72", "mla")]
)
def test_the_instruction_of_arm_is_used(cpu: str, instruction: str) -> None:
    target = Target(f"llvm -mtriple=aarch64-linux-gnu -mcpu={cpu}")
    kernel = lower(KERNELS["1x1"](), [False, True], target.machine, "kernel")
    assert f"\t{instruction}\t" in assembly(emit(kernel.func, target), target)


def test_dot4_of_scalars() -> None:
    a, b, c = te.placeholder(
        (6,), "uint32", "a"
    ), te.placeholder((6,), "int32", "b"), te.placeholder((6,), "int32", "c")
    made = te.compute((6,), lambda i: dot4(a(i), b(i), c(i), dtype="int32"), name="made")
    func = lower_loops(lower_blocks(create_prim_func([a, b, c], [made], "dots")))
    rng = np.random.default_rng(3)
    x, y, z = rng.integers(0, 1 << 32, 6).astype(np.uint32), rng.integers(
        -(1 << 31), 1 << 31, 6
    ).astype(np.int32), np.arange(6, dtype=np.int32)
    wanted = z + (x.view(np.uint8).astype(np.int32) * y.view(np.int8)).reshape(6, 4).sum(1)
    for target in HERE:
        out, native = np.zeros(6, np.int32), Native(func, target)
        native(x, y, z, out)
        native.close()
        np.testing.assert_array_equal(out, wanted)
    found = np.zeros(6, np.int32)
    run(func, [x, y, z, found])
    np.testing.assert_array_equal(found, wanted)


def high_products(lanes: int, doubled: bool, each: bool) -> Function:
    """Of a matrix, with one factor or one for each column."""
    shape = (3, lanes)
    x, m, c = var("x", shape=shape, dtype="int32"), var(
        "m", shape=shape[1:] if each else (), dtype="int32"
    ), var("c", shape=shape[1:] if each else (), dtype="int64")
    return Function((x, m, c), HighProduct(doubled)(x, m, c), attrs={"Primitive": 1})


PRODUCTS = {
    f"{lanes}{' doubled' * doubled}{' each' * each}": high_products(lanes, doubled, each) for lanes in (1, 7, 16, 61)
    for doubled in (False, True) for each in (False, True)
}


def numbers(function: Function) -> list[Array]:
    """The ends of the range of int32 among them; sums stay within 64 bits."""
    rng = np.random.default_rng(9)
    x, m, c = (p.tensor_type.concrete_shape for p in function.params)
    ends = np.asarray([-(1 << 31), -(1 << 31) + 1, -1, 0, 1, 3, (1 << 31) - 1], np.int32)
    return [
        rng.choice(ends, x), rng.integers(-(1 << 31), 1 << 31, m).astype(np.int32), rng.integers(-(1 << 61), 1 << 61, c)
    ]


def works(target: Target) -> tuple[list[Work], list[Array]]:
    """Every kernel for a processor, with its inputs, and what they should give."""
    made, wanted = [], []
    named: list[tuple[Function, list[Array] | None]] = [(make(), None) for make in KERNELS.values()]
    named += [(function, numbers(function)) for function in PRODUCTS.values()]
    for k, (function, given) in enumerate(named):
        values = list(inputs(function)) if given is None else given
        kernel = lower(function, [False, *[True] * (len(values) - 1)], target.machine, f"kernel_{k}")
        args = [
            aligned(np.asarray(a.pack(*(values[i] for i in a.sources)) if a.pack else values[a.sources[0]]))
            for a in kernel.arguments
        ]
        made.append(
            Work(kernel.func, [*args, aligned(np.full(function.body.tensor_type.concrete_shape, 99, np.int32))])
        )
        wanted.append(evaluate(function, *values))
    return made, wanted


@pytest.mark.parametrize("name", OF_BYTES)
def test_every_kernel_on_every_processor(name: str, tmp_path: Path) -> None:
    if reason := why_not(name):
        pytest.skip(reason)
    made, wanted = works(Target(OF_BYTES[name]))
    run_all(made, name, tmp_path)
    for work, right in zip(made, wanted, strict=True):
        np.testing.assert_array_equal(work.arrays[-1], right, err_msg=work.func.name)


@pytest.mark.parametrize(("cpu", "instruction"), [("x86-64", "pmuludq"), ("haswell", "vpmuldq"), ("znver5", "vpmuldq")])
def test_even_and_odd_lanes_are_multiplied_apart(cpu: str, instruction: str) -> None:
    target = Target(f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}")
    text = assembly(
        emit(lower(PRODUCTS["16 each"], [False, True, True], target.machine, "kernel").func, target), target
    )
    assert instruction in text
    assert "vpmullq" not in text
