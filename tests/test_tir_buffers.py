"""Buffers of scripts: places of elements, other shapes of their memory, and memory at an address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.base.errors import CompileError
from tilewright.base.types import PointerType, PrimType

M, N, S = te.var("m"), te.var("n"), te.var("s")


def test_places_of_elements() -> None:
    dense = tir.decl_buffer((M, N), "float32", elem_offset=100)
    assert str(dense.offset_of([2, 3])[0]) == "((n * 2) + 103)"
    assert dense.elem_offset == 100
    strided = tir.decl_buffer((M, N), "float32", strides=[S, 1])
    i = te.var("i")
    (place,) = strided.offset_of([i // S, i % S])
    assert place is i
    j = te.var("j")
    (place,), (other,) = dense.offset_of([0, i % S + j % S]), dense.offset_of([0, j % S + i % S])
    assert place is other
    assert tir.decl_buffer((), "float32").offset_of([])[0] == 0
    apart = tir.decl_buffer((4, 16, 32), axis_separators=[2])
    assert [str(x) for x in apart.offset_of([1, i, 5])] == ["(i + 16)", "5"]
    with pytest.raises(CompileError, match="'buffer' has 2 dimensions, but was given 1 indices"):
        dense.offset_of([1])


def test_other_shapes_of_memory() -> None:
    whole = tir.decl_buffer((16, 32))
    flat = whole.get_flattened_buffer()
    assert flat.shape == (512,)
    assert flat.data.same_as(whole.data)
    assert not flat.same_as(whole)
    assert tir.decl_buffer((16,)).get_flattened_buffer().shape == (16,)
    line = tir.decl_buffer((16,))
    assert line.get_flattened_buffer().same_as(line)
    apart = tir.decl_buffer((4, 16, 32), axis_separators=[2]).get_flattened_buffer()
    assert (apart.shape, apart.axis_separators) == ((64, 32), (1,))
    strided = tir.decl_buffer((M, N), strides=[S, 1]).get_flattened_buffer()
    assert str(strided.shape[0]) == "(s * m)"


def test_memory_at_an_address() -> None:
    address = tir.Var("p", PointerType(PrimType("int32")))
    memory = tir.decl_buffer((N,), "int32", data=address)
    assert memory.data is address
    with pytest.raises(CompileError, match="data= is a variable of type 'handle'"):
        tir.decl_buffer((N,), "int32", data=N)


def test_elements_and_vectors() -> None:
    func = tir.parse("@T.prim_func\ndef f(A: T.Buffer((8,), \"float32\")):\n    A[0] = 1.0\n")
    (buffer,) = func.buffers
    assert str(buffer.vload([2], "float32x4")) == "A[ramp(2, 1, 4)]"
    assert repr(buffer.vstore([2], 1.0)) == "A[2] = 1.0"
    assert (buffer.READ, buffer.WRITE) == (1, 2)


@pytest.mark.parametrize("divide", [tir.div, tir.floordiv, tir.floormod, tir.truncdiv, tir.truncmod, tir.indexdiv])
def test_division_by_zero(divide: Callable[..., Any]) -> None:
    with pytest.raises(tvm.TVMError, match="5 is divided by zero"):
        divide(tir.const(5, "int32"), tir.const(0, "int32"))
    assert divide(tir.const(8, "int32"), 4) == divide(8, 4)
