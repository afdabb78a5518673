"""`tvm.lower` and `tvm.build`: native functions from schedules and loop programs, called, timed, saved and refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.base.errors import ArtifactError, CompileError, InputError, OptionError, ScheduleError, TargetError
from tilewright.compat.contrib import cc
from tilewright.runtime.elf_sections import add_manifest, manifests
from tilewright.runtime.functions import FunctionModule
from tilewright.scalar.expr import Buffer, Load, Var, as_expr
from tilewright.scalar.intrinsics import exp
from tilewright.tir.stmt import Evaluate, For, PrimFunc, Store
from tilewright.tir.transform.split_vector_elements import split_vector_elements

X, Y = np.arange(6, dtype="float32"), np.full(6, 0.5, "float32")


def addition(n: int = 6) -> tuple[te.Schedule, list[te.Tensor]]:
    a, b = te.placeholder((n,), name="A"), te.placeholder((n,), name="B")
    c = te.compute((n,), lambda i: a[i] + b[i], name="C")
    return te.create_schedule(c.op), [a, b, c]


def built() -> tvm.runtime.FunctionModule:
    return tvm.build(*addition(), target="llvm", name="add")


def test_calls_by_name_and_without() -> None:
    module = built()
    assert (module.entry_name, module.type_key, repr(module)) == ("add", "llvm", "FunctionModule(add for llvm)")
    assert repr(module["add"]) == "add(float32 A[6], float32 B[6], float32 C[6])"
    assert module.implements_function("add")
    assert not module.implements_function("sub")
    for call in (module, module["add"], module.get_function("add"), module.entry_func):
        out = tvm.nd.array(np.zeros(6, np.float32))
        call(tvm.nd.array(X), tvm.nd.array(Y), out)
        np.testing.assert_array_equal(out.numpy(), X + Y)


def test_arrays_of_any_layout() -> None:
    module = built()
    out = np.zeros(12, np.float32)
    module(np.repeat(X, 2)[::2], Y, out[1::2])
    np.testing.assert_array_equal(out, np.stack([np.zeros(6), X + Y], 1).reshape(-1))
    same = X.copy()
    module(same, same, same)
    np.testing.assert_array_equal(same, 2 * X)
    unaligned = np.zeros(29, np.uint8)[5:].view(np.float32)
    module(X, Y, unaligned)
    np.testing.assert_array_equal(unaligned, X + Y)


def test_arguments_that_do_not_fit() -> None:
    module = built()
    out = np.zeros(6, np.float32)
    with pytest.raises(
        InputError, match=r"add takes 3 arrays and was given 2: add\(float32 A\[6\], float32 B\[6\], float32 C\[6\]\)"
    ):
        module(X, out)
    with pytest.raises(
        InputError,
        match=r"argument 1 of add, 'B', has dtype float64, expected float32 B\[6\]; convert it with "
        r".astype\('float32'\)"
    ):
        module(X, Y.astype("float64"), out)
    with pytest.raises(InputError, match=r"argument 0 of add, 'A', has shape \[5\], expected float32 A\[6\]"):
        module(X[:5], Y, out)
    with pytest.raises(InputError, match=r"argument 1 of add, 'B', is a list; pass an array: tvm.nd.array"):
        module(X, [1.0] * 6, out)
    out.flags.writeable = False
    with pytest.raises(
        InputError, match=r"argument 2 of add, 'C', is written by the function, but this array is read-only"
    ):
        module(X, Y, out)
    with pytest.raises(InputError, match="the module has no function 'sub'; it has add"):
        module["sub"]


def test_sources() -> None:
    module = built()
    assert "define void @add" in module.get_source()
    assert module.get_source() == module.get_source("ll")
    assert "add:" in module.get_source("asm")
    assert "C[i] = A[i] + B[i]" in module.get_source("tir")
    with pytest.raises(OptionError, match="there is no source 'cuda' of this module; there is ll, asm, tir"):
        module.get_source("cuda")


def test_sources_and_objects_are_saved_by_extension(tmp_path: Path) -> None:
    module = built()
    assert module.save(tmp_path / "add.ll").read_text() == module.get_source("ll")
    assert module.save(tmp_path / "add.s").read_text() == module.get_source("asm")
    assert module.save(tmp_path / "add.o").read_bytes()[64:].startswith(module.artifact.objects[0][64:])
    with pytest.raises(OptionError, match="there is no source 'c' of this module; there is ll, asm, tir"):
        module.save(tmp_path / "add.c")


@pytest.mark.slow
def test_objects_that_a_compiler_links_come_back(tmp_path: Path) -> None:
    plus = tvm.build(*addition(), target="llvm", name="plus")
    objects = [built().save(tmp_path / "add.o"), plus.save(tmp_path / "plus.o")]
    cc.create_shared(tmp_path / "both.so", objects)
    module = tvm.runtime.load_module(tmp_path / "both.so")
    assert [*module.artifact.manifest.functions] == ["add", "plus"]
    for name in ("add", "plus"):
        out = np.zeros(6, np.float32)
        module[name](X, Y, out)
        np.testing.assert_array_equal(out, X + Y)
    source = tmp_path / "other.c"
    source.write_text("int other(void) { return 1; }\n")
    cc.create_shared(tmp_path / "other.so", source)
    with pytest.raises(ArtifactError, match="does not end in the mark"):
        tvm.runtime.load_module(tmp_path / "other.so")
    assert add_manifest(b"no object", "{}") == b"no object" and manifests(b"no object") == []


def test_timing() -> None:
    module = built()
    for name in ("add", "__tvm_main__"):
        times = module.time_evaluator(name, tvm.cpu(0), number=3, repeat=4)(X, Y, np.zeros(6, np.float32))
        assert len(times.results) == 4
        assert times.mean > 0
    calls: list[Any] = []
    tvm.register_func("testing.before_timing", lambda *args: calls.append(args), override=True)
    timed = module.time_evaluator("add", tvm.cpu(0), number=1, repeat=2, f_preproc="testing.before_timing")
    assert len(timed(X, Y, np.zeros(6, np.float32)).results) == 2
    assert [len(args) for args in calls] == [3, 3]


@pytest.mark.parametrize("extension", [".so", ".tar"])
def test_a_library_of_functions_comes_back(tmp_path: Path, extension: str) -> None:
    path = built().export_library(tmp_path / f"add{extension}")
    module = tvm.runtime.load_module(path)
    assert isinstance(module, tvm.runtime.FunctionModule)
    out = np.zeros(6, np.float32)
    module["add"](X, Y, out)
    np.testing.assert_array_equal(out, X + Y)
    with pytest.raises(InputError, match="takes 3 arrays"):
        module(X)
    with pytest.raises(ArtifactError, match="a library has no source; build the function again"):
        module.get_source()
    with pytest.raises(
        ArtifactError, match=r"a library of functions \(add\), not a model; read it with runtime.load_module"
    ):
        tvm.load(path)


def test_lowering_gives_a_module_that_can_be_built() -> None:
    s, args = addition(10)
    s[args[2]].vectorize(s[args[2]].split(args[2].op.axis[0], 4)[1])
    simple, whole = tvm.lower(s, args, simple_mode=True), tvm.lower(s, args, name="sum")
    assert "if " in repr(simple["main"])
    assert list(whole) == ["sum"]
    x, y = np.arange(10, dtype="float32"), np.ones(10, np.float32)
    for mod in (simple, whole, whole["sum"]):
        out = np.zeros(10, np.float32)
        tvm.build(mod, target="llvm")(x, y, out)
        np.testing.assert_array_equal(out, x + y)


def test_several_functions() -> None:
    functions = {"first": tvm.lower(*addition())["main"], "second": tvm.lower(*addition(4))["main"]}
    with tvm.target.Target("llvm"):
        module = tvm.build(tvm.IRModule(functions))
    out = np.zeros(4, np.float32)
    module["second"](X[:4], Y[:4], out)
    np.testing.assert_array_equal(out, X[:4] + Y[:4])
    assert module.entry_name == "first"


def test_a_list_of_programs_and_the_order_of_their_functions() -> None:
    programs = [tvm.lower(*addition(), name=name) for name in ("zebra", "ant")]
    module = tvm.build(programs, "llvm")
    text = module.get_source("ll")
    assert module.entry_name == "zebra" and text.index("@ant(") < text.index("@zebra(")
    out = np.zeros(6, np.float32)
    module["ant"](X, Y, out)
    np.testing.assert_array_equal(out, X + Y)
    with pytest.raises(CompileError, match=r"two of the programs have a function 'ant'; name them by tvm.lower"):
        tvm.build([programs[1], programs[1]])


def test_builds_that_cannot_be() -> None:
    s, args = addition()
    with pytest.raises(CompileError, match=r"a te schedule needs args=: its tensors, in the order of the call"):
        tvm.build(s)
    tvm.build(tvm.lower(s, args), args)
    with pytest.raises(
        CompileError, match=r"a te schedule, a PrimFunc or an IRModule of them can be built, not a str"
    ):
        tvm.build("main")  # type: ignore[arg-type]
    with pytest.raises(
        CompileError, match=r"binds: 'A' is bound to a int; create a buffer with tir.decl_buffer\(A.shape, A.dtype, …\)"
    ):
        tvm.build(s, args, binds={args[0]: 1})
    with pytest.raises(CompileError, match=r"binds: buffer 'x: float32\[5\]' does not match Tensor\(A: float32\[6\]\)"):
        tvm.build(s, args, binds={args[0]: tvm.tir.decl_buffer((5,), "float32", "x")})
    with pytest.raises(
        CompileError, match="binds= belongs to a te schedule; the buffers of a IRModule are its parameters"
    ):
        tvm.build(tvm.lower(s, args), binds={args[0]: 1})
    with pytest.raises(
        CompileError,
        match=r"function 'main' of the module is a graph, not a loop program; graphs are built with relay.build"
    ):
        tvm.build(tvm.IRModule.from_expr(tvm.relay.var("x", shape=(2,))))
    with pytest.raises(CompileError, match="the module has no functions to build"):
        tvm.build(tvm.IRModule())
    with pytest.raises(TargetError, match="target_host is 'llvm -mcpu=x86-64'"):
        tvm.build(s, args, "llvm", target_host="llvm -mcpu=x86-64")
    n = Var("n")
    a = te.placeholder((n * 2,), name="A")
    b = te.compute((n * 2,), lambda i: a[i], name="B")
    with pytest.raises(
        CompileError,
        match=r"size 'n' of 'default_function' is not a dimension of an argument, so a call does not determine it; "
        r"make it an argument: args=\[n, …\]"
    ):
        tvm.build(te.create_schedule(b.op), [a, b])
    doubled = tvm.build(te.create_schedule(b.op), [n, a, b])
    out = np.zeros(6, np.float32)
    doubled(3, X, out)
    np.testing.assert_array_equal(out, X)
    with pytest.raises(
        InputError,
        match=r"argument 1 of default_function, 'A', has shape \[6\], expected float32 A\[\(n \* 2\)\] where n = 4"
    ):
        doubled(4, X, out)


def vectors() -> tuple[te.Schedule, list[te.Tensor]]:
    """Twice a matrix of vectors, plus one, by way of an inner tensor."""
    a = te.placeholder((5, 8), name="A", dtype="float32x2")
    b = te.compute((5, 8), lambda i, j: a[i, j] + a[i, j], name="B")
    c = te.compute((5, 8), lambda i, j: b[i, j] + 1.0, name="C")
    return te.create_schedule(c.op), [a, c]


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("kind", ["serial", "vectorize", "parallel", "unroll"])
def test_elements_may_be_vectors(kind: str, target: str) -> None:
    s, args = vectors()
    if kind != "serial":
        getattr(s[args[1]], kind)(args[1].op.axis[1])
    given = np.random.default_rng(0).random((5, 8, 2), np.float32)
    a, c = tvm.nd.empty((5, 8), "float32x2").copyfrom(given), tvm.nd.empty((5, 8), "float32x2")
    built = tvm.build(s, args, target)
    built(a, c)
    np.testing.assert_array_equal(c.numpy(), given * 2 + 1)
    apart = np.zeros((10, 8, 2), np.float32)[::2]
    built(given, apart)
    np.testing.assert_array_equal(apart, given * 2 + 1)
    for wrong in (given[..., 0], np.zeros((5, 8, 3), np.float32), given.repeat(2, -1)[..., ::2]):
        with pytest.raises(
            InputError, match=r"expected float32x2 A\[5, 8\]: its last axis must hold the 2 lanes, side by side"
        ):
            built(wrong, c)


def test_vectors_become_a_loop_over_lanes() -> None:
    a = te.placeholder((5, 8), name="A", dtype="float32x4")
    c = te.compute((5, 8), lambda i, j: a[i, j] + 1.0, name="C")
    lowered = tvm.lower(te.create_schedule(c.op), [a, c])["main"]
    assert str(split_vector_elements(lowered)).strip() == """\
