"""`tvm.script.ir_builder`: functions and modules that Python code builds."""

from __future__ import annotations

import pytest

from tilewright import tir
from tilewright.base.errors import CompileError
from tilewright.ir.structural import assert_structural_equal, structural_hash
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
    T.func_attr({"global_symbol": "clipped", "level": 2})
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


def test_blocks() -> None:
    with IRBuilder() as ib, T.prim_func():
        T.func_name("sums")
        A = T.arg("A", T.Buffer((8, 4), "float32"))
        B = T.arg("B", T.Buffer((8,), "float32"))
        C = ib.name("C", T.alloc_buffer((8,), "float32"))
        with T.grid(8, 4) as (i, k):
            ib.name_many(["i", "k"], [i, k])
            with T.block("C"):
                vi, vk = ib.name_many(["vi", "vk"], T.axis.remap("SR", [i, k]))
                T.where(k < 3)
                T.reads(A[vi, vk])
                T.writes(C[vi])
                T.block_attr({"key": 1})
                with T.init():
                    T.buffer_store(C, 0.0, [vi])
                T.buffer_store(C, C[vi] + A[vi, vk], [vi])
        with T.serial(8) as i, T.block("B"):
            vi = ib.name("vi", T.axis.spatial(8, i))
            T.buffer_store(B, C[vi], [vi])
    assert_structural_equal(ib.get(), tir.parse("""
def sums(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8,), "float32")):
    C = T.alloc_buffer((8,), "float32")
    for i, k in T.grid(8, 4):
        with T.block("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            T.where(k < 3)
            T.block_attr({"key": 1})
            with T.init():
                C[vi] = 0.0
            C[vi] = C[vi] + A[vi, vk]
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = C[vi]
"""))


def test_a_block_without_bindings() -> None:
    with IRBuilder() as ib, T.block("b", no_realize=True):
        for axis in (T.axis.S, T.axis.R, T.axis.scan, T.axis.opaque):
            axis(8, 0)
        T.evaluate(0)
    assert [i.kind for i in ib.get().iters] == ["spatial", "reduce", "scan", "opaque"]
    assert ib.get().bindings == ()


def test_memory_conditions_and_threads() -> None:
    with IRBuilder() as ib, T.prim_func():
        A = T.arg("A", T.Buffer((8,), "float32"))
        tx = ib.name("tx", T.env_thread("threadIdx.x"))
        with T.launch_thread(tx, 8), T.allocate([1], "int32", "local", annotations={"key": 1}) as k:
            T.buffer_store(k, 0, [0])
            with T.decl_buffer([8], "float32") as b, T.allocate_const([1, 2], "float32", [2]) as c:
                ib.name_many(["b", "c"], [b, c])
                with T.Assert(tx < 8, "few threads"), T.While(k[0] < 2):
                    T.buffer_store(A, b[tx] + c[k[0]], [tx])
            with T.launch_thread("threadIdx.y", 2):
                T.evaluate(0)
    assert str(ib.get()).split("\n")[2:] == """
    T.func_attr({"global_symbol": "main"})
    for tx in T.serial(T.int32(8), annotations={"thread": "threadIdx.x"}):
        v = T.allocate((1,), "int32", "local", annotations={"key": 1})
        v[0] = T.int32(0)
        with T.allocate((8,), "float32", "global") as b:
            c = T.allocate_const([1.0, 2.0], "float32", (2,))
            assert tx < T.int32(8), "few threads"
            while v[0] < T.int32(2):
                A[tx] = b[tx] + c[v[0]]
        for v_1 in T.serial(T.int32(2), annotations={"thread": "threadIdx.y"}):
            T.evaluate(0)""".split("\n")[1:]


def test_reductions() -> None:
    reducer = T.comm_reducer(lambda x, y: x + y, [0.0])
    assert reducer.script() == "T.comm_reducer(lambda x, y: x + y, [T.float32(0)])"
    with pytest.raises(CompileError, match="a reduction of 2 takes 4 values, but the function takes 2"):
        T.comm_reducer(lambda x, y: x + y, [0.0, 1])


def test_parts_of_blocks_outside_of_blocks() -> None:
    with IRBuilder():
        with pytest.raises(CompileError, match=r"T\.where belongs inside `with T.block"):
            T.where(True)
        with pytest.raises(CompileError, match=r"T\.alloc_buffer belongs inside `with T.prim_func"):
            T.alloc_buffer((8,))
        with pytest.raises(CompileError, match=r"'n' is no thread; T\.env_thread returns variables"):
            T.launch_thread(tir.Var("n", "int32"), 2).__enter__()
        with T.block("b"), pytest.raises(CompileError, match=r"T\.axis\.remap takes a letter S or R for"):
            T.axis.remap("S", [tir.Var("n", "int32")])


def test_declared_buffers_equal_those_of_a_text() -> None:
    with IRBuilder() as ib, T.prim_func():
        T.arg("A", T.Buffer((8,), "float32"))
        T.evaluate(0)
    parsed = tir.parse('def main(A: T.Buffer((8,), "float32")):\n    T.evaluate(0)')
    assert_structural_equal(ib.get(), parsed)
    assert structural_hash(ib.get()) == structural_hash(parsed)
