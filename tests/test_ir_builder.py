"""The IR builder and `te.extern`: programs written statement by statement, alone and among computed tensors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.base.errors import CompileError, ScheduleError
from tilewright.scalar.expr import Buffer
from tilewright.tir.interpreter import run
from tilewright.tir.stmt import PrimFunc


def positive_sum(ins: list[Buffer], outs: list[Buffer]) -> object:
    irb = tir.ir_builder.create()
    x, y = irb.buffer_ptr(ins[0]), irb.buffer_ptr(outs[0])
    with irb.for_range(0, 3, name="i", kind="parallel") as i:
        total = irb.allocate("float32", 1, name="total", scope="local")
        total[0] = 0.0
        with irb.for_range(0, 4, name="j") as j:
            seen = irb.let("seen", x[i, j])
            with irb.if_scope(irb.likely(seen > 0.0)):
                total[0] += seen
            with irb.else_scope():
                total[0] -= seen * 2.0
        y[i] = total[0]
    return irb.get()


X = np.random.default_rng(0).standard_normal((3, 4), np.float32)
WANT = np.where(X > 0, X, -2 * X).sum(1)


def test_loops_branches_and_memory() -> None:
    a = te.placeholder((3, 4), name="A")
    b = te.extern((3,), [a], positive_sum, name="B")
    module = tvm.build(te.create_schedule(b.op), [a, b], "llvm", name="positive_sum")
    got = tvm.nd.array(np.zeros(3, np.float32))
    module(tvm.nd.array(X), got)
    np.testing.assert_allclose(got.numpy(), WANT, rtol=1e-6)
    assert module.get_source("tir") == '''@T.prim_func
def positive_sum(A: T.Buffer((3, 4), "float32"), B: T.Buffer((3,), "float32")):
    for i in T.parallel(3):
        total = T.allocate((1,), "float32", "local")
        total[0] = 0.0
        for j in T.serial(4):
            seen = A[i, j]
            if seen > 0.0:
                total[0] = total[0] + seen
            else:
                total[0] = total[0] - seen * 2.0
        B[i] = total[0]'''


def test_loops_under_a_condition_and_scopes() -> None:
    irb = tir.ir_builder.create()
    memory = tir.decl_buffer((8,), "int32", name="A")
    a = irb.buffer_ptr(memory)
    with irb.while_loop(a[0] < 3):
        a[0] += 1
    with irb.new_scope():
        irb.scope_attr(a, "marked", 1)
        a[1] = 2
    a[2] = 3
    func = PrimFunc("f", (memory,), irb.get())
    assert str(func).split(":\n", 1)[1] == '''    while A[0] < T.int32(3):
        A[0] = A[0] + T.int32(1)
    with T.attr(A, "marked", T.int32(1)):
        A[1] = T.int32(2)
    A[2] = T.int32(3)'''

def test_an_extern_among_computed_tensors() -> None:
    a = te.placeholder((3, 4), name="A")
    doubled = te.compute((3, 4), lambda i, j: a[i, j] * 2.0, name="doubled")
    b = te.extern((3,), [doubled], positive_sum, name="B", dtype="float32")
    c = te.compute((3,), lambda i: b[i] + 1.0, name="C")
    for inlined in (False, True):
        s = te.create_schedule(c.op)
        if inlined:
            s[doubled].compute_inline()
        s[c].vectorize(c.op.axis[0])
        got = np.zeros(3, np.float32)
        tvm.build(s, [a, c], "llvm")(X, got)
        np.testing.assert_allclose(got, 2 * WANT + 1, rtol=1e-6)
        assert ("doubled" in repr(tvm.lower(s, [a, c]))) is not inlined


def test_several_outputs_and_flat_indices() -> None:
    def body(ins: list[Buffer], outs: list[Buffer]) -> object:
        irb = tir.ir_builder.create()
        x, sums, flags = irb.buffer_ptr(ins[0], (3, 4)), irb.buffer_ptr(outs[0]), irb.buffer_ptr(outs[1])
        with irb.for_range(2, 12, name="f", dtype="int32") as f:
            assert f.dtype == "int32"
            sums[f] = x[11 - f] + f.astype("float32")
            flags[f] = (x[f] > 0.0).astype("int8")
        assert x.dtype == "float32"
        return irb.get()

    a = te.placeholder((3, 4), name="A")
    sums, flags = te.extern([(12,), (12,)], [a], body, name="pair", dtype=["float32", "int8"])
    module = tvm.build(te.create_schedule(sums.op), [a, sums, flags], "llvm")
    got, bits = np.zeros(12, np.float32), np.full(12, 7, np.int8)
    module(X, got, bits)
    flat = X.reshape(-1)
    np.testing.assert_allclose(got[2:], flat[::-1][2:] + np.arange(2, 12), rtol=1e-6)
    np.testing.assert_array_equal(bits, [7, 7, *(flat[2:] > 0)])


def test_a_program_of_its_own() -> None:
    irb = tir.ir_builder.create()
    out = Buffer("out", (4, 2), "int64")
    y = irb.buffer_ptr(out)
    with irb.for_range(0, 4, kind="unroll") as i, irb.for_range(i, 2) as j:
        y[i, j] = 1
    irb.emit(tvm.expr.const(0, "int32"))
    func = PrimFunc("upper", (out,), irb.get())
    got = np.zeros((4, 2), np.int64)
    run(func, [got])
    np.testing.assert_array_equal(got, np.triu(np.ones((4, 2), np.int64)))


def no_else() -> None:
    irb = tir.ir_builder.create()
    with irb.else_scope():
        pass


def inside_a_loop() -> None:
    irb = tir.ir_builder.create()
    with irb.for_range(0, 4):
        irb.get()


def one() -> tir.ir_builder.BufferVar:
    return tir.ir_builder.create().buffer_ptr(Buffer("b", (4, 4, 4), "float32"))


A = te.placeholder((4,), "float32", name="A")
I = te.placeholder((4,), "int32", name="I")  # noqa: E741
WRONG: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "kind": (
        lambda: tir.ir_builder.create().for_range(0, 4, kind="tensorized").__enter__(), CompileError,
        "a loop cannot be 'tensorized'; use serial, parallel"
    ),
    "else": (no_else, CompileError, "else_scope must directly follow an if_scope"),
    "get": (inside_a_loop, CompileError, "get.. is called inside a for_range, if_scope or else_scope"),
    "dtype": (
        lambda: one().__setitem__((0, 0, 0), tvm.expr.const(0.1, "float64")), CompileError,
        r"a value of float64 cannot be stored in 'b', which holds float32; use .astype"
    ),
    "indices": (lambda: one()[0, 0], CompileError, "'b' has 3 dimensions and was given 2 indices"),
    "pointer": (
        lambda: tir.ir_builder.create().buffer_ptr(A), CompileError,  # type: ignore[arg-type]
        "buffer_ptr takes a buffer, .*, not Tensor"
    ),
    "view": (
        lambda: tir.ir_builder.create().buffer_ptr(Buffer("b", (4,)), (2, 2)), CompileError,
        "buffer 'b' has 1 dimensions, so the shape cannot have 2"
    ),
    "scope": (
        lambda: tir.ir_builder.create().allocate("int8", (4,), scope="texture"), ScheduleError,
        "'texture' is not a memory scope"
    ),
    "no statement": (
        lambda: te.extern((4,), [A], lambda ins, outs: None, name="B"), CompileError,
        "fcompute of te.extern 'B' must return a statement, not NoneType"
    ),
    "no type": (
        lambda: te.extern((4,), [A, I], lambda ins, outs: None, name="B"), CompileError,
        "te.extern 'B' needs dtype=: its inputs have float32, int32"
    ),
    "types": (
        lambda: te.extern([(4,), (4,)], [A], lambda ins, outs: None, name="B", dtype=["int8"]), CompileError,
        "te.extern 'B' has 2 outputs, but was given 1 types"
    ),
    "a fraction": (
        lambda: te.placeholder((5 / 2,)), CompileError, "a dimension of 2.5 is not an integer; divide with //"
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_written_says_why(name: str) -> None:
    action, kind, message = WRONG[name]
    with pytest.raises(kind, match=message):
        action()


def test_a_let_is_bound_anew_in_each_copy_of_a_loop() -> None:
    """A loop that is cut has copies of its body, and an address that uses a name of one is another in the next."""
    irb = tir.ir_builder.create()
    x, out = Buffer("x", (8,), "int64"), Buffer("out", (8,), "int64")
    source, target = irb.buffer_ptr(x), irb.buffer_ptr(out)
    with irb.for_range(0, 8, name="k") as k:
        value = irb.let("value", source[tvm.expr.if_then_else(k < 1, 7 - k, k - 1)])
        target[value] = k
    func = PrimFunc("scattered", (x, out), irb.get())
    order, got = np.asarray([3, 1, 4, 0, 5, 2, 6, 7]), np.zeros(8, np.int64)
    tvm.build(func, target="llvm")(order, got)
    wanted = np.zeros(8, np.int64)
    run(func, [order, wanted])
    np.testing.assert_array_equal(got, wanted)


def test_the_grain_of_a_parallel_loop() -> None:
    irb = tir.ir_builder.create()
    out = irb.buffer_ptr(Buffer("out", (64,), "int64"))
    with irb.for_range(0, 64, name="k", kind="parallel", grain=8) as k:
        out[k] = k
    func = PrimFunc("counted", (out.buffer,), irb.get())
    got = np.zeros(64, np.int64)
    tvm.build(func, target="llvm")(got)
    np.testing.assert_array_equal(got, np.arange(64))
    assert func.body.annotations == {"grain": 8}  # type: ignore[attr-defined]


def test_loops_with_a_condition() -> None:
    irb = tvm.tir.ir_builder.create()
    count = irb.allocate("int32", (1,), name="count", scope="local")
    count[0] = 0
    with irb.while_loop(count[0] < 3):
        count[0] += 1
    found = irb.get()
    assert repr(found).splitlines()[-2:] == ["while count[0] < T.int32(3):", "    count[0] = count[0] + T.int32(1)"]
