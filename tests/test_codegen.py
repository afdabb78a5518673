"""Flat programs through LLVM text to native code, against numpy: loops, branches, tiles, memory."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codegen_native import NATIVE, Native, on_every_target, run
from tilewright.backends.cpu.llvm.codegen import emit, emit_module
from tilewright.backends.cpu.llvm.compile import assembly, compile_text, spills
from tilewright.backends.cpu.llvm.jit import LoadedCode
from tilewright.backends.cpu.llvm.pool import pool_text
from tilewright.base.errors import InternalError, Origin
from tilewright.compat.target import Target
from tilewright.scalar import expr as E
from tilewright.scalar import intrinsics as I
from tilewright.scalar.expr import Broadcast, Buffer, Load, PrimExpr, Ramp, Select, Var, as_expr, const
from tilewright.tir.stmt import (
    PARALLEL,
    SERIAL,
    UNROLLED,
    Allocate,
    Evaluate,
    For,
    IfThenElse,
    Let,
    PrimFunc,
    Seq,
    Stmt,
    Store,
)

RNG = np.random.default_rng(7)
ZERO = as_expr(0)


def loop(var: Var, extent: Any, body: Stmt, kind: str = SERIAL, start: Any = 0, **annotations: Any) -> For:
    return For(var, as_expr(start), as_expr(extent), kind, body, annotations)


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype("float32")


def lanes_at(base: Any, lanes: int, stride: int = 1) -> PrimExpr:
    return Ramp(as_expr(base), stride, lanes)


@on_every_target
@pytest.mark.parametrize("n", [1, 15, 16, 17, 50])
def test_masked_addition(target: Target, n: int) -> None:
    a, b, c, i = Buffer("a", (n,)), Buffer("b", (n,)), Buffer("c", (n,)), Var("i")
    at = lanes_at(i * 16, 16)
    inside = at < n
    value = Select(inside, a[at], const(0.0, "float32x16")) + Select(inside, b[at], const(1.0, "float32x16"))
    x, y, out = floats(n), floats(n), np.full(n + 16, 7, "float32")
    run(PrimFunc("add", (a, b, c), loop(i, -(-n // 16), Store(c, value, (at,), inside))), x, y, out, target=target)
    np.testing.assert_array_equal(out[:n], x + y)
    assert (out[n:] == 7).all()


def matmul(m: int, n: int, k: int, lanes: int, rows: int, columns: int) -> PrimFunc:
    """C = A @ B with a register tile of `rows` by `columns` vectors."""
    a, b, c = Buffer("A", (m * k,)), Buffer("B", (k * n,)), Buffer("C", (m * n,))
    acc = Buffer("acc", (rows * columns * lanes,), scope="local")
    mo, no, kk = Var("mo"), Var("no"), Var("k")
    tile = [(r, v, lanes_at((r * columns + v) * lanes, lanes)) for r in range(rows) for v in range(columns)]
    width = columns * lanes
    zero = [Store(acc, const(0.0, f"float32x{lanes}"), (at,)) for _, _, at in tile]
    step = [Store(
        acc,
        I.fma(
            Broadcast(a[(mo * rows + r) * k + kk], lanes), b[lanes_at(kk * n + no * width + v * lanes, lanes)], acc[at]
        ), (at,)
    )
            for r, v, at in tile]
    write = [Store(c, acc[at], (lanes_at((mo * rows + r) * n + no * width + v * lanes, lanes),)) for r, v, at in tile]
    body = Allocate(acc, Seq((*zero, loop(kk, k, Seq(tuple(step))), *write)))
    return PrimFunc("matmul", (a, b, c), loop(mo, m // rows, loop(no, n // width, body)))


@on_every_target
def test_register_tile(target: Target) -> None:
    lanes, rows, columns = target.lanes("float32"), *((8, 3) if target.vector_registers == 32 else (6, 2))
    n = 2 * columns * lanes
    func = matmul(2 * rows, n, 37, lanes, rows, columns)
    x, y, out = floats(2 * rows, 37), floats(37, n), np.empty((2 * rows, n), "float32")
    text = run(func, x, y, out, target=target)
    np.testing.assert_allclose(out, x @ y, rtol=1e-4, atol=1e-4)
    assert "alloca" not in text
    assert text.count("phi <") == rows * columns
    assert spills(assembly(text, target)) == 0


def test_spills_are_counted() -> None:
    func = matmul(40, 16, 8, 16, 40, 1)
    assert spills(assembly(emit(func, NATIVE), Target("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3"))) > 10


def test_tile_slots_in_nested_loops_and_branches() -> None:
    """total[r] = sum over j, k of x[r, j, k], doubled where j is odd; the first j also counts elements."""
    x, out, acc = Buffer("x", (60,)), Buffer("out", (6,)), Buffer("acc", (2,), scope="local")
    r, j, k = Var("r"), Var("j"), Var("k")
    item = x[r * 20 + j * 5 + k]
    add = IfThenElse((j % 2).equal(0), Store(acc, acc[0] + item, (ZERO,)), Store(acc, acc[0] + item * 2.0, (ZERO,)))
    count = IfThenElse(j.equal(0), Store(acc, acc[1] + 1.0, (as_expr(1),)))
    body = Seq((Store(acc, const(0.0, "float32"), (ZERO,)), Store(acc, const(0.0, "float32"), (as_expr(1),)),
                loop(j, 4, loop(k, 5, Seq((add, count)))), Store(out, acc[0], (r * 2,)),
                Store(out, acc[1], (r * 2 + 1,))))
    data, result = floats(3, 4, 5), np.empty((3, 2), "float32")
    text = run(PrimFunc("sums", (x, out), Allocate(acc, loop(r, 3, body))), data, result)
    expected = data[:, ::2].sum((1, 2)) + 2 * data[:, 1::2].sum((1, 2))
    np.testing.assert_allclose(result, np.stack([expected, np.full(3, 5.0)], 1), rtol=1e-5)
    assert "alloca" not in text


def test_a_slot_is_read_back_after_it_changes() -> None:
    """Values computed from a slot are computed again after a store to it, in loops and after branches."""
    x, out, acc, i = Buffer("x", (4,)), Buffer("out", (12,)), Buffer("acc", (1,), scope="local"), Var("i")
    square = acc[0] * acc[0]
    body = Seq((Store(out, square, (i * 3,)), IfThenElse(
        x[i] > 0.0, Store(acc, acc[0] + x[i], (ZERO,))
    ), Store(out, square, (i * 3 + 1,)),
                Store(acc, acc[0] + 1.0, (ZERO,)), Store(out, square, (i * 3 + 2,))))
    func = PrimFunc("f", (x, out), Allocate(acc, Seq((Store(acc, const(2.0, "float32"), (ZERO,)), loop(i, 4, body)))))
    data, result = np.array([1, -1, 0.5, -2], "float32"), np.empty(12, "float32")
    run(func, data, result)
    expected, value = [], np.float32(2)
    for v in data:
        before, value = value, value + max(v, 0)
        expected += [before**2, value**2, (value + 1) ** 2]
        value += 1
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_masked_store_to_a_slot() -> None:
    x, out, acc, i = Buffer("x", (8,)), Buffer("out", (4,)), Buffer("acc", (4,), scope="local"), Var("i")
    at = lanes_at(0, 4)
    part = x[lanes_at(i * 4, 4)]
    func = PrimFunc("f", (x, out), Allocate(acc, Seq((Store(acc, const(-1.0, "float32x4"), (at,)),
                    loop(i, 2, Store(acc, part, (at,), part > 0.0)), Store(out, acc[at], (at,))))))
    data, result = np.array([1, -1, 2, -2, -3, -4, 5, 6], "float32"), np.empty(4, "float32")
    run(func, data, result)
    np.testing.assert_array_equal(result, [1, -1, 5, 6])


def test_local_buffer_with_varying_index_lives_in_memory() -> None:
    x, out, t, i, j = Buffer("x", (8,)), Buffer("out", (8,)), Buffer("t", (8,), scope="local"), Var("i"), Var("j")
    body = Seq((loop(i, 8, Store(t, x[i] * 3.0, (7 - i,))), loop(j, 8, Store(out, t[j], (j,)))))
    data, result = floats(8), np.empty(8, "float32")
    text = run(PrimFunc("f", (x, out), Allocate(t, body)), data, result)
    np.testing.assert_array_equal(result, data[::-1] * np.float32(3))
    assert "alloca" in text


def test_large_buffer_comes_from_the_c_library() -> None:
    n = 1 << 17
    x, out, t, i, j = Buffer("x", (n,)), Buffer("out", (n,)), Buffer("t", (n,)), Var("i"), Var("j")
    body = Seq((loop(i, n, Store(t, x[i] + 1.0, (i,))), loop(j, n, Store(out, t[j], (n - 1 - j,)))))
    data, result = floats(n), np.empty(n, "float32")
    text = run(PrimFunc("f", (x, out), Allocate(t, body)), data, result)
    np.testing.assert_array_equal(result, (data + np.float32(1))[::-1])
    assert "aligned_alloc" in text and "@free" in text


@pytest.mark.parametrize("n", [-3, 0, 1, 5])
def test_loop_bounds_from_data(n: int) -> None:
    """A loop whose extent is not positive runs no iteration, and keeps its slots."""
    size, x, out, acc, i = Buffer("n", (1,), "int64"), Buffer("x", (8,)), Buffer("out", (1,)), Buffer(
        "acc", (1,), scope="local"
    ), Var("i")
    body = Seq(
        (
            Store(acc, const(10.0, "float32"), (ZERO,)), loop(i, size[0], Store(acc, acc[0] + x[i], (ZERO,)), start=2),
            Store(out, acc[0], (ZERO,))
        )
    )
    data, result = floats(8), np.empty(1, "float32")
    run(PrimFunc("f", (size, x, out), Allocate(acc, body)), np.array([n]), data, result)
    np.testing.assert_allclose(result[0], 10 + data[2 : 2 + max(n, 0)].sum(), rtol=1e-5)


def test_select_reads_only_the_chosen_side() -> None:
    """The table is protected by its index: an element outside of it would be a page fault."""
    index, table, out, i = Buffer("index", (4,), "int64"), Buffer("table", (3,)), Buffer("out", (4,)), Var("i")
    at = index[i]
    inside = E.all_of(at >= 0, at < 3)
    nested = E.if_then_else(E.logical_and(inside, table[at] > 0.0), table[at], const(-1.0, "float32"))
    where, values, result = np.array(
        [2, -(1 << 40), 1, 1 << 40]
    ), np.array([-5, 6, 7], "float32"), np.empty(4, "float32")
    run(PrimFunc("f", (index, table, out), loop(i, 4, Store(out, nested, (i,)))), where, values, result)
    np.testing.assert_array_equal(result, [7, -1, 6, -1])


@on_every_target
@pytest.mark.parametrize("dtype", ["float32", "int8", "uint16", "int64", "bool", "float16", "float64"])
def test_masked_gather(target: Target, dtype: str) -> None:
    index, table, out = Buffer("index", (16,), "int64"), Buffer("table", (3,), dtype), Buffer("out", (16,), dtype)
    at = lanes_at(0, 16)
    where = index[at]
    inside = E.all_of(where >= 0, where < 3)
    value = Select(inside, E.cast(f"{dtype}x16", table[where]), const(1, f"{dtype}x16"))
    picks = np.array([0, 1, 2, -(1 << 40), 2, 2, 1, 1 << 40] * 2)
    values, result = np.array([0, 1, 5]).astype(dtype), np.zeros(16, dtype)
    run(PrimFunc("f", (index, table, out), Store(out, value, (at,))), picks, values, result, target=target)
    expected = np.where((picks >= 0) & (picks < 3), values[np.clip(picks, 0, 2)], np.array(1).astype(dtype))
    np.testing.assert_array_equal(result, expected)


def test_masked_value_over_loads_of_both_sides() -> None:
    """Loads inside arithmetic, scalar loads in a broadcast, and both sides of a vector select stay in their lanes."""
    a, b, far, out, n = Buffer("a", (16,)), Buffer("b", (16,)), Buffer("far", (1,)), Buffer("out", (16,)), Buffer(
        "n", (2,), "int64"
    )
    at = lanes_at(0, 16)
    low = at < Broadcast(n[0], 16)
    value = Select(
        low, a[at] * 2.0 + 1.0,
        Select(at < Broadcast(n[1], 16), b[at] + Broadcast(Load(far, (n[1] * 0,)), 16), const(5.0, "float32x16"))
    )
    never = Select(at < Broadcast(n[0] * 0, 16), Broadcast(Load(far, (n[0] * (1 << 40),)), 16) + 1.0, value)
    x, y, result = floats(16), floats(16), np.empty(16, "float32")
    function = PrimFunc("f", (a, b, far, n, out), Store(out, never, (at,)))
    run(function, x, y, np.array([3], np.float32), np.array([5, 11]), result)
    np.testing.assert_array_equal(result, np.concatenate([x[:5] * 2 + 1, y[5:11] + 3, np.full(5, 5)]).astype("float32"))


def test_indices_that_load_stay_under_the_mask() -> None:
    """Loading the index of a guarded load, of one lane or of all, would be a page fault where the guard is false."""
    far, row, table, n, out, i = Buffer(
        "far", (1,), "int64"
    ), Buffer("row", (4,), "int64"), Buffer("table", (64,)), Buffer("n", (3,), "int64"), \
        Buffer("out", (96,)), Var("i")
    inside = lanes_at(0, 16) < Broadcast(n[i], 16)
    where = (8 - n[i]) // 8 * (1 << 40)  # 0, or far outside of everything where no lane is active
    contiguous = Select(inside, table[lanes_at(far[where], 16)] * 2.0, const(-1.0, "float32x16"))
    irregular = Select(inside, table[row[lanes_at(where, 16) % 4 + Broadcast(where, 16)]], const(-1.0, "float32x16"))
    body = Seq((Store(out, contiguous, (lanes_at(i * 32, 16),)), Store(out, irregular, (lanes_at(i * 32 + 16, 16),))))
    values, result = floats(64), np.empty((3, 2, 16), "float32")
    run(
        PrimFunc("f", (far, row, table, n, out), loop(i, 3, body)), np.array([5]), np.array([9, 3, 0, 60]), values,
        np.array([8, 0, 3]), result
    )
    for k, active in enumerate((8, 0, 3)):
        lanes = np.arange(16) < active
        np.testing.assert_array_equal(result[k, 0], np.where(lanes, values[5:21] * 2, -1))
        np.testing.assert_array_equal(result[k, 1], np.where(lanes, np.tile(values[[9, 3, 0, 60]], 4), -1))


@on_every_target
@pytest.mark.parametrize("stride", [-3, -1, 0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_strided_loads_and_stores(target: Target, stride: int, lanes: int) -> None:
    first, span = (max(0, -stride) * (lanes - 1), abs(stride) * (lanes - 1) + 1)
    x, out, back = Buffer("x", (span,)), Buffer("out", (lanes,)), Buffer("back", (span,))
    value = Load(x, (lanes_at(first, lanes, stride) if stride else Broadcast(as_expr(0), lanes),))
    write = Store(back, value, (lanes_at(first, lanes, stride),)) if stride else Store(back, x[0], (ZERO,))
    data, result, again = floats(span), np.empty(lanes, "float32"), np.zeros(span, "float32")
    run(
        PrimFunc("f", (x, out, back), Seq((Store(out, value, (lanes_at(0, lanes),)), write))), data, result, again,
        target=target
    )
    expected = data[first + stride * np.arange(lanes)]
    np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(again[first + stride * np.arange(lanes)], expected)


@pytest.mark.parametrize("stride", [-2, 1, 3])
@pytest.mark.parametrize("compare", [E.EQ, E.NE, E.LT, E.LE, E.GT, E.GE])
@pytest.mark.parametrize("mirrored", [False, True])
def test_lane_conditions(stride: int, compare: type[E.Comparison], mirrored: bool) -> None:
    """Comparisons of an index vector with a limit, far outside of 32 bits too."""
    limits, out, i = Buffer("limits", (6,), "int64"), Buffer("out", (48,), "bool"), Var("i")
    index, limit = Ramp(i * 2 + 1, stride, 8), Broadcast(limits[i], 8)
    condition = compare(limit, index) if mirrored else compare(index, limit)
    bounds, result = np.array([4, 7, 8, -(1 << 50), 1 << 50, 0]), np.empty((6, 8), bool)
    run(PrimFunc("f", (limits, out), loop(i, 6, Store(out, condition, (lanes_at(i * 8, 8),)))), bounds, result)
    left, right = np.arange(6)[:, None] * 2 + 1 + stride * np.arange(8), bounds[:, None]
    np.testing.assert_array_equal(result, compare.fold(right, left) if mirrored else compare.fold(left, right))


def test_let_keeps_the_value_of_its_moment() -> None:
    x, i, old = Buffer("x", (4,)), Var("i"), Var("old", "float32")
    body = Let(old, x[i], Seq((Store(x, old + 1.0, (i,)), Store(x, old * x[i], (i,)))))
    data = np.array([1, 2, 3, 4], "float32")
    run(PrimFunc("f", (x,), loop(i, 4, body)), data)
    np.testing.assert_array_equal(data, [2, 6, 12, 20])


def test_loads_are_repeated_after_stores() -> None:
    """A scan in place: each step reads what the step before wrote."""
    x, i = Buffer("x", (16,)), Var("i")
    body = Seq((Store(x, x[i] + x[i - 1], (i,)), IfThenElse(x[i] > 100.0, Store(x, const(0.0, "float32"), (i,)))))
    data = np.arange(16, dtype="float32")
    expected = data.copy()
    for k in range(1, 16):
        expected[k] += expected[k - 1]
        if expected[k] > 100:
            expected[k] = 0
    run(PrimFunc("f", (x,), loop(i, 15, body, start=1)), data)
    np.testing.assert_array_equal(data, expected)


def test_invariants_leave_the_loops() -> None:
    """A load, its broadcast and the row's address are computed before the inner loop; a stored buffer's load is not."""
    a, b, c, i, j = Buffer("a", (4,)), Buffer("b", (64,)), Buffer("c", (64,)), Var("i"), Var("j")
    at = lanes_at(i * 16 + j * 4, 4)
    text = emit(
        PrimFunc("f", (a, b, c), loop(i, 4, loop(j, 4, Store(c, Broadcast(a[i], 4) * b[at] + c[at], (at,))))), NATIVE
    )
    inner = text[text.index("\nj.") :]
    assert "load float," not in inner and "shufflevector" not in inner and inner.count("load <4 x float>") == 2
    assert inner.count("getelementptr") == 2


def test_prefetch_takes_an_address() -> None:
    x, out, i = Buffer("x", (64,)), Buffer("out", (4,)), Var("i")
    body = Seq((Evaluate(I.prefetch(x[i * 16 + 1000])), Store(out, x[i], (i,))))
    data, result = floats(64), np.empty(4, "float32")
    text = run(PrimFunc("f", (x, out), loop(i, 4, body)), data, result)
    np.testing.assert_array_equal(result, data[:4])
    assert text.count("call void @llvm.prefetch.p0") == 1


# Parallel loops.
def scaled_rows(rows: int, columns: int, grain: int) -> PrimFunc:
    x, s, out = Buffer("x", (rows * columns,)), Buffer("s", (1,)), Buffer("out", (rows * columns,))
    r, c, k, t = Var("r"), Var("c"), Var("k"), Buffer("t", (columns,), scope="local")
    factor = Var("factor", "float32")
    body = Allocate(t, Seq((loop(c, columns, Store(t, x[r * columns + c] * factor, (c,))),
                            loop(k, columns, Store(out, t[k] + E.cast("float32", r), (r * columns + k,)), PARALLEL))))
    return PrimFunc("rows", (x, s, out), Let(factor, s[0], loop(r, rows - 1, body, PARALLEL, start=1, grain=grain)))


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("grain", [1, 3, 1000])
def test_parallel_loop(threads: int, grain: int) -> None:
    native = Native(scaled_rows(50, 33, grain), threads=threads)
    for _ in range(50):
        data, result = floats(50, 33), np.zeros((50, 33), "float32")
        native(data, np.array([3], np.float32), result)
        expected = data * np.float32(3) + np.arange(50, dtype="float32")[:, None]
        expected[0] = 0
        np.testing.assert_array_equal(result, expected)
    native.close()


def test_a_pool_wakes_up_after_sleeping() -> None:
    native = Native(scaled_rows(50, 33, 1), threads=3)
    data, result = floats(50, 33), np.zeros((50, 33), "float32")
    for _ in range(5):
        threading.Event().wait(0.02)
        result[:] = 0
        native(data, np.array([1], np.float32), result)
        np.testing.assert_array_equal(result[1:], (data + np.arange(50, dtype="float32")[:, None])[1:])
    native.close()


def test_concurrent_callers_share_a_pool() -> None:
    native = Native(scaled_rows(64, 100, 1), threads=2)
    wrong: list[int] = []

    def call(seed: int) -> None:
        data = np.random.default_rng(seed).standard_normal((64, 100)).astype("float32")
        expected = data * np.float32(2) + np.arange(64, dtype="float32")[:, None]
        for _ in range(200):
            result = np.zeros((64, 100), "float32")
            native(data, np.array([2], np.float32), result)
            if not np.array_equal(result[1:], expected[1:]):
                wrong.append(seed)

    callers = [threading.Thread(target=call, args=(seed,)) for seed in range(4)]
    for t in callers:
        t.start()
    for t in callers:
        t.join()
    native.close()
    assert not wrong


CORES = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
on_two_cores = pytest.mark.skipif(
    len(CORES) < 2, reason="needs two cores, and a system where threads can be bound to them"
)


class Placed:
    """A pool whose workers can be asked for the cores on which they may run."""

    def __init__(self, threads: int) -> None:
        before = self._threads()
        self.native = Native(scaled_rows(50, 33, 1), threads=threads)
        self.workers = [int(name) for name in self._threads() - before]

    @staticmethod
    def _threads() -> set[str]:
        return {entry.name for entry in Path("/proc/self/task").iterdir()}

    def cores(self) -> list[set[int]]:
        """After a call."""
        data, result = floats(50, 33), np.zeros((50, 33), "float32")
        self.native(data, np.array([1], np.float32), result)
        np.testing.assert_array_equal(result[1:], (data + np.arange(50, dtype="float32")[:, None])[1:])
        return [os.sched_getaffinity(worker) for worker in self.workers]

    def settle(self, expected: list[set[int]]) -> bool:
        """Whether calls lead there; a worker that has not started yet is placed by a later call."""
        deadline = time.monotonic() + 20
        while (found := self.cores()) != expected and time.monotonic() < deadline:
            time.sleep(0.01)
        return found == expected


@pytest.fixture
def unbound() -> Iterator[None]:
    yield
    os.sched_setaffinity(0, CORES)


@on_two_cores
def test_workers_keep_off_the_core_of_the_caller(unbound: None) -> None:
    pool = Placed(2)
    for core in [*sorted(CORES), min(CORES)]:
        os.sched_setaffinity(0, {core})
        assert pool.settle([CORES - {core}])
    pool.native.close()


@on_two_cores
def test_workers_stay_on_the_cores_that_the_caller_was_given(unbound: None) -> None:
    few = set(sorted(CORES)[:2])
    os.sched_setaffinity(0, few)
    pool = Placed(2)
    os.sched_setaffinity(0, {min(few)})
    assert pool.settle([{max(few)}])
    pool.native.close()


@on_two_cores
def test_workers_that_lose_their_cores_to_others_finish_their_chunks() -> None:
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in CORES]
    try:
        pool = Placed(len(CORES))
        for _ in range(100):
            pool.cores()
        pool.native.close()
    finally:
        for other in others:
            other.kill()
            other.wait()


@on_two_cores
def test_more_threads_than_cores_are_not_bound() -> None:
    pool = Placed(len(CORES) + 1)
    for _ in range(20):
        assert pool.cores() == [CORES] * len(CORES)
    pool.native.close()


@on_two_cores
def test_threads_of_a_pool_made_on_one_core_stay_there(unbound: None) -> None:
    os.sched_setaffinity(0, {min(CORES)})
    pool = Placed(2)
    for _ in range(20):
        assert pool.cores() == [{min(CORES)}]
    pool.native.close()


@on_two_cores
def test_binding_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_BIND_THREADS", "0")
    pool = Placed(2)
    for _ in range(20):
        assert pool.cores() == [CORES]
    pool.native.close()


@pytest.mark.parametrize("n", [0, -5])
def test_empty_parallel_loop(n: int) -> None:
    size, out, i = Buffer("n", (1,), "int64"), Buffer("out", (4,)), Var("i")
    func = PrimFunc("f", (size, out), For(i, ZERO, size[0], PARALLEL, Store(out, const(1.0, "float32"), (i,))))
    for threads in (1, 2):
        result = np.zeros(4, "float32")
        run(func, np.array([n]), result, threads=threads)
        assert not result.any()


def test_tiles_do_not_cross_parallel_loops() -> None:
    """A local buffer that a parallel loop shares with its surroundings is memory."""
    out, t, i = Buffer("out", (4,)), Buffer("t", (1,), scope="local"), Var("i")
    body = Seq((Store(t, const(3.0, "float32"), (ZERO,)), loop(i, 4, Store(out, t[0], (i,)), PARALLEL)))
    result = np.zeros(4, "float32")
    text = run(PrimFunc("f", (out,), Allocate(t, body)), result, threads=2)
    assert (result == 3).all() and "alloca" in text


# Text, targets and faults.
def test_module_of_several_functions_and_odd_names() -> None:
    x, out = Buffer("1 x/y", (2,)), Buffer("π", (2,))
    funcs = [
        PrimFunc(name, (x, out), Store(out, I.sqrt(x[0]), (as_expr(k),))) for k,
        name in enumerate(("conv 1/\"a\"", "relu"))
    ]
    text = emit_module(funcs, NATIVE)
    assert text.count("declare float @llvm.sqrt.f32") == 1
    LoadedCode([compile_text(text, NATIVE)], [f.name for f in funcs])


@pytest.mark.parametrize("name", ["a\0b", "a\rb", "a\nb", "a\x85b", "π"])
def test_whatever_a_model_calls_an_operator_is_a_comment(name: str) -> None:
    """A zero would end the text, and a line break the comment."""
    out = Buffer("out", (2,))
    text = emit_module(
        [PrimFunc("f", (out,), Store(out, as_expr(1.0), (as_expr(0),)), origin=Origin(name, "Add"))], NATIVE
    )
    assert "\0" not in text
    LoadedCode([compile_text(text, NATIVE)], ["f"])


@pytest.mark.parametrize(
    "triple", ["aarch64-linux-gnu", "riscv64-unknown-linux-gnu", "wasm32-unknown-unknown", "armv7-linux-gnueabihf"]
)
def test_objects_for_other_machines(triple: str) -> None:
    target = Target(f"llvm -mtriple={triple}")
    magic = b"\0asm" if target.family == "wasm" else b"\x7fELF"
    assert compile_text(emit(matmul(8, 8, 8, 4, 4, 2), target), target).startswith(magic)
    assert compile_text(emit(scaled_rows(4, 4, 1), target), target).startswith(magic)
    assert compile_text(pool_text(target), target).startswith(magic)


def test_spills_of_aarch64_are_counted() -> None:
    target = Target("llvm -mtriple=aarch64-linux-gnu")
    assert spills(assembly(emit(matmul(6, 16, 8, 4, 6, 4), target), target)) <= 16  # d8 to d15 are the caller's
    assert spills(assembly(emit(matmul(40, 4, 8, 4, 40, 1), target), target)) > 20


def test_invalid_text_is_located() -> None:
    with pytest.raises(InternalError, match=r"(?s)invalid LLVM text.*> +2 +%x = add i32 %y, 1") as error:
        compile_text("define i32 @f() {\n  %x = add i32 %y, 1\n  ret i32 %x\n}", NATIVE)
    assert "ret i32 %x" in str(error.value)


def test_text_that_does_not_verify_is_refused() -> None:
    broken = (
        "define i32 @f(i1 %c) {\n  br i1 %c, label %a, label %b\na:\n  %x = add i32 1, 1\n  br label %b\nb:\n  ret i32 "
        "%x\n}"
    )
    with pytest.raises(InternalError, match="does not dominate"):
        compile_text(broken, NATIVE)


def test_missing_symbol_is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    code = compile_text(
        "declare void @nowhere_to_be_found()\ndefine void @f() {\n  call void @nowhere_to_be_found()\n  ret void\n}",
        NATIVE
    )
    with pytest.raises(InternalError, match=r"cannot be loaded: .*LLVM names missing symbols on standard error"):
        LoadedCode([code], ["f"])
    assert "nowhere_to_be_found" in capfd.readouterr().err


def test_faults_name_what_was_not_lowered() -> None:
    x, i, k = Buffer("x", (4, 4)), Var("i"), Var("stray")
    flat = Buffer("x", (4,))
    cases = [
        (Store(x, const(0.0, "float32"), (ZERO, ZERO)), "buffer 'x' is written where it does not exist"),
        (loop(i, 4, Store(flat, const(0.0, "float32"), (i,)), UNROLLED), "loop 'i' is still unrolled"),
        (Store(flat, const(0.0, "float32"), (k,)), "variable 'stray' is used where it has no value"),
        (
            Store(Buffer("gone", (4,)), const(0.0, "float32"), (ZERO,)),
            "buffer 'gone' is written where it does not exist"
        ),
        (Store(flat, E.Intrinsic("magic")(flat[0]), (ZERO,)), "the intrinsic 'magic' has no LLVM text"),
        (Evaluate(E.Intrinsic("fire", effect=True)(flat[0])), "the intrinsic 'fire' has no LLVM text"),
        (
            Allocate(Buffer("t", (k,)), Store(flat, const(0.0, "float32"), (ZERO,))),
            "variable 'stray' is used where it has no value"
        ),
    ]
    for body, message in cases:
        with pytest.raises(InternalError, match=message):
            emit(PrimFunc("f", (flat,), body), NATIVE)


def test_loading_and_dropping_code_leaves_nothing_behind() -> None:
    image = compile_text(emit(matmul(8, 8, 8, 4, 4, 2), NATIVE), NATIVE)
    statm = Path("/proc/self/statm")
    if not statm.exists():
        pytest.skip("resident memory is read from /proc")
    before = 0
    for k in range(300):
        LoadedCode([image], ["matmul"])
        if k == 99:
            before = int(statm.read_text().split()[1])
    assert int(statm.read_text().split()[1]) - before < 128  # pages


def test_a_buffer_that_is_allocated_twice() -> None:
    """As in the unrolled copies of a loop: the addresses of the first one serve for the second one."""
    A, C, t, i = Buffer("A", (4,), "int32"), Buffer("C", (4,), "int32"), Buffer("t", (2,), "int32", "local"), Var("i")

    def copy(at: int) -> Stmt:
        fill = [Store(t, A[at + k], (as_expr(k),)) for k in range(2)]
        return Allocate(t, Seq((*fill, Store(C, t[i], (i + at,)))))

    func = PrimFunc("twice", (A, C), For(i, as_expr(0), as_expr(2), SERIAL, Seq((copy(0), copy(2)))))
    found = np.zeros(4, "int32")
    run(func, np.asarray([5, 6, 7, 8], "int32"), found)
    assert found.tolist() == [5, 6, 7, 8]
