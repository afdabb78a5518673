"""Constants in loop programs, and memory at an address."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import tir
from tilewright.base.errors import CompileError, ParseError
from tilewright.base.types import DataType, FuncType, TensorType, TupleType
from tilewright.ir.structural import structural_equal
from tilewright.tir.interpreter import run
from tilewright.tir.transform.fill_constants import fill_constants

CONSTANT = '''
@T.prim_func
def f(A: T.Buffer((2, 2), "int8")):
    C = T.allocate_const([1, 2, 3], "int8", (2, 2), annotations={"near": 1})
    for i in T.serial(2):
        for j in T.serial(2):
            A[i, j] = C[i, j] * T.int8(2)'''

PLACED = '''
@T.prim_func
def f(pool: T.Buffer((64,), "uint8")):
    with T.let(T.address_of(pool[8], dtype="handle")) as B:
        B_1 = T.Buffer((4,), "int32", data=B)
        B_1[0] = T.int32(1)
        T.call_extern("int32", "g", B)
    pool[0] = T.uint8(1)'''


@pytest.mark.parametrize("text", [CONSTANT, PLACED])
def test_the_text_of_memory_parses_back(text: str) -> None:
    func = tir.parse(text)
    assert str(func).strip() == text.strip()
    assert structural_equal(tir.parse(str(func)), func)


def test_a_declared_buffer_is_bound_to_an_address() -> None:
    func = tir.parse('''
@T.prim_func
def f(pool: T.Buffer((64,), "uint8")):
    X = T.Buffer((4,), "int32")
    with T.LetStmt(T.address_of(pool[8]), var=X.data):
        X[0] = 1
        T.call_extern("int32", "g", X.data)
    pool[0] = T.uint8(1)
''')
    assert structural_equal(func, tir.parse(PLACED))
    other = tir.parse(PLACED.replace("(4,)", "(5,)"))
    assert not structural_equal(func, other)


def test_constants_are_stored_and_then_zeros() -> None:
    func = tir.parse(CONSTANT)
    found = np.zeros((2, 2), "int8")
    run(func, [found])
    assert found.tolist() == [[2, 4], [6, 0]]
    lowered = fill_constants(func)
    assert not any(isinstance(s, tir.AllocateConst) for s in tir.stmt.walk_stmt(lowered.body))
    assert str(lowered).count("C[") == 5
    again = np.zeros((2, 2), "int8")
    run(lowered, [again])
    assert (again == found).all()


def test_a_function_with_constants_is_compiled() -> None:
    built = tvm.build(tir.parse(CONSTANT), target="llvm")
    result = tvm.nd.array(np.zeros((2, 2), "int8"))
    built["f"](result)
    assert result.numpy().tolist() == [[2, 4], [6, 0]]


def test_memory_at_an_address_is_not_compiled() -> None:
    text = PLACED.replace("B_1", "B").replace("as B:", "as p:").replace("data=B", "data=p").replace('"g", B', '"g", p')
    with pytest.raises(CompileError, match="'B' in 'f' is memory at an address; such a program can be read"):
        tvm.build(tir.parse(text), target="llvm")


def test_allocations_from_the_arguments_of_tvm() -> None:
    constant = tir.parse(CONSTANT).body
    assert isinstance(constant, tir.AllocateConst)
    made = tir.stmt_functor.ir_transform(constant, None, lambda s: tir.AllocateConst(
        buffer_var=s.buffer_var, dtype=s.dtype, extents=s.extents, data_or_idx=s.data, body=s.body,
        annotations={"far": 2}), ["tir.AllocateConst"])
    assert made.annotations == {"far": 2}
    assert made.data.numpy().tolist() == [1, 2, 3]
    memory = tir.Allocate(constant.buffer_var, "int8", [2, 2], True, constant.body)
    assert memory.annotations == {}
    assert str(memory.condition) == "True"
    with pytest.raises(CompileError, match=r"an allocation takes a buffer with its own type and sizes, and a"):
        tir.Allocate(constant.buffer_var, "int8", [4], True, constant.body)


def test_faults_of_constants() -> None:
    with pytest.raises(ParseError, match=r"'C' of shape \[2, 2\] cannot hold 5 constants; give it a larger shape"):
        tir.parse(CONSTANT.replace("[1, 2, 3]", "[1, 2, 3, 4, 5]"))
    with pytest.raises(ParseError, match=r"T.allocate_const needs values, a data type and a shape"):
        tir.parse(CONSTANT.replace(', "int8", (2, 2), annotations={"near": 1}', ""))
    with pytest.raises(ParseError, match=r"the address of 'X' is a handle, but this value is int64"):
        tir.parse('''
@T.prim_func
def f(A: T.Buffer((4,), "int8")):
    X = T.Buffer((4,), "int8")
    with T.LetStmt(T.int64(3), var=X.data):
        X[0] = T.int8(1)
''')


# Flat memory.
def parsed(text: str, shape: str = "(4, 4)") -> Any:
    return tir.parse(f'def f(A: T.Buffer({shape}, "int32")):\n    ' + text.strip("\n").replace("\n", "\n    "))


def flattened(func: Any, name: str = "FlattenBuffer", *args: object) -> Any:
    return getattr(tvm.tir.transform, name)(*args)(tvm.IRModule({"main": func}))["main"]


def test_storage_of_te_schedules_becomes_flat() -> None:
    given = parsed('for i, j in T.grid(4, 4):\n    with T.block("b"):\n        A[i, j] = 1')
    func = flattened(given.with_attr("from_legacy_te_schedule", True), "StorageFlatten", 64)
    assert func.params[0].shape == (16,) and str(func.body.body.body) == "A[i * 4 + j] = T.int32(1)"
    assert flattened(given, "StorageFlatten", 64) is given
    s = tvm.te.create_schedule(tvm.te.compute((4, 4), lambda i, j: i + j, name="C").op)
    assert tvm.driver.build_module.schedule_to_module(s)["main"].attrs["from_legacy_te_schedule"]


def test_memory_becomes_flat() -> None:
    before = """
