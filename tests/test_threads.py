"""Compiling in several threads at once: the same code as alone, and no errors.

`TILEWRIGHT_TEST_ALL=1` makes ten rounds of 200 compiles; without it a sample of the day is compiled once.
"""

from __future__ import annotations

import functools
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import llvmlite.binding
import pytest

import daily
import soak
import tilewright as tvm
from small_networks import KINDS
from tilewright import te
from tilewright.backends.cpu.llvm import compile as llvm_compile
from tilewright.backends.targets.target import Target
from tilewright.base import forks, garbage_collection, interning
from tilewright.base.garbage_collection import no_garbage_collection
from tilewright.base.recursion import room_for
from tilewright.base.types import DataType
from tilewright.compiler.build import build_module
from tilewright.compiler.cache import Cache
from tilewright.compiler.report import BuildReport
from tilewright.driver.files import _umask
from tilewright.scalar import expr
from tilewright.scalar.expr import Add, Var

THREADS = 8
FULL = 10 if daily.ALL else 0


@pytest.fixture(autouse=True)
def switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def _code(kind: int, seed: int, folder: Path) -> tuple[Any, ...]:
    """The LLVM text of a model, and its object code."""
    report = BuildReport()
    made = build_module(KINDS[kind](seed), "llvm -mcpu=x86-64-v3", report=report, cache=Cache(folder))
    return tuple(sorted(report.llvm.items())), made.objects


def _loops(seed: int) -> str:
    """The text of a schedule of tensor expressions."""
    a = te.placeholder((16 + seed, 32), name="a")
    k = te.reduce_axis((0, 32), name="k")
    c = te.compute((16 + seed, 16), lambda i, j: te.sum(a[i, k] * a[j, k], axis=k), name="c")
    s = te.create_schedule(c.op)
    s[c].vectorize(s[c].split(c.op.axis[1], 8)[1])
    return str(tvm.lower(s, [a, c]))


def _both(kind: int, seed: int, folder: Path) -> tuple[Any, ...]:
    return _code(kind, seed, folder), _loops(seed % 9)


@pytest.mark.slow
def test_threads_compile_to_the_same_code_as_one(tmp_path: Path) -> None:
    seed = daily.SEED
    print("seed", seed)
    rounds, each = (FULL, 200) if FULL else (1, 16)
    for turn in range(rounds):
        chosen = random.Random(seed + turn)
        jobs = [(k % len(KINDS), chosen.randrange(1000)) for k in range(each)]
        with ThreadPoolExecutor(THREADS) as pool:
            together = [pool.submit(_both, *job, tmp_path / f"{turn}_{k}") for k, job in enumerate(jobs)]
        for k, job in enumerate(jobs):
            assert together[k].result() == _both(*job, tmp_path / f"alone_{turn}_{k}"), job


def test_known_expressions_are_one_object_in_all_threads_while_the_table_is_swept() -> None:
    names = [Var(f"v{k}") for k in range(40)]
    ended: list[bool] = []

    def sweep() -> None:
        while not ended:
            interning.release()

    def make(_: int) -> list[Add]:
        return [Add(a, b) for _ in range(5) for a in names for b in names]

    with ThreadPoolExecutor(THREADS) as pool:
        sweeping = pool.submit(sweep)
        made = list(pool.map(make, range(5)))
        ended.append(True)
        sweeping.result()
    for one in made[1:]:
        assert all(a is b for a, b in zip(made[0], one, strict=True))


def test_collection_goes_on_after_the_last_compile() -> None:
    first, second = no_garbage_collection(), no_garbage_collection()
    assert gc.isenabled()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()


