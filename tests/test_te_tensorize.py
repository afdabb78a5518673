"""Tensor intrinsics: the gemv of the tutorial as a function from LLVM text, instructions as loops, and what does not
fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te
from tilewright.base.errors import CompileError, ScheduleError
from tilewright.ir.structural import assert_structural_equal
from tilewright.te.create import create_prim_func
from tilewright.te.resolve import schedule_func
from tilewright.tir.interpreter import run
from tilewright.tir.loop_schedule import Schedule
from tilewright.tir.script import tir as T
from tilewright.tir.steps import ScheduleStep
from tilewright.tir.transform.lower_blocks import lower_blocks

N, M, L = 12, 32, 16
RNG = np.random.default_rng(0)
A, B = RNG.random((N, L), np.float32), RNG.random((M, L), np.float32)

GEMV = """
define i32 @gemv_update(ptr %c, ptr %a, ptr %b, i32 %m, i32 %l, i32 %stride) {
entry:
  br label %rows
rows:
  %i = phi i32 [0, %entry], [%i1, %done]
  %row = mul i32 %i, %stride
  %cp = getelementptr float, ptr %c, i32 %i
  %c0 = load float, ptr %cp
  br label %columns
columns:
  %j = phi i32 [0, %rows], [%j1, %columns]
  %sum = phi float [%c0, %rows], [%sum1, %columns]
  %ap = getelementptr float, ptr %a, i32 %j
  %av = load float, ptr %ap
  %at = add i32 %row, %j
  %bp = getelementptr float, ptr %b, i32 %at
  %bv = load float, ptr %bp
  %p = fmul float %av, %bv
  %sum1 = fadd float %sum, %p
  %j1 = add i32 %j, 1
  %more = icmp slt i32 %j1, %l
  br i1 %more, label %columns, label %done
done:
  store float %sum1, ptr %cp
  %i1 = add i32 %i, 1
  %again = icmp slt i32 %i1, %m
  br i1 %again, label %rows, label %end
end:
  ret i32 0
}
define i32 @gemv_reset(ptr %c, i32 %m) {
  %bytes = mul i32 %m, 4
  %n = sext i32 %bytes to i64
  call ptr @memset(ptr %c, i32 0, i64 %n)
  ret i32 0
}
declare ptr @memset(ptr, i32, i64)
"""


def gemv(m: int, depth: int, *, native: bool, parts: bool = True, row: Any = None) -> te.TensorIntrin:
    """c[i] = sum of a[k] * b[i, k]: a call of a C function, or loops that say the same."""
    a, b, k = te.placeholder((depth,), name="a"), te.placeholder(
        (m, depth), name="b"
    ), te.reduce_axis((0, depth), name="k")
    c = te.compute((m,), lambda i: te.sum(a[k] * b[i, k], axis=k), name="c")
    strides = [te.var("s1") if row is None else row, 1]
    binds = {
        a: tvm.tir.decl_buffer(a.shape, a.dtype, name="A", offset_factor=1, strides=[1]),
        b: tvm.tir.decl_buffer(b.shape, b.dtype, name="B", offset_factor=1, strides=strides),
        c: tvm.tir.decl_buffer(c.shape, c.dtype, name="C", offset_factor=1, strides=[1]),
    }

    def statements(ins: Any, outs: Any) -> Any:
        (aa, bb), (cc,) = ins, outs

        def update() -> Any:
            ib = tvm.tir.ir_builder.create()
            if native:
                ib.emit(
                    tvm.tir.call_extern(
                        "int32", "gemv_update", cc.access_ptr("rw"), aa.access_ptr("r"), bb.access_ptr("r"), m, depth,
                        bb.strides[0]
                    )
                )
                return ib.get()
            x, y, z = ib.buffer_ptr(aa), ib.buffer_ptr(bb), ib.buffer_ptr(cc)
            with ib.for_range(0, m, name="i") as i, ib.for_range(0, depth, name="k") as j:
                z[i] += x[j] * y[i, j]
            return ib.get()

        def reset() -> Any:
            ib = tvm.tir.ir_builder.create()
            if native:
                ib.emit(tvm.tir.call_extern("int32", "gemv_reset", cc.access_ptr("w"), m))
                return ib.get()
            z = ib.buffer_ptr(cc)
            with ib.for_range(0, m, name="i") as i:
                z[i] = 0.0
            return ib.get()

        return (None, reset(), update()) if parts else update()

    return te.decl_tensor_intrin(c.op, statements, name="gemv", binds=binds)


def test_the_last_instruction_and_the_last_text_count() -> None:
    s, args, c = product()
    x, y = c.op.axis
    (k,) = c.op.reduce_axis
    yo, yi = s[c].split(y, factor=16)
    s[c].reorder(x, yo, yi, k)
    s[c].tensorize(yi, gemv(16, L, native=True))
    zo, zi = s[c].split(k, factor=8)
    s[c].reorder(x, yo, zo, yi, zi)
    s[c].tensorize(yi, gemv(16, 8, native=True))
    wrong = "define i32 @gemv_update(ptr %c, ptr %a, ptr %b, i32 %m, i32 %l, i32 %s) {\n  ret i32 0\n}\n"
    for text in (wrong, GEMV):
        s[c].pragma(x, "import_llvm", text)
    out = np.full((N, M), np.nan, np.float32)
    tvm.build(s, args, "llvm")(A, B, out)
    np.testing.assert_allclose(out, A @ B.T, rtol=1e-5)


def product() -> tuple[te.Schedule, list[te.Tensor], te.Tensor]:
    a, b, k = te.placeholder((N, L), name="A"), te.placeholder((M, L), name="B"), te.reduce_axis((0, L), name="k")
    c = te.compute((N, M), lambda i, j: te.sum(a[i, k] * b[j, k], axis=k), name="C")
    return te.create_schedule(c.op), [a, b, c], c


@pytest.mark.slow
@pytest.mark.parametrize("depth", [16, 8])
@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("cached", [False, True])
def test_gemv_of_the_tutorial(depth: int, native: bool, cached: bool) -> None:
    s, args, c = product()
    target = s.cache_write(c, "global") if cached else c
    copy = s.cache_read(args[1], "global", [target]) if cached else None
    x, y = s[target].op.axis
    (k,) = s[target].op.reduce_axis
    yo, yi = s[target].split(y, factor=16)
    ko, ki = s[target].split(k, factor=depth)
    s[target].reorder(x, yo, ko, yi, ki)
    s[target].tensorize(yi, gemv(16, depth, native=native))
    if cached:
        s[target].compute_at(s[c], s[c].op.axis[0])
        assert copy is not None
        s[copy].compute_at(s[target], ko)
    else:
        s[c].parallel(x)
    if native:
        s[target].pragma(x, "import_llvm", GEMV)
    else:
        out = np.full((N, M), np.nan, np.float32)
        run(lower_blocks(schedule_func(s, args)), [A, B, out])
        np.testing.assert_allclose(out, A @ B.T, rtol=1e-5)
    out = np.full((N, M), np.nan, np.float32)
    tvm.build(s, args, "llvm")(A, B, out)
    np.testing.assert_allclose(out, A @ B.T, rtol=1e-5)


def tensorized(intrin: te.TensorIntrin, factor: int = 16, depth: int = L) -> te.Schedule:
    s, _, c = product()
    yo, yi = s[c].split(c.op.axis[1], factor=factor)
    ko, ki = s[c].split(c.op.reduce_axis[0], factor=depth)
    s[c].reorder(c.op.axis[0], yo, ko, yi, ki)
    s[c].tensorize(yi, intrin)
    return s


def test_loops_that_are_not_the_instruction() -> None:
    def refused(s: te.Schedule, message: str) -> None:
        with pytest.raises(ScheduleError, match=message):
            schedule_func(s, [*s.outputs[0].inputs, s.outputs[0].output(0)])

    refused(
        tensorized(gemv(8, L, native=False)),
        "'gemv' cannot replace loop 'j_1': axis 'j' has 16 values, but 'i' of 8 is expected. The instruction computes"
    )
    refused(
        tensorized(gemv(12, L, native=False), 12),
        r"a split leaves a remainder, where .* fails; split by a divisor of the extent"
    )
    refused(
        tensorized(gemv(16, 8, native=False, parts=False), depth=8),
        r"its reduction continues over outer loops, so it must return \(body, reduce_reset, reduce_update\)"
    )
    s, args, c = product()
    s[c].vectorize(c.op.axis[1])
    s[c].tensorize(c.op.axis[0], gemv(M, L, native=False))
    refused(s, r"loop 'j' is vectorized with 32 iterations, but an instruction needs serial loops")
    a = args[0]
    other = te.compute(
        (N, M),
        lambda i, j: te.sum(a[i, c.op.reduce_axis[0]] + args[1][j, c.op.reduce_axis[0]], axis=c.op.reduce_axis[0]),
        name="other"
    )
    s = te.create_schedule(other.op)
    s[other].tensorize(other.op.axis[1], gemv(M, L, native=False))
    refused(s, r"the computation differs")


def test_a_step_refers_to_an_intrinsic_by_its_name() -> None:
    _, args, c = product()
    func, whole = create_prim_func(args[:2], [c]), gemv(16, 8, native=False)

    def replaced(sch: Schedule, intrin: Any) -> Schedule:
        i, j, k = sch.loops("C")
        (jo, ji), (ko, ki) = sch.split(j, [None, 16]), sch.split(k, [None, 8])
        sch.reorder(i, jo, ko, ji, ki)
        sch.tensorize(ji, intrin)
        return sch

    with pytest.raises(
        ScheduleError, match=r"a step contains TensorIntrin\(gemv\) \(CallableIntrin\), which cannot be saved"
    ):
        replaced(Schedule(func), whole).steps[-1].as_json()
    with pytest.raises(ScheduleError, match=r"there is no intrinsic 'test\.gemv'"):
        replaced(Schedule(func), "test.gemv")
    known = tvm.tir.TensorIntrin.remember(replace(whole, name="test.gemv"), override=True)
    sch = replaced(Schedule(func), known)
    assert sch.steps[-1].as_json() == {"step": "tensorize", "args": [{"block": "C", "loop": 3}, "test.gemv"]}
    again = Schedule(func)
    again.apply([ScheduleStep.from_json(s.as_json()) for s in sch.steps])
    assert_structural_equal(again.func, sch.func)
    with pytest.raises(ScheduleError, match=r"an intrinsic 'test\.gemv' already exists"):
        tvm.tir.TensorIntrin.remember(replace(whole, name="test.gemv"))


@pytest.mark.parametrize("split", [None, [2, 8]])
@pytest.mark.parametrize("apart", [False, True])
def test_an_instruction_of_te_in_a_schedule_of_loops(split: list[int] | None, apart: bool) -> None:
    """Its reduction whole, or going on; the first values stored by the block, or by another one before."""
    _, args, c = product()
    func, depth = create_prim_func(args[:2], [c]), L if split is None else split[1]
    tvm.tir.TensorIntrin.remember(replace(gemv(16, depth, native=False), name=f"test.gemv_{depth}"), override=True)
    sch = tvm.tir.Schedule(func)
    i, j, k = sch.get_loops("C")
    jo, ji = sch.split(j, [None, 16])
    if split:
        ko, k = sch.split(k, split)
        sch.reorder(i, jo, ko, ji, k)
    if apart:
        sch.decompose_reduction("C", sch.get_loops("C")[2])
    sch.tensorize(ji, f"test.gemv_{depth}")
    out = np.full((N, M), np.nan, np.float32)
    run(lower_blocks(sch.mod["main"]), [A, B, out])
    np.testing.assert_allclose(out, A @ B.T, rtol=1e-5)


@T.prim_func
def dot(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32"), c: T.Buffer((1,), "float32")) -> None:
    for k in T.serial(8):
        with T.block("c"):
            r = T.axis.reduce(8, k)
            with T.init():
                c[0] = 0.0
            c[0] = c[0] + a[r] * b[r]


@pytest.mark.parametrize("depth", [8, 16])
def test_a_routine_with_first_values(depth: int) -> None:
    """As an instruction for the whole of a sum, and for a part of it, where its own first values are left out."""
    tvm.tir.TensorIntrin.register("test.dot", dot, dot, override=True)
    a, b, k = te.placeholder(
        (3, depth), name="A"
    ), te.placeholder((depth,), name="B"), te.reduce_axis((0, depth), name="k")
    c = te.compute((3, 1), lambda i, j: te.sum(a[i, k] * b[k], axis=k), name="C")
    sch = tvm.tir.Schedule(create_prim_func([a, b], [c]))
    sch.tensorize(sch.split(sch.get_loops("C")[2], [None, 8])[1], "test.dot")
    out = np.full((3, 1), np.nan, np.float32)
    x, y = RNG.random((3, depth), np.float32), RNG.random(depth, np.float32)
    run(lower_blocks(sch.mod["main"]), [x, y, out])
    np.testing.assert_allclose(out[:, 0], x @ y, rtol=1e-5)


def test_rows_are_where_the_instruction_was_told() -> None:
    out = np.empty((N, M), np.float32)
    s = tensorized(gemv(16, 8, native=False, row=L), depth=8)
    args = [*s.outputs[0].inputs, s.outputs[0].output(0)]
    tvm.build(s, args, "llvm")(A, B, out)
    np.testing.assert_allclose(out, A @ B.T, rtol=1e-5)
    s = tensorized(gemv(16, 8, native=False, row=8), depth=8)
    with pytest.raises(
        ScheduleError,
        match=r"an instruction needs 'B' with a row stride of 8 elements, but in memory it is 16; declare"
    ):
        tvm.build(s, [*s.outputs[0].inputs, s.outputs[0].output(0)], "llvm")


def test_declarations_that_cannot_be() -> None:
    a = te.placeholder((4,), name="a")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="b")
    c = te.compute((4,), lambda i: b[i] + 1.0, name="c")
    with pytest.raises(
        CompileError, match=r"decl_tensor_intrin 'x' needs the operation of a single te.compute over te.placeholder"
    ):
        te.decl_tensor_intrin(c.op, lambda i, o: None, "x")
    with pytest.raises(
        CompileError,
        match=r"the function of tensor intrinsic 'x' must return one statement, or \(body, reduce_reset, "
        r"reduce_update\)"
    ):
        te.decl_tensor_intrin(b.op, lambda i, o: None, "x")
    with pytest.raises(CompileError, match="the function of tensor intrinsic 'x' must return statements, not a int"):
        te.decl_tensor_intrin(b.op, lambda i, o: 3, "x")
    with pytest.raises(CompileError, match=r"decl_tensor_intrin 'x': scalar_params are not supported"):
        te.decl_tensor_intrin(b.op, lambda i, o: 3, "x", scalar_params=[1])
    with pytest.raises(CompileError, match="access_ptr of 'y' takes 'r', 'w' or 'rw', but was given 'x'"):
        tvm.tir.decl_buffer((4,), name="y").access_ptr("x")
    with pytest.raises(CompileError, match="decl_buffer 'y' has 1 dimensions, but was given 2 strides"):
        tvm.tir.decl_buffer((4,), name="y", strides=[1, 2])
    with pytest.raises(CompileError, match="decl_buffer 'y': each element is stored once, so omit buffer_type="):
        tvm.tir.decl_buffer((4,), name="y", buffer_type="auto_broadcast")


def product_of_tiles(m: int, n: int, depth: int) -> Any:
    """Return a product of matrices as an instruction in loops: whole, its first values, and its accumulation."""
    x, y = te.placeholder((m, depth), name="x"), te.placeholder((n, depth), name="y")
    k = te.reduce_axis((0, depth), "k")
    z = te.compute((m, n), lambda i, j: te.sum(x[i, k] * y[j, k], axis=k), name="z")

    def loops(ins: Any, outs: Any, first: bool, sums: bool) -> Any:
        irb = tvm.tir.ir_builder.create()
        a, b, c = (irb.buffer_ptr(p) for p in (*ins, *outs))
        with irb.for_range(0, m, name="i") as i, irb.for_range(0, n, name="j") as j:
            if first:
                c[i, j] = 0.0
            if sums:
                with irb.for_range(0, depth, name="k") as q:
                    c[i, j] += a[i, q] * b[j, q]
        return irb.get()

    return te.decl_tensor_intrin(z.op, lambda ins, outs: (
        loops(ins, outs, True, True), loops(ins, outs, True, False), loops(ins, outs, False, True)), name="tiles")


@pytest.mark.parametrize("steps", ["none", "outer loops", "caches"])
def test_an_instruction_called_in_a_computation(steps: str) -> None:
    """The instruction performs the innermost axes, also after steps on the other loops."""
    a, b = te.placeholder((4, 2, 3, 8), name="A"), te.placeholder((2, 2, 4, 8), name="B")
    k = te.reduce_axis((0, 2), "K")
    tiles = product_of_tiles(3, 4, 8)
    c = te.compute(
        (4, 2, 3, 4), lambda i, j: tiles(a[i, k, 0:3, 0:8], b[j, k, 0:4, :], reduce_axis=k), name="C")
    s = te.create_schedule(c.op)
    if steps == "outer loops":
        outer, inner = s[c].split(c.op.axis[0], 2)
        s[c].reorder(c.op.axis[1], outer, inner)
    elif steps == "caches":
        s.cache_read(a, "local", [c])
        s.cache_write(c, "local")
    text = str(tvm.lower(s, [a, b, c]))
    assert text.count("for K in T.serial(2)") == 1
    out = np.full((4, 2, 3, 4), np.nan, np.float32)
    x, y = RNG.random((4, 2, 3, 8), np.float32), RNG.random((2, 2, 4, 8), np.float32)
    tvm.build(s, [a, b, c], "llvm")(x, y, out)
    np.testing.assert_allclose(out, np.einsum("ikml,jknl->ijmn", x, y), rtol=1e-5)


def test_calls_of_an_instruction_that_cannot_be() -> None:
    tiles = product_of_tiles(3, 4, 8)
    a, b = te.placeholder((6, 3, 8), name="A"), te.placeholder((4, 8), name="B")
    c = te.compute((6, 3, 4), lambda i: tiles(a[i, 0:3, 0:8], b), name="C")
    s = te.create_schedule(c.op)
    s[c].split(c.op.axis[1], 3)
    with pytest.raises(ScheduleError, match="loop 'j' of 'C' is a part of the instruction 'tiles', so it cannot be"):
        tvm.lower(s, [a, b, c])
    with pytest.raises(ScheduleError, match="'C' is computed by the instruction 'tiles', so rfactor does not apply"):
        te.create_schedule(c.op).rfactor(c, c.op.reduce_axis[0])
    refused: list[tuple[Any, tuple[int, ...], str]] = [
        (lambda i: tiles(a[i, 0:3, 0:8]), (6, 3, 4), "the instruction 'tiles' takes 2 tensors, but was given 1"),
        (lambda i: tiles(a[i, 0:2, 0:8], b), (6, 3, 4), r"is float32\[3, 8\], but was given float32\[2, 8\] of 'A'"),
        (lambda i: tiles(a[i, 0:3, 0:8], b), (6, 4, 3), r"the dimensions \(3, 4\), but the last .* are \(4, 3\)"),
        (lambda i: a[i, 0, 0], (6, 3), "the function of 'compute' takes 1 indices, but the shape has 2 dimensions"),
        (lambda i: tiles(a[i, 0:3], b), (6, 3, 4), "a region of tensor 'A' needs 3 indices or slices without steps"),
    ]
    for call, shape, message in refused:
        with pytest.raises(CompileError, match=message):
            te.compute(shape, call)
    add = te.compute((8,), lambda i: b[0, i] + 1.0)
    once = te.decl_tensor_intrin(
        te.compute((8,), lambda i, p=te.placeholder((8,), name="p"): p[i] + 1.0, axis_names=["i"]).op,
        lambda ins, outs: tvm.tir.call_packed("f"), "once")
    with pytest.raises(CompileError, match="the instruction 'once' is not a reduction, so it takes no reduce_axis"):
        once(add, reduce_axis=te.reduce_axis((0, 2)))
