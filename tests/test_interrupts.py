"""Interrupted runs: signals end long native runs between kernels, handlers that return let them go on, and the program
runs again afterwards.

Kernels written by hand raise the signal themselves, so that the kernels that run after it can be counted.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import relay
from tilewright.backends.cpu.llvm.compile import compile_text
from tilewright.backends.cpu.llvm.entry import emit_entry
from tilewright.backends.cpu.llvm.interrupts import look_text
from tilewright.backends.cpu.llvm.jit import LoadedCode
from tilewright.backends.cpu.llvm.pool import pool_text
from tilewright.backends.targets.target import Target
from tilewright.base import nd
from tilewright.base.forks import MAIN_THREAD
from tilewright.base.global_functions import register_func, remove_global_func
from tilewright.base.types import DataType
from tilewright.compiler.build import build_module
from tilewright.compiler.notes import SPAN, spaced_looks
from tilewright.ir.module import IRModule
from tilewright.runtime import interrupts
from tilewright.runtime.artifact import Artifact, load
from tilewright.runtime.callbacks import CALLBACK
from tilewright.runtime.host import host_triple
from tilewright.runtime.manifest import Manifest
from tilewright.runtime.modules import ModuleNode
from tilewright.runtime.program import KernelCall, Place, TensorInfo

KERNELS = f"""
declare i32 @raise(i32)
declare i32 @usleep(i32)
define void @count(ptr %ctx, ptr %y) {{
  %n = load i64, ptr %y
  %more = add i64 %n, 1
  store i64 %more, ptr %y
  ret void
}}
define void @fire(ptr %ctx, ptr %y) {{
  call void @count(ptr %ctx, ptr %y)
  %error = call i32 @raise(i32 {signal.SIGUSR1.value})
  %left = call i32 @usleep(i32 40000)
  ret void
}}
"""
OUT = Place("output", 0)
COUNT, FIRE = KernelCall("count", (OUT,)), KernelCall("fire", (OUT,))


class StopRunError(Exception):
    """What the handlers of these tests raise."""


def stop(*_: Any) -> None:
    raise StopRunError


@contextmanager
def handling(number: int, handler: Callable[..., Any] | signal.Handlers) -> Iterator[None]:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(number, before)


def counting(
    *steps: KernelCall, parts: int = 1, looks: frozenset[int] = frozenset(range(100)), threads: int = 1
) -> Artifact:
    """A program whose steps count themselves, in a number for each part."""
    target = Target("llvm")
    manifest = Manifest("counting", (), (
        TensorInfo("y", (parts,), DataType("int64")),
    ), tuple(map(replace, steps)), target="llvm", parts=parts, interruptible=True, threads=threads,
                        features=tuple(sorted(target.features)), triple=host_triple())
    texts = (KERNELS, emit_entry(manifest, looks=looks) + pool_text(target), look_text(manifest.triple))
    return Artifact(manifest, tuple(compile_text(text, target) for text in texts), nd.aligned_empty((0,)))


def run(program: Any, parts: int = 1) -> list[int]:
    """How many kernels of each part ran, with the handler's exception or without."""
    y = np.zeros(parts, np.int64)
    try:
        program(out=y)
    except StopRunError as error:
        assert any(
            Path(frame.filename) == Path(interrupts.__file__) for frame in traceback.extract_tb(error.__traceback__)
        ), "the run ended before the handler was called"
    return [int(n) for n in y]


def test_no_kernel_runs_after_the_look_that_finds_a_signal() -> None:
    program = counting(COUNT, FIRE, *[COUNT] * 5).executable()
    with handling(signal.SIGUSR1, stop):
        assert run(program) == [2]
        assert run(program) == [2]
    with handling(signal.SIGUSR1, signal.SIG_IGN):
        assert run(program) == [7]


def test_a_run_goes_on_to_the_next_step_with_a_look() -> None:
    program = counting(FIRE, *[COUNT] * 5, looks=frozenset({3})).executable()
    with handling(signal.SIGUSR1, stop):
        assert run(program) == [4]


def test_a_handler_that_returns_lets_the_run_go_on() -> None:
    seen: list[int] = []
    program = counting(FIRE, COUNT, FIRE, COUNT).executable()
    with handling(signal.SIGUSR1, lambda *_: seen.append(1)):
        assert run(program) == [4]
    assert len(seen) == 2


def test_parts_of_a_batch_are_not_begun_after_a_signal() -> None:
    program = counting(FIRE, COUNT, parts=3).executable()
    with handling(signal.SIGUSR1, stop):
        assert run(program, parts=3) == [1, 0, 0]
    ended = counting(COUNT, FIRE, parts=3, looks=frozenset()).executable()
    with handling(signal.SIGUSR1, stop):
        assert run(ended, parts=3) == [2, 0, 0]


def test_other_threads_run_to_the_end() -> None:
    program = counting(FIRE, COUNT, COUNT).executable()
    found: list[Any] = []
    with handling(signal.SIGUSR1, lambda *_: None):
        thread = threading.Thread(target=lambda: found.append(run(program)))
        thread.start()
        thread.join()
    assert found == [[3]]


