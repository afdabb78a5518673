"""Programs that call registered functions (`call_packed`), return numbers (`T.ret`), and have attributes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.base.errors import CompileError, OptionError
from tilewright.runtime.functions import FunctionModule
from tilewright.tir.script import tir as T
from tilewright.tir.stmt import AttrStmt
from tilewright.tir.transform.lower_returns import lower_returns

TARGETS = ("llvm", "c")


@tvm.register_func("tests.packed.scale", override=True)
def scale(x: Any, y: Any, factor: float, word: str, flag: bool) -> int:
    assert (word, flag, type(factor)) == ("twice", True, float)
    tvm.nd.array(x.numpy() * factor).copyto(y)
    return 7


@pytest.mark.parametrize("target", TARGETS)
def test_an_extern_stage_calls_a_registered_function(target: str) -> None:
    n = te.var("n")
    a = te.placeholder((n, 3), name="A")
    b = te.extern(
        (n, 3), [a], lambda ins, outs: tir.call_packed("tests.packed.scale", ins[0], outs[0], 2.0, "twice", True),
        name="B")
    c = te.compute((n, 3), lambda i, j: b[i, j] + 1.0, name="C")
    f = tvm.build(te.create_schedule(c.op), [a, c], target)
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    x.flags.writeable = False
    got = np.zeros((4, 3), np.float32)
    f(x, got)
    np.testing.assert_array_equal(got, x * 2 + 1)


@T.prim_func
def with_calls(A: T.Buffer((8,), "float32"), n: T.int64) -> None:
    for i in T.serial(n):
        if T.call_packed("tests.packed.wanted", i) > 0:
            T.call_packed("tests.packed.note", A, A.data, i + 1, A[i])


def test_a_program_calls_functions_in_order(tmp_path: Path) -> None:
    assert str(tir.parse(str(with_calls))) == str(with_calls)
    seen: list[Any] = []

    @tvm.register_func("tests.packed.wanted", override=True)
    def wanted(i: int) -> int:
        return i % 2

    @tvm.register_func("tests.packed.note", override=True)
    def note(array: Any, address: Any, i: int, x: float) -> None:
        assert address.value == array.numpy.__self__._array.__array_interface__["data"][0]
        seen.append((array.shape, i, x))
        array[0] = 5.0

    module = tvm.build(with_calls, target="llvm")
    loaded = tvm.runtime.load_module(module.export_library(tmp_path / "f.so"))
    assert isinstance(loaded, FunctionModule)
    for f in (module, loaded):
        seen.clear()
        x = np.arange(8, dtype=np.float32)
        assert f(x, 4) is None
        assert seen == [((8,), 2, 1.0), ((8,), 4, 3.0)]
        assert x[0] == 5.0


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
def test_a_traced_value(dtype: str, capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[Any] = []
    tvm.register_func("tests.packed.observe", lambda *values: seen.append(values), override=True)
    tvm.register_func("tests.packed.thirteen", lambda value: 13, override=True)
    x = te.placeholder((2,), dtype, name="x")
    y = te.compute((2,), lambda i: tir.trace([i, x[i]], "tests.packed.observe") + tir.trace([x[i]]), name="y")
    z = te.compute((2,), lambda i: tir.trace([y[i]], "tests.packed.thirteen"), name="z")
    f = tvm.build(te.create_schedule(z.op), [x, y, z], "llvm")
    a, b, c = np.array([5, 7], dtype), np.zeros(2, dtype), np.zeros(2, dtype)
    f(a, b, c)
    assert seen == [(0, 5), (1, 7)]
    assert capsys.readouterr().out == ("[5.0]\n[7.0]\n" if "float" in dtype else "[5]\n[7]\n")
    np.testing.assert_array_equal(b, [10, 14])
    np.testing.assert_array_equal(c, [13, 13])
    with pytest.raises(CompileError, match=r"tir\.trace takes at least one value; give a list of them"):
        tir.trace([])


@pytest.mark.parametrize("is_ascend", [True, False])
def test_sorts_of_programs(is_ascend: bool) -> None:
    x = te.placeholder((2, 4, 3), name="x")
    n = te.placeholder((2, 3), "int32", name="n")

    def stage(name: str, given: list[te.Tensor], dtype: str) -> te.Tensor:
        return te.extern(
            (2, 4, 3), given, lambda ins, outs: tir.call_packed(
                f"tvm.contrib.sort.{name}", *ins, outs[0], 1, is_ascend), name=name, dtype=dtype)

    order, first = stage("argsort", [x], "int32"), stage("argsort_nms", [x, n], "int32")
    whole = stage("sort", [x], "float32")
    f = tvm.build(te.create_schedule([order.op, first.op, whole.op]), [x, n, order, first, whole], "llvm")
    data = np.random.default_rng(0).integers(0, 3, (2, 4, 3)).astype(np.float32)
    counts = np.array([[0, 1, 4], [3, 2, 9]], np.int32)
    a, b, c = np.zeros_like(data, "int32"), np.zeros_like(data, "int32"), np.zeros_like(data)
    f(data, counts, a, b, c)
    signed = data if is_ascend else -data
    np.testing.assert_array_equal(a, np.argsort(signed, axis=1, kind="stable"))
    np.testing.assert_array_equal(c, np.take_along_axis(data, a, axis=1))
    for i, j in np.ndindex(2, 3):
        k = min(int(counts[i, j]), 4)
        assert b[i, :, j].tolist() == [*np.argsort(signed[i, :k, j], kind="stable"), *range(k, 4)]


def test_exceptions_of_called_functions_end_the_call() -> None:
    calls: list[int] = []

    @tvm.register_func("tests.packed.wanted", override=True)
    def wanted(i: int) -> int:
        calls.append(i)
        raise KeyError("no")

    f = tvm.build(with_calls, target="llvm")
    with pytest.raises(KeyError, match="no"):
        f(np.zeros(8, np.float32), 4)
    assert calls == [0]
    missing = tvm.build(te_call("tests.packed.missing"), target="llvm")
    with pytest.raises(OptionError, match=r"there is no registered function 'tests.packed.missing'"):
        missing()


def test_functions_are_called_by_the_names_of_operators() -> None:
    @T.prim_func
    def by_name(n: T.int64) -> None:
        T.Call("void", tvm.ir.Op.get("tir.tvm_call_packed"), ["tests.packed.told", n, "twice"])
        T.Call("void", "tir.call_extern", ["srand", n])

    calls: list[Any] = []
    tvm.register_func("tests.packed.told", lambda *given: calls.append(given), override=True)
    tvm.build(by_name, target="llvm")(3)
    assert calls == [(3, "twice")]
    assert 'T.call_extern("void", "srand", n)' in str(by_name)


def te_call(*args: Any) -> tir.PrimFunc:
    return tir.PrimFunc([], tir.Evaluate(tir.call_packed(*args)))


def test_refused_calls() -> None:
    with pytest.raises(CompileError, match="call_packed takes the name of a registered function first, not 3"):
        tir.call_packed(3)
    @T.prim_func
    def nameless(A: T.Buffer((1,), "float32")) -> None:
        T.Call("int32", "tir.tvm_call_packed", [A.data])

    with pytest.raises(CompileError, match="a call in 'nameless' does not name the registered function"):
        tvm.build(nameless, target="llvm")
    value = tir.Broadcast(tir.const(1.0), 4)
    with pytest.raises(CompileError, match=r"call_packed takes numbers, strings, addresses and buffers; .* is float"):
        tvm.build(te_call("f", value), target="llvm")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["int8", "int32", "uint64", "float32", "float64", "float16"])
def test_a_function_returns_a_number(dtype: str, target: str) -> None:
    x, y = tir.Var("x", "float32"), tir.Var("y", "float32")
    body = tir.Evaluate(tir.ret(tir.Cast(dtype, x) + tir.Cast(dtype, y)))
    f = tvm.build(tir.PrimFunc([x, y], body).with_attr("global_symbol", "f"), target=target)
    assert f(1.0, 2.0) == 3


@T.prim_func
def first_negative(A: T.Buffer((8,), "float32")) -> None:
    for i in T.serial(8):
        if A[i] < 0.0:
            T.ret(T.int32(i))
        A[i] = 0.0
    T.ret(-1, dtype="int32")


def test_nothing_runs_after_a_return() -> None:
    assert str(tir.parse(str(first_negative))) == str(first_negative)
    assert str(lower_returns(first_negative)) == """@T.prim_func
