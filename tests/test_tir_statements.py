"""Loops with a condition, assertions and constant memory: texts, meanings, code, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import tir
from tilewright.base.errors import CompileError, ParseError
from tilewright.ir import structural_equal
from tilewright.scalar.expr import as_expr
from tilewright.tir.interpreter import run as interpret
from tilewright.tir.script import tir as T
from tilewright.tir.stmt import AllocateConst, AssertStmt, Evaluate, While
from tilewright.tir.transform.fill_constants import MOST

NOTHING = Evaluate(as_expr(0))
# A[i] := the sum of (k % 4 + 1) for k < N[i], by steps of one
SUMS = """
@T.prim_func
def sums(N: T.Buffer((8,), "int32"), A: T.Buffer((8,), "int32")):
    K = T.allocate_const([1, 2, 3, 4], "int32", (4,))
    k = T.allocate((1,), "int32", "local")
    for i in T.serial(8):
        k[0] = T.int32(0)
        A[i] = T.int32(0)
        while k[0] < N[i]:
            A[i] = A[i] + K[T.cast(k[0], "int64") % 4]
            k[0] = k[0] + T.int32(1)
"""
COUNTS = np.array([0, 1, 2, 3, 4, 5, 9, 0], "int32")
WANTED = np.array([sum(k % 4 + 1 for k in range(n)) for n in COUNTS], "int32")

ASSERTED = """
@T.prim_func
def asserted(A: T.Buffer((1,), "float32")):
    with T.Assert(A[0] < 3.0, "A is small"):
        A[0] = 1.0
    assert A[0] == 1.0, "A is one"
    A[0] = 2.0
"""


@pytest.mark.parametrize("text", [SUMS, ASSERTED])
def test_text_is_read_back(text: str) -> None:
    func = tir.parse(text)
    assert str(func).strip() == text.strip()
    assert structural_equal(tir.parse(str(func)), func)


def test_annotations_of_an_allocation_are_read_back() -> None:
    line = '    B = T.allocate((1,), "float32", "global", annotations={"a": 1})'
    assert line in str(tir.parse(f'def f(A: T.Buffer((1,), "float32")):\n{line}\n    A[0] = B[0]'))


def test_the_form_of_tvm() -> None:
    shown = tir.parse(SUMS).body.script()
    assert "with T.allocate_const([1, 2, 3, 4], \"int32\", [4]) as K:" in shown
    assert "        while k[0] < N[i]:\n            A[i] = A[i] + K[T.Cast(\"int64\", k[0]) % 4]\n" in shown
    shown = tir.parse(ASSERTED).body.script()
    assert 'with T.Assert(A[0] < T.float32(3), "A is small"):\n    A[0] = T.float32(1)\n' in shown
    assert 'assert A[0] == T.float32(1), "A is one"\n' in shown


def test_the_interpreter() -> None:
    found = np.zeros(8, "int32")
    interpret(tir.parse(SUMS), [COUNTS.copy(), found])
    np.testing.assert_array_equal(found, WANTED)
    value = np.array([1.5], "float32")
    interpret(tir.parse(ASSERTED), [value])
    assert value == 2
    with pytest.raises(CompileError, match="an assertion of the program fails: A is small"):
        interpret(tir.parse(ASSERTED), [np.array([4.0], "float32")])


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_code(target: str) -> None:
    run = tilewright.build(tir.parse(SUMS), target=target)
    found = tilewright.nd.array(np.zeros(8, "int32"))
    run(tilewright.nd.array(COUNTS), found)
    np.testing.assert_array_equal(found.numpy(), WANTED)


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_an_assertion_has_no_code(target: str) -> None:
    with pytest.raises(CompileError, match="the assertion 'A is small' has no code: kernels report no errors"):
        tilewright.build(tir.parse(ASSERTED), target=target)


def test_constants_are_limited() -> None:
    text = SUMS.replace("[1, 2, 3, 4]", str([1] * (MOST + 1))).replace("(4,)", f"({MOST + 1},)")
    with pytest.raises(CompileError, match=f"the constant 'K' has {MOST + 1} elements, and constants in a function"):
        tilewright.build(tir.parse(text), target="llvm")


@pytest.mark.parametrize(("old", "new", "message"), [
    ("[1, 2, 3, 4]", "[1, 2, 3, 4, 5]", r"'K' of shape \[4\] cannot hold 5 constants; give it a larger shape"),
    ('[1, 2, 3, 4], "int32", (4,)', '[1, 2, 3, 4], "int32"', "T.allocate_const needs values, a data type and a shape"),
    ("while k[0] < N[i]", "while T.float32(1)", "a condition must be bool or an integer, but this is float32"),
])  # fmt: skip
def test_refused_texts(old: str, new: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        tir.parse(SUMS.replace(old, new))


def test_integers_as_conditions() -> None:
    text = SUMS.replace("while k[0] < N[i]", "while N[i] - k[0]")
    assert "while N[i] - k[0] != T.int32(0):" in tir.parse(text).script()


def test_while_has_no_else() -> None:
    with pytest.raises(ParseError, match="a while loop has no else"):
        tir.parse(SUMS + "        else:\n            A[i] = T.int32(0)\n")


def test_nodes() -> None:
    i = tir.Var("i", "int32")
    assert structural_equal(While(i < 3, NOTHING), While(i < 3, NOTHING))
    assert not structural_equal(AssertStmt(i < 3, "a", NOTHING), AssertStmt(i < 3, "b", NOTHING))
    with pytest.raises(CompileError, match=r"'K' of shape \[4\] cannot hold 5 constants; give it a larger shape"):
        AllocateConst(tir.decl_buffer((4,), "int32", name="K"), NOTHING, None, np.zeros(5, "int32"))
    with pytest.raises(CompileError, match=r"'K' of shape \[n\] cannot be constant; give its sizes as numbers"):
        AllocateConst(tir.decl_buffer((tir.Var("n", "int64"),), "int32", name="K"), NOTHING, None, [1])


def test_a_view_has_the_type_of_its_memory() -> None:
    with pytest.raises(CompileError, match="the memory of 'A' holds float32, not int8"):
        T.Buffer((4,), "int8", data=tir.decl_buffer((4,), name="A"))
    with pytest.raises(CompileError, match="has 8 elements from element 0 on, but 'A' has only 4"):
        T.decl_buffer((8,), data=tir.decl_buffer((4,), name="A"))


def test_copies_are_inside_constants() -> None:
    text = """
