"""`script()` of expressions, statements, buffers, ranges and types: their texts in TVMScript."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import te, tir
from tilewright.base.errors import CompileError
from tilewright.base.scriptable import script_text
from tilewright.base.types import PointerType, PrimType, TupleType
from tilewright.scalar.range import Range
from tilewright.tir.script.ir_builder import IRBuilder
from tilewright.tir.script.ir_builder import tir as T

A, B = tir.decl_buffer((16, 16), "float32", name="A"), tir.decl_buffer((4,), "int8", name="B", scope="local")
i, j = tir.Var("i", "int32"), tir.Var("j", "int32")
x, p = tir.Var("x", "float32"), tir.Var("p", "bool")


@pytest.mark.parametrize(("part", "text"), [
    (i + j * 2, "i + j * 2"), ((i + j) * 2, "(i + j) * 2"), (i - 1, "i - 1"), (i // 4 % 2, "i // 4 % 2"),
    (tir.Div(i, j), "T.Div(i, j)"), (x / 2.0, "x / T.float32(2)"), (tir.Mod(i, j), "T.truncmod(i, j)"),
    (tir.Add(tir.IntImm("int64", 3), tir.IntImm("int64", -4)), "T.Add(3, -4)"),
    (tir.And(p, i < j), "p and i < j"), (tir.Or(p, tir.Not(p)), "p or not p"), (tir.Max(i, j), "T.max(i, j)"),
    (tir.Select(p, x, 0.5), "T.if_then_else(p, x, T.float32(0.5))"), (tir.Cast("int8", x), 'T.Cast("int8", x)'),
    (tir.Ramp(i, 1, 8), "T.Ramp(i, 1, 8)"), (tir.Broadcast(x, 4), "T.Broadcast(x, 4)"),
    (tir.exp(x), "T.exp(x)"), (tir.call_extern("int32", "f", i), 'T.call_extern("int32", "f", i)'),
    (tir.call_packed("g", "of", i), 'T.call_packed("g", "of", i)'),
    (tir.reinterpret("int32", x), 'T.reinterpret("int32", x)'), (tir.infinity("float16"), 'T.float16("inf")'),
    (tir.const(3, "int8"), "T.int8(3)"),
    (tir.const(True), "T.bool(True)"), (tir.Any(), "T.Any()"), (A[i, 0], "A[i, 0]"),
    (A, "A"), (tir.BufferRegion(A, (Range(2, 8), Range.from_min_extent(i, 1))), "A[2:8, i]"),
    (Range(1, 9), "T.Range(1, 9)"),
    (PrimType("int8"), "T.int8"), (PointerType(PrimType("int8"), "local"), 'T.handle("int8", "local")'),
    (TupleType([PrimType("int8"), PointerType(PrimType("bool"))]), 'T.Tuple(T.int8, T.handle("bool"))'),
])
def test_values(part: Any, text: str) -> None:
    assert part.script() == text


def test_names_are_declared() -> None:
    assert (A[i, j] + tir.Cast("float32", B[tir.Var("i", "int32")])).script(verbose_expr=True).split("\n") == [
        "A = T.Buffer((16, 16))", "i = T.int32()", "j = T.int32()", 'B = T.Buffer((4,), "int8", scope="local")',
        "i_1 = T.int32()", 'A[i, j] + T.Cast("float32", B[i_1])']
    assert tir.Var("a", PointerType(PrimType("int8"), "local")).script(verbose_expr=True) == (
        'a = T.handle("int8", "local")\na')
    n = tir.Var("n", "int32")
    strided = tir.decl_buffer((n,), "float32", name="S", strides=(2,))
    assert strided.script(verbose_expr=True) == "n = T.int32()\nS = T.Buffer((n,), strides=(2,))\nS"


def test_loops_and_stores() -> None:
    with IRBuilder() as ib, T.grid(16, 8) as (a, b):
        ib.name_many(["a", "b"], [a, b])
        with T.serial(b, 8) as c, T.thread_binding(4, thread="threadIdx.x"), T.parallel(c, annotations={"grain": 2}):
            T.buffer_store(A, A[a, b] + 1.0, [a, b])
            T.evaluate(0)
    assert ib.get().script() == """
A = T.Buffer((16, 16))
for a, b in T.grid(16, 8):
    for i in range(b, 8):
        for i_1 in T.thread_binding(4, thread="threadIdx.x"):
            for i_2 in T.parallel(i, annotations={"grain": 2}):
                A[a, b] = A[a, b] + T.float32(1)
                T.evaluate(0)""".strip()


def test_bodies() -> None:
    with IRBuilder() as ib, T.LetStmt(T.float32(10)) as v, T.attr("pragma", "unroll", 1), T.If(v < 2.0):
        with T.Then():
            T.evaluate(0)
        with T.Else():
            T.evaluate(tir.exp(v))
    assert ib.get().script() == """
with T.LetStmt(T.float32(10)) as v:
    T.attr("pragma", "unroll", 1)
    if v < T.float32(2):
        T.evaluate(0)
    else:
        T.exp(v)""".strip()


def test_memory() -> None:
    irb = tir.ir_builder.create()
    memory = irb.allocate("int8", (8,), name="M", scope="local")
    with irb.for_range(0, 8, name="k") as k:
        memory[k] = 1
    assert irb.get().script() == """
with T.decl_buffer((8,), "int8", scope="local") as M:
    for k in range(8):
        M[k] = T.int8(1)""".strip()


def test_blocks() -> None:
    a = te.placeholder((16, 8), name="a")
    k = te.reduce_axis((0, 8), name="k")
    func = te.create_prim_func([a, te.compute((16,), lambda r: te.sum(a[r, k], axis=k), name="s")])
    assert func.body.script() == """
a = T.Buffer((16, 8))
s = T.Buffer((16,))
for r, k in T.grid(16, 8):
    with T.block("s"):
        r_1, k_1 = T.axis.remap("SR", [r, k])
        T.reads(a[r_1, k_1])
        T.writes(s[r_1])
        with T.init():
            s[r_1] = T.float32(0)
        s[r_1] = s[r_1] + a[r_1, k_1]""".strip()


def test_values_without_a_text() -> None:
    with pytest.raises(CompileError, match="ndarray has no text in TVMScript"):
        script_text(np.zeros(3), False)
    with pytest.raises(CompileError, match=r"T\.thread_binding needs the kind of its threads, such as"):
        T.thread_binding(8)