def test_a_handler_may_run_the_program_itself() -> None:
    program, inner = counting(FIRE, COUNT).executable(), counting(COUNT, COUNT, COUNT).executable()
    seen: list[Any] = []
    with handling(signal.SIGUSR1, lambda *_: seen.append(run(inner))):
        assert run(program) == [2]
    assert seen == [[3]]


def test_the_same_program_runs_inside_its_own_handler() -> None:
    program = counting(FIRE, FIRE, COUNT).executable()
    depth: list[int] = []

    def handle(*_: Any) -> None:
        if len(depth) == 2:
            raise StopRunError
        depth.append(1)
        run(program)

    with handling(signal.SIGUSR1, handle):
        assert run(program) == [2]
    assert len(depth) == 2


def test_the_thread_that_forks_is_the_main_thread_of_the_child() -> None:
    found: list[int] = []

    def fork() -> None:
        child = os.fork()
        if child == 0:
            os._exit(int(MAIN_THREAD.ident != threading.main_thread().ident))
        found.append(os.waitpid(child, 0)[1])

    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()
    assert found == [0]
    assert MAIN_THREAD.ident == threading.main_thread().ident


def test_saved_programs_are_interrupted_too(tmp_path: Path) -> None:
    artifact = counting(FIRE, COUNT)
    for name in ("m.so", "m.tar"):
        artifact.save(tmp_path / name)
        loaded = load(tmp_path / name)
        assert loaded.manifest.interruptible
        with handling(signal.SIGUSR1, stop):
            assert run(loaded.executable()) == [1]


def test_a_program_saved_without_the_entry_runs(tmp_path: Path) -> None:
    plain = replace(counting(COUNT), manifest=replace(counting(COUNT).manifest, interruptible=False))
    plain.save(tmp_path / "m.so")
    assert run(load(tmp_path / "m.so").executable()) == [1]


def dense(layers: int, size: int, rows: Any) -> IRModule:
    weight = relay.const((np.random.default_rng(0).standard_normal((size, size)) / size**0.5).astype("float32"))
    x = relay.var("x", shape=(rows, size))
    y: relay.Expr = x
    for _ in range(layers):
        y = relay.nn.relu(relay.nn.dense(y, weight))
    return IRModule.from_expr(relay.Function([x], y))


def alarmed(call: Callable[[], Any]) -> None:
    """Interrupt one of many calls by a timer; fails where the handler ran after the call."""
    with handling(signal.SIGALRM, stop):
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(StopRunError) as caught:
            for _ in range(10_000):
                call()
    assert any(Path(frame.path) == Path(interrupts.__file__) for frame in caught.traceback)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_network_is_interrupted_and_gives_the_same_afterwards(threads: int) -> None:
    artifact = build_module(dense(layers=100, size=512, rows=512))
    assert artifact.manifest.interruptible
    program = artifact.executable(threads)
    x = np.random.default_rng(1).standard_normal((512, 512)).astype("float32")
    wanted = program(x)
    for _ in range(2):
        alarmed(lambda: program(x))
        np.testing.assert_array_equal(program(x), wanted)
    assert len(program._frames) == 1


def test_short_programs_have_no_second_entry() -> None:
    artifact = build_module(dense(layers=4, size=64, rows=4))
    assert not artifact.manifest.interruptible
    assert artifact.manifest.entries == ("tw_run",)


