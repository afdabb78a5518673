"""Schedule steps: each changes the loops and not the result; illegal ones say which loop is at fault."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, te
from tilewright.base.errors import ScheduleError
from tilewright.scalar.expr import if_then_else, maximum
from tilewright.te.create import create_prim_func
from tilewright.tir.interpreter import run
from tilewright.tir.loop_schedule import Schedule
from tilewright.tir.stmt import Block, Evaluate, PrimFunc, Store, walk_stmt
from tilewright.tir.transform.lower_blocks import lower_blocks
from tilewright.tir.transform.pipeline import lower_loops

M, N, K = 10, 13, 7


def product() -> Schedule:
    a, b = te.placeholder((M, K), name="A"), te.placeholder((K, N), name="B")
    k = te.reduce_axis((0, K), "k")
    c = te.compute((M, N), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((M, N), lambda i, j: c[i, j] + 1.0, name="D")
    return Schedule(create_prim_func([a, b], [d]))


def check(func: PrimFunc) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((M, K)).astype("float32"), rng.standard_normal((K, N)).astype("float32")
    lowered = lower_blocks(func)
    for program in (lowered, lower_loops(lowered)):
        out = np.full((M, N), np.nan, "float32")
        run(
            program,
            [x if program is lowered else x.ravel() for x in (a, b)] + [out if program is lowered else out.reshape(-1)]
        )
        np.testing.assert_allclose(out, a @ b + 1, rtol=1e-5, atol=1e-5)


def tiled(s: Schedule) -> None:
    i, j = s.loops("D")
    _, jo, _, ji = s.tile(i, j, 4, 8)
    s.set_scope("C", "local")
    s.compute_at("C", jo)
    s.vectorize(ji)


def in_registers(s: Schedule) -> None:
    tiled(s)
    spatial, reduce = s.axes("C")
    s.reorder(*reduce, *spatial[2:])
    s.vectorize(spatial[-1])
    s.unroll(spatial[-2])


def in_pieces(s: Schedule) -> None:
    in_registers(s)
    _, (k,) = s.axes("C")
    piece, _ = s.split(k, [None, 3])
    s.annotate(piece, "apart", True)


def in_a_local_copy(s: Schedule) -> None:
    assert s.cache_write("C", "local") == "C_local"
    i, j = s.loops("C_local")
    _, jo, _, _ = s.tile(i, j, 4, 8)
    s.compute_at("C", jo)


def in_a_local_copy_of_an_operand(s: Schedule) -> None:
    assert s.cache_read("B", "local", ["C"]) == "B_local"
    _, j, _ = s.loops("C")
    s.reorder(j, s.loops("C")[0])
    s.compute_at("B_local", j)


def factored(s: Schedule, axis: int = 0) -> None:
    _, ki = s.split(s.loops("C")[2], [None, 4])
    assert s.rfactor("C", ki, axis) == "C_rf"
    s.compute_at("C_rf", s.loops("C")[1], preserve_unit_loops=True)
    assert len(s.loops("C_rf")) == 6


STEPS: dict[str, Callable[[Schedule], object]] = {
    "none": lambda s: None,
    "split": lambda s: s.split(s.loops("C")[0], [None, 3]),
    "split in three": lambda s: s.split(s.loops("C")[1], [2, None, 4]),
    "split with overlap": lambda s: s.split(s.loops("C")[1], [None, 4], overlap=True),
    "split with overlap, in lanes": lambda s: s.vectorize(s.split(s.loops("D")[1], [None, 8], overlap=True)[1]),
    "compute_at in a split with overlap": lambda s: s.compute_at(
        "C", s.split(s.loops("D")[1], [None, 8], overlap=True)[0]
    ),
    "fuse": lambda s: s.fuse(*s.loops("C")[:2]),
    "reorder": lambda s: s.reorder(s.loops("C")[2], s.loops("C")[0]),
    "tile": lambda s: s.tile(s.loops("C")[0], s.loops("C")[1], 4, 4),
    "parallel": lambda s: s.parallel(s.loops("C")[0], grain=2),
    "unroll": lambda s: s.unroll(s.loops("C")[2]),
    "vectorize": lambda s: s.vectorize(s.loops("C")[1]),
    "vectorize with a rest": lambda s: s.vectorize(s.split(s.loops("C")[1], [None, 4])[1]),
    "vectorize a reduction": lambda s: s.vectorize(s.split(s.loops("C")[2], [None, 4])[1]),
    "compute_at": lambda s: s.compute_at("C", s.loops("D")[0]),
    "compute_at, tiled": tiled,
    "accumulators in registers": in_registers,
    "a reduction in pieces": in_pieces,
    "cache_write": lambda s: s.cache_write("C", "global"),
    "cache_write, moved": in_a_local_copy,
    "cache_write of the output": lambda s: s.cache_write("D", "local"),
    "cache_read": lambda s: s.cache_read("C", "global", ["D"]),
    "cache_read, moved": in_a_local_copy_of_an_operand,
    "cache_read twice": lambda s: (s.cache_read("A", "local", ["C"]), s.cache_read("A_local", "global", ["C"])),
    "rfactor": factored,
    "rfactor, last axis": lambda s: factored(s, -1),
    "rfactor of the whole sum": lambda s: s.rfactor("C", s.loops("C")[2], 1),
    "rfactor of the outer part": lambda s: s.rfactor("C", s.split(s.loops("C")[2], [2, None])[0]),
    "annotations": lambda s: s.annotate("C", "double_buffer", True),
    "prefetch": lambda s: s.prefetch("B", 256),
    "prefetch_next": lambda s: s.prefetch_next("A", s.loops("C")[0], s.loops("C")[2]),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_keeps_the_result(name: str) -> None:
    s = product()
    STEPS[name](s)
    check(s.func)


def test_a_split_with_overlap_has_no_guard() -> None:
    s = product()
    s.split(s.loops("D")[1], [None, 8], overlap=True)
    block = s.block("D")
    assert str(block.bindings[1]) == "(min((j_0 * 8), 5) + j_1)"
    assert str(block.predicate) == "True"


def test_inlining_removes_the_block() -> None:
    a = te.placeholder((5,), name="A")
    b = te.compute((5,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((5,), lambda i: b[4 - i] + b[i], name="C")
    s = Schedule(create_prim_func([a], [c]))
    s.compute_inline("B")
    assert [x.name for x in walk_stmt(s.func.body) if isinstance(x, Block)] == ["C"]
    out = np.zeros(5, "float32")
    run(lower_blocks(s.func), [np.arange(5, dtype="float32"), out])
    np.testing.assert_array_equal(out, [8, 8, 8, 8, 8])


def test_the_steps_are_the_schedule() -> None:
    s = product()
    tiled(s)
    assert [step.name for step in s.steps] == ["split", "split", "reorder", "set_scope", "compute_at", "vectorize"]


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda s: s.block("E"), "there is no block 'E'; the blocks are C, D"),
        (lambda s: s.split(s.loops("C")[0], [2, 3]), "loop 'i' has 10 iterations, but the factors .2, 3. cover only 6"),
        (lambda s: s.split(s.loops("C")[0], [None, None]), "at most one factor may be None"),
        (lambda s: s.split(s.loops("C")[0], [0, None]), "factors are 1 or more"),
        (
            lambda s: s.split(s.loops("C")[0], [2, 3, 2], overlap=True),
            "split of loop 'i' with overlap needs two factors, the inner at most 10"
        ),
        (
            lambda s: s.split(s.loops("C")[0], [None, 16], overlap=True),
            "split of loop 'i' with overlap needs two factors, the inner at most 10"
        ),
        (
            lambda s: s.split(s.loops("C")[2], [None, 4], overlap=True),
            "block 'C' reduces over loop 'k', or has no axes"
        ),
        (lambda s: s.fuse(s.loops("C")[0], s.loops("C")[2]), "'k' is not directly inside 'i'"),
        (lambda s: s.reorder(s.loops("C")[0], s.loops("D")[0]), "other statements between the loops"),
        (lambda s: (s.vectorize(s.loops("C")[1]), s.unroll(s.loops("C")[1])),
         "loop 'j' is already vectorized; leave that out, or split it first"),
        (lambda s: s.compute_inline("C"), "block 'C' is a reduction"),
        (lambda s: s.set_scope("D", "local"), "block 'D' computes the parameter 'D'"),
        (lambda s: s.compute_at("D", s.loops("C")[0]), "block 'D' is an output block: it computes the parameter"),
        (lambda s: s.compute_at("C", s.loops("C")[0]), "loop 'i' is an ancestor of block 'C', which is already inside"),
        (
            lambda s: s.set_scope("C", "texture"),
            "'texture' is not a memory scope; use 'global' .memory. or 'local'"
        ),
        (lambda s: s.cache_read("E", "local", ["C"]), "there is no buffer 'E'; the buffers are A, B, D, C"),
        (lambda s: s.cache_read("A", "local", ["D"]), "block 'D' does not read 'A', so it cannot read a copy of it"),
        (lambda s: s.cache_read("A", "local", ["E"]), "there is no block 'E'; the blocks are C, D"),
        (lambda s: s.cache_read("A", "local", []), "cache_read of 'A' needs the blocks that will read the copy"),
        (
            lambda s: s.cache_read("C", "local", ["C"]),
            "'C' is not completely computed before block 'C' reads it; cache_read before compute_at"
        ),
        (
            lambda s: s.rfactor("C", s.loops("C")[0]),
            "rfactor of block 'C' along 'i': the loop is not a reduction loop of the block"
        ),
        (lambda s: s.rfactor("C", s.loops("D")[0]), "loop 'i' is not around block 'C'; its loops are i, j, k"),
        (lambda s: s.rfactor("D", s.loops("D")[0]), "rfactor of block 'D' along 'i': the block is not a reduction"),
        (
            lambda s: s.rfactor("C", s.loops("C")[2], 3),
            "rfactor of block 'C' along 'k': factor_axis=3 is not between -3 and 2"
        ),
        (
            lambda s: s.prefetch_next("C", *s.loops("C")[:2]),
            "there is no parameter 'C' to prefetch; the parameters are A, B, D"
        ),
        (lambda s: s.prefetch_next("B", s.loops("C")[1], s.loops("C")[0]), "loop 'i' is not inside loop 'j'"),
        (lambda s: s.prefetch("C", 64), "there is no parameter 'C' to prefetch; the parameters are A, B, D"),
    ],
)
def test_an_illegal_step_says_what_is_at_fault(step: Callable[[Schedule], object], message: str) -> None:
    s = product()
    before = s.func
    with pytest.raises(ScheduleError, match=message):
        step(s)
    assert before is s.func or "vectorized" in message


def test_steps_that_come_too_late() -> None:
    s = product()
    s.compute_at("C", s.loops("D")[0])
    with pytest.raises(
        ScheduleError, match="'C' is already read in the loops that compute it; call cache_write before compute_at"
    ):
        s.cache_write("C", "local")
    with pytest.raises(
        ScheduleError, match="the loops around block 'C' contain other blocks too; call rfactor before compute_at"
    ):
        s.rfactor("C", s.loops("C")[-1])
    s = product()
    fused = s.fuse(*s.loops("C")[1:])
    with pytest.raises(ScheduleError, match="a reduction loop is fused with a spatial loop; call rfactor before that"):
        s.rfactor("C", fused)


def test_a_value_read_elsewhere_stays_where_it_is() -> None:
    a = te.placeholder((4,), name="A")
    b = te.compute((4,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((4,), lambda i: b[i] + 1.0, name="C")
    d = te.compute((4,), lambda i: b[i] - 1.0, name="D")
    s = Schedule(create_prim_func([a], [c, d]))
    with pytest.raises(ScheduleError, match="requires all the consumers of 'B' in loop 'i', but it is read"):
        s.compute_at("B", s.loops("C")[0])
    s = Schedule(create_prim_func([a], [b, c, d]))
    with pytest.raises(ScheduleError, match="block 'B' is an output block: it computes the parameter 'B'"):
        s.compute_at("B", s.loops("C")[0])


def test_a_loop_that_is_gone_is_named() -> None:
    s = product()
    i = s.loops("C")[0]
    s.split(i, [2, 5])
    with pytest.raises(ScheduleError, match="there is no loop 'i'"):
        s.unroll(i)


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((1 << 17,), (0,)), ((40_000, 3), (0, 1)), ((100_000, 16), (0,)), ((2, 1 << 17), (1,)), ((16_000, 5, 7), (0, 2))]
)
def test_long_sums_are_made_of_pieces(shape: tuple[int, ...], axis: tuple[int, ...]) -> None:
    """Equal numbers are rounded the same way in each addition, so that the errors of one long sum add up."""
    x = np.full(shape, 0.1, "float32")
    v = relay.var("x", shape=shape)
    for target in ("llvm", "c"):
        found = np.asarray(
            tvm.compile(tvm.IRModule.from_expr(relay.Function([v], relay.sum(v, axis))), target=target)(x), "float64"
        )
        wanted = x.astype("float64").sum(axis)
        assert np.abs(found - wanted).max() < 4e-6 * wanted.max(), "without pieces it is 1.6e-5 and more"


@pytest.mark.slow
def test_pieces_of_a_long_sum_lose_less() -> None:
    n = 1 << 14
    a = te.placeholder((n,), name="A")
    k = te.reduce_axis((0, n), "k")
    b = te.compute((1,), lambda i: te.sum(a[k.var] + 0.0 * i.astype("float32"), axis=k), name="B")
    x = np.full(n, 0.1, "float32")
    errors = []
    for pieces in (1, 128):
        s = Schedule(create_prim_func([a], [b]))
        piece, _ = s.split(s.axes("B")[1][0], [pieces, None])
        s.annotate(piece, "apart", pieces > 1)
        out = np.zeros(1, "float32")
        run(lower_blocks(s.func), [x, out])
        errors.append(abs(float(out[0]) - float(x.astype("float64").sum())))
    assert errors[1] < errors[0] / 10


def test_the_part_of_the_next_trip_is_asked_for_in_shares() -> None:
    a, b = te.placeholder((6, 48), name="A"), te.placeholder((4, 48, 8), name="B")
    k = te.reduce_axis((0, 48), "k")
    s = Schedule(
        create_prim_func(
            [a, b], [te.compute((4, 6, 8), lambda p, m, n: te.sum(a[m, k] * b[p, k, n], axis=k), name="C")]
        )
    )
    p, m, n, k_loop = s.loops("C")
    ko, ki = s.split(k_loop, [None, 4])
    s.reorder(p, m, ko, ki, n)
    s.prefetch_next("B", p, ko)
    asked = [str(x.value) for x in walk_stmt(lower_blocks(s.func).body) if isinstance(x, Evaluate)]
    assert asked == ["prefetch(B[(p + 1), 0, (((m * 12) + k_0) * 16)])"]  # 24 lines of 16 elements, 72 trips


def test_the_first_of_an_unknown_number_of_trips_ask_for_the_part_of_the_next_trip() -> None:
    a, b = te.placeholder((te.var("n"), 48), name="A"), te.placeholder((4, 48, 8), name="B")
    k = te.reduce_axis((0, 48), "k")
    s = Schedule(create_prim_func([a, b], [te.compute(
        (4, a.shape[0], 8), lambda p, m, n: te.sum(a[m, k] * b[p, k, n], axis=k), name="C")]))
    p, m, n, k_loop = s.loops("C")
    s.reorder(p, m, k_loop, n)
    s.prefetch_next("B", p, k_loop)
    (asked,) = [str(x.value) for x in walk_stmt(lower_blocks(s.func).body) if isinstance(x, Evaluate)]
    # 24 lines of 16 elements in four trips of m, then the first line again, which is in the cache
    assert asked == "prefetch(B[(p + 1), 0, (if_then_else((m < 4), ((m * 48) + k), 0) * 16)])"


def test_what_follows_a_sum_reads_is_asked_for_before_the_sum() -> None:
    a, b, c = te.placeholder((4, 8), name="A"), te.placeholder((8, 32), name="B"), te.placeholder((4, 32), name="C")
    k = te.reduce_axis((0, 8), "k")
    sums = te.compute((4, 32), lambda m, n: te.sum(a[m, k] * b[k, n], axis=k), name="sums")
    s = Schedule(create_prim_func([a, b, c], [te.compute((4, 32), lambda m, n: sums[m, n] + c[m, n], name="D")]))
    m, n = s.loops("D")
    tile, row = s.split(m, [None, 2])
    column, lane = s.split(n, [None, 16])
    s.reorder(tile, row, column, lane)
    s.vectorize(lane)
    s.compute_at("sums", tile)
    s.prefetch_reads(tile, ["C"])
    func = lower_blocks(s.func)
    (asked,) = [str(x.value) for x in walk_stmt(func.body) if isinstance(x, Evaluate)]
    assert asked == "prefetch(C[((m_0 * 2) + m_1), (n_0 * 16)])"
    first = next(x for x in walk_stmt(func.body) if isinstance(x, (Evaluate, Store)))
    assert isinstance(first, Evaluate)
    x, y, z, out = (np.random.default_rng(0).standard_normal(shape).astype("float32") for shape in (
        (4, 8), (8, 32), (4, 32), (4, 32)))
    run(func, [x, y, z, out])
    np.testing.assert_allclose(out, x @ y + z, rtol=1e-5, atol=1e-5)


def test_a_limit_shortens_a_loop_to_a_value_of_the_program() -> None:
    """The steps after the limit are not computed; the caller says that nobody reads them."""
    a, n = te.placeholder((3, 10), name="A"), te.placeholder((3,), "int64", name="N")
    needed = te.compute((3,), lambda i: n[i] * 1, name="needed", inline=False)
    twice = te.compute((3, 10), lambda i, j: a[i, j] * 2.0, name="twice", inline=False)
    s = Schedule(create_prim_func([a, n], [te.compute((3, 10), lambda i, j: if_then_else(
        j < needed[i], twice[i, j], 0.0), name="C")]))
    at = s.loops("C")[0]
    tiles = s.split(s.compute_at("twice", at)[-1], [None, 2])[0]
    s.compute_at("needed", at)
    s.limit(tiles, "needed", 2)
    func = lower_blocks(s.func)
    assert "T.serial(min(5, (needed[0] + 1) // 2))" in str(func)
    x, counts, out = np.arange(30, dtype="float32").reshape(3, 10), np.array([0, 3, 10]), np.zeros((3, 10), "float32")
    run(func, [x, counts, out])
    np.testing.assert_array_equal(out, np.where(np.arange(10) < counts[:, None], 2 * x, 0))


def test_a_cut_decides_comparisons_in_both_parts_of_a_loop() -> None:
    a, n = te.placeholder((3, 10), name="A"), te.placeholder((3,), "int64", name="N")
    plain = te.compute((3,), lambda i: n[i] * 1, name="plain", inline=False)
    s = Schedule(create_prim_func([a, n], [te.compute((3, 10), lambda i, j: if_then_else(
        j < plain[i], a[i, j], maximum(a[i, j], 0.0)), name="C")]))
    at, column = s.loops("C")
    tiles = s.split(column, [None, 2])[0]
    s.compute_at("plain", at)
    s.cut(tiles, "plain", 2)
    func = lower_blocks(s.func)
    assert str(func).count("T.serial(min(5, plain[0] // 2))") == 1 and "plain[0])" not in str(func)
    x, out = np.arange(30, dtype="float32").reshape(3, 10), np.zeros((3, 10), "float32")
    run(func, [x, np.array([0, 3, 10]), out])
    np.testing.assert_array_equal(out, x)


def test_a_limit_is_computed_around_its_loop() -> None:
    a, n = te.placeholder((3, 10), name="A"), te.placeholder((3,), "int64", name="N")
    needed = te.compute((3,), lambda i: n[i] * 1, name="needed", inline=False)
    s = Schedule(create_prim_func([a, n], [te.compute((3, 10), lambda i, j: if_then_else(
        j < needed[i], a[i, j], 0.0), name="C")]))
    s.limit(s.loops("C")[1], "needed")
    with pytest.raises(
        ScheduleError, match="loop 'j' is limited by 'needed', which must be one value computed around the loop"
    ):
        lower_blocks(s.func)


def test_what_is_no_run_of_memory_is_not_prefetched() -> None:
    s = product()
    i, j = s.loops("D")
    s.reorder(j, i)
    s.compute_at("C", j)
    s.prefetch_next("B", j, s.loops("C")[-1])
    with pytest.raises(
        ScheduleError, match="the part of 'B' that an iteration of loop 'j' reads is not contiguous in memory, so it"
    ):
        lower_blocks(s.func)