@T.prim_func
def f(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    K = T.allocate_const([1.0, 2.0, 3.0, 4.0], "float32", (4,))
    for i in T.serial(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = A[vi] + K[vi]
"""
    s = tir.Schedule(tir.parse(text))
    s.cache_read(s.get_block("B"), 0, "local")
    s.cache_write(s.get_block("B"), 0, "local")
    assert str(s.mod["main"]).splitlines()[4].startswith("    K = T.allocate_const")
    found = np.zeros(4, "float32")
    interpret(s.mod["main"], [np.ones(4, "float32"), found])
    np.testing.assert_array_equal(found, [2, 3, 4, 5])


def test_targets_are_read_back() -> None:
    text = """
def f():
    T.func_attr({"a": T.target("nvidia/nvidia-a100", host="llvm"), "b": T.target({"kind": "llvm", "tag": ""})})
    T.evaluate(0)
"""
    func = tir.parse(text)
    assert func.attrs["a"].host.kind == "llvm"
    assert func.attrs["b"] == tilewright.target.Target("llvm")
    again = tir.parse(str(func))
    assert again.attrs == func.attrs
    assert again.attrs["a"].host == func.attrs["a"].host


@pytest.mark.parametrize(("dtype", "value", "stored"), [
    ("float16", "T.float32(0.5)", "T.float16(0.5)"),
    ("float16", "T.float32(0.1)", 'T.float16(0.0999755859375)'),
    ("float16", "B[0]", 'T.cast(B[0], "float16")'),
    ("int8", "B[0]", 'T.cast(B[0], "int8")'),
    ("int32", "T.int64(5) + T.cast(B[0], \"int64\")", 'T.cast(5 + T.cast(B[0], "int64"), "int32")'),
])  # fmt: skip
def test_a_stored_number_is_converted(dtype: str, value: str, stored: str) -> None:
    text = f'def f(A: T.Buffer((8,), "{dtype}"), B: T.Buffer((8,), "float32")):\n    A[0] = {value}'
    assert str(tir.parse(text)).endswith(f"A[0] = {stored}")


def own(shape: list[int], data: Any) -> Any:
    return T.Buffer(shape, data=data)


def test_functions_of_python_take_and_return_buffers() -> None:
    @T.prim_func
    def doubled(A: T.Buffer((4,), "float32")) -> None:
        K = T.allocate_const([1, 2, 3, 4], "float32", [4])
        B = own([2, 2], data=K)
        for i in T.serial(4):
            A[i] = B[i // 2, i % 2] * 2.0

    found = np.zeros(4, "float32")
    interpret(doubled, [found])
    np.testing.assert_array_equal(found, [2, 4, 6, 8])


def test_a_choice_has_the_type_that_is_given() -> None:
    text = """
@T.prim_func
def f(A: T.Buffer((4,), "int32")):
    for i in range(4):
        A[i] = T.if_then_else(i < 2, i + 1, 7, dtype="int32")
        A[i] = T.if_then_else(i < 2, 0, 7, dtype="int32")
"""
    func: Any = tir.parse(text)
    first, second = func.body.body.stmts
    assert str(first.value) == "if_then_else((i < 2), cast('int32', (i + 1)), 7)"
    assert [str(e.dtype) for e in second.value.operands()] == ["bool", "int32", "int32"]


@pytest.mark.parametrize(("line", "message"), [
    ("A[0] = A[0:2]", "2 elements cannot be stored in one element of 'A'"),
    ("B = T.alloc_buffer((1,))\n    B = T.alloc_buffer((1,))", "the buffer 'B' is declared twice here"),
])
def test_refused_lines(line: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        tir.parse(f"@T.prim_func\ndef f(A: T.Buffer((4,), \"float32\")):\n    {line}\n")


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_memory_without_blocks(target: str) -> None:
    func = tir.parse("""
@T.prim_func
def f(A: T.Buffer((), "float32")):
    B = T.alloc_buffer((), "float32")
    B[()] = A[()] + 1.0
    A[()] = B[()] * 2.0
""")
    found = tilewright.nd.array(np.float32(3))
    tilewright.build(func, target=target)(found)
    assert found.numpy() == 8
