"""te schedules: the ways of the field to run a computation all equal numpy, as loops and as native code; refusals say
why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te
from tilewright.base.errors import CompileError, ScheduleError
from tilewright.scalar.expr import IntImm
from tilewright.scalar.range import Range
from tilewright.te.resolve import schedule_func
from tilewright.tir.interpreter import run
from tilewright.tir.stmt import Block, For, PrimFunc
from tilewright.tir.transform.lower_blocks import lower_blocks
from tilewright.tir.transform.pipeline import lower_loops

M, N, K, BN = 18, 20, 22, 8


class Product:
    """C = A @ B under one schedule."""

    def __init__(self) -> None:
        self.A, self.B = te.placeholder((M, K), name="A"), te.placeholder((K, N), name="B")
        self.k = te.reduce_axis((0, K), name="k")
        self.C = te.compute((M, N), lambda m, n: te.sum(self.A[m, self.k] * self.B[self.k, n], axis=self.k), name="C")
        self.s = te.create_schedule(self.C.op)

    @property
    def args(self) -> list[te.Tensor]:
        return [self.A, self.B, self.C]


def loops_of(func: PrimFunc, block: str) -> list[tuple[str, int]]:
    """Kind and trips of the loops around a block."""
    def search(s: Any, around: list[tuple[str, int]]) -> list[tuple[str, int]] | None:
        if isinstance(s, Block):
            return around if s.name == block else None
        if isinstance(s, For):
            assert isinstance(s.extent, IntImm)
            around = [*around, (s.kind, s.extent.value)]
        below = s.stmts if hasattr(s, "stmts") else [s.body]
        return next((found for b in below if (found := search(b, around)) is not None), None)

    found = search(func.body, [])
    assert found is not None
    return found


def check(s: te.Schedule, args: list[te.Tensor], expected: Callable[..., np.ndarray]) -> PrimFunc:
    """The last of `args` is what numpy says: interpreted after the blocks are gone, after the loop passes, and
    native."""
    func = schedule_func(s, args, "main")
    rng = np.random.default_rng(0)
    given = [rng.random(t.extents, np.float32) for t in args[:-1]]
    want = expected(*given)
    lowered = lower_blocks(func)
    for program in (lowered, lower_loops(lowered)):
        out = np.full(args[-1].extents, np.nan, want.dtype)
        arrays = [*given, out] if program is lowered else [a.reshape(-1) for a in (*given, out)]
        run(program, arrays)
        np.testing.assert_allclose(out, want, rtol=2e-5)
    out = np.full(args[-1].extents, np.nan, want.dtype)
    tvm.build(s, args, "llvm")(*given, out)
    np.testing.assert_allclose(out, want, rtol=2e-5)
    return func


# --- the matmul tutorial
# --------------------------------------------------------------------------------------------------


def blocking(p: Product) -> None:
    xo, yo, xi, yi = p.s[p.C].tile(p.C.op.axis[0], p.C.op.axis[1], BN, BN)
    (k,) = p.s[p.C].op.reduce_axis
    ko, ki = p.s[p.C].split(k, factor=4)
    p.s[p.C].reorder(xo, yo, ko, ki, xi, yi)


def vectorization(p: Product) -> None:
    blocking(p)
    p.s[p.C].vectorize(p.s[p.C].leaf_iter_vars[-1])


def loop_permutation(p: Product) -> None:
    xo, yo, xi, yi = p.s[p.C].tile(p.C.op.axis[0], p.C.op.axis[1], BN, BN)
    ko, ki = p.s[p.C].split(p.k, factor=4)
    p.s[p.C].reorder(xo, yo, ko, xi, ki, yi)
    p.s[p.C].vectorize(yi)


def write_cache(p: Product) -> None:
    cc = p.s.cache_write(p.C, "global")
    xo, yo, _, _ = p.s[p.C].tile(p.C.op.axis[0], p.C.op.axis[1], BN, BN)
    p.s[cc].compute_at(p.s[p.C], yo)
    xc, yc = p.s[cc].op.axis
    (k,) = p.s[cc].op.reduce_axis
    ko, ki = p.s[cc].split(k, factor=4)
    p.s[cc].reorder(ko, xc, ki, yc)
    p.s[cc].unroll(ki)
    p.s[cc].vectorize(yc)
    p.s[p.C].parallel(xo)


def write_cache_in_registers(p: Product) -> None:
    cc = p.s.cache_write(p.C, "local")
    xo, yo, _, yi = p.s[p.C].tile(p.C.op.axis[0], p.C.op.axis[1], 2, BN)
    p.s[p.C].vectorize(yi)
    tile = p.s[p.C].fuse(xo, yo)
    p.s[p.C].parallel(tile)
    p.s[cc].compute_at(p.s[p.C], tile)
    xc, yc = p.s[cc].op.axis
    p.s[cc].reorder(p.s[cc].op.reduce_axis[0], xc, yc)
    p.s[cc].unroll(xc)
    p.s[cc].vectorize(yc)


def read_cache(p: Product) -> None:
    bb = p.s.cache_read(p.B, "global", [p.C])
    n, _ = p.s[p.C].split(p.C.op.axis[1], factor=BN)
    p.s[p.C].reorder(n, p.C.op.axis[0])
    p.s[bb].compute_at(p.s[p.C], n)
    p.s[bb].vectorize(p.s[bb].op.axis[1])


def read_cache_in_a_reduction(p: Product) -> None:
    ko, _ = p.s[p.C].split(p.k, factor=4)
    aa = p.s.cache_read(p.A, "local", p.C)
    p.s[aa].compute_at(p.s[p.C], ko)


def both_caches(p: Product) -> None:
    cc = p.s.cache_write(p.C, "local")
    aa = p.s.cache_read(p.A, "local", [cc])
    x, y = p.s[p.C].split(p.C.op.axis[0], nparts=3)
    p.s[cc].compute_at(p.s[p.C], x)
    p.s[aa].compute_at(p.s[cc], p.s[cc].op.axis[0])
    p.s[p.C].unroll(y)


def factored(p: Product) -> None:
    _, ki = p.s[p.C].split(p.k, factor=BN)
    cf = p.s.rfactor(p.C, ki)
    p.s[cf].compute_at(p.s[p.C], p.s[p.C].op.axis[1])
    p.s[cf].vectorize(p.s[cf].op.axis[0])


def factored_last(p: Product) -> None:
    ko, _ = p.s[p.C].split(p.k, nparts=4)
    cf = p.s.rfactor(p.C, ko, factor_axis=2)
    assert [a.var.name for a in p.s[cf].op.axis] == ["m", "n", "k.outer"]
    p.s[cf].parallel(p.s[cf].op.axis[0])
    p.s[cf].compute_at(p.s[p.C], p.s[p.C].op.reduce_axis[0])


def factored_twice(p: Product) -> None:
    ko, ki = p.s[p.C].split(p.k, factor=4)
    cf = p.s.rfactor(p.C, ki)
    ki2, _ = p.s[cf].split(ko, factor=2)
    p.s.rfactor(cf, ki2, factor_axis=-1)


def attach_after_split(p: Product) -> None:
    """The order of writing does not matter between stages."""
    cc = p.s.cache_write(p.C, "local")
    p.s[cc].vectorize(p.s[cc].split(p.s[cc].op.axis[1], factor=4)[1])
    xo, _ = p.s[p.C].split(p.C.op.axis[0], factor=4)
    p.s[cc].compute_at(p.s[p.C], xo)


def hints(p: Product) -> None:
    x, y = p.C.op.axis
    p.s[p.C].pragma(x, "auto_unroll_max_step", 16)
    p.s[p.C].pragma(y, "unroll")
    p.s[p.C].double_buffer()
    p.s[p.C].prefetch(p.A, p.k, 8)


SCHEDULES = [
    blocking, vectorization, loop_permutation, write_cache, write_cache_in_registers, read_cache,
    read_cache_in_a_reduction, both_caches, factored, factored_last, factored_twice, attach_after_split, hints,
]


@pytest.mark.slow
@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda f: f.__name__)
def test_a_product_under_a_schedule(schedule: Callable[[Product], None]) -> None:
    p = Product()
    schedule(p)
    check(p.s, p.args, lambda a, b: a @ b)


@pytest.mark.slow
def test_array_packing() -> None:
    a, b = te.placeholder((M, K), name="A"), te.placeholder((K, 24), name="B")
    k = te.reduce_axis((0, K), "k")
    packed = te.compute((24 / BN, K, BN), lambda bigN, k, littleN: b[k, bigN * BN + littleN], name="packedB")
    c = te.compute(
        (M, 24), lambda m, n: te.sum(a[m, k] * packed[n // BN, k, tvm.tir.indexmod(n, BN)], axis=k), name="C"
    )
    s = te.create_schedule(c.op)
    xo, yo, xi, yi = s[c].tile(c.op.axis[0], c.op.axis[1], BN, BN)
    ko, ki = s[c].split(k, factor=4)
    s[c].reorder(xo, yo, ko, xi, ki, yi)
    s[c].vectorize(yi)
    bigN, _, littleN = s[packed].op.axis
    s[packed].vectorize(littleN)
    s[packed].parallel(bigN)
    func = check(s, [a, b, c], lambda a, b: a @ b)
    assert loops_of(func, "packedB") == [("parallel", 3), ("serial", K), ("vectorized", BN)]


@pytest.mark.slow
def test_the_loops_are_those_asked_for() -> None:
    p = Product()
    write_cache(p)
    func = check(p.s, p.args, lambda a, b: a @ b)
    outer = [("parallel", 3), ("serial", 3)]
    assert loops_of(func, "C") == [*outer, ("serial", 6), ("serial", 8), ("unrolled", 4), ("vectorized", 8)]
    assert loops_of(func, "C_global") == [*outer, ("serial", 8), ("serial", 8)]
    text = repr(func)
    assert "C_global[m, n] = T.fma(A[m, k], B[k, n], C_global[m, n])" in text.replace("m_1", "m").replace("n_1", "n")


@pytest.mark.slow
def test_a_factor_is_no_longer_than_the_loop() -> None:
    p = Product()
    p.s[p.C].split(p.C.op.axis[0], factor=100)
    p.s[p.C].split(p.C.op.axis[1], nparts=100)
    assert loops_of(check(p.s, p.args, lambda a, b: a @ b), "C") == [
        ("serial", 1), ("serial", M), ("serial", N), ("serial", 1), ("serial", K)
    ]


# --- several stages
# -------------------------------------------------------------------------------------------------------


def chain() -> tuple[te.Tensor, te.Tensor, te.Tensor, te.Tensor]:
    a = te.placeholder((16, 10), name="A")
    b = te.compute((16, 10), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((15, 10), lambda i, j: b[i, j] + b[i + 1, j], name="C")
    d = te.compute((15, 10), lambda i, j: c[i, j] + 1.0, name="D")
    return a, b, c, d


def numpy_chain(a: np.ndarray) -> np.ndarray:
    result: np.ndarray = a[:-1] * 2 + a[1:] * 2 + 1
    return result


def test_producers_are_computed_where_they_are_attached() -> None:
    a, b, c, d = chain()
    s = te.create_schedule(d.op)
    outer, inner = s[d].split(d.op.axis[0], factor=4)
    s[d].reorder(outer, d.op.axis[1], inner)
    s[b].compute_at(s[c], c.op.axis[0])
    s[c].compute_at(s[d], outer)
    func = check(s, [a, d], numpy_chain)
    assert loops_of(func, "C") == [("serial", 4), ("serial", 4), ("serial", 10)]
    assert loops_of(func, "B") == [("serial", 4), ("serial", 4), ("serial", 2), ("serial", 10)]


def test_inlining_and_scopes() -> None:
    a, b, c, d = chain()
    s = te.create_schedule(d.op)
    s[b].compute_at(s[c], c.op.axis[0])
    s[b].compute_root()
    s[b].compute_inline()
    s[c].compute_inline()
    assert "B" not in repr(check(s, [a, d], numpy_chain)).replace("Buffer", "").replace("T.block", "")
    s = te.create_schedule([d.op])
    s[c].set_scope("local")
    s[c].compute_at(s[d], d.op.axis[0])
    assert "T.allocate" in repr(lower_blocks(check(s, [a, d], numpy_chain)))


def test_inner_results_can_be_arguments() -> None:
    a, b, _, d = chain()
    s = te.create_schedule(d.op)
    x = np.random.default_rng(0).random((16, 10), np.float32)
    got_b, got_d = np.empty((16, 10), np.float32), np.empty((15, 10), np.float32)
    tvm.build(s, [d, a, b], "llvm")(got_d, x, got_b)
    np.testing.assert_allclose(got_b, x * 2)
    np.testing.assert_allclose(got_d, numpy_chain(x), rtol=1e-6)


def test_a_reduction_of_two_values_is_factored() -> None:
    a = te.placeholder((6, 30), name="A")
    k = te.reduce_axis((0, 30), "k")
    both = te.comm_reducer(
        lambda x, y: (te.if_then_else(x[1] >= y[1], x[0], y[0]), te.if_then_else(x[1] >= y[1], x[1], y[1])),
        lambda t, u: (tvm.expr.const(-1, t), te.min_value(u)),
    )
    at, best = te.compute((6,), lambda i: both((k.var, a[i, k]), axis=k), name="best")
    s = te.create_schedule(at.op)
    ko, _ = s[at].split(k, nparts=5)
    first_at, first_best = s.rfactor(at, ko)
    assert first_at.op is first_best.op
    s[first_at].compute_at(s[at], s[at].op.axis[0])
    x = np.random.default_rng(0).random((6, 30), np.float32)
    got_at, got_best = np.zeros(6, np.int64), np.zeros(6, np.float32)
    tvm.build(s, [a, at, best], "llvm")(x, got_at, got_best)
    np.testing.assert_array_equal(got_at, x.argmax(1))
    np.testing.assert_array_equal(got_best, x.max(1))


def test_what_a_schedule_knows() -> None:
    a, b, c, d = chain()
    s = te.create_schedule(d.op)
    assert [x.op.name for x in s.stages] == ["A", "B", "C", "D"]
    assert s.outputs == [d.op]
    assert s.normalize() is s
    assert s[d] is s[d.op]
    assert repr(s[d]) == "stage(D: i, j)"
    bb = s.cache_read(b, "local", [c])
    assert [x.op.name for x in s.stages] == ["A", "B", "B.local", "C", "D"]
    np.testing.assert_equal(bb.extents, (16, 10))
    assert isinstance(a.op, te.PlaceholderOp)


def test_no_trip_starts_a_reduction_over() -> None:
    """A value computed inside the loop of a reduction stands between the loop and its step; the sum goes on."""
    a = te.placeholder((4, 12), name="A")
    b = te.compute((4, 12), lambda i, j: a[i, j] + 1.0, name="B")
    k = te.reduce_axis((0, 12), "k")
    c = te.compute((4,), lambda i: te.sum(b[i, k], axis=k), name="C")
    s = te.create_schedule(c.op)
    io, ii = s[c].split(c.op.axis[0], factor=3)
    ko, ki = s[c].split(k, factor=5)
    s[c].reorder(io, ko, ii, ki)
    s[b].compute_at(s[c], ii)
    check(s, [a, c], lambda x: (x + 1).sum(1))


# --- refusals
# -------------------------------------------------------------------------------------------------------------


def bind_twice(p: Product) -> None:
    axis = te.thread_axis("vthread")
    p.s[p.C].bind(p.k, axis)
    p.s[p.C].bind(p.C.op.axis[0], axis)


def in_turn(*steps: Callable[[Product], object]) -> Callable[[Product], None]:
    def run_all(p: Product) -> None:
        for step in steps:
            step(p)

    return run_all


REFUSED: dict[str, tuple[Callable[[Product], object], str]] = {
    "no stage": (
        lambda p: p.s[te.placeholder((2,), name="Z")], r"'Z' is not part of this schedule; its stages are A, B, C"
    ),
    "no operation": (lambda p: te.create_schedule([]), r"create_schedule takes one or more operations \(C.op\)"),
    "split without": (lambda p: p.s[p.C].split(p.k), r"split of 'k' needs exactly one of factor= and nparts="),
    "split by zero": (
        lambda p: p.s[p.C].split(p.k, 0), r"'k' cannot be split by 0; a factor must be an integer, 1 or more"
    ),
    "not an axis": (
        lambda p: p.s[p.C].split("k", 2), r"'k' is not an axis; use one of op.axis"  # type: ignore[arg-type]
    ),
    "twice": (
        in_turn(lambda p: p.s[p.C].split(p.k, 2), lambda p: p.s[p.C].unroll(p.k)),
        r"'k' is not a loop of 'C' anymore: it was split or fused; its loops are m, n, k.outer, k.inner"
    ),
    "foreign": (lambda p: p.s[p.C].unroll(Product().k), r"'k' is not a loop of 'C'; its loops are m, n, k"),
    "fuse apart": (
        lambda p: p.s[p.C].fuse(p.C.op.axis[0], p.k),
        r"fuse takes directly nested loops, outermost first; 'C' has m, n, k, and m, k were given"
    ),
    "reorder twice": (lambda p: p.s[p.C].reorder(p.k, p.k), r"reorder of 'C' was given the same axis twice: k, k"),
    "split late": (
        in_turn(lambda p: p.s[p.C].unroll(p.k), lambda p: p.s[p.C].split(p.k, 2)),
        r"loop 'k' of 'C' is already unrolled; split it first"
    ),
    "two kinds": (
        in_turn(lambda p: p.s[p.C].unroll(p.k), lambda p: p.s[p.C].parallel(p.k)),
        r"loop 'k' of 'C' is already unrolled; leave that out, or split it first"
    ),
    "pragma of C": (
        lambda p: p.s[p.C].pragma(p.k, "import_c", "x"),
        r"pragma import_c on 'k': C source is not supported; compile it to LLVM IR"
    ),
    "input": (
        lambda p: p.s[p.A].compute_inline(),
        r"compute_inline: 'A' is an input, which has no loops; apply the step to a copy"
    ),
    "inline output": (
        lambda p: p.s[p.C].compute_inline(), r"'C' is an output of the schedule; only an intermediate value can be"
    ),
    "at a foreign loop": (
        lambda p: p.s[p.s.cache_write(p.C, "local")].compute_at(p.s[p.C], p.k),
        r"'k' is not a loop of 'C'; its loops are m, n"
    ),
    "scope": (
        lambda p: p.s[p.C].set_scope("texture"),
        r"'texture' is not a memory scope; use 'global' \(memory\) or 'local'"
    ),
    "bind": (
        lambda p: p.s[p.C].bind(p.k, None),  # type: ignore[arg-type]
        r"loop 'k' of 'C' can only be bound to an axis from te.thread_axis, not None"
    ),
    "bind twice": (bind_twice, r"thread axis 'vthread' is already bound to a loop of 'C'; fuse the two loops and"),
    "bind marked": (
        in_turn(lambda p: p.s[p.C].parallel(p.k), lambda p: p.s[p.C].bind(p.k, te.thread_axis("vthread"))),
        r"loop 'k' of 'C' is already parallel; bind it first"
    ),
    "mark bound": (
        in_turn(lambda p: p.s[p.C].bind(p.k, te.thread_axis("vthread")), lambda p: p.s[p.C].unroll(p.k)),
        "loop 'k' of 'C' is already bound to threads; leave that out"
    ),
    "thread_axis": (
        lambda p: te.thread_axis("core"),
        r"'core' is not a thread axis; use vthread, threadIdx.x to .z, or blockIdx.x to .z"
    ),
    "thread_axis from": (
        lambda p: te.thread_axis((1, 4), "vthread"), r"thread axis 'vthread' starts at 1; it must start at 0"
    ),
    "env_threads": (
        lambda p: p.s[p.C].env_threads([3]), r"env_threads of 'C' needs one or more axes from te.thread_axis"
    ),
    "tensorize": (
        lambda p: p.s[p.C].tensorize(p.k, None),
        r"tensorize of 'k' in 'C' needs a result of te.decl_tensor_intrin, not None"
    ),
    "predicate": (
        lambda p: p.s[p.C].set_store_predicate(3),  # type: ignore[arg-type]
        r"set_store_predicate of 'C' needs a condition, not 3"
    ),
    "align last": (
        lambda p: (c := p.s[p.s.cache_write(p.C, "local")]).storage_align(c.op.axis[1], 16, 0),
        r"storage_align of 'C.local' needs an axis other than the last; the choices are m.c"
    ),
    "align offset": (
        lambda p: (c := p.s[p.s.cache_write(p.C, "local")]).storage_align(c.op.axis[0], 16, 16),
        r"the offset 16 must be from 0 to the factor 16"
    ),
    "align output": (
        lambda p: p.s[p.C].storage_align(p.C.op.axis[0], 16, 0),
        r"storage_align of 'C': an output is in the caller's memory"
    ),
    "rolling": (
        lambda p: p.s[p.C].rolling_buffer(),
        r"rolling_buffer of 'C': an output is in the caller's memory and must be stored whole"
    ),
    "layout late": (
        lambda p: (p.s[p.C].split(p.k, 2), p.s[p.C].transform_layout(lambda i, j: (j, i))),
        r"'C' already has schedule steps; call transform_layout once, before them"
    ),
    "layout of two": (
        lambda p: p.s[p.C].transform_layout(lambda i, j: (i, i)),
        r"'lambda i, j: \(i, i\)' maps several elements of \(18, 20\) to one place"
    ),
    "layout from 1": (
        lambda p: p.s[p.C].transform_layout(lambda i, j: (i, j + 1)),
        r"the layout 'lambda i, j: \(i, \(j \+ 1\)\)' of 'C' cannot be inverted: split axes by factors of their "
        r"sizes, and use each part once"
    ),
    "layout of an input": (
        lambda p: p.s[p.A].transform_layout(lambda i, j: (i, i)),
        r"'lambda i, j: \(i, i\)' maps several elements of \(18, 22\) to one place"
    ),
    "group of none": (lambda p: p.s.create_group(p.A, p.B), "no stage to group is between B and A"),
    "group in itself": (
        lambda p: p.s.create_group(p.C, p.A).compute_at(p.s[p.C], p.k),
        r"'C' belongs to the group itself; choose a stage outside of it that reads it"
    ),
    "cache none": (
        lambda p: p.s.cache_write([], "local"), r"cache_write needs the results of one computation; the list is empty"
    ),
    "cache nobody": (
        lambda p: p.s.cache_read(p.A, "local", []), r"cache_read of 'A' needs a list of the operations that read the"
    ),
    "cache late": (
        lambda p: (p.s[p.C].split(p.k, 2), p.s.cache_write(p.C, "local")),
        r"'C' already has schedule steps; call cache_write before them"
    ),
    "cache after a remainder": (
        lambda p: (p.s[p.C].split(p.C.op.axis[0], 5), p.s.cache_write(p.C, "local")),
        r"cache_write of 'C': the split of 'm' leaves a remainder, so its loops are no layout; call cache_write before"
    ),
    "cache input": (lambda p: p.s.cache_write(p.A, "local"), r"cache_write: 'A' is not a te.compute"),
    "cache several": (
        lambda p: p.s.cache_write([p.C, p.C], "local"),
        r"cache_write needs all results of one computation: 'C' has C, and C, C were given"
    ),
    "rfactor spatial": (
        lambda p: p.s.rfactor(p.C, p.C.op.axis[0]), r"'m' is not a reduction loop of 'C'; split a reduction axis"
    ),
    "rfactor late": (
        in_turn(lambda p: p.s[p.C].reorder(p.k, p.C.op.axis[0]), lambda p: p.s.rfactor(p.C, p.k)),
        r"rfactor of 'C' must precede reorder of its reduction loops, and fuse with other loops"
    ),
    "rfactor axis": (lambda p: p.s.rfactor(p.C, p.k, 3), r"rfactor of 'C': factor_axis=3 is not between -3 and 2"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_step_that_cannot_be_says_why(name: str) -> None:
    step, message = REFUSED[name]
    with pytest.raises(ScheduleError, match=message):
        step(Product())


def attach_to_a_fused_loop(s: te.Schedule, c: te.Tensor, d: te.Tensor) -> None:
    s[c].compute_at(s[d], d.op.axis[0])
    s[d].fuse(*d.op.axis)


def keep_inside(s: te.Schedule, c: te.Tensor, d: te.Tensor) -> None:
    s[c].compute_at(s[d], d.op.axis[0])
    s[c].rolling_buffer()


def attach_to_an_inlined_stage(s: te.Schedule, b: te.Tensor, c: te.Tensor) -> None:
    s[b].compute_at(s[c], c.op.axis[0])
    s[c].compute_inline()


def test_a_mark_is_repeated() -> None:
    a = te.placeholder((4, 8), name="A")
    b = te.compute((4, 8), lambda i, j: a[i, j] + 1.0, name="B")
    s = te.create_schedule(b.op)
    for _ in range(2):
        s[b].parallel(b.op.axis[0])
        s[b].vectorize(b.op.axis[1])
    assert [m.kind for m in s[b].marks] == ["parallel", "vectorized"]
    with pytest.raises(ScheduleError, match="'j' of 'B' is already vectorized"):
        s[b].unroll(b.op.axis[1])


def test_arguments_computed_inside_of_their_readers() -> None:
    a = te.placeholder((6,), name="A")
    b = te.compute((6,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((6,), lambda i: b[i] * 2.0, name="C")
    x = np.arange(6, dtype=np.float32)
    for is_inlined, wanted in ((False, x + 1), (True, -1)):
        s = te.create_schedule(c.op)
        if is_inlined:
            s[b].compute_inline()
        else:
            s[b].compute_at(s[c], c.op.axis[0])
        outs = [np.full(6, -1, np.float32) for _ in "bc"]
        tvm.build(s, [a, b, c], "llvm")(x, *outs)
        np.testing.assert_array_equal(outs[0], np.broadcast_to(wanted, 6))
        np.testing.assert_array_equal(outs[1], (x + 1) * 2)


def test_what_only_lowering_can_see() -> None:
    a, b, c, d = chain()
    late: list[tuple[Callable[[te.Schedule], object], list[Any], str]] = [
        (
            lambda s: attach_to_a_fused_loop(s, c, d), [a, d],
            r"'C' cannot be computed in loop 'i' of 'D', which was split or fused; its loops are i.j.fused"
        ),
        (lambda s: s[d].compute_at(s[d], d.op.axis[0]), [a, d], r"'D' cannot be computed inside its own loop"),
        (
            lambda s: attach_to_an_inlined_stage(s, b, c), [a, d],
            r"'B' cannot be computed in 'C', which is inlined and has no loops"
        ),
        (lambda s: s[d].prefetch(c, d.op.axis[0], 1), [a, d], r"there is no parameter 'C' to prefetch"),
        (
            lambda s: s[b].prefetch(c, b.op.axis[0], 1), [a, d],
            r"'C' is not indexed by loop 'i' of 'B'"
        ),
        (lambda s: s[b].compute_at(s[d], d.op.axis[0]), [a, d], r"the consumers of 'B' in loop 'i', but it is read"),
        (
            lambda s: keep_inside(s, c, d), [a, c, d],
            r"block 'C' is an output block: it computes the parameter 'C', which must"
        ),
        (
            lambda s: s[c].compute_at(s[b], b.op.axis[0]), [a, d],
            r"'C' cannot be computed in 'B', which does not read it"
        ),
        (
            lambda s: s[d].bind(d.op.axis[0], te.thread_axis(3, "vthread")), [a, d],
            r"loop 'i' has 15 iterations, but is bound to thread axis 'vthread' of extent 3; split it by"
        ),
        (
            lambda s: s[d].set_store_predicate(b.op.axis[0].var < 3), [a, d],
            r"set_store_predicate of 'D' uses 'i', which is not one of its axes or loops"
        ),
        (lambda s: None, [a, b], r"'D' is an output of the schedule, but is missing from the arguments A, B"),
        (lambda s: None, [a, d, a], r"'A' occurs twice among the arguments"),
        (lambda s: None, [a, d, 4], r"an argument of a schedule must be a tensor; 4 is a int"),
    ]
    for step, args, message in late:
        s = te.create_schedule(d.op)
        step(s)
        with pytest.raises(ScheduleError, match=message):
            schedule_func(s, args)
    with pytest.raises(CompileError, match="placeholder 'A' is missing from the arguments"):
        schedule_func(te.create_schedule(d.op), [d])


def test_a_value_with_two_results_is_not_cached() -> None:
    a = te.placeholder((4,), name="A")
    b, c = te.compute((4,), lambda i: (a[i], a[i] + 1.0), name="P")
    with pytest.raises(
        ScheduleError,
        match=r"cache_write needs all results of one computation: 'P' has P.v0, P.v1, and P.v0 were given"
    ):
        te.create_schedule(b.op).cache_write(b, "local")
    with pytest.raises(ScheduleError, match="'P' is not a reduction, so rfactor does not apply"):
        te.create_schedule(c.op).rfactor(b, b.op.axis[0])


def test_relations_and_marks_under_tvm_names() -> None:
    a = te.placeholder((8, 4), name="A")
    b = te.compute((8, 4), lambda i, j: a[i, j] + 1.0, name="B")
    s = te.create_schedule(b.op)
    outer, inner = s[b].split(b.op.axis[0], 2)
    once = s[b].fuse()
    s[b].unroll(inner)
    s[b].pragma(outer, "my_pass", 3)
    kinds = tvm.te.schedule
    assert [type(r) for r in s[b].relations] == [kinds.Split, kinds.Singleton]
    assert s[b].leaf_iter_vars[0] is once and set(s[b].iter_var_attrs) == {outer, inner}
    assert s[b].iter_var_attrs[inner].iter_type == te.schedule.IterVar.Unrolled
    noted = s[b].iter_var_attrs[outer]
    assert (noted.iter_type, noted.pragma_keys, noted.pragma_values) == (0, ("my_pass",), (3,))
    assert b.op.axis[1].dom == Range(0, 4)
    tvm.lower(s, [a, b])


@pytest.mark.parametrize("step", ["split", "fuse"])
def test_a_placement_in_a_loop_that_is_split_or_fused(step: str) -> None:
    a = te.placeholder((8, 4), name="A")
    b = te.compute((8, 4), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((8, 4), lambda i, j: b[i, j] * 2.0, name="C")
    s = te.create_schedule(c.op)
    s[b].compute_at(s[c], c.op.axis[1])
    if step == "split":
        s[c].split(c.op.axis[1], 2)
    else:
        s[c].fuse(*c.op.axis)
    x, got = np.arange(32, dtype=np.float32).reshape(8, 4), np.empty((8, 4), np.float32)
    tvm.build(s, [a, c], "llvm")(x, got)
    np.testing.assert_array_equal(got, (x + 1) * 2)


def test_rfactor_after_splits_of_other_loops() -> None:
    a, k = te.placeholder((8, 12), name="A"), te.reduce_axis((0, 12), "k")
    b = te.compute((8,), lambda i: te.sum(a[i, k], axis=k), name="B")
    s = te.create_schedule(b.op)
    _, inner = s[b].split(k, 4)
    s[b].split(b.op.axis[0], 2)
    part = s.rfactor(b, inner)
    assert [int(n) for n in part.shape] == [4, 8] and len(s[b].leaf_iter_vars) == 2
    assert part.op.body[0].axis == s[part].op.reduce_axis
    x, got = np.random.default_rng(0).random((8, 12), np.float32), np.empty(8, np.float32)
    tvm.build(s, [a, b], "llvm")(x, got)
    np.testing.assert_allclose(got, x.sum(1), rtol=1e-5)
