"""Memory between the stages of kernels: how much goes on the stack, what is asked before a run, and what is said where
there is none."""

from __future__ import annotations

import ctypes
import resource
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import tilewright
from tilewright import te
from tilewright.backends.cpu.llvm import compile as llvm_compile
from tilewright.backends.cpu.llvm.compile import compile_text
from tilewright.backends.cpu.llvm.jit import LoadedCode
from tilewright.backends.cpu.llvm.pool import pool_object
from tilewright.backends.cpu.llvm.scratch import MOST_ON_STACK
from tilewright.base.errors import CompileError, RunError
from tilewright.compat.target import Target
from tilewright.compiler import kernel_code, memory_limits
from tilewright.runtime import scratch
from tilewright.runtime.functions import FunctionModule
from tilewright.runtime.manifest import Manifest
from tilewright.runtime.scratch import Scratch, most, stack_room

NATIVE = Target("llvm")


def staged(size: Any, stages: int) -> FunctionModule:
    """`x + stages`, with so many arrays in between less one."""
    first = last = te.placeholder((size,), name="x")
    for k in range(stages):
        last = te.compute((size,), lambda i, x=last: x[i] + 1.0, name=f"stage{k}")
    return tilewright.build(te.create_schedule(last.op), [first, last], "llvm", name="staged")


def pool(op: str, image: list[Any], **attributes: Any) -> ModelProto:
    values = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, image)
    ], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"], name="wide", **attributes)], "pools", *values)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def without_memory(text: str) -> str:
    """LLVM text, with a C library and a thread pool that have no memory."""
    for function, kinds in (("aligned_alloc", "i64, i64"), ("tw_scratch_take", "ptr, i64")):
        text = text.replace(
            f"declare ptr @{function}({kinds})", f"define internal ptr @{function}({kinds}) {{\n  ret ptr null\n}}")
    return text


def test_a_function_takes_little_of_the_stack() -> None:
    module = staged(20_000, 40)  # three megabytes
    takes = module.artifact.manifest.scratch
    assert 100_000 < takes.stack <= MOST_ON_STACK and takes.stack + takes.heap >= 39 * 80_000
    assert module.artifact.manifest.scratch_bytes == takes.stack + takes.heap and takes.kernel == "staged"
    x, y = np.arange(20_000, dtype=np.float32), np.empty(20_000, np.float32)
    threading.stack_size(1 << 20)
    try:
        thread = threading.Thread(target=module, args=(x, y))
        thread.start()
        thread.join(60)
    finally:
        threading.stack_size(0)
    assert np.array_equal(y, x + 40)


def test_a_thread_with_a_small_stack_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module, said = staged(20_000, 6), []
    monkeypatch.setattr(scratch, "stack_room", lambda: 192 << 10)
    x, y = np.zeros(20_000, np.float32), np.zeros(20_000, np.float32)

    def call() -> None:
        try:
            module(x, y)
        except RunError as error:
            said.append(str(error))

    thread = threading.Thread(target=call)
    thread.start()
    thread.join(60)
    assert said == ["the stack of this thread has 192 kB for kernels, but 'staged' needs 298 kB in staged; "
                    "call it from a thread with a larger stack (threading.stack_size, ulimit -s)"]
    assert not y.any() and stack_room() >= 384 << 10


@pytest.mark.parametrize("size", [200_000, te.var("n")])
def test_what_the_c_library_refuses_is_said(size: Any) -> None:
    """The code is linked with a C library that has nothing."""
    module = staged(size, 3)
    text = module.get_source()
    assert text.count("br i1 %given.there") + text.count("br i1 %open.there") == 1
    objects = (compile_text(without_memory(text), NATIVE), pool_object(NATIVE))
    without = FunctionModule(replace(module.artifact, objects=objects))
    x, y = np.zeros(200_000, np.float32), np.zeros(200_000, np.float32)
    module(x, y)
    assert (y == 3).all()
    y[:] = 0
    takes = "1.53 MB for each thread" if size == 200_000 else "an amount that depends on its sizes"
    with pytest.raises(
        RunError,
        match=f"too little memory for the scratch buffers of 'staged': staged needs the most, {takes}; use smaller "
        "sizes"
    ):
        without(x, y)
    assert not y.any()
    module(x, y)
    assert (y == 3).all()


