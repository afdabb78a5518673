"""`tvm.script.ir_builder`: functions and modules that Python code builds."""

from __future__ import annotations

import pytest

from tilewright import tir
from tilewright.base.errors import CompileError
from tilewright.tir.script.ir_builder import IRBuilder
from tilewright.tir.script.ir_builder import ir as I
from tilewright.tir.script.ir_builder import tir as T


def test_a_function_has_the_text_of_its_statements() -> None:
    with IRBuilder() as ib, T.prim_func():
        T.func_name("clipped")
        T.func_attr({"level": 2})
        A = T.arg("A", T.Buffer((8,), "float32"))
        n = T.arg("n", T.int64())
        B = T.match_buffer(T.arg("B", T.handle()), (8,), "float16")
        with T.serial(8) as i, T.LetStmt(A[i] * 2.0) as v, T.If(i < n):
            with T.Then():
                T.buffer_store(A, v, i)
            with T.Else():
                T.buffer_store(B, 0.5, [i])
        with T.parallel(1, n) as j:
            T.evaluate(T.exp(A[j]))
    assert (
        str(ib.get()).split("\n")[1:]
        == """
def clipped(A: T.Buffer((8,), "float32"), n: T.int64, B: T.Buffer((8,), "float16")):
    T.func_attr({"level": 2})
    for i in T.serial(8):
        v = A[i] * 2.0
        if i < n:
            A[i] = v
        else:
            B[i] = T.float16(0.5)
    for i_1 in T.parallel(1, n):
        T.exp(A[i_1])""".strip().split("\n")
    )
    assert tir.parse(str(ib.get())).name == "clipped"


def test_a_module_has_its_functions() -> None:
    with IRBuilder() as ib, I.ir_module():
        for name in ("f", "g"):
            with T.prim_func():
                T.func_name(name)
                T.evaluate(0)
    assert [name for name, _ in ib.get().items()] == ["f", "g"]


def test_statements_without_a_function() -> None:
    with IRBuilder() as ib:
        a, b = T.meta_var([3, 4])
        T.evaluate(a.value + b.value)
    assert str(ib.get()) == "T.evaluate(7)"


def test_the_current_builder() -> None:
    with IRBuilder() as outer:
        with IRBuilder() as inner:
            assert IRBuilder.current() is inner
        assert IRBuilder.current() is outer
        assert IRBuilder.is_in_scope()
    assert not IRBuilder.is_in_scope()
    with pytest.raises(ValueError, match="there is no current builder; write `with IRBuilder"):
        T.evaluate(0)


def test_statements_out_of_place() -> None:
    with IRBuilder():
        with pytest.raises(CompileError, match=r"T.func_name belongs inside `with T.prim_func\(\):`"):
            T.func_name("f")
        with pytest.raises(CompileError, match=r"T.Then and T.Else belong inside T.If\(condition\)"):
            T.Then()
        with pytest.raises(CompileError, match=r"T.Then and T.Else belong inside T.If\(condition\)"):
            T.Else()
        with pytest.raises(CompileError, match="a value of float32 cannot be stored in 'buffer', which holds int8"):
            T.buffer_store(T.Buffer((8,), "int8"), T.float32(0.5), 0)
        with T.prim_func(), pytest.raises(CompileError, match="'x' is not a parameter of the function; add it with"):
            T.match_buffer(tir.Var("x", "handle"), (8,))