@T.prim_func
def main(A: T.Buffer((5, 8, 4), "float32"), C: T.Buffer((5, 8, 4), "float32")):
    for i in T.serial(5):
        for j in T.serial(8):
            for lane in T.vectorized(4):
                C[i, j, lane] = A[i, j, lane] + 1.0"""


def test_vectors_and_numbers_do_not_meet() -> None:
    wide, other, i = Buffer("A", (8,), "float32x2"), Buffer("B", (8,), "float32"), Var("i")
    body = For(i, as_expr(0), as_expr(8), "serial", Store(other, Load(wide, (i,)), (i,)))
    with pytest.raises(
        ScheduleError,
        match="'A' holds float32x2, which cannot be used in 'B', float32; read scalars, or vectors with the "
        "same number of lanes"
    ):
        split_vector_elements(PrimFunc("f", (wide, other), body))


def test_values_of_vectors_that_nothing_uses_are_removed() -> None:
    wide = Buffer("A", (8,), "float32x2")
    func = PrimFunc("f", (wide,), Evaluate(exp(Load(wide, (as_expr(0),)))))
    assert str(split_vector_elements(func)).strip() == """\
@T.prim_func
def f(A: T.Buffer((8, 2), "float32")):
    T.evaluate(0)"""


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_assumptions_have_no_code(target: str) -> None:
    doubled = tir.parse('''
@T.prim_func
def doubled(A: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32")):
    for i in T.serial(4):
        T.assume(A[i] >= 0)
    for i in T.serial(4):
        B[i] = A[i] * 2''')
    x, y = np.arange(4, dtype=np.int32), np.zeros(4, np.int32)
    tvm.build(doubled, target=target)(x, y)
    np.testing.assert_array_equal(y, 2 * x)


def test_functions_of_imported_modules(tmp_path: Path) -> None:
    a = te.placeholder((4,), name="a")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="b")
    one, other = (tvm.build(te.create_schedule(b.op), [a, b], "llvm", name=name) for name in ("one", "other"))
    one.import_module(other)
    assert one.imported_modules == [other] and not one.implements_function("other")
    assert one.implements_function("other", True)
    x, y = np.zeros(4, np.float32), np.zeros(4, np.float32)
    one.get_function("other", query_imports=True)(x, y)
    np.testing.assert_array_equal(y, np.ones(4))
    assert one.is_runnable and one.is_dso_exportable and not one.is_binary_serializable
    with pytest.raises(InputError, match="the module has no function 'other'"):
        one.get_function("other")
    with pytest.raises(ArtifactError, match="this one imports 1 more"):
        one.export_library(tmp_path / "one.so")
    other.export_library(tmp_path / "other.so")
    loaded = tvm.runtime.load_module(tmp_path / "other.so")
    assert isinstance(loaded, FunctionModule) and not loaded.is_dso_exportable


def test_llvm_vectorizes_the_loops_that_no_schedule_vectorized() -> None:
    n = te.var("n")
    a, b = (te.placeholder((n,), name=name) for name in "ab")
    c = te.compute((n,), lambda i: a[i] * b[i], name="c")
    plain = tvm.build(te.create_schedule(c.op), [a, b, c], "llvm -mtriple=aarch64-linux-gnu -mattr=+sve")
    assert re.search(r"fmul\tz\d+\.s, ", plain.get_source("asm"))
    s, args = addition(64)
    s[args[2]].vectorize(s[args[2]].split(args[2].op.axis[0], 4)[1])
    scheduled = tvm.build(s, args, "llvm -mtriple=aarch64-linux-gnu -mattr=+sve")
    assert ("scalar-loops" in plain.get_source("ll"), "scalar-loops" in scheduled.get_source("ll")) == (True, False)
    own = tvm.build(te.create_schedule(c.op), [a, b, c], "llvm")
    for size in (0, 1, 7, 100):
        x, y = np.random.rand(2, size).astype("float32")
        z = np.full(size, np.nan, "float32")
        own(x, y, z)
        np.testing.assert_array_equal(z, x * y)


def test_sums_keep_their_order_when_llvm_vectorizes() -> None:
    k = te.reduce_axis((0, 1000), name="k")
    a = te.placeholder((1000,), name="a")
    total = te.compute((1,), lambda i: te.sum(a[k], k), name="total")
    f = tvm.build(te.create_schedule(total.op), [a, total], "llvm")
    x, y = np.random.rand(1000).astype("float32"), np.zeros(1, "float32")
    f(x, y)
    expected = np.float32(0)
    for v in x:
        expected += v
    assert y[0] == expected


def test_a_single_lowered_function_gets_the_given_name() -> None:
    func = tvm.lower(*addition(), name="add")["add"]
    assert [f.name for _, f in tvm.lower(func).items()] == ["main"]
    assert [f.name for _, f in tvm.lower(func, name="other").items()] == ["other"]
    assert [f.name for _, f in tvm.lower(tvm.IRModule({"add": func})).items()] == ["add"]


def test_a_mapping_has_the_module_of_one_target() -> None:
    s, args = addition()
    mod = tvm.lower(s, args, name="add")
    out = np.zeros(6, "float32")
    tvm.build({"llvm": mod}, runtime=tvm.relay.backend.Runtime("cpp"))["add"](X, Y, out)
    assert np.array_equal(out, X + Y)
    with pytest.raises(TargetError, match="programs for 2 targets were given; build those of each target on their own"):
        tvm.build({"llvm": mod, "c": mod})


def test_addresses_and_prefetches_by_the_names_of_scripts() -> None:
    ib = tvm.tir.ir_builder.create()
    a = ib.pointer("float32", name="a")
    address = tvm.tir.call_intrin("handle", "tir.address_of", a[1])
    for locality in (3, 0):
        ib.emit(tvm.tir.Evaluate(tvm.tir.Call("int32", "tir.prefetch", [address, 0, locality, 1])))
    ib.emit(tvm.tir.call_extern("int32", "abs", address))
    func = tvm.tir.PrimFunc([a], ib.get()).with_attr("global_symbol", "main")
    assert "T.prefetch(a[1], 1" in str(func) and "T.prefetch(a[1], 3" in str(func)
    assert "llvm.prefetch" in tvm.build(func, target="llvm").get_source()
    assert tvm.DataType("int1") == "bool"
