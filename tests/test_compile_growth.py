"""Work of a compile against the size of the program: calls of functions of the compiler and lines of LLVM text, no
clocks.

Each pattern repeats a few operators `n` times so that every value is read more than once. Doubling `n` may at most
quadruple the work.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tvm
from tilewright import relay, te
from tilewright.compiler.build import build_module
from tilewright.compiler.cache import Cache
from tilewright.compiler.report import BuildReport
from tilewright.relay.expr import Expr
from tilewright.scalar.expr import Select, as_expr

SIZE = 16
TABLE = np.linspace(0, 9, 64).astype(np.float32)
RANDOM = np.random.default_rng(0)
Step = Callable[[Expr, Expr], Expr]


def vector(step: Step, shape: tuple[int, ...] = (SIZE,)) -> Callable[[int], tvm.IRModule]:
    """A chain: each value is made of the last two."""

    def made(n: int) -> tvm.IRModule:
        x = relay.var("x", shape=shape)
        before: Expr = x
        last: Expr = relay.negative(x)
        for _ in range(n):
            before, last = last, step(last, before)
        return tvm.IRModule.from_expr(relay.Function([x], last))

    return made


def _gather(x: Expr, y: Expr) -> Expr:
    index = relay.cast(x, "int64")
    found = relay.take(relay.const(TABLE), index, mode="clip")
    return relay.where(relay.greater_equal(y, found), relay.add(x, relay.const(1.0)), x)


def _quantized(x: Expr, y: Expr) -> Expr:
    scale, zero = relay.const(0.05), relay.const(3)
    return relay.qnn.op.dequantize(relay.qnn.op.quantize(relay.add(x, y), scale, zero, out_dtype="int8"), scale, zero)


def _normed(x: Expr, y: Expr) -> Expr:
    one, none = relay.const(np.ones(SIZE, np.float32)), relay.const(np.zeros(SIZE, np.float32))
    return relay.add(relay.nn.layer_norm(x, one, none), y)


def _conv(x: Expr, y: Expr) -> Expr:
    weight = relay.const(RANDOM.standard_normal((4, 4, 3, 3)).astype(np.float32))
    return relay.add(relay.nn.conv2d(x, weight, padding=(1, 1)), y)


def _dense(x: Expr, y: Expr) -> Expr:
    return relay.add(relay.nn.dense(x, relay.const(RANDOM.standard_normal((SIZE, SIZE)).astype(np.float32))), y)


def _resized(x: Expr, y: Expr) -> Expr:
    return relay.add(relay.image.resize2d(x, (4, 4), method="linear"), y)


def _choice(x: Expr, y: Expr) -> Expr:
    """Both sides read what lies before them, and so does a second choice beside it."""
    found = relay.take(relay.const(TABLE), relay.cast(x, "int64"), mode="clip")
    return relay.add(relay.where(relay.greater(x, y), found, y), relay.where(relay.less(y, found), x, found))


ROWS, IMAGE = (4, SIZE), (1, 4, 4, 4)
PATTERNS: dict[str, Callable[[int], tvm.IRModule]] = {
    "twice": vector(lambda x, _: relay.add(x, x)),
    "square": vector(lambda x, _: relay.multiply(x, x)),
    "ladder": vector(lambda x, y: relay.subtract(relay.tanh(x), relay.exp(y))),
    "diamond": vector(lambda x, _: relay.maximum(relay.abs(x), relay.sigmoid(x))),
    "gather": vector(_gather),
    "choice": vector(_choice),
    "where": vector(lambda x, y: relay.where(relay.greater(x, y), relay.add(x, y), relay.multiply(x, y))),
    "concatenate": vector(lambda x, y: relay.strided_slice(relay.concatenate([x, y], 0), [3], [3 + SIZE])),
    "split": vector(lambda x, y: relay.add(relay.concatenate([*relay.split(x, 2, 0)][::-1], 0), y)),
    "pad": vector(
        lambda x, y: relay.add(relay.strided_slice(relay.nn.pad(x, ((2, 2),)), [1], [1 + SIZE]), relay.add(x, y))
    ),
    "reverse": vector(lambda x, y: relay.add(relay.reverse(x, 0), relay.add(x, y))),
    "transpose": vector(
        lambda x, y: relay.add(
            relay.reshape(relay.transpose(relay.reshape(x, (4, 4)), (1, 0)), (SIZE,)), relay.add(x, y)
        )
    ),
    "cast": vector(lambda x, y: relay.add(relay.cast(relay.cast(x, "int32"), "float32"), y)),
    "quantize": vector(_quantized),
    "reduce": vector(lambda x, y: relay.add(relay.subtract(x, relay.sum(x, 1, keepdims=True)), y), ROWS),
    "softmax": vector(lambda x, y: relay.add(relay.nn.softmax(x, 1), y), ROWS),
    "norm": vector(_normed, ROWS),
    "dense": vector(_dense, ROWS),
    "conv": vector(_conv, IMAGE),
    "resize": vector(_resized, IMAGE),
    "scan": vector(lambda x, y: relay.add(relay.cumsum(x, 1), y), ROWS),
    "broadcast": vector(lambda x, y: relay.add(relay.multiply(x, relay.strided_slice(y, [0, 0], [1, SIZE])), x), ROWS),
}


class Work:
    """Counts the calls of Python functions while it is entered."""

    def __enter__(self) -> Work:
        self.calls = 0
        sys.setprofile(self._note)
        return self

    def _note(self, frame: Any, event: str, arg: Any) -> None:
        self.calls += event == "call"

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)


def compile_work(module: tvm.IRModule, cache: Cache) -> tuple[int, int]:
    """The calls that a compile makes, and the lines of LLVM text that it emits."""
    report = BuildReport()
    with Work() as work:
        build_module(module, "llvm -mcpu=x86-64-v3", report=report, cache=cache)
    return work.calls, sum(text.count("\n") for text in report.llvm.values())


def grows_at_most_quadratically(counts: list[int]) -> bool:
    """`counts` at n, 2n and 4n: the second step up is 2 times the first for linear work, 4 times for quadratic.

    A step as large as `counts[0]` is allowed for what a second kernel costs once.
    """
    first, second = counts[1] - counts[0], counts[2] - counts[1]
    return second <= 4.5 * max(first, counts[0])


@pytest.mark.parametrize("name", PATTERNS)
def test_work_is_at_most_quadratic(name: str, tmp_path: Any) -> None:
    found = [compile_work(PATTERNS[name](n), Cache(tmp_path / str(n))) for n in (4, 8, 16)]
    calls, lines = [c for c, _ in found], [text for _, text in found]
    assert grows_at_most_quadratically(calls), calls
    assert grows_at_most_quadratically(lines), lines


def test_inlined_stages_of_tensor_expressions() -> None:
    def work(n: int) -> int:
        a = te.placeholder((SIZE,), name="a")
        last = a
        for _ in range(n):
            last = te.compute((SIZE,), lambda i, x=last: te.if_then_else(x[i] > 1.0, x[i] * x[i], x[i] + a[i]))
        s = te.create_schedule(last.op)
        for stage in s.stages:
            if stage.op is not last.op and stage.op is not a.op:
                stage.compute_inline()
        with Work() as counted:
            tvm.build(s, [a, last], "llvm")
        return counted.calls

    counts = [work(n) for n in (4, 8, 16)]
    assert grows_at_most_quadratically(counts), counts


@pytest.mark.parametrize("step", [
    lambda e, i, k: e * (e + 1.5), lambda e, i, k: Select(e > 0.0, e * 2.0, e + 1.0),
    lambda e, i, k: te.if_then_else(e > 0.0, e * 2.0, e + 1.0),
    lambda e, i, k: Select(i > k, e * 2.0, e + 1.0), lambda e, i, k: Select(te.all(e > 0.0, i > k), e, as_expr(2.0)),
])
def test_checks_of_memory(step: Callable[[Any, Any, int], Any]) -> None:
    """Expressions share what they are made of, under conditions and without."""

    def work(n: int) -> int:
        a = te.placeholder((SIZE,), name="a")

        def chain(i: Any) -> Any:
            e = a[i]
            for k in range(n):
                e = step(e, i, k)
            return e

        s = te.create_schedule((b := te.compute((SIZE,), chain)).op)
        with Work() as counted, tvm.transform.PassContext(config={"tir.instrument_bound_checkers": True}):
            tvm.build(s, [a, b], "llvm")
        return counted.calls

    counts = [work(n) for n in (8, 16, 32)]
    assert grows_at_most_quadratically(counts), counts


def _import_onnx(n: int) -> Callable[[], object]:
    steps = [("Relu", ()), ("Add", ("x",)), ("MatMul", ("w",))]
    nodes = [
        helper.make_node(steps[k % 3][0], [f"v{k}" if k else "x", *steps[k % 3][1]], [f"v{k + 1}"]) for k in range(n)
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 4]) for name in ("x", f"v{n}"))
    graph = helper.make_graph(nodes, "chain", [x], [y], [numpy_helper.from_array(np.ones((4, 4), np.float32), "w")])
    model = helper.make_model(graph)
    return lambda: relay.frontend.from_onnx(model)


def _import_torch(n: int) -> Callable[[], object]:
    pytest.importorskip("torch")
    import torch


    class Chain(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            y = x
            for _ in range(n // 2):
                y = torch.relu(y) + x
            return y

    program = torch.export.export(Chain(), (torch.ones(4),))
    return lambda: relay.frontend.from_pytorch(program)


def _parse(n: int) -> Callable[[], object]:
    text = PATTERNS["ladder"](n // 3).astext()
    return lambda: tvm.relay.fromtext(text)


READERS: dict[str, Callable[[int], Callable[[], object]]] = {
    "onnx": _import_onnx, "torch": _import_torch, "text": _parse
}


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_work_of_readers_is_linear(name: str) -> None:
    def work(n: int) -> int:
        read = READERS[name](n)
        with Work() as counted:
            read()
        return counted.calls

    work(10)  # what is done once
    counts = [work(n) for n in (100, 200, 400)]
    assert counts[2] - counts[1] <= 2.3 * (counts[1] - counts[0]), counts


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ladder", "dense", "concatenate"])
def test_work_of_large_graphs_is_linear(name: str, tmp_path: Any) -> None:
    counts = [compile_work(PATTERNS[name](n), Cache(tmp_path / str(n)))[0] for n in (50, 100, 200)]
    assert counts[2] - counts[1] <= 2.3 * (counts[1] - counts[0]), counts


@pytest.mark.slow
def test_kernels_are_compiled_at_the_end_of_a_deep_stack(tmp_path: Any) -> None:
    """The text of a kernel's expressions is made by functions that call themselves; callers may have used up most of
    Python's limit."""

    def deep(n: int) -> Any:
        return deep(n - 1) if n else compile_work(PATTERNS["ladder"](100), Cache(tmp_path))

    assert deep(sys.getrecursionlimit() - 300)