def first_negative(A: T.Buffer((8,), "float32"), result: T.Buffer((1,), "int32")):
    returned = T.allocate((1,), "int32", "local")
    returned[0] = T.int32(0)
    for i in T.serial(8):
        if returned[0] == T.int32(0):
            if A[i] < 0.0:
                result[0] = T.cast(i, "int32")
                returned[0] = T.int32(1)
            if returned[0] == T.int32(0):
                A[i] = 0.0
    if returned[0] == T.int32(0):
        result[0] = T.int32(-1)"""
    f = tvm.build(first_negative, target="llvm")
    x = np.ones(8, np.float32)
    x[3] = -1
    assert f(x) == 3
    np.testing.assert_array_equal(x, [0, 0, 0, -1, 1, 1, 1, 1])
    assert f(np.ones(8, np.float32)) == -1


def test_a_return_in_a_branch() -> None:
    a, b = tir.Var("a", "float32"), tir.Var("b", "float32")
    ib = tir.ir_builder.create()
    with ib.if_scope(a > b):
        ib.emit(tir.ret(a))
    ib.emit(tir.ret(b))
    f = tvm.build(tir.PrimFunc([a, b], ib.get()), target="llvm")
    assert (f(1.0, 2.0), f(3.0, 2.0)) == (2.0, 3.0)


def test_refused_returns() -> None:
    a, b = tir.Var("a", "float32"), tir.Var("b", "int32")
    two = tir.stmt_seq(tir.IfThenElse(a > 0.0, tir.Evaluate(tir.ret(a))), tir.ret(b))
    with pytest.raises(CompileError, match="'main' returns values of different types: float32, int32; cast"):
        tvm.build(tir.PrimFunc([a, b], two), target="llvm")
    ib = tir.ir_builder.create()
    with ib.for_range(0, 4, kind="parallel"):
        ib.emit(tir.ret(a))
    with pytest.raises(CompileError, match=r"'main' has a T.ret in the parallel loop 'i'; store the value in a buffer"):
        tvm.build(tir.PrimFunc([a], ib.get()), target="llvm")


@T.prim_func
def attributed(A: T.Buffer((8,), "float32")) -> None:
    T.attr(A.data, "storage_alignment", 128)
    with T.attr("device", "device_id", 0):
        for i in T.serial(8):
            A[i] = 1.0


@T.prim_func
def threads(A: T.Buffer((8,), "float32")) -> None:
    bx = T.env_thread("blockIdx.x")
    T.launch_thread(bx, 2)
    with T.launch_thread("threadIdx.x", 4) as tx:
        A[bx * 4 + tx] = 1.0


def test_attributes_are_notes() -> None:
    assert isinstance(attributed.body, AttrStmt)
    assert attributed.body.attr_key == "storage_alignment"
    assert str(tir.parse(str(attributed))) == str(attributed)
    x = np.zeros(8, np.float32)
    tvm.build(attributed, target="llvm")(x)
    assert x.sum() == 8
    unknown = tir.AttrStmt(None, "async_scope", tir.const(1), tir.Evaluate(tir.const(0)))
    assert unknown.value is tir.const(1)
    with pytest.raises(CompileError, match="the attribute 'async_scope' in 'main' has no meaning on a CPU"):
        tvm.build(tir.PrimFunc([], unknown), target="llvm")


@T.prim_func
def with_addresses(a: T.handle, b: T.handle("float32"), n: T.int32) -> None:
    A = T.match_buffer(a, (8,), "float32")
    where: T.handle("float32") = T.call_extern("handle", "place", b)
    A[0] = T.call_pure_extern("float32", "f", where, n)


@T.prim_func
def reduced(A: T.Buffer((8,), "float32")) -> None:
    with T.attr(T.comm_reducer(lambda x, y: T.max(x, y + 0.0), [T.min_value("float32")]), "reduce_scope", "A"):
        A[0] = 1.0


def test_handles_without_buffers_are_numbers_that_no_call_has() -> None:
    assert [(p.name, p.dtype) for p in with_addresses.params] == [("A", "float32"), ("b", "handle"), ("n", "int32")]
    assert [p.name for p in with_addresses.scalars] == ["b", "n"]
    for f in (with_addresses, reduced):
        assert str(tir.parse(str(f))) == str(f)
    with pytest.raises(CompileError, match="parameter 'b' of 'with_addresses' is a handle without a buffer"):
        tvm.build(with_addresses, target="llvm")


def test_launched_threads_are_loops() -> None:
    assert str(threads) == """@T.prim_func
def threads(A: T.Buffer((8,), "float32")):
    for bx in T.serial(2, annotations={"thread": "blockIdx.x"}):
        for tx in T.serial(4, annotations={"thread": "threadIdx.x"}):
            A[bx * 4 + tx] = 1.0"""
    ib = tir.ir_builder.create()
    vx, out = te.thread_axis("vthread"), tir.decl_buffer((4,), "int64", name="out")
    ib.scope_attr(vx, "virtual_thread", 4)
    ib.buffer_ptr(out)[vx] = vx.var * 2
    got = np.zeros(4, np.int64)
    tvm.build(tir.PrimFunc([out], ib.get()), target="llvm")(got)
    assert got.tolist() == [0, 2, 4, 6]
    with pytest.raises(CompileError, match=r"scope_attr 'thread_extent' needs an axis from te.thread_axis, not None"):
        tir.ir_builder.create().scope_attr(None, "thread_extent", 4)