K = T.allocate_const([1, 2, 3], "int32", [2, 2])
C = T.allocate((4, 4), "int32", "local", annotations={"near": 1})
for i, j in T.grid(4, 4):
    C[i, j] = A[i, j] + K[i % 2, j % 2]
    A[i, j] = C[i, j]
"""
    wanted = parsed("""
K = T.allocate_const([1, 2, 3], "int32", [4])
C = T.allocate((16,), "int32", "local", annotations={"near": 1})
for i, j in T.grid(4, 4):
    C[i * 4 + j] = A[i, j] + K[i % 2 * 2 + j % 2]
    A[i, j] = C[i * 4 + j]
""")
    assert structural_equal(flattened(parsed(before)), wanted)
    legacy = parsed(before).with_attr("from_legacy_te_schedule", True)
    assert flattened(legacy) is legacy


def test_intermediate_values_become_flat() -> None:
    func = flattened(parsed("""
B = T.alloc_buffer((2, 2), "int32")
with T.block("b"):
    with T.init():
        B[0, 1] = 0
    A[0, 1] = B[1, 1]
"""))
    assert [b.shape for b in func.attrs["intermediates"]] == [(4,)]
    assert "B[1] = T.int32(0)" in str(func) and "A[0, 1] = B[3]" in str(func)


def test_axis_separators_keep_dimensions() -> None:
    physical = parsed('B = T.alloc_buffer((2, 3, 5), "int32", axis_separators=[1])\nA[0, 0] = B[1, 2, 3]')
    assert tir.parse(str(physical)).attrs["intermediates"][0].axis_separators == (1,)
    (flat,) = flattened(physical).attrs["intermediates"]
    assert (flat.shape, flat.axis_separators) == ((2, 15), (1,))
    assert "A[0, 0] = B[1, 13]" in str(flattened(physical))
    assert tir.decl_buffer((2, 3), axis_separators=[1]).axis_separators == (1,)


def test_a_store_takes_memory_of_the_builder() -> None:
    buffer = tir.decl_buffer((2,), "float32", name="B")
    store: Any = tir.BufferStore
    made = store(tir.ir_builder.create().buffer_ptr(buffer), 1, [1])
    assert made.buffer is buffer and str(made) == "B[1] = 1.0"


SCOPED = '''
@T.prim_func
def f(A: T.Buffer((8,), scope="near"), B: T.Buffer((8,)), C: T.Buffer((8,), scope="far"), D: T.Buffer((8,))):
    for i in T.serial(8):
        D[i] = A[i] + B[i] * C[i]'''
OF_TENSOR = TensorType((8,), DataType("float32"))
OF_SCOPED = FuncType([TupleType([OF_TENSOR, OF_TENSOR]), OF_TENSOR], OF_TENSOR)


def test_the_memory_of_arguments_and_results() -> None:
    func = tir.parse(SCOPED)
    scopes = tir.analysis.get_prim_func_arg_and_result_memory_constraints
    assert scopes(func, OF_SCOPED) == ("near", "far", "global")
    moved = tir.analysis.apply_prim_func_arg_and_result_memory_constraints(func, OF_SCOPED, ["x", "", "z"])
    assert [b.scope for b in moved.buffers] == ["x", "x", "far", "z"]
    assert str(moved) == str(tir.parse(str(moved)))
    assert scopes(moved, OF_SCOPED) == ("x", "far", "z")


def test_refused_memory_of_arguments() -> None:
    func, analysis = tir.parse(SCOPED), tir.analysis
    with pytest.raises(CompileError, match=r"'f' has 4 buffers as parameters, and the type .* has 2 tensors"):
        analysis.get_prim_func_arg_and_result_memory_constraints(func, FuncType([OF_TENSOR], OF_TENSOR))
    with pytest.raises(CompileError, match="has 3 arguments and results, and 1 scopes were given; give one for each"):
        analysis.apply_prim_func_arg_and_result_memory_constraints(func, OF_SCOPED, ["x"])
    mixed = FuncType([TupleType([OF_TENSOR] * 3)], OF_TENSOR)
    with pytest.raises(CompileError, match=r"value 0 of the type of 'f' is a tuple of tensors in .*, near, far; give"):
        analysis.get_prim_func_arg_and_result_memory_constraints(func, mixed)


def test_names_in_addresses_and_loops_that_stay() -> None:
    before = parsed("""
