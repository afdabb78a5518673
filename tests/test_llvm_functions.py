"""Calls of LLVM's own functions: `tir.call_llvm_intrin`, `tir.call_llvm_pure_intrin`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.base.errors import CompileError, OptionError
from tilewright.compat.target.codegen import llvm_get_intrinsic_name, llvm_lookup_intrinsic_id
from tilewright.ir.structural import assert_structural_equal

TWO = tir.const(2, "uint32")


def leading_zeros(dtype: str, name: str = "llvm.ctlz") -> Any:
    """Return a schedule and its arguments: the leading zeros of eight numbers."""
    a = te.placeholder((8,), dtype, name="a")
    b = te.compute((8,), lambda i: tir.call_llvm_pure_intrin(dtype, name, TWO, a[i], tir.const(False)), name="b")
    return te.create_schedule(b.op), [a, b]


def build(dtype: str, name: str, target: str) -> Any:
    s, args = leading_zeros(dtype, name)
    return tvm.build(s, args, target)


@pytest.mark.parametrize(
    ("dtype", "name"), [("int32", "llvm.ctlz"), ("int64", "llvm.ctlz"), ("int32", "llvm.ctlz.i32")])
def test_leading_zeros(dtype: str, name: str) -> None:
    s, args = leading_zeros(dtype, name)
    s[args[1]].vectorize(args[1].op.axis[0])
    x, out = np.arange(8, dtype=dtype), np.zeros(8, dtype)
    tvm.build(s, args, "llvm")(x, out)
    assert out.tolist() == [int(dtype[3:]) - int(n).bit_length() for n in x]


def test_vectors() -> None:
    a, b = tir.decl_buffer((8,), "uint8", name="a"), tir.decl_buffer((8,), "uint8", name="b")
    ones = tir.call_llvm_pure_intrin(
        "uint8x8", "llvm.ctpop.v8i8", tir.const(1, "uint32"), a.vload([0], "uint8x8"))
    body = b.vstore([0], ones)
    f = tvm.build(tir.PrimFunc([a, b], body).with_attr("global_symbol", "main"), target="llvm")
    x, out = np.arange(8, dtype=np.uint8), np.zeros(8, np.uint8)
    f(x, out)
    assert out.tolist() == [int(n).bit_count() for n in x]


def test_text() -> None:
    s, args = leading_zeros("int32")
    func = tvm.lower(s, args)["main"]
    assert 'T.call_llvm_pure_intrin("int32", "llvm.ctlz", T.uint32(2), a[i], False)' in str(func)
    assert_structural_equal(tir.parse(str(func)), func)


def test_names_and_numbers() -> None:
    number = llvm_lookup_intrinsic_id("llvm.x86.sse2.pmadd.wd")
    assert number and llvm_get_intrinsic_name(number) == "llvm.x86.sse2.pmadd.wd"
    assert llvm_lookup_intrinsic_id("llvm.x86.avx512.vpdpbusd.512")  # LLVM itself ends the process for no arguments
    assert llvm_lookup_intrinsic_id("llvm.nothing") == llvm_lookup_intrinsic_id("x) {") == 0
    with pytest.raises(OptionError, match="7 is not the number of a function of LLVM; llvm_lookup_intrinsic_id gives"):
        llvm_get_intrinsic_name(7)


def test_calls_that_cannot_be() -> None:
    with pytest.raises(CompileError, match=r"takes the name of a function, such as 'llvm\.ctlz', .* is 'ctlz'"):
        tir.call_llvm_intrin("int32", "ctlz", TWO, 1)
    with pytest.raises(CompileError, match=r"LLVM has no function 'llvm\.nothing'"):
        build("int32", "llvm.nothing", "llvm")
    with pytest.raises(CompileError, match=r"LLVM's function 4217 is given by its number, which differs"):
        build("int32", "4217", "llvm")
    with pytest.raises(CompileError, match=r"'llvm\.x86\S+\.512' does not take \(i32, i1\) and return i32"):
        build("int32", "llvm.x86.avx512.vpdpbusd.512", "llvm")
    with pytest.raises(CompileError, match=r"'llvm\.ctlz' is a function of LLVM, which C does not have; build for"):
        build("int32", "llvm.ctlz", "c")
    a, b = te.placeholder((8,), "int32", name="a"), te.placeholder((8,), "int64", name="b")

    def zeros(x: Any) -> Any:
        return tir.call_llvm_pure_intrin(x.dtype, "llvm.ctlz", TWO, x, tir.const(False)).astype("int64")

    c = te.compute((8,), lambda i: zeros(a[i]) + zeros(b[i]), name="c")
    with pytest.raises(CompileError, match=r"'llvm\.ctlz' is called with several types; write the types in its name"):
        tvm.build(te.create_schedule(c.op), [a, b, c], "llvm")


def test_a_function_with_the_name_of_a_called_function() -> None:
    x = te.placeholder((8,), "float64", name="x")
    y = te.compute((8,), lambda i: te.tan(x[i]), name="y")
    with pytest.raises(CompileError, match=r"function 'tan' has the name of a C function that the program"):
        tvm.build(te.create_schedule(y.op), [x, y], "llvm", name="tan")


def test_a_call_for_which_llvm_ends_its_process_is_an_error() -> None:
    ib = tir.ir_builder.create()
    a: Any = ib.pointer("uint8", name="a")
    ib.emit(tir.call_llvm_intrin("", "llvm.va_start", tir.const(1, "uint32"), a.asobject().data))
    func = tir.PrimFunc([a], ib.get()).with_attr("global_symbol", "main")
    with pytest.raises(CompileError, match="LLVM refuses the calls of its functions: va_start called in a non-varargs"):
        tvm.build(tvm.IRModule.from_expr(func), None, "llvm")
