"""Functions of known sizes, and functions with variables and buffers of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import tir
from tilewright.base.errors import CompileError
from tilewright.ir import assert_structural_equal
from tilewright.scalar.expr import integer
from tilewright.tir.stmt import PrimFunc
from tilewright.tir.stmt_functor import renew_defs, substitute

scale: Any = tir.parse("""
@T.prim_func
def scale(a: T.handle, b: T.handle, n: T.int32) -> None:
    m = T.int32()
    A = T.match_buffer(a, (m, n), "float32")
    B = T.match_buffer(b, (m, n), "float32")
    C = T.alloc_buffer((m, n), "float32")
    for i, j in T.grid(m, n):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj] * T.cast(n, "float32")
    for i, j in T.grid(m, n):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = C[vi, vj]
""")
scale_rows: Any = tir.parse("""
@T.prim_func
def scale_rows(a: T.handle, b: T.handle) -> None:
    m = T.int32()
    A = T.match_buffer(a, (m, 8), "float32")
    B = T.match_buffer(b, (m, 8), "float32")
    C = T.alloc_buffer((m, 8), "float32")
    for i, j in T.grid(m, 8):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj] * T.float32(8)
    for i, j in T.grid(m, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = C[vi, vj]
""")
copy: Any = tir.parse("""
@T.prim_func
def copy(a: T.handle, b: T.handle, n: T.int32, p: T.int32, q: T.int32) -> None:
    A = T.match_buffer(a, (4, n), "float32", strides=[p, 1], elem_offset=q)
    B = T.match_buffer(b, (4, n), "float32", strides=[p, 1], elem_offset=q)
    for i, j in T.grid(4, n):
        B[i, j] = A[i, j]
""")


def test_no_parameter_is_given() -> None:
    assert scale.specialize({}) is scale


def test_a_number_for_a_variable() -> None:
    made = scale.specialize({scale.params[2]: 8})
    assert_structural_equal(made, scale_rows)
    assert len(made.params) == 2


def test_a_buffer_for_a_buffer() -> None:
    a, _, n = scale.params
    made = scale.specialize({a: tir.decl_buffer((4, 8))})
    assert [b.shape for b in made.buffers] == [(4, 8), (4, 8)]
    assert not made.scalars
    rows = scale.specialize({n: 8})
    assert_structural_equal(made, rows.specialize({rows.params[0]: tir.decl_buffer((4, 8))}))
    x = np.arange(32, dtype="float32").reshape(4, 8)
    y = tvm.nd.array(np.zeros_like(x))
    tvm.build(made, target="llvm")(tvm.nd.array(x), y)
    np.testing.assert_array_equal(y.numpy(), x * 8)


def test_an_expression_for_a_variable() -> None:
    k = tir.Var("k", "int32")
    made = scale.specialize({scale.params[2]: k * 8})
    assert str(made.buffers[0].shape[1]) == "(k * 8)"


def test_strides_and_offsets() -> None:
    made = copy.specialize({copy.params[0]: tir.decl_buffer((4, 16), strides=[32, 1], elem_offset=4)})
    assert [(b.shape, b.strides, integer(b.elem_offset)) for b in made.buffers] == [((4, 16), (32, 1), 4)] * 2
    assert not made.scalars


def test_parameters_that_do_not_fit() -> None:
    a, _, n = scale.params
    with pytest.raises(CompileError, match="is not a parameter of 'scale', so it has no value there"):
        scale.specialize({tir.Var("n", "int32"): 8})
    with pytest.raises(CompileError, match=r"cannot be the parameter A: .*; give a buffer with its number of dim"):
        scale.specialize({a: tir.decl_buffer((4,))})
    with pytest.raises(CompileError, match="'A' is given 8, but the other parameters need 16"):
        scale.specialize({n: 16, a: tir.decl_buffer((4, 8))})


def _names(func: PrimFunc) -> set[int]:
    found: set[int] = {id(b) for b in (*func.params, *func.body.block.alloc_buffers)}
    tir.stmt_functor.post_order_visit(func.body, lambda x: found.add(id(x)) if isinstance(x, tir.Var) else None)
    return found


def test_variables_and_buffers_of_its_own() -> None:
    made = renew_defs(scale)
    assert_structural_equal(made, scale)
    assert not _names(made) & _names(scale)


def test_values_in_statements() -> None:
    func: Any = tir.parse("""
@T.prim_func
def f(n: T.int32):
    A = T.allocate([n], "float32")
    for i in range(n):
        A[i] = T.call_pure_extern("float32", "f", i) + T.cast(i, "float32")
""")
    wanted: Any = tir.parse("""
@T.prim_func
def f():
    A = T.allocate([16], "float32")
    for i in range(16):
        A[i] = T.call_pure_extern("float32", "f", T.cast(i, "int32")) + T.cast(i, "float32")
""")
    assert_structural_equal(substitute(func.body, {func.params[0]: 16}), wanted.body)