p = T.address_of(A[0, 0])
q = p
B = T.Buffer((4,), "int32", data=q)
for i in T.serial(1, annotations={"preserve_unit_loop": True}):
    for j in T.serial(4):
        B[i * 4 + j] = 1
""")
    assert [line.strip() for line in str(flattened(before)).split("\n")[2:]] == [
        'p = T.address_of(A[0, 0], dtype="handle")', "q = p", 'B = T.Buffer((4,), "int32", data=q)',
        'for i in T.serial(1, annotations={"preserve_unit_loop": True}):', "for j in T.serial(4):", "B[j] = T.int32(1)"]


def test_vector_loops_over_the_rows_of_a_parameter() -> None:
    before = parsed("""
for i in T.serial(4):
    for j in T.vectorized(4):
        if j < i:
            A[i, j] = A[i, j] + 1
    for k in T.vectorized(4):
        A[k, i] = 0
""")
    assert [line.strip() for line in str(flattened(before, "VectorizeLoop")).split("\n")[2:]] == [
        "for i in T.serial(4):",
        "A[i, T.ramp(0, 1, 4)] = T.masked(T.ramp(0, 1, 4) < T.broadcast(i, 4), "
        "A[i, T.ramp(0, 1, 4)] + T.broadcast(T.int32(1), 4))",
        "A[T.ramp(0, 1, 4), T.broadcast(i, 4)] = T.broadcast(T.int32(0), 4)"]