def stage_chain(n: int) -> list[te.Tensor]:
    """`n` stages, each of the one before and of the input; the input and the last."""
    a = te.placeholder((SIZE,), name="a")
    last = a
    for _ in range(n):
        last = te.compute((SIZE,), lambda i, x=last: x[i] * 0.5 + a[i])
    return [a, last]


def test_stages_of_tensor_expressions() -> None:
    def work(n: int) -> int:
        args = stage_chain(n)
        with Work() as counted:
            tvm.build(te.create_schedule(args[-1].op), args, "llvm")
        return counted.calls

    counts = [work(n) for n in (8, 16, 32)]
    assert grows_at_most_quadratically(counts), counts


@pytest.mark.slow
def test_three_hundred_stages_are_built() -> None:
    """Memory of each stage lies around the statements of the next: the statements are deeper than Python's recursion
    limit."""
    args = stage_chain(300)
    s = te.create_schedule(args[-1].op)
    assert isinstance(tvm.lower(s, args), tvm.IRModule)
    x, y = tvm.nd.array(np.ones(SIZE, np.float32)), tvm.nd.empty((SIZE,), "float32")
    tvm.build(s, args, "llvm")(x, y)
    np.testing.assert_allclose(y.numpy(), 2.0, rtol=1e-6)


def test_text_of_shared_expressions_is_bounded() -> None:
    x: Any = tvm.tir.Var("x", "int64")
    for _ in range(200):
        x = x * x
    assert "..." in str(x)
    assert len(str(x)) < 1_000_000
    buffer = tvm.tir.Buffer("B", (1,), "int64")
    text = str(tvm.tir.PrimFunc("f", (buffer,), tvm.tir.stmt.Store(buffer, x, (tvm.expr.as_expr(0),))))
    assert "..." in text and len(text) < 1_000_000
