"""The code of one kernel has a bound, whatever its window: statements of its loops, and lines of its LLVM text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.backends.cpu.llvm.codegen import emit
from tilewright.compat.target import Target
from tilewright.compiler.kernel import lower
from tilewright.relay import nn
from tilewright.relay.expr import Call, Constant, Function
from tilewright.relay.interpreter import evaluate
from tilewright.relay.transform.pipeline import graph_passes
from tilewright.relay.visitor import post_order
from tilewright.tir.parser import parse
from tilewright.tir.stmt import For, Store, walk_stmt
from tilewright.tir.transform.unroll_loops import MOST_STATEMENTS, unroll_loops

MOST_STORES, MOST_LINES = 1500, 6000
"""Of one kernel; a 7x7 window of 32 channels has 1,116 stores and 2,412 lines on a processor with AVX-512."""
TARGETS = [
    Target(f"llvm -mtriple={t}")
    for t in ("x86_64-linux-gnu -mcpu=x86-64", "x86_64-linux-gnu -mcpu=znver5", "aarch64-linux-gnu")
]


def conv(
    sizes: tuple[int, ...], ksize: tuple[int, ...], made: int, *, groups: int = 1, pad: bool = True,
    transposed: bool = False
) -> Callable[[], Function]:
    """A convolution of 1 to 3 spatial dimensions: `sizes` are the channels and the image."""

    def function() -> Function:
        x = relay.var("x", shape=(1, *sizes))
        shape = (sizes[0], made, *ksize) if transposed else (made, sizes[0] // groups, *ksize)
        w = relay.const(np.random.default_rng(0).standard_normal(shape).astype("float32"))
        op = nn.conv2d_transpose if transposed else (nn.conv1d, nn.conv2d, nn.conv3d)[len(ksize) - 1]
        padding = tuple(k // 2 if pad else 0 for k in ksize)
        return Function(
            (x,),
            op(x, w, kernel_size=ksize, channels=made, padding=padding, **({} if transposed else {"groups": groups}))
        )

    return function


def pool(op: Any, ksize: tuple[int, int], **options: Any) -> Callable[[], Function]:
    def function() -> Function:
        x = relay.var("x", shape=(1, 16, 70, 70))
        return Function((x,), op(x, ksize, **options))

    return function


WINDOWS = {
    "3x39": conv((8, 40, 60), (3, 39), 8), "39x3": conv((8, 60, 40), (39, 3), 8), "1x64": conv((8, 9, 200), (1, 64), 8),
    "64x1": conv((8, 200, 9), (64, 1), 8),
    "1x17": conv((8, 9, 60), (1, 17), 8), "3x39 of 3": conv((3, 40, 60), (3, 39), 8),
    "3x39 of 32": conv((32, 40, 60), (3, 39), 64), "1x255": conv((4, 3, 300), (1, 255), 8, pad=False),
    "1x255 of 16": conv((16, 3, 300), (1, 255), 16), "31x31": conv((8, 40, 40), (31, 31), 8),
    "31x31 of 1": conv((1, 40, 40), (31, 31), 8), "31x31 depthwise": conv((8, 40, 40), (31, 31), 8, groups=8),
    "31x31 in groups": conv((8, 40, 40), (31, 31), 8, groups=2), "15x15": conv((16, 30, 30), (15, 15), 16),
    "1-d 3": conv((16, 200), (3,), 16), "1-d 39": conv((8, 200), (39,), 8),
    "1-d 400": conv((4, 900), (400,), 16), "1-d 101 depthwise": conv((16, 300), (101,), 16, groups=16),
    "3-d 7x7x7": conv((8, 9, 12, 12), (7, 7, 7), 8), "3-d 1x1x25": conv((8, 4, 4, 60), (1, 1, 25), 8),
    "transposed 3x39": conv((8, 12, 16), (3, 39), 8, pad=False, transposed=True),
    "transposed 16x16": conv((8, 12, 16), (16, 16), 8, pad=False, transposed=True),
    "max 31x31": pool(nn.max_pool2d, (31, 31)), "mean 1x39": pool(nn.avg_pool2d, (1, 39), padding=(0, 19)),
    "mean 39x1, strides": pool(nn.avg_pool2d, (39, 1), strides=(2, 2)),
    "max 40x60": pool(nn.max_pool2d, (40, 60)),
}
COMPUTED = ("3x39", "1x17", "3x39 of 3", "1x255 of 16", "1-d 39", "3-d 1x1x25", "transposed 3x39", "31x31 in groups")


def kernels(function: Function, target: Target) -> list[tuple[int, int]]:
    """Stores and lines of every kernel."""
    found = []
    for e in post_order(graph_passes(target)(tvm.IRModule.from_expr(function))["main"]):
        if isinstance(e, Call) and isinstance(e.op, Function):
            func = lower(e.op, [isinstance(a, Constant) for a in e.args], target.machine, "kernel").func
            found.append((sum(isinstance(s, Store) for s in walk_stmt(func.body)), emit(func, target).count("\n")))
    return found


@pytest.mark.parametrize("name", WINDOWS)
def test_odd_windows(name: str) -> None:
    for target in TARGETS:
        for stores, lines in kernels(WINDOWS[name](), target):
            assert stores <= MOST_STORES, f"{stores} stores for {target.mcpu}"
            assert lines <= MOST_LINES, f"{lines} lines for {target.mcpu}"


@pytest.mark.parametrize("name", COMPUTED)
def test_they_compute_the_same(name: str) -> None:
    function = WINDOWS[name]()
    x = np.random.default_rng(1).standard_normal(
        function.params[0].tensor_type.concrete_shape
    ).astype("float32")
    with tvm.transform.PassContext(opt_level=3):
        found = relay.create_executor(
            "graph", mod=tvm.IRModule.from_expr(function), target="llvm"
        ).evaluate()(x).numpy()
    wanted = evaluate(function, x)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * float(np.abs(wanted).max()))


PROGRAM = """
@T.prim_func
def f(A: T.Buffer((1048576,), "float32")):
    for i in T.unrolled({outer}):
        for j in T.unrolled(64):
            A[i * 64 + j] = A[i * 64 + j] * 2.0
"""


@pytest.mark.parametrize(("outer", "loops"), [(MOST_STATEMENTS // 64, 0), (16384, 1)])
def test_what_a_schedule_unrolls_has_a_bound(outer: int, loops: int) -> None:
    """An outer loop that would make too many copies stays a loop."""
    func = unroll_loops(parse(PROGRAM.format(outer=outer)))
    assert sum(isinstance(s, For) for s in walk_stmt(func.body)) == loops
    assert sum(isinstance(s, Store) for s in walk_stmt(func.body)) <= MOST_STATEMENTS
