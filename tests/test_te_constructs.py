"""Constructs of te beyond compute: open sizes, scans, hybrid script, tuples, extern programs. What they mean is
numpy's, natively run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.base.errors import CompileError, InputError, ParseError, ScheduleError
from tilewright.runtime.module import FactoryModule
from tilewright.te.resolve import schedule_func
from tilewright.tir.interpreter import run
from tilewright.tir.script import tir as T
from tilewright.tir.transform.lower_blocks import lower_blocks

RNG = np.random.default_rng(0)


def call(s: te.Schedule, args: Sequence[Any], *given: Any) -> None:
    tvm.build(s, args, "llvm")(*given)


# --- open sizes
# -----------------------------------------------------------------------------------------------------------


def addition() -> tuple[te.Schedule, list[te.Tensor]]:
    """The vector addition of the first tutorial."""
    n = te.var("n")
    a, b = te.placeholder((n,), name="A"), te.placeholder((n,), name="B")
    c = te.compute(a.shape, lambda i: a[i] + b[i], name="C")
    s = te.create_schedule(c.op)
    outer, inner = s[c].split(c.op.axis[0], factor=64)
    s[c].parallel(outer)
    s[c].vectorize(inner)
    return s, [a, b, c]


def test_any_length_can_be_added(tmp_path: Path) -> None:
    module = tvm.build(*addition(), "llvm", name="add")
    assert repr(module["add"]) == "add(float32 A[n], float32 B[n], float32 C[n])"
    loaded = tvm.runtime.load_module(module.export_library(tmp_path / "add.so"))
    assert not isinstance(loaded, FactoryModule)
    for f in (module, loaded):
        for n in (0, 1, 63, 64, 1000):
            a, b, c = RNG.random(n, np.float32), RNG.random(n, np.float32), np.empty(n, np.float32)
            f(a, b, c)
            np.testing.assert_array_equal(c, a + b)
    with pytest.raises(
        InputError, match=r"argument 1 of add, 'B', has shape \[5\], expected float32 B\[n\] where n = 6"
    ):
        module(np.zeros(6, np.float32), np.zeros(5, np.float32), np.zeros(6, np.float32))


@pytest.mark.slow
@pytest.mark.parametrize("nparts", [None, 3])
def test_a_product_of_open_sizes(nparts: int | None) -> None:
    n, m, depth_of = te.var("n"), te.size_var("m"), te.var("l")
    alpha = te.var("alpha", "float32")
    a, b, k = te.placeholder(
        (n, depth_of), name="A"
    ), te.placeholder((depth_of, m), name="B"), te.reduce_axis((0, depth_of), "k")
    d = te.compute((depth_of, m), lambda i, j: b[i, j] * 2.0, name="D")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, k] * d[k, j], axis=k), name="C")
    e = te.compute((n, m), lambda i, j: c[i, j] * alpha, name="E")
    s = te.create_schedule(e.op)
    i, j = e.op.axis
    io, _ = s[e].split(i, nparts=nparts) if nparts else s[e].split(i, factor=8)
    jo, ji = s[e].split(j, 16)
    s[e].vectorize(ji)
    s[c].compute_at(s[e], jo)
    ko, _ = s[c].split(k, 4)
    s[d].compute_at(s[c], ko)
    s[e].parallel(io)
    args = [alpha, a, b, e]
    module = tvm.build(s, args, "llvm")
    assert repr(
        module.entry_func
    ) == "default_function(float32 alpha, float32 A[n, l], float32 B[l, m], float32 E[n, m])"
    for rows, columns, depth in ((3, 5, 7), (20, 33, 17), (16, 32, 8)):
        x, y = RNG.random((rows, depth), np.float32), RNG.random((depth, columns), np.float32)
        got = np.empty((rows, columns), np.float32)
        module(2.5, x, y, got)
        np.testing.assert_allclose(got, 5 * (x @ y), rtol=1e-4)
        again = np.empty_like(got)
        func = tvm.lower(s, args)["main"]
        assert isinstance(func, tvm.tir.PrimFunc)
        run(func, [x, y, again], {alpha: 2.5})
        np.testing.assert_allclose(again, got, rtol=1e-5)
        assert str(tvm.tir.parse(str(func))) == str(func)
    with pytest.raises(InputError, match="argument 0 of default_function, 'alpha', is a str; pass a number, float32"):
        module("2", x, y, got)


def test_loops_of_open_sizes_fuse() -> None:
    n, m = te.var("n"), te.var("m")
    a = te.placeholder((n, m), name="A")
    b = te.compute((n, m), lambda i, j: te.exp(a[i, j]), name="B")
    s = te.create_schedule(b.op)
    outer, inner = s[b].split(s[b].fuse(*b.op.axis), 8)
    s[b].vectorize(inner)
    s[b].parallel(outer)
    x = RNG.random((5, 7), np.float32)
    got = np.empty_like(x)
    call(s, [a, b], x, got)
    np.testing.assert_allclose(got, np.exp(x), rtol=1e-5)


def test_rows_that_are_apart_are_read_where_they_are() -> None:
    n = te.var("n")
    a = te.placeholder((n, 6), name="A")
    b = te.compute((n, 6), lambda i, j: a[i, j] + 1.0, name="B")
    module = tvm.build(
        te.create_schedule(b.op), [a, b],
        binds={a: tvm.tir.decl_buffer(a.shape, a.dtype, "A", strides=[te.var("s"), 1])}
    )
    wide, got = RNG.random((5, 16), np.float32), np.empty((5, 6), np.float32)
    for x in (wide[:, :6], wide[:, 1:7], np.ascontiguousarray(wide[:, :6])):
        module(x, got)
        np.testing.assert_array_equal(got, x + 1)


# --- reductions
# -----------------------------------------------------------------------------------------------------------


def test_argmax_of_the_tuple_tutorial() -> None:
    m, n = te.var("m"), te.var("n")
    idx, val = te.placeholder((m, n), "int32", "idx"), te.placeholder((m, n), "float32", "val")
    k = te.reduce_axis((0, n), "k")
    argmax = te.comm_reducer(
        lambda x, y: (te.if_then_else(x[1] >= y[1], x[0], y[0]), te.if_then_else(x[1] >= y[1], x[1], y[1])),
        lambda t0, t1: (te.const(-1, t0), te.min_value(t1)), name="argmax",
    )
    t0, t1 = te.compute((m,), lambda i: argmax((idx[i, k], val[i, k]), axis=k), name="T")
    x = RNG.random((4, 9), np.float32)
    numbers = np.tile(np.arange(9, dtype="int32"), (4, 1))
    at, best = np.empty(4, np.int32), np.empty(4, np.float32)
    call(te.create_schedule(t0.op), [idx, val, t0, t1], numbers, x, at, best)
    np.testing.assert_array_equal(at, x.argmax(1))
    np.testing.assert_array_equal(best, x.max(1))


# --- scans
# ----------------------------------------------------------------------------------------------------------------


def running_sum() -> tuple[te.Tensor, te.Tensor, te.Tensor, te.Tensor]:
    m, n = te.var("m"), te.var("n")
    x, state = te.placeholder((m, n), name="X"), te.placeholder((m, n), name="state")
    init = te.compute((1, n), lambda _, i: x[0, i], name="init")
    twice = te.compute((m, n), lambda t, i: state[t - 1, i] * 2.0, name="twice")
    update = te.compute((m, n), lambda t, i: twice[t, i] + x[t, i], name="update")
    return x, te.scan(init, update, state, inputs=[x], name="scan"), twice, update


@pytest.mark.parametrize("where", ["root", "update", "scan", "inline"])
def test_a_scan_of_two_stages(where: str) -> None:
    x, result, twice, update = running_sum()
    s = te.create_schedule(result.op)
    outer, inner = s[update].split(update.op.axis[1], factor=4)
    s[update].vectorize(inner)
    s[update].parallel(outer)
    if where == "update":
        s[twice].compute_at(s[update], outer)
    elif where == "scan":
        s[twice].compute_at(s[result], result.op.scan_axis)
    elif where == "inline":
        s[twice].compute_inline()
    given = RNG.random((7, 10), np.float32)
    want = [given[0]]
    for row in given[1:]:
        want.append(want[-1] * 2 + row)
    got = np.empty_like(given)
    call(s, [x, result], given, got)
    np.testing.assert_allclose(got, np.array(want), rtol=1e-5)
    again = np.empty_like(given)
    run(lower_blocks(schedule_func(s, [x, result])), [given, again])
    np.testing.assert_allclose(again, got, rtol=1e-6)


def test_a_scan_with_a_reduction_and_two_states() -> None:
    """A recurrent cell: h = tanh(W h + x), and a counter beside it."""
    steps, width = 5, 8
    x, w = te.placeholder((steps, width), name="X"), te.placeholder((width, width), name="W")
    h, c, k = te.placeholder(
        (steps, width), name="h"
    ), te.placeholder((steps, 1), name="c"), te.reduce_axis((0, width), "k")
    h0, c0 = te.compute((1, width), lambda _, i: x[0, i], name="h0"), te.compute((1, 1), lambda _, i: 1.0, name="c0")
    mixed = te.compute((steps, width), lambda t, i: te.sum(w[i, k] * h[t - 1, k], axis=k), name="mixed")
    h1 = te.compute((steps, width), lambda t, i: te.tanh(mixed[t, i] + x[t, i]), name="h1")
    c1 = te.compute((steps, 1), lambda t, i: c[t - 1, i] + 1.0, name="c1")
    out, count = te.scan([h0, c0], [h1, c1], [h, c], inputs=[x, w])
    later = te.compute((steps, width), lambda t, i: out[t, i] + count[t, 0], name="later")
    given, weights = RNG.random((steps, width), np.float32), RNG.random((width, width), np.float32)
    want = [given[0]]
    for row in given[1:]:
        want.append(np.tanh(weights @ want[-1] + row))
    got = np.empty_like(given)
    call(te.create_schedule(later.op), [x, w, later], given, weights, got)
    np.testing.assert_allclose(got, np.array(want) + np.arange(1, 6)[:, None], rtol=1e-4)


def test_scans_that_cannot_be() -> None:
    x, result, _, update = running_sum()
    refused: list[tuple[Callable[[te.Schedule], object], str]] = [
        (
            lambda s: s[update].parallel(update.op.axis[0]),
            r"loop 't' of 'update' iterates over the steps of scan 'scan', so it must stay outermost and serial"
        ),
        (
            lambda s: s[update].reorder(*reversed(update.op.axis)),
            r"loop 't' of 'update' iterates over the steps of scan 'scan'"
        ),
        (
            lambda s: s[result].parallel(result.op.scan_axis),
            r"'scan' is a scan, which runs sequentially; schedule its update 'update' instead"
        ),
    ]
    for step, message in refused:
        s = te.create_schedule(result.op)
        step(s)
        with pytest.raises(ScheduleError, match=message):
            schedule_func(s, [x, result])
    with pytest.raises(CompileError, match="'update' belongs to scan 'scan', so it cannot be an argument"):
        schedule_func(te.create_schedule([result.op, update.op]), [x, result, update])
    state, init = te.placeholder((4, 2)), te.compute((1, 2), lambda t, i: 0.0)
    with pytest.raises(
        CompileError, match=r"te.scan 'scan' needs one init, one update and one state for each result, but was given"
    ):
        te.scan(init, [init, init], state)  # type: ignore[call-overload]
    with pytest.raises(CompileError, match=r"te.scan 'scan': the state 'compute' must be a te.placeholder"):
        te.scan(init, init, init)
    with pytest.raises(CompileError, match=r"te.scan 'scan': init and update must be results of te.compute"):
        te.scan(init, state, state)
    with pytest.raises(
        CompileError, match=r"te.scan 'scan': state and update must have the same shape and type; init may differ in"
    ):
        te.scan(init, init, state)


# --- hybrid script
# --------------------------------------------------------------------------------------------------------

SCALE = 3


@te.hybrid.script
def outer_product(a, b):  # type: ignore[no-untyped-def]
    """What is above 2, 1 differs."""
    c = output_tensor((a.shape[0], b.shape[0]), "float32")  # type: ignore[name-defined]  # noqa: F821
    row = allocate((b.shape[0],), "float32", "local")  # type: ignore[name-defined]  # noqa: F821
    for i in range(a.shape[0]):
        total = 0.0
        for k in const_range(SCALE):  # type: ignore[name-defined]  # noqa: F821
            total += a[i] * k
        for j in vectorize(b.shape[0]):  # type: ignore[name-defined]  # noqa: F821
            row[j] = b[j] * 2.0
        for j in range(b.shape[0]):
            if i == j:
                c[i, j] = -1.0
            elif j > 2 and i > 1:
                c[i, j] = max(a[i], row[j]) + total
            else:
                c[i, j] = exp(a[i]) * (b[j] if j < 2 else row[j])  # type: ignore[name-defined]  # noqa: F821
    return c


def test_hybrid_script_as_tensors_and_as_arrays() -> None:
    n = te.var("n")
    a, b = te.placeholder((n,), name="A"), te.placeholder((9,), name="B")
    c = outer_product(a, b)
    d = te.compute(c.shape, lambda i, j: c[i, j] + 1.0, name="D")
    x, y = RNG.random(5, np.float32), RNG.random(9, np.float32)
    got = np.empty((5, 9), np.float32)
    call(te.create_schedule(d.op), [a, b, d], x, y, got)
    np.testing.assert_allclose(got, outer_product(x, y) + 1, rtol=1e-5)


@te.hybrid.script
def no_result(a):  # type: ignore[no-untyped-def]
    a[0] = 1.0
    return a


@te.hybrid.script
def strange(a):  # type: ignore[no-untyped-def]
    b = output_tensor((4,), "float32")  # type: ignore[name-defined]  # noqa: F821
    while True:
        b[0] = a[0]
    return b


@te.hybrid.script
def unknown(a):  # type: ignore[no-untyped-def]
    b = output_tensor((4,), "float32")  # type: ignore[name-defined]  # noqa: F821
    for i in range(4):
        b[i] = gamma(a[i])  # type: ignore[name-defined]  # noqa: F821
    return b


def test_hybrid_script_that_cannot_be() -> None:
    a = te.placeholder((4,), name="A")
    with pytest.raises(ParseError, match=r"(?s)'a' is an input, which is read-only"):
        no_result(a)
    with pytest.raises(ParseError, match=r"(?s)Python's While is not part of hybrid script"):
        strange(a)
    with pytest.raises(ParseError, match=r"(?s)'gamma' cannot be called in hybrid script; the functions are min, max"):
        unknown(a)
    with pytest.raises(CompileError, match=r"hybrid function 'unknown' takes 1 arguments \(a\), but was given 2"):
        unknown(a, a)
    with pytest.raises(CompileError, match=r"te.hybrid.script decorates a Python function, not int"):
        te.hybrid.script(3)  # type: ignore[arg-type]


@te.hybrid.script
def count_bits(a, table):  # type: ignore[no-untyped-def]
    b = output_tensor(a.shape, "int32")  # type: ignore[name-defined]  # noqa: F821
    for i in range(a.shape[0]):
        for k in const_range(len(table[0])):  # type: ignore[name-defined]  # noqa: F821
            b[i] = popcount(a[i]) + int32(table[1, k])  # type: ignore[name-defined]  # noqa: F821
    return b


def test_bits_and_tables_in_hybrid_script() -> None:
    a, table = te.placeholder((4,), "int32", name="A"), [[1, 2], [3, 4]]
    b = count_bits(a, table)
    x, got = np.array([0, -1, 5, 114514], np.int32), np.zeros(4, np.int32)
    call(te.create_schedule(b.op), [a, b], x, got)
    np.testing.assert_array_equal(got, np.array([0, 32, 2, 11]) + 4)
    np.testing.assert_array_equal(count_bits(x, np.array(table)), got)


def test_a_schedule_as_hybrid_script(tmp_path: Path) -> None:
    n = te.var("n")
    a, b = te.placeholder((n, 4), name="A"), te.placeholder((4,), name="B")
    k = te.reduce_axis((0, 4), "k")
    t = te.compute((n, 4), lambda i, j: te.exp(a[i, j]) + te.if_then_else(j < 2, b[j], 0.5), name="T")
    c = te.compute((n,), lambda i: te.sum(t[i, k] * a[i, k], axis=k), name="C")
    s = te.create_schedule(c.op)
    outer, _ = s[c].split(c.op.axis[0], 2)
    s[t].compute_at(s[c], outer)
    module = te.hybrid.build(s, [n, a, b], [c], name="sums")
    assert module.name == "sums" and module.get_source().startswith("def sums(n, A, B):\n    C = output_tensor((n,)")
    module.save(tmp_path / "sums")
    loaded = te.hybrid.HybridModule()
    loaded.load(tmp_path / "sums.py")
    x, y, got = RNG.random((5, 4), np.float32), RNG.random(4, np.float32), np.empty(5, np.float32)
    wanted = ((np.exp(x) + np.where(np.arange(4) < 2, y, 0.5)) * x).sum(1)
    np.testing.assert_allclose(loaded(5, x, y), wanted, rtol=1e-5)
    again = loaded(n, a, b)
    call(te.create_schedule(again.op), [a, b, again], x, y, got)
    np.testing.assert_allclose(got, wanted, rtol=1e-5)


def test_schedules_and_texts_that_are_no_hybrid_script() -> None:
    a = te.placeholder((4,), name="A")
    b = te.compute((4,), lambda i: te.tan(a[i]), name="B")
    with pytest.raises(CompileError, match="the function 'tan' is not part of hybrid script: 'tan\\(A\\[i\\]\\)'"):
        te.hybrid.build(te.create_schedule(b.op), [a], [b])
    with pytest.raises(CompileError, match="this HybridModule has no text; call load first"):
        te.hybrid.HybridModule()(a)
    with pytest.raises(ParseError, match="the text has no function; hybrid script is a function of tensors"):
        te.hybrid.HybridModule("x = 1")
    with pytest.raises(ParseError, match="the text:1: "):
        te.hybrid.HybridModule("def (")
    with pytest.raises(CompileError, match=r"te.hybrid.build: output 'A' is a placeholder"):
        te.hybrid.build(te.create_schedule(b.op), [a, b], [a])


# --- programs from elsewhere
# ----------------------------------------------------------------------------------------------


@T.prim_func
def halve(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")) -> None:
    for i in T.serial(8):
        B[i] = A[i] * 0.5


def test_a_loop_program_as_a_stage() -> None:
    a = te.placeholder((8,), name="A")
    b = te.extern_primfunc([a], halve)
    assert isinstance(b, te.Tensor)
    c = te.compute((8,), lambda i: b[i] + 1.0, name="C")
    x, got = RNG.random(8, np.float32), np.empty(8, np.float32)
    call(te.create_schedule(c.op), [a, c], x, got)
    np.testing.assert_allclose(got, x / 2 + 1)
    func = te.create_prim_func([a, c])
    again = np.empty_like(x)
    run(lower_blocks(func), [x, again])
    np.testing.assert_array_equal(again, got)
    with pytest.raises(
        CompileError, match="extern_primfunc of 'halve' needs a PrimFunc with 2 input buffers, at least one result"
    ):
        te.extern_primfunc([a, a], halve)
    with pytest.raises(CompileError, match="create_prim_func takes a list of tensors"):
        te.create_prim_func([1])


C_LIKE = """
declare ptr @memcpy(ptr, ptr, i64)
define void @copy_it(ptr %from, ptr %to, i64 %n) {
  %bytes = mul i64 %n, 4
  call ptr @memcpy(ptr %to, ptr %from, i64 %bytes)
  ret void
}
define float @twice(float %x) {
  %y = fadd float %x, %x
  ret float %y
}
"""


def test_functions_from_llvm_text() -> None:
    a = te.placeholder((8, 12), name="A")
    copied = te.extern(
        (8, 12), [a],
        lambda i, o: tvm.tir.call_extern("void", "copy_it", i[0].access_ptr("r"), o[0].access_ptr("w"), 96),
        name="copied"
    )
    b = te.compute(
        (8, 12), lambda i, j: copied[i, j] * tvm.tir.call_pure_extern("float32", "twice", copied[i, j]), name="B"
    )
    s = te.create_schedule(b.op)
    s[b].vectorize(b.op.axis[1])
    s[b].pragma(b.op.axis[0], "import_llvm", C_LIKE)
    func = tvm.lower(s, [a, b])["main"]
    assert str(tvm.tir.parse(str(func))) == str(func)
    x = RNG.random((8, 12), np.float32)
    got = np.empty_like(x)
    call(s, [a, b], x, got)
    np.testing.assert_allclose(got, 2 * x * x, rtol=1e-6)


@pytest.mark.parametrize(("text", "reason"), [
    ("this is no LLVM text", "LLVM IR parsing error .*expected top-level entity"),
    ("declare void @llvm.va_start(ptr)\ndefine void @f() {\n  call void @llvm.va_start(ptr null)\n  ret void\n}",
     "va_start called in a non-varargs function"),
])
def test_llvm_text_that_llvm_refuses(text: str, reason: str) -> None:
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] + 1.0, name="B")
    s = te.create_schedule(b.op)
    s[b].pragma(b.op.axis[0], "import_llvm", text)
    with pytest.raises(CompileError, match=f"the text of pragma import_llvm cannot be compiled for .*: {reason}"):
        tvm.build(s, [a, b])


def test_axes_are_values_and_reducers_take_two() -> None:
    a, r = te.placeholder((8,), name="A"), te.reduce_axis((0, 3), "r")
    b = te.compute(
        (6,), lambda i: te.sum(te.if_then_else(r == 1, a[i + r] * 2.0, te.max(a[r + i], 0.5)), axis=r), name="B"
    )
    x, y = RNG.random(8, np.float32), np.empty(6, np.float32)
    call(te.create_schedule(b.op), [a, b], x, y)
    m = np.maximum(x, 0.5)
    np.testing.assert_allclose(y, m[:6] + 2 * x[1:7] + m[2:], rtol=1e-6)
    assert str(-r + 2 * r % 4 >= r - 1) == str(-r.var + 2 * r.var % 4 >= r.var - 1)


def test_a_reduction_that_ends_at_an_axis() -> None:
    """As many terms as the row says, counted or read from a table; no step takes its loops apart."""
    a, ends = te.placeholder((8, 8), name="A"), te.placeholder((8,), dtype="int64", name="ends")

    def upto(i: Any) -> Any:
        k = te.reduce_axis((0, i), "k")
        return te.sum(a[i, k], axis=k)

    def listed(i: Any) -> Any:
        k = te.reduce_axis((0, ends[i]), "k")
        return te.sum(a[i, k], axis=k)

    refused: list[tuple[Callable[[te.Schedule, te.Tensor], object], str]] = [
        (lambda s, c: s[c].fuse(*s[c].leaf_iter_vars), "cannot be fused"),
        (lambda s, c: s.rfactor(c, c.op.reduce_axis[0]), "which depends on another loop; the new value"),
        (lambda s, c: s[c].reorder(*reversed(s[c].leaf_iter_vars)), "so it must stay inside that loop"),
    ]
    data, count = np.random.default_rng(0).integers(-9, 9, (8, 8)).astype("float32"), np.array([0, 3, 8, 1, 2, 7, 0, 5])
    for make, args, given, until in ((upto, [a], [data], range(8)), (listed, [a, ends], [data, count], count)):
        c = te.compute((8,), make, name="C")
        got = np.full(8, 77, "float32")
        tvm.build(te.create_schedule(c.op), [*args, c], "llvm")(*given, got)
        np.testing.assert_array_equal(got, [data[r, :n].sum() for r, n in enumerate(until)])
        for step, message in refused:
            s = te.create_schedule(c.op)
            step(s, c)
            with pytest.raises(ScheduleError, match=message):
                tvm.lower(s, [*args, c])


def test_reductions_of_chosen_elements() -> None:
    a, k = te.placeholder(8, name="A", dtype="int32"), te.reduce_axis((0, 8), "k")
    first = te.comm_reducer(lambda x, y: x + y * 2, lambda t: te.const(0, t))
    both = te.comm_reducer(
        lambda x, y: (x[0] + y[0], te.max(x[1], y[1])), lambda s, t: (te.const(0, s), te.min_value(t)), "both")
    odd = te.floormod(k, 2) == 1
    total = te.compute((1,), lambda i: te.sum(a[k], axis=k, where=odd), name="total")
    t0, t1 = te.compute((1,), lambda i: both((a[k], a[k]), axis=k, where=a[k] < 5), name="T")
    data = RNG.integers(-9, 9, 8).astype("int32")
    results = [np.zeros(1, "int32") for _ in range(3)]
    call(te.create_schedule([total.op, t0.op]), [a, total, t0, t1], data, *results)
    chosen = data[data < 5]
    assert [int(r[0]) for r in results] == [data[1::2].sum(), chosen.sum(), chosen.max()]
    x, y = te.var("x", "int32"), te.var("y", "int32")
    assert str(first(x, y, 1)) == "((x + (y * 2)) + 2)"
    assert (t0.value_index, t1.value_index) == (0, 1) and total.op.input_tensors == (a,)
    n = te.var("n")
    assert te.compute(n + 1, lambda i: i, name="C").ndim == te.placeholder(n + 1).ndim == 1


# --- functions of computations
# -----------------------------------------------------------------------------------------------------------


FREE = """
@T.prim_func
def main(A: T.Buffer((4, 4), "float32"), B: T.Buffer((4, 4), "float32"), D: T.Buffer((4, 4), "float32")):
    T.func_attr({"layout_free_buffers": [1]})
    C = T.alloc_buffer((4, 4))
    for i, j in T.grid(4, 4):
        with T.block("C"):
            x, y = T.axis.remap("SS", [i, j])
            C[x, y] = A[x, y] * B[x, y]
    for i, j in T.grid(4, 4):
        with T.block("D"):
            x, y = T.axis.remap("SS", [i, j])
            T.block_attr({"layout_free_placeholders": [C]})
            D[x, y] = C[x, y]