def test_checks_of_signals_are_apart() -> None:
    steps = [COUNT] * 6
    assert spaced_looks(steps, [SPAN // 2] * 6) == {1, 3}
    assert spaced_looks(steps, [SPAN] * 6) == {0, 1, 2, 3, 4}
    assert spaced_looks(steps, [1] * 6) == frozenset()


def test_a_program_for_all_sizes_is_interrupted() -> None:
    program = tilewright.compile(dense(layers=40, size=512, rows=relay.Any()), shapes={"x": ("n", 512)}, threads=1)
    x = np.ones((2048, 512), np.float32)
    program(x)
    alarmed(lambda: program(x))
    assert program.artifact.manifest.interruptible


def test_a_long_batch_looks_between_its_parts() -> None:
    x = relay.var("x", shape=(128, 16, 64, 64))
    weight = relay.const(np.ones((16, 16, 3, 3), "float32"))
    y: relay.Expr = x
    for _ in range(6):
        y = relay.nn.relu(relay.nn.conv2d(y, weight, padding=(1, 1)))
    artifact = build_module(IRModule.from_expr(relay.Function([x], y)))
    assert artifact.manifest.interruptible
    assert isinstance(artifact.manifest.parts, int) and artifact.manifest.parts > 1
    program, given = artifact.executable(1), np.ones((128, 16, 64, 64), "float32")
    out = np.empty_like(given)
    program(given, out=out)
    alarmed(lambda: program(given, out=out))


LOOP = """#[version = "0.0.5"]
def @again(%i: int64, %x: Tensor[(4), float32]) -> Tensor[(4), float32] {
  if (less(%i, 400000000i64)) { @again(add(%i, 1i64), multiply(%x, 0.5f)) } else { %x }
}
def @main(%i: int64, %x: Tensor[(4), float32]) { @again(%i, %x) }
"""


def test_a_loop_is_interrupted() -> None:
    artifact = build_module(relay.parse(LOOP))
    assert artifact.manifest.interruptible
    program = artifact.executable()
    begin, x = np.array(0), np.ones(4, "float32")
    alarmed(lambda: program(begin, x))
    np.testing.assert_array_equal(program(np.array(399_999_999), x), x / 2)


def test_a_large_block_of_a_branch_is_interrupted() -> None:
    x, weight = relay.var("x", shape=(512, 512)), relay.const(np.ones((512, 512), "float32") / 512)
    y: relay.Expr = x
    for _ in range(100):
        y = relay.nn.relu(relay.nn.dense(y, weight))
    condition = relay.var("c", shape=(), dtype="bool")
    artifact = build_module(IRModule.from_expr(relay.Function([condition, x], relay.If(condition, y, x))))
    assert artifact.manifest.interruptible
    program = artifact.executable(1)
    given = np.ones((512, 512), "float32")
    alarmed(lambda: program(np.array(True), given))
    np.testing.assert_allclose(program(np.array(True), given), given, rtol=1e-4)


class Scaling(ModuleNode):
    """A module of another compiler that halves what it is given, and counts its calls."""

    type_key = "scaling"
    calls = 0

    def __init__(self, symbol: str) -> None:
        self.symbol = symbol

    def get_function(self, name: str) -> Callable[..., Any] | None:
        return self.run if name == self.symbol else None

    def run(self, x: Any, y: Any) -> None:
        Scaling.calls += 1
        y.copyfrom(x.numpy() / 2)


AROUND = """#[version = "0.0.5"]
def @halve(%h: Tensor[(512, 512), float32], Compiler="scaling", Primitive=1, Inline=1, global_symbol="halve") -> Tensor[(512, 512), float32] { multiply(%h, 0.5f) }
def @again(%i: int64, %x: Tensor[(512, 512), float32]) -> Tensor[(512, 512), float32] {
  if (less(%i, 1000i64)) { @again(add(%i, 1i64), @halve(nn.dense(%x, %x))) } else { %x }
}
def @main(%i: int64, %x: Tensor[(512, 512), float32]) { @again(%i, %x) }
"""  # noqa: E501


def test_no_function_of_another_compiler_is_called_after_a_signal() -> None:
    register_func("relay.ext.scaling", lambda f: Scaling(str(f.attrs["global_symbol"])))
    try:
        program = build_module(relay.parse(AROUND)).executable(1)
    finally:
        remove_global_func("relay.ext.scaling")
    seen: list[int] = []

    def noted(*_: Any) -> None:
        seen.append(Scaling.calls)
        raise StopRunError

    identity = np.eye(512, dtype="float32")
    for _ in range(5):
        with handling(signal.SIGALRM, noted):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(StopRunError):
                program(np.array(0), identity)
        assert seen[-1] == Scaling.calls
    np.testing.assert_array_equal(program(np.array(998), identity), identity / 8)


def test_a_signal_just_before_a_function_is_called_back_raises_what_its_handler_raises() -> None:
    """Python runs the handler before the first instruction of the callback, where nothing of ours can catch the
    exception."""
    register_func("relay.ext.scaling", lambda f: Scaling(str(f.attrs["global_symbol"])))
    try:
        program = build_module(relay.parse(AROUND)).executable(1)
    finally:
        remove_global_func("relay.ext.scaling")
    pointer = ctypes.c_void_p.from_address(program.code.address(CALLBACK))
    assert pointer.value is not None
    number, sends = int(signal.SIGUSR1), ctypes.cast(ctypes.CDLL(None)["raise"], ctypes.c_void_p).value
    sending = f"""
define i32 @sending(i64 %which, ptr %values) {{
  %sent = call i32 inttoptr (i64 {sends} to ptr)(i32 {number})
  %done = call i32 inttoptr (i64 {pointer.value} to ptr)(i64 %which, ptr %values)
  ret i32 %done
}}
"""
    loaded = LoadedCode([compile_text(sending, Target("llvm"))], ["sending"])
    identity, direct, calls = np.eye(512, dtype="float32"), pointer.value, Scaling.calls

    def stop(*_: Any) -> None:
        raise StopRunError

    hook = sys.unraisablehook
    with handling(signal.SIGUSR1, stop):
        pointer.value = loaded.address("sending")
        with pytest.raises(StopRunError):
            program(np.array(0), identity)
        pointer.value = direct
    assert sys.unraisablehook is hook
    assert Scaling.calls == calls
    np.testing.assert_array_equal(program(np.array(998), identity), identity / 8)