def _status_of_child(work: Callable[[], object]) -> int:
    """The exit code of a child process made by a fork: 0 where `work` returned something true; negative for a signal,
    as after a minute."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(60)
            status = 0 if work() else 2
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_of_a_compiling_process_compiles() -> None:
    """The child is made while other threads hold the locks of the compiler."""
    ended: list[bool] = []

    def compile_on() -> None:
        x = Var("x")
        while not ended:
            expr.add(x, len(ended) + random.randrange(1 << 40))

    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(compile_on) for _ in range(2)]
        try:
            for k in range(4):
                assert _status_of_child(functools.partial(_loops, k)) == 0
        finally:
            ended.append(True)
        for r in running:
            r.result()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("lock", [llvmlite.binding.ffi.lib._lock, llvm_compile._LOCK], ids=["llvmlite", "compile"])
def test_a_child_is_made_when_other_threads_have_left_llvm(lock: AbstractContextManager[object]) -> None:
    inside = threading.Event()

    def hold() -> None:
        with lock:
            inside.set()
            time.sleep(0.1)

    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(hold)
        inside.wait()
        assert _status_of_child(lambda: llvm_compile.assembly("define void @f() { ret void }", Target("llvm"))) == 0
        holding.result()


@pytest.mark.slow
def test_compiles_that_overlap_without_end_are_collected_after(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cycle:
        def __init__(self) -> None:
            self.own = self

    gc.collect()
    monkeypatch.setattr(garbage_collection._COMPILES, "left", 0)
    monkeypatch.setattr(garbage_collection._COMPILES, "most_left", 1000)
    with no_garbage_collection():
        with no_garbage_collection():
            gone = weakref.ref(Cycle())
        assert gone() is not None
        with no_garbage_collection():
            kept = [[k] for k in range(2000)]
        assert gone() is None and len(kept) == 2000 and not gc.isenabled()


@pytest.mark.parametrize("is_frozen", [False, True])
def test_what_a_compile_leaves_is_old(is_frozen: bool) -> None:
    with no_garbage_collection():
        kept = [[k] for k in range(2000)]
        if is_frozen:
            gc.freeze()
            before = gc.get_freeze_count()
            kept += [[k] for k in range(2000)]
    try:
        young = {id(o) for generation in (0, 1) for o in gc.get_objects(generation=generation)}
        assert not young & {*map(id, kept)}
        assert not is_frozen or gc.get_freeze_count() > before - 100  # some have died
    finally:
        gc.unfreeze()


@pytest.mark.slow
def test_no_full_collection_falls_into_a_call_after_the_first_compile() -> None:
    """Python starts one after 110 collections of young objects, if its last one is long ago."""
    code = """if True:
        import gc
        import tilewright as tvm
        x = tvm.relay.var("x", shape=(4, 4))
        run = tvm.relay.create_executor("graph", tvm.IRModule.from_expr(x + x), tvm.cpu(), "llvm").evaluate()
        before = gc.get_stats()
        for _ in range(200 * gc.get_threshold()[0]):
            cycle = []
            cycle.append(cycle)
        after = gc.get_stats()
        print(before[2]["collections"], after[2]["collections"], after[0]["collections"] - before[0]["collections"])
    """
    before, after, young = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True,
                                              text=True).stdout.split()
    assert before == after != "0" and int(young) > 150


@pytest.mark.slow
def test_a_compile_leaves_few_cycles() -> None:
    gc.collect()
    with no_garbage_collection():
        report = BuildReport()
        build_module(KINDS[0](1), "llvm -mcpu=x86-64-v3", report=report)
    assert gc.collect() < len(gc.get_objects()) // 20


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("made", [forks.new_lock, forks.new_reentrant_lock])
def test_locks_of_other_threads_are_open_in_a_child(made: Callable[[], Any]) -> None:
    lock, held, ended = made(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            ended.wait()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(hold)
        held.wait()
        try:
            assert _status_of_child(lambda: lock.acquire(timeout=5)) == 0
            assert not lock.acquire(blocking=False)
        finally:
            ended.set()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_reentrant_lock_of_the_forking_thread_stays_its_own() -> None:
    with (lock := forks.new_reentrant_lock()):
        def released() -> bool:
            lock.release()
            return True

        assert _status_of_child(released) == 0


def test_a_lazy_attribute_is_computed_once_and_holds_no_lock() -> None:
    class Circle:
        def __init__(self) -> None:
            self.computed = 0

        @forks.lazy_attribute
        def area(self) -> int:
            """What it covers."""
            self.computed += 1
            return 42

    circle = Circle()
    assert (circle.area, circle.area, circle.computed, Circle.area.__doc__) == (42, 42, 1, "What it covers.")


def test_deep_walks_in_threads_share_the_recursion_limit() -> None:
    usual = sys.getrecursionlimit()
    first, second = room_for(1000), room_for(2000)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert sys.getrecursionlimit() > usual + 2000
    second.__exit__(None, None, None)
    assert sys.getrecursionlimit() == usual


def test_the_mask_of_new_files_is_read_without_setting_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0o027)
    try:
        if sys.platform == "linux":
            monkeypatch.setattr(os, "umask", None)
        assert _umask() == 0o027
    finally:
        monkeypatch.undo()
        os.umask(before)


def test_types_are_one_object_in_all_threads() -> None:
    for lanes in range(1001, 1026):
        with ThreadPoolExecutor(THREADS) as pool:
            made = list(pool.map(DataType, [f"int32x{lanes}"] * THREADS))
        assert all(t is made[0] for t in made)


@pytest.mark.slow
def test_a_soak_of_some_seconds() -> None:
    counts, errors = soak.run(3.0, daily.SEED)
    assert not errors
    assert all(counts[what] for what in ("compiles", "calls", "interrupts", "forks"))