"""


def test_tensors_in_any_layout() -> None:
    a, b = te.placeholder((4, 4), name="A"), te.placeholder((4, 4), name="B")
    c = te.compute((4, 4), lambda x, y: a[x, y] * b[x, y], name="C", attrs={"layout_free_placeholders": [b]})
    d = te.compute((4, 4), lambda x, y: c[x, y], name="D", attrs={"layout_free_placeholders": [c]})
    tvm.ir.assert_structural_equal(te.create_prim_func([a, b, d]), tvm.tir.parse(FREE))


def test_an_element_of_a_tensor_without_dimensions() -> None:
    a, two = te.placeholder((4,), name="A"), te.compute((), lambda: te.const(2.0), name="two")
    c = te.compute((4,), lambda x: a[x] + tvm.tir.ProducerLoad(two, []), name="C")
    given, found = np.arange(4, dtype="float32"), np.empty(4, "float32")
    tvm.build(te.create_prim_func([c, a]), target="llvm")(found, given)
    np.testing.assert_array_equal(found, given + 2)


def test_the_module_of_schedules() -> None:
    assert tvm.tir.schedule.StmtSRef is tvm.tir.StmtSRef


def _started(n: int = 13) -> tuple[te.Tensor, te.Tensor, te.Tensor, Any]:
    a, first = te.placeholder((n, n), name="A"), te.placeholder((n,), name="I")
    k = te.reduce_axis((0, n), name="k")
    return a, first, te.compute((n,), lambda i: te.sum(a[i, k], axis=k, init=first[i]), name="B"), k


@pytest.mark.parametrize("way", ["plain", "rfactor", "lanes", "decomposed"])
def test_a_reduction_begins_with_given_values(way: str) -> None:
    a, first, b, k = _started()
    s = te.create_schedule(b.op)
    if way == "rfactor":
        outer, _ = s[b].split(k, nparts=4)
        s[s.rfactor(b, outer)].parallel(s.stages[2].op.axis[0])
    elif way == "lanes":
        s[b].vectorize(s[b].split(k, factor=4)[1])
    built = tvm.build(s, [a, first, b], "llvm")
    if way == "decomposed":
        sch = tir.Schedule(te.create_prim_func([a, first, b]))
        block = sch.get_block("B")
        sch.decompose_reduction(block, sch.get_loops(block)[1])
        built = tvm.build(sch.mod, target="llvm")
    rng = np.random.default_rng(0)
    x, y = rng.random((13, 13), "float32"), rng.random(13, "float32")
    found = tvm.nd.array(np.zeros(13, "float32"))
    built(tvm.nd.array(x), tvm.nd.array(y), found)
    np.testing.assert_allclose(found.numpy(), y + x.sum(1), rtol=1e-5)


def test_first_values_of_several_results() -> None:
    """The greatest element and its place, from a greatest one so far."""
    x = te.placeholder((9,), name="x")
    k = te.reduce_axis((0, 9), name="k")
    best = te.comm_reducer(
        lambda p, q: (te.if_then_else(p[1] >= q[1], p[0], q[0]), te.max(p[1], q[1])),
        lambda t0, t1: (tir.const(-1, t0), te.min_value(t1)))
    place, value = te.compute((1,), lambda i: best((k.var, x[k]), k, init=(100, 0.5)), name="best")
    built = tvm.build(te.create_schedule(place.op), [x, place, value], "llvm")
    for top, wanted in ((0.25, 100), (0.75, 4)):
        places, values = tvm.nd.array(np.zeros(1, str(place.dtype))), tvm.nd.array(np.zeros(1, "float32"))
        given = np.full(9, 0.125, "float32")
        given[4] = top
        built(tvm.nd.array(given), places, values)
        assert (places.numpy()[0], values.numpy()[0]) == (wanted, max(top, 0.5))


def test_first_values_are_in_the_text_and_are_read_back() -> None:
    a, first, b, _ = _started()
    func = te.create_prim_func([a, first, b])
    assert "B[i_1] = I[i_1]" in str(func)
    assert tvm.ir.structural_equal(tir.parse(str(func)), func)


def test_first_values_that_cannot_be() -> None:
    x, k = te.placeholder((4,), name="x"), te.reduce_axis((0, 4), name="k")
    with pytest.raises(CompileError, match="init= is the value before the reduction, but it varies along 'k'"):
        te.sum(x[k], axis=k, init=x[k])
    with pytest.raises(CompileError, match="a reduction of 1 values begins with as many values, but init= has 2"):
        te.sum(x[k], axis=k, init=(1.0, 2.0))
    y = te.compute((1,), lambda _: te.sum(x[k], axis=k, init=1.0), name="y")
    with pytest.raises(CompileError, match=r"te\.gradient: the reduction 'y' begins with values of its own"):
        te.gradient(y, [x])


def test_graphs_of_operations() -> None:
    a = te.placeholder((4, 5), name="A")
    b = te.compute((4, 5), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((4, 5), lambda i, j: b[i, j] * a[i, j], name="C")
    graph = te.schedule.CreateReadGraph([c.op])
    assert {op.name: [t.name for t in read] for op, read in graph.items()} == {"A": [], "B": ["A"], "C": ["B", "A"]}
    assert [op.name for op in te.schedule.PostDFSOrder([c.op], graph)] == ["A", "B", "C"]


@pytest.mark.parametrize(("at", "apart"), [
    (lambda s, t, i, j: s[t - 1, i, j], [1, 1]),
    (lambda s, t, i, j: s[t - 1, i, 2], [1, 0]),
    (lambda s, t, i, j: s[t - 1, j, i], [0, 0]),
    (lambda s, t, i, j: s[t - 1, i, i], [0, 0]),
    (lambda s, t, i, j: s[t - 1, i, (j + 1) % 3], [1, 0]),
])
def test_axes_of_a_scan_that_are_apart(at: Any, apart: list[int]) -> None:
    state = te.placeholder((4, 3, 3), name="state")
    init = te.compute((1, 3, 3), lambda _, i, j: te.const(0.0, "float32"), name="init")
    turned = te.compute((4, 3, 3), lambda t, j, i: at(state, t, i, j), name="turned")
    update = te.compute((4, 3, 3), lambda t, i, j: turned[t, j, i] + state[t - 1, i, j], name="update")
    total = te.scan(init, update, state)
    assert isinstance(total.op, te.ScanOp)
    assert [op.name for op in te.schedule.ScanGetBody(total.op)] == ["turned", "update", "scan"]
    found = te.schedule.ScanFixPointAnalysis(total.op)
    operation: Any = total.op
    assert [found[a].value for a in operation.spatial_axis_] == apart
