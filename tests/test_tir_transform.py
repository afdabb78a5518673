"""Every loop pass keeps the meaning of a program, alone and in the pipeline; what they refuse, they refuse with
reasons."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loop_programs import PROGRAMS, P, S, U, V, conv2d, loops, matmul, max_pool, outputs, pad, same, variables
from tilewright.backends.cpu.llvm.codegen import emit
from tilewright.backends.targets.target import Target
from tilewright.base.errors import InternalError, Origin, ScheduleError
from tilewright.base.types import DataType
from tilewright.scalar import expr as E
from tilewright.scalar import intrinsics as I
from tilewright.scalar.expr import Buffer, IntImm, Load, PrimExpr, Select, Var, all_of, as_expr, const
from tilewright.scalar.intrinsics import prefetch
from tilewright.scalar.walk import walk
from tilewright.tir.interpreter import run
from tilewright.tir.stmt import (
    UNROLLED,
    Allocate,
    Block,
    Evaluate,
    For,
    IfThenElse,
    IterVar,
    Let,
    PrimFunc,
    Stmt,
    Store,
    expressions,
    seq,
    walk_stmt,
)
from tilewright.tir.transform.flatten_buffers import flatten_buffers
from tilewright.tir.transform.partition_loops import partition_loops
from tilewright.tir.transform.pipeline import LOOP_PASSES, lower_loops
from tilewright.tir.transform.simplify import simplify
from tilewright.tir.transform.tighten_loop_bounds import tighten_loop_bounds
from tilewright.tir.transform.unroll_loops import unroll_loops
from tilewright.tir.transform.vectorize_loops import vectorize_loops
from tilewright.tir.transform.verify import verify_flat

i, j, k = variables("i j k")


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_each_pass_in_the_pipeline_keeps_the_results(name: str) -> None:
    before = func = PROGRAMS[name]()
    expected = outputs(before)
    for loop_pass in LOOP_PASSES:
        func = loop_pass(func)
        for a, b in zip(expected, outputs(func), strict=True):
            np.testing.assert_array_equal(a, b, err_msg=f"after {loop_pass.__name__}:\n{func}")
    verify_flat(func)


@pytest.mark.slow
@pytest.mark.parametrize(
    "one_pass", [simplify, tighten_loop_bounds, partition_loops, flatten_buffers], ids=lambda p: p.__name__
)
@pytest.mark.parametrize("name", ["conv2d", "matmul", "max_pool", "pad"])
def test_a_pass_alone_keeps_the_results(name: str, one_pass: object) -> None:
    before = PROGRAMS[name]()
    same(before, one_pass(before))  # type: ignore[operator]


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    st.integers(2, 6), st.integers(3, 9), st.integers(1, 4), st.integers(1, 2), st.integers(0, 2), st.integers(1, 4),
    st.sampled_from([S, U])
)
def test_convolutions_of_any_shape(
    h: int, w: int, kernel: int, stride: int, padding: int, tile: int, kind: str
) -> None:
    padding = min(padding, kernel - 1)
    h, w = max(h, kernel), max(w, kernel)
    before = conv2d(h, w, 1, 2, kernel, stride, padding, tile, kind)
    after = lower_loops(before)
    verify_flat(after)
    same(before, after)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 9), st.integers(1, 9), st.integers(1, 3), st.integers(1, 4), st.integers(2, 5),
    st.sampled_from([S, P])
)
def test_matmuls_of_any_shape(m: int, n: int, depth: int, tile: int, lanes: int, outer: str) -> None:
    before = matmul(m, n, depth, tile, lanes, outer)
    after = lower_loops(before)
    verify_flat(after)
    same(before, after)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 12), st.integers(0, 6), st.integers(0, 6), st.integers(2, 8))
def test_pads_of_any_shape(n: int, before_: int, after_: int, lanes: int) -> None:
    before = pad(n, before_, after_, lanes)
    same(before, lower_loops(before))


def conditions(func: PrimFunc) -> int:
    """How many conditions are left, in statements and expressions."""
    selects = {e for s in walk_stmt(func.body) for x in expressions(s) for e in walk(x) if isinstance(e, Select)}
    masks = sum(isinstance(s, Store) and s.mask is not None for s in walk_stmt(func.body))
    return len(selects) + masks + sum(isinstance(s, IfThenElse) for s in walk_stmt(func.body))


def test_padding_of_a_convolution_costs_nothing() -> None:
    assert conditions(lower_loops(conv2d(h=14, w=14, c=2, f=4, tile=7))) == 0
    assert conditions(lower_loops(conv2d(h=14, w=14, c=2, f=4, tile=7, stride=2))) == 0
    assert conditions(lower_loops(max_pool(h=14, w=14, c=4))) == 0


def test_a_row_tail_is_left_to_one_branch() -> None:
    lowered = lower_loops(matmul(10, 16, 5))
    assert conditions(lowered) == 1
    assert conditions(lower_loops(matmul(8, 16, 5))) == 0


def test_too_many_segments_are_lumped_at_the_ends() -> None:
    before = conv2d(h=1, w=14, c=1, f=1, k=11, pad=5, tile=1)
    cut = partition_loops(simplify(before))
    assert sum(isinstance(s, For) and s.var.name == "xo" for s in walk_stmt(cut.body)) == 3
    same(before, cut)


def test_an_unrolled_loop_from_a_variable() -> None:
    a, b = Buffer("a", (12,)), Buffer("b", (12,))
    inner = For(j, i * 3, as_expr(3), U, Store(b, a[j] + 1.0, (j,)))
    before = PrimFunc("f", (a, b), loops((i, 4, S), body=inner))
    after = unroll_loops(simplify(before))
    assert sum(isinstance(s, Store) for s in walk_stmt(after.body)) == 3
    same(before, after)


def test_a_vectorized_loop_from_another_number() -> None:
    a, b = Buffer("a", (12,)), Buffer("b", (12,))
    before = PrimFunc("f", (a, b), For(j, as_expr(4), as_expr(8), V, Store(b, a[j] * 2.0, (j,))))
    after = vectorize_loops(before)
    assert str(after.body) == "b[T.ramp(4, 1, 8)] = a[T.ramp(4, 1, 8)] * T.broadcast(2.0, 8)"
    same(before, after)


def test_nested_vectorized_loops_keep_one() -> None:
    a, b = Buffer("a", (4, 8)), Buffer("b", (4, 8))
    before = PrimFunc("f", (a, b), loops((i, 4, V), (j, 8, V), body=Store(b, a[i, j] + 1.0, (i, j))))
    after = lower_loops(before)
    verify_flat(after)
    same(before, after)


def test_a_let_and_an_else_in_lanes() -> None:
    a, b, t = Buffer("a", (12,)), Buffer("b", (12,)), Var("t", "float32")
    body = Let(t, a[i], IfThenElse(j > 1, Store(b, a[i * 4 + j] + t, (i * 4 + j,)), Store(b, t, (i * 4 + j,))))
    before = PrimFunc("f", (a, b), loops((i, 3, S), (j, 4, V), body=body))
    after = lower_loops(before)
    verify_flat(after)
    same(before, after)


def test_quotients_of_lanes_that_are_no_ramp() -> None:
    a, b = Buffer("a", (12,)), Buffer("b", (12,))
    before = PrimFunc(
        "f", (a, b), loops((i, 3, S), (j, 4, V), body=Store(b, a[(i * 4 + j) // 3] + a[(j * 5) % 7], (i * 4 + j,)))
    )
    same(before, lower_loops(before))


def test_a_count_into_one_element_stays_a_count() -> None:
    a, b = Buffer("a", (1,)), Buffer("b", (1,))
    before = PrimFunc("f", (a, b), loops((j, 4, V), body=Store(b, b[0] + 1.0, (as_expr(0),))))
    same(before, lower_loops(before))


def test_shifting_in_place_is_not_vectorized() -> None:
    a, b = Buffer("a", (1,)), Buffer("b", (9,))
    before = PrimFunc("f", (a, b), loops((j, 8, V), body=Store(b, b[j], (j + 1,))))
    same(before, lower_loops(before))


def test_a_prefetch_survives() -> None:
    a, b = Buffer("a", (4, 8)), Buffer("b", (4, 8))
    body = seq(Evaluate(prefetch(a[i, 0])), loops((j, 8, V), body=Store(b, a[i, j], (i, j))))
    lowered = lower_loops(PrimFunc("f", (a, b), loops((i, 4, U), body=body)))
    verify_flat(lowered)
    assert [
        str(s) for s in walk_stmt(lowered.body) if isinstance(s, Evaluate)
    ] == [f"T.prefetch(a[{8 * n}])" for n in range(4)]


def test_a_deep_sequence_is_fast_enough_to_unroll() -> None:
    a, b = Buffer("a", (4096,)), Buffer("b", (4096,))
    lowered = lower_loops(
        PrimFunc("f", (a, b), loops((i, 64, U), (j, 64, U), body=Store(b, a[i * 64 + j], (i * 64 + j,))))
    )
    assert sum(isinstance(s, Store) for s in walk_stmt(lowered.body)) == 4096


# What is refused.
def test_a_reduction_across_lanes_is_refused() -> None:
    a, b = Buffer("a", (8,)), Buffer("b", (1,))
    loop = For(j, as_expr(0), as_expr(8), V, Store(b, b[0] + a[j], (as_expr(0),)), origin=Origin("sum_1", "ReduceSum"))
    with pytest.raises(
        ScheduleError,
        match="ReduceSum 'sum_1': the vectorized loop 'j' writes one element of 'b' from all of its 8 lanes; "
                                            "vectorize a loop that indexes 'b', or split the reduction with "
                                            "rfactor"):
        vectorize_loops(PrimFunc("f", (a, b), loop))


@pytest.mark.parametrize(("kind", "one_pass"), [(V, vectorize_loops), (U, unroll_loops)])
def test_a_loop_of_unknown_length_is_refused(kind: str, one_pass: object) -> None:
    a, n = Buffer("a", (8,)), Var("n")
    loop = For(j, as_expr(0), n, kind, Store(a, const(0, "float32"), (j,)))
    with pytest.raises(ScheduleError, match=f"the {kind} loop 'j' has n iterations, which is not a constant; split"):
        one_pass(PrimFunc("f", (a,), loop))  # type: ignore[operator]


def put(value: E.PrimExpr) -> Stmt:
    return Store(flat, value, (zero,))


zero, one = as_expr(0), const(1, "float32")
flat, square = Buffer("a", (8,)), Buffer("q", (4, 4))
axis = IterVar(Var("v"), as_expr(4))
WRONG: list[tuple[Stmt, str]] = [
    (loops((j, 4, V), body=Store(flat, const(0, "float32"), (j,))), "f: loop 'j' is still vectorized, in"),
    (Store(flat, const(0, "float32"), (k,)), "f: variable 'k' is used where it has no value, in\n    a\\[k\\] = 0.0"),
    (Store(flat, const(0, "int32"), (zero,)), "f: a value of int32 is stored as float32"),
    (Store(Buffer("b", (1,)), const(0, "float32"), (zero,)), "f: buffer 'b' is written where it does not exist"),
    (Store(flat, Buffer("b", (1,))[0], (zero,)), "f: buffer 'b' is read where it does not exist"),
    (Store(flat, const(0, "float32"), (zero, zero)), "f: 2 indices for the flat buffer 'a'"),
    (Store(flat, const(0, "float32"), (zero,), as_expr(1)), "f: the mask of 1 lanes is int64"),
    (
        Allocate(square, Store(flat, const(0, "float32"), (zero,))),
        "f: buffer 'q' has 2 dimensions where flat ones are expected"
    ),
    (IfThenElse(as_expr(1), Store(flat, const(0, "float32"), (zero,))), "f: a condition is int64, not bool"),
    (
        Block("C", (axis,), (zero,), as_expr(True), None, Store(flat, const(0, "float32"), (axis.var,))),
        "f: block 'C' was not lowered"
    ),
    (Store(flat, const(0, "float32"), (const(0, "float32"),)), "f: an index of 'a' is float32"),
    (
        For(Var("m", DataType("int32")), zero, as_expr(8), S, Store(flat, one, (zero,))),
        "f: loop 'm' of int32 runs from int64 for int64"
    ),
    (
        Let(Var("h", DataType("float16")), one, Store(flat, one, (zero,))),
        "f: variable 'h' of float16 is given a value of float32"
    ),
    (put(E.Add(one, E.Broadcast(one, 4))), "f: '.1.0 . .*' mixes float32 and float32x4"),
    (put(E.Select(E.LT(one, E.Broadcast(one, 4)), one, one)), "mixes float32 and float32x4"),
    (put(E.Select(as_expr(1), one, one)), "chooses float32 by a condition of int64"),
    (put(E.Select(as_expr(True), one, E.Broadcast(one, 4))), "chooses between float32 and float32x4"),
    (put(E.Select(E.And(as_expr(1), as_expr(1)), one, one)), "takes int64 as a truth value"),
    (put(E.Cast("float32", E.Not(as_expr(1)))), "takes int64 as a truth value"),
    (put(E.Cast("float32", E.Ramp(zero, 1, 4))), "makes float32 of int64x4"),
    (put(E.FloorDiv(one, one)), "divides float32 as integers"),
    (put(Load(flat, (one,))), "has an index of float32"),
    (put(E.Call("float32", I.fma, (one, one, as_expr(1)))), "mixes float32, int64"),
    (put(E.Call("float32", I.exp, (E.Broadcast(one, 4),))), "is float32, of 4 lanes"),
    (put(E.Call("float32", I.reinterpret, (as_expr(1),))), "makes float32 of the bits of int64"),
    (Store(flat, E.Broadcast(E.Broadcast(one, 2), 4), (E.Ramp(zero, 1, 4),)), "repeats a vector, float32x2"),
    (Store(flat, E.Broadcast(one, 4), (E.Ramp(const(0, "float32"), 1, 4),)), "goes from float32 in steps of float32"),
    (
        Store(flat, E.Broadcast(one, 4), (E.Ramp(E.Ramp(zero, 1, 2), E.Ramp(zero, 1, 2), 4),)),
        "goes from int64x2 in steps of int64x2"
    ),
]


@pytest.mark.parametrize(("body", "message"), WRONG, ids=lambda x: x[3:30] if isinstance(x, str) else "")
def test_verify_names_the_place(body: Stmt, message: str) -> None:
    with pytest.raises(InternalError, match=message):
        verify_flat(PrimFunc("f", (flat,), body))
    with pytest.raises(InternalError, match=message):
        emit(PrimFunc("f", (flat,), body), Target("llvm"))


# The interpreter and the printer.
def test_the_interpreter_checks_indices() -> None:
    with pytest.raises(InternalError, match="index 8 of buffer 'a' is outside of its dimension of 8"):
        run(PrimFunc("f", (flat,), Store(flat, const(0, "float32"), (as_expr(8),))), [np.zeros(8, np.float32)])
    with pytest.raises(InternalError, match="f has 1 buffers and was given 0 arrays"):
        run(PrimFunc("f", (flat,), Store(flat, const(0, "float32"), (zero,))), [])
    with pytest.raises(InternalError, match="buffer 'b' is used where it is not allocated"):
        run(PrimFunc("f", (flat,), Store(flat, Buffer("b", (1,))[0], (zero,))), [np.zeros(8, np.float32)])


def test_the_interpreter_runs_blocks() -> None:
    a, c = Buffer("a", (4, 3)), Buffer("c", (4,))
    v, r = Var("v"), Var("r")
    body = Block("sum", (
        IterVar(v, as_expr(4)), IterVar(r, as_expr(3), "reduce")
    ), (i, k), i < 3, Store(c, const(0, "float32"), (v,)),
                 Store(c, c[v] + a[v, r], (v,)))
    x, y = np.arange(12, dtype=np.float32).reshape(4, 3), np.full(4, 9, np.float32)
    func = PrimFunc("f", (a, c), loops((i, 4, S), (k, 3, S), body=body), {"intermediates": ()})
    run(func, [x, y])
    np.testing.assert_array_equal(y, [3, 12, 21, 9])
    assert str(func).splitlines()[4:] == [
        '            with T.block("sum"):', "                v = T.axis.spatial(4, i)",
        "                r = T.axis.reduce(3, k)",
        "                T.where(i < 3)", "                with T.init():", "                    c[v] = 0.0",
        "                c[v] = c[v] + a[v, r]"]


def test_names_that_clash_are_told_apart() -> None:
    first, second = Var("i"), Var("i")
    a, other = Buffer("a", (8,)), Buffer("a", (8,))
    body = loops((first, 2, S), (second, 4, P), body=Store(a, other[first * 4 + second], (first * 4 + second,)))
    text = str(PrimFunc("f", (a, other), body))
    assert text.splitlines() == [
        "@T.prim_func", 'def f(a: T.Buffer((8,), "float32"), a_1: T.Buffer((8,), "float32")):',
        "    for i in T.serial(2):",
        "        for i_1 in T.parallel(4):", "            a[i * 4 + i_1] = a_1[i * 4 + i_1]"]


EXPRESSIONS: list[tuple[PrimExpr, str]] = [
    ((i + j) * 2 - (i - j), "(i + j) * 2 - (i - j)"),
    (i - (j + 1), "i - (j + 1)"),
    (i + as_expr(-1) * 1, "i - 1"),
    (const(3, "int32") + Var("n", "int32"), "n + T.int32(3)"),
    (-Var("x", "float32") * 0.5, "(0.0 - x) * 0.5"),
    ((i < 3).astype("float32"), 'T.cast(i < 3, "float32")'),
    (IntImm("bool", 1), "True"),
]


@pytest.mark.parametrize(("e", "text"), EXPRESSIONS, ids=lambda x: x if isinstance(x, str) else "")
def test_text_of_expressions(e: PrimExpr, text: str) -> None:
    buffer = Buffer("a", (1,), e.dtype)
    assert str(Store(buffer, e, (zero,))) == f"a[0] = {text}"


def test_a_variable_bound_in_an_unrolled_loop_is_one_for_each_copy() -> None:
    out, i, v = Buffer("out", (3,), "int64"), Var("i"), Var("v")
    body = For(i, const(0, "int64"), const(3, "int64"), UNROLLED, Let(v, i * 2, Store(out, v + v, (i,))))
    unrolled = unroll_loops(PrimFunc("f", (out,), body)).body
    names = [s.var for s in walk_stmt(unrolled) if isinstance(s, Let)]
    assert len(names) == len(set(map(id, names))) == 3


def test_a_conjunction_of_what_unrolling_decides_is_decided() -> None:
    out, i = Buffer("out", (3,), "int64"), Var("i")
    both = all_of(i + const(1, "int64") >= 2, i < 2)
    body = For(i, const(0, "int64"), const(3, "int64"), UNROLLED, IfThenElse(both, Store(out, i, (i,))))
    unrolled = unroll_loops(PrimFunc("f", (out,), body)).body
    assert [str(s.value) for s in walk_stmt(unrolled) if isinstance(s, Store)] == ["1"]
    assert not any(isinstance(s, IfThenElse) for s in walk_stmt(unrolled))