@pytest.mark.parametrize("batch", [1, 6])
def test_a_model_says_which_operator_had_no_memory(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", "off")
    model = pool("AveragePool", [batch, 4, 8, 100_000], kernel_shape=[3, 3])
    x = np.ones((batch, 4, 8, 100_000), np.float32)
    good = tilewright.compile(model, threads=2)
    monkeypatch.setattr(
        llvm_compile, "compile_text",
        lambda text, target, **options: compile_text(
            text if "@tw_pool_create" in text else without_memory(text), target, **options
        )
    )
    bad = tilewright.compile(model, threads=2)
    for _ in range(2):
        assert (good(x) == 1).all()
        with pytest.raises(
            RunError,
            match=r"too little memory for the scratch buffers of 'model': AveragePool 'wide' needs the most, .* for "
            r"each thread"
        ):
            bad(x)


def test_control_flow_says_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", "off")
    branches = {name: helper.make_graph(
        [helper.make_node(op, ["x"], ["z"], name=f"the_{op}", kernel_shape=[3, 3])], name, [],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)]
    )
                for name, op in (("then_branch", "AveragePool"), ("else_branch", "MaxPool"))}
    given = [
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 8, 100_000])
    ]
    graph = helper.make_graph(
        [helper.make_node("If", ["c"], ["y"], **branches)], "either", given,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    monkeypatch.setattr(
        llvm_compile, "compile_text",
        lambda text, target, **options: compile_text(
            text if "@tw_pool_create" in text else without_memory_of_kernels(text), target, **options
        )
    )
    with pytest.raises(RunError, match="too little memory for the scratch buffers of 'model'"):
        tilewright.compile(model, threads=1)(np.array(True), np.ones((1, 1, 8, 100_000), np.float32))


def without_memory_of_kernels(text: str) -> str:
    """The same for kernels, not for what control flow keeps its values in."""
    return text if "@flow." in text else without_memory(text)


def test_what_the_machine_has_no_memory_for_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", "off")
    known = memory_limits.check_scratch
    monkeypatch.setattr(
        kernel_code, "check_scratch", lambda takes, target: known(replace(takes, heap=takes.heap << 30), target)
    )
    with pytest.raises(
        CompileError,
        match=r"AveragePool 'wide' needs .* of memory for each thread between its stages, but only .*correct the "
        r"sizes, the padding and the windows"
    ):
        tilewright.compile(pool("AveragePool", [1, 4, 8, 100_000], kernel_shape=[3, 3]))


@pytest.mark.parametrize("op", ["AveragePool", "MaxPool"])
def test_pools_with_huge_padding_keep_no_rows(op: str) -> None:
    counted = {"count_include_pad": 1} if op == "AveragePool" else {}
    much = 1 << 20
    model = pool(op, [1, 2, 5, 6], kernel_shape=[3, much], pads=[1, much - 1] * 2, strides=[1, 1 << 18], **counted)
    compiled = tilewright.compile(model, threads=1)
    x = np.random.default_rng(0).standard_normal((1, 2, 5, 6)).astype(np.float32)
    made = compiled(x)
    assert made.shape == (1, 2, 5, 5)
    inner = np.stack(
        [
            x[:, :, max(0, k - 1) : k + 2].sum((2, 3)) / (3 * much) if op == "AveragePool"
            else x[:, :, max(0, k - 1) : k + 2].max((2, 3)) for k in range(5)
        ], 2
    )
    np.testing.assert_allclose(made[..., 1], inner, rtol=1e-4, atol=1e-9)


def test_what_a_manifest_says() -> None:
    manifest = Manifest("m", (), (), (), scratch=Scratch(64, 128, "k"))
    assert Manifest.from_json(manifest.to_json(), "here").scratch == Scratch(64, 128, "k")
    assert "scratch" not in Manifest("m", (), (), ()).to_json()
    assert most([Scratch(1, 2, "a"), Scratch(3, 1, "b")]) == Scratch(3, 2, "b") and most([]) == Scratch()


class Blocks:
    """The blocks that a pool of two threads keeps."""

    def __init__(self) -> None:
        names = [f"tw_{n}" for n in ("pool_create", "pool_destroy", "scratch_take", "scratch_give")]
        self._code = LoadedCode([pool_object(NATIVE)], names)
        word = ctypes.c_void_p
        create, destroy, take, give = map(self._code.address, names)
        self.context = ctypes.CFUNCTYPE(word, ctypes.c_int64)(create)(2)
        self._take = ctypes.CFUNCTYPE(word, word, ctypes.c_uint64)(take)
        self._give = ctypes.CFUNCTYPE(None, word, word)(give)
        self._destroy = ctypes.CFUNCTYPE(None, word)(destroy)

    def take(self, nbytes: int) -> int:
        return self._take(self.context, nbytes) or 0

    def give(self, block: int) -> None:
        self._give(self.context, block)

    def close(self) -> None:
        self._destroy(self.context)


@pytest.fixture
def blocks() -> Iterator[Blocks]:
    made = Blocks()
    yield made
    made.close()


def test_a_block_is_kept_for_the_next_request(blocks: Blocks) -> None:
    first = blocks.take(1 << 20)
    second = blocks.take(1 << 20)
    assert first % 64 == second % 64 == 0 and abs(first - second) >= 1 << 20
    blocks.give(first)
    assert blocks.take(4096) == first
    blocks.give(first)
    larger = blocks.take(8 << 20)
    ctypes.memset(larger, 1, 8 << 20)
    blocks.give(larger)
    assert blocks.take(1 << 20) == larger
    for block in (second, larger, 0):
        blocks.give(block)


def test_requests_beyond_any_memory_are_refused(blocks: Blocks) -> None:
    assert not any(blocks.take(nbytes) for nbytes in (1 << 62, (1 << 64) - 64, (1 << 64) - 1))


def test_threads_never_share_a_block(blocks: Blocks) -> None:
    held, lock, shared = set[int](), threading.Lock(), list[int]()

    def work(number: int) -> None:
        for k in range(300):
            mine = [blocks.take(64 << (number + k) % 12) for _ in range(1 + k % 3)]
            with lock:
                shared.extend(block for block in mine if block in held)
                held.update(mine)
            with lock:
                held.difference_update(mine)
            for block in mine:
                blocks.give(block)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not shared and not held


@pytest.mark.skipif(sys.platform != "linux", reason="counts page faults")
def test_symbolic_kernels_take_their_memory_without_new_pages() -> None:
    module = staged(te.var("n"), 4)
    x, y = np.zeros(2_000_000, np.float32), np.zeros(2_000_000, np.float32)
    for _ in range(3):
        module(x, y)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        module(x, y)
    assert (y == 4).all() and resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 5000  # 8 MB are 2,000 pages
