"""C text of loop programs: the same results as the interpreter of the loop language, no warnings, and refusals by
name."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tilewright as tvm
from c_native import CFunctions
from codegen_native import doubles_between_halves, run
from test_codegen_random import SIZE, Program
from tilewright import relay, te
from tilewright.backends.cpu.c.codegen import emit_module
from tilewright.backends.cpu.c.compile import STANDARD, Compiler, compile_c, identity_of
from tilewright.backends.cpu.c.helpers import prelude
from tilewright.base.errors import ArtifactError, CompileError, InternalError, TargetError
from tilewright.base.types import DataType
from tilewright.compat.target import Target
from tilewright.relay.expr import Function, If, var
from tilewright.relay.expr import const as constant
from tilewright.runtime.functions import FunctionModule
from tilewright.scalar import expr as E
from tilewright.scalar import intrinsics as I
from tilewright.scalar.expr import Buffer, Var, as_expr, const
from tilewright.scalar.intrinsics import horizontal_max, horizontal_min, reinterpret
from tilewright.tir import interpreter
from tilewright.tir.stmt import SERIAL, Evaluate, For, Let, PrimFunc, Seq, Store
from tilewright.tir.transform.remove_dead_memory import remove_dead_memory
from tilewright.tir.transform.scalarize import scalarize
from tilewright.tir.transform.simplify import simplify


def scalars(func: PrimFunc) -> PrimFunc:
    return remove_dead_memory(simplify(scalarize(func)))


def programs(seeds: range) -> list[PrimFunc]:
    """Random programs with loops, branches, vectors, masks and register tiles, of `test_codegen_random`."""
    return [replace(Program(seed).func(), name=f"program_{seed}") for seed in seeds]


def check(seeds: range) -> str:
    funcs = programs(seeds)
    code = CFunctions([scalars(f) for f in funcs])
    for seed, func in zip(seeds, funcs, strict=True):
        numbers = np.random.default_rng(seed)
        arrays = [numbers.integers(-20, 20, SIZE).astype("int32") for _ in range(4)]
        expected, found = [a.copy() for a in arrays], [a.copy() for a in arrays]
        with np.errstate(all="ignore"):
            interpreter.run(func, expected)
        code(func.name, *found)
        for want, got in zip(expected, found, strict=True):
            np.testing.assert_array_equal(got, want, err_msg=f"the program of seed {seed}")
    code.close()
    return code.text


def warnings_of(text: str, compiler: str, folder: Path, *options: str) -> str:
    (folder / "code.c").write_text(text)
    done = subprocess.run([
        compiler, *STANDARD, *options, "-c", "code.c", "-o", "code.o"
    ], cwd=folder, capture_output=True, text=True, timeout=200,
                          stdin=subprocess.DEVNULL, check=False)
    return done.stderr


@pytest.mark.slow
def test_random_programs(tmp_path: Path) -> None:
    text = check(range(24))
    for compiler in filter(None, map(shutil.which, ("gcc", "clang"))):
        assert warnings_of(text, compiler, tmp_path, "-O1") == ""


@pytest.mark.slow
def test_many_random_programs() -> None:
    check(range(24, 260))


def test_all_functions_of_the_prelude(tmp_path: Path) -> None:
    """Those that few programs need, too, without a warning but that nobody calls them."""
    kinds = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
    names = {
        f"{what}_{k}" for what in ("truncdiv", "truncmod", "floordiv", "floormod", "max", "min", "shl", "power")
        for k in kinds
    }
    names |= {f"{what}_{k}" for what in ("add", "sub", "mul", "abs") for k in ("i32", "i64")} | {
        f"{what}_{k}" for what in ("isnan", "isinf", "sigmoid", "rsqrt", "fma") for k in ("f32", "f64")
    }
    names |= {
        "f32_of_f16", "f16_of_f32", "odd_f32_of_f64", "f32_of_bf16", "bf16_of_f32", "dot2", "dot4", "dot4_x8",
        "dot4_x16", "word", "pair", "high_product", "doubled_high_product", "multiply_add"
    }
    text = "\n".join(
        ["#include <math.h>", "#include <stdbool.h>", "#include <stdint.h>", "#include <string.h>", *prelude(names), ""]
    )
    for compiler in filter(None, map(shutil.which, ("gcc", "clang"))):
        assert warnings_of(text, compiler, tmp_path, "-O1", "-Wno-unused-function") == ""
    with pytest.raises(InternalError, match="generated C calls 'cube_f32', which has no definition"):
        prelude({"cube_f32"})


def elementwise(name: str, value: E.PrimExpr, index: Var, reads: list[Buffer], dtype: str, count: int) -> PrimFunc:
    out = Buffer("out", (count,), dtype)
    return PrimFunc(name, (*reads, out), For(index, as_expr(0), as_expr(count), SERIAL, Store(out, value, (index,))))


def test_halves_of_every_bit_pattern() -> None:
    i, bits = Var("i"), np.arange(1 << 16, dtype=np.uint16)
    half, brain = Buffer("half", (1 << 16,), "float16"), Buffer("brain", (1 << 16,), "bfloat16")
    kinds = (half, brain)
    widened = [elementwise(f"widen_{b.name}", E.cast("float32", b[i]), i, [b], "float32", 1 << 16) for b in kinds]
    reals = Buffer("reals", (1 << 16,), "float32")
    rounded = [
        elementwise(f"round_{b.name}", E.cast(b.dtype, reals[i]), i, [reals], str(b.dtype), 1 << 16) for b in kinds
    ]
    code = CFunctions([*widened, *rounded])
    random = np.random.default_rng(0).integers(0, 1 << 32, 1 << 16, dtype=np.uint64).astype(np.uint32).view(np.float32)
    near = (np.arange(1 << 16, dtype=np.uint32) * 0x10001).view(np.float32)  # ties and subnormal numbers among them
    for b in kinds:
        kind, found = b.dtype.numpy(), np.empty(1 << 16, np.float32)
        code(f"widen_{b.name}", bits, found)
        np.testing.assert_array_equal(found, bits.view(kind).astype(np.float32))
        for given in (random, near):
            short = np.empty(1 << 16, np.uint16)
            code(f"round_{b.name}", given, short)
            with np.errstate(all="ignore"):
                wanted = given.astype(kind)
            number = ~np.isnan(given)
            np.testing.assert_array_equal(short[number], wanted.view(np.uint16)[number])
            assert np.isnan(short.view(kind)[~number].astype(np.float32)).all()
    code.close()


def test_doubles_are_rounded_once_to_half_precision() -> None:
    values, i = doubles_between_halves(), Var("i")
    x = Buffer("x", values.shape, "float64")
    code, found = CFunctions(
        [elementwise("halve", E.cast("float16", x[i]), i, [x], "float16", values.size)]
    ), np.empty(values.size, np.float16)
    code("halve", values, found)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found, values.astype(np.float16))
    code.close()


def test_integers_wrap_around_and_divide_by_zero() -> None:
    i, edges = Var("i"), [-(1 << 31), -(1 << 31) + 1, -7, -1, 0, 1, 2, 7, (1 << 31) - 1]
    a, b = Buffer("a", (81,), "int32"), Buffer("b", (81,), "int32")
    operations = {
        f.__name__: f(a[i], b[i])
        for f in (E.add, E.sub, E.mul, E.floordiv, E.floormod, E.truncdiv, E.truncmod, E.minimum)
    }
    funcs = [elementwise(f"do_{name}", value, i, [a, b], "int32", 81) for name, value in operations.items()]
    funcs.append(elementwise("do_power", I.pow(a[i], b[i]), i, [a, b], "int32", 81))
    code = CFunctions(funcs)
    x, y = (np.ascontiguousarray(g.ravel(), np.int32) for g in np.meshgrid(edges, edges))
    for func in funcs:
        wanted, found = np.empty(81, np.int32), np.empty(81, np.int32)
        run(func, x, y, wanted)  # by LLVM
        code(func.name, x, y, found)
        np.testing.assert_array_equal(found, wanted, err_msg=func.name)
    code.close()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_remainders_of_floats_are_those_of_the_c_library(dtype: str) -> None:
    values = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e8, -1e8, 7, -7, 5.3, 3e38, 1e-3, 1], dtype)
    x, y = (np.ascontiguousarray(g.ravel()) for g in np.meshgrid(values, values))
    i, a, b = Var("i"), Buffer("a", x.shape, dtype), Buffer("b", x.shape, dtype)
    funcs = [elementwise(f"do_{f.__name__}", f(a[i], b[i]), i, [a, b], dtype, x.size) for f in (E.truncmod, E.floormod)]
    code = CFunctions(funcs)
    for func, meaning in zip(funcs, (np.fmod, np.mod), strict=True):
        found = np.empty_like(x)
        code(func.name, x, y, found)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(found, meaning(x, y), err_msg=func.name)
    code.close()


def matmul() -> tuple[te.Schedule, list[te.Tensor]]:
    n = te.var("n")
    a, b = te.placeholder((n, 16), name="A"), te.placeholder((16, 24), name="B")
    k = te.reduce_axis((0, 16), "k")
    c = te.compute((n, 24), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((n, 24), lambda i, j: te.tanh(c[i, j]) * c[i, j], name="D")
    s = te.create_schedule(d.op)
    s[d].vectorize(s[d].split(d.op.axis[1], 8)[1])
    s[d].parallel(d.op.axis[0])
    return s, [a, b, d]


def test_a_schedule_as_c_and_back(tmp_path: Path) -> None:
    s, args = matmul()
    module = tvm.build(s, args, "c", name="matmul")
    text = module.get_source()
    assert text == module.get_source("c")
    assert module.type_key == "c"
    assert "for (int64_t k = 0; k < 16; ++k)" in text
    assert "context->parallel_for(" in text
    numbers = np.random.default_rng(0)
    x, y = numbers.standard_normal((5, 16), np.float32), numbers.standard_normal((16, 24), np.float32)
    want, found = np.tanh(x @ y) * (x @ y), np.zeros((5, 24), np.float32)
    module(x, y, found)
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)
    path = module.export_library(tmp_path / "matmul.c")
    assert path.read_text() == text
    again = tvm.runtime.load_module(path)
    assert isinstance(again, FunctionModule)
    found[:] = 0
    again["matmul"](x, y, found)
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)
    path.write_text(text.replace("tanhf(t)", "(tanhf(t) + 1.0f)"))
    changed = tvm.runtime.load_module(path)
    assert isinstance(changed, FunctionModule)
    changed(x, y, found)
    np.testing.assert_allclose(found, want + x @ y, rtol=1e-5, atol=1e-5)
    path.write_text(text.replace("tanhf(t)", "tanhf(t"))
    with pytest.raises(CompileError, match=r"matmul\.c: generated C could not be compiled"):
        tvm.runtime.load_module(path)
    path.write_text("int x;")
    with pytest.raises(ArtifactError, match="the C text lacks the comment at its end that declares its functions"):
        tvm.runtime.load_module(path)
    library = module.export_library(tmp_path / "matmul.so")
    tvm.runtime.load_module(library)["matmul"](x, y, found)
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


def test_a_network_with_control_flow() -> None:
    """Its kernels are C, what is around them LLVM's."""
    x = var("x", shape=(7,))
    body = If(
        relay.less(relay.sum(x), constant(np.float32(0))), relay.exp(x),
        relay.add(relay.sigmoid(x), constant(np.float32(1)))
    )
    found = relay.build(Function((x,), body), target="c").executable
    for sign in (-1, 1):
        given = np.full(7, sign * 0.25, np.float32)
        np.testing.assert_allclose(found(given), np.exp(given) if sign < 0 else 1 / (1 + np.exp(-given)) + 1, rtol=1e-6)


def test_the_maximum_of_lanes_keeps_what_is_no_number() -> None:
    a, out = Buffer("a", (8,), "float32"), Buffer("out", (2,), "float32")
    lanes = a[E.Ramp(as_expr(0), 1, 8)]
    stores = [
        Store(out, E.Call("float32", op, [lanes]), (as_expr(k),)) for k,
        op in enumerate((horizontal_max, horizontal_min))
    ]
    code = CFunctions([scalars(PrimFunc("ends", (a, out), Seq(tuple(stores))))])
    for at in (None, 0, 3, 7):
        given, found = np.arange(8, dtype=np.float32) % 5, np.zeros(2, np.float32)
        if at is not None:
            given[at] = np.nan
        code("ends", given, found)
        np.testing.assert_array_equal(found, [4, 0] if at is None else [np.nan, np.nan])
    code.close()


def test_large_values_stay_small_texts() -> None:
    """A value that is used twice, and that again and again, is written once; behind a condition, too."""
    i, a = Var("i"), Buffer("a", (8,), "float32")
    value: E.PrimExpr = a[i]
    for _ in range(40):
        value = value * value + 1.0
    guarded = E.if_then_else(i < 4, value, const(0.0, "float32"))
    for v in (value, guarded):
        assert len(emit_module([elementwise("large", v, i, [a], "float32", 8)])) < 10_000


def test_names_and_types_that_c_does_not_have() -> None:
    i, small, a = Var("for"), Buffer("small", (4,), "float8_e4m3fn"), Buffer("int", (4,), "int32")
    text = emit_module([elementwise("plain", a[i] * 2, i, [a], "int32", 4)])
    assert re.search(r"for \(int64_t for_ = 0;", text)
    assert "const int32_t *restrict int_" in text
    with pytest.raises(CompileError, match="the C back end has no type for float8_e4m3fn"):
        emit_module([elementwise("small", E.cast("float32", small[i]), i, [small], "float32", 4)])
    with pytest.raises(
        CompileError, match=r"'a\.b' cannot be the name of a C function; give the function another one, such as 'a_b'"
    ):
        emit_module([elementwise("a.b", a[i], i, [a], "int32", 4)])
    bytes_ = Buffer("bytes", (16,), "int8")
    word = E.Call("uint32", reinterpret, [E.Load(bytes_, (E.Ramp(i * 4, 1, 4),))])
    with pytest.raises(CompileError, match="the C back end cannot reinterpret int8x4 as uint32"):
        emit_module([elementwise("words", word, i, [bytes_], "uint32", 4)])
    vector = Store(a, const(0, DataType("int32x4")), (E.Ramp(as_expr(0), 1, 4),))
    with pytest.raises(CompileError, match="the C back end supports only scalars"):
        emit_module([PrimFunc("vectors", (a,), vector)])


def test_c_functions_that_are_linked_in() -> None:
    i, a = Var("i"), Buffer("a", (4,), "float32")
    value = tvm.tir.call_pure_extern("float32", "powf", a[i], const(2.0, "float32"))
    func = elementwise("squares", value, i, [a], "float32", 4)
    code = CFunctions([func])
    found = np.zeros(4, np.float32)
    code("squares", np.arange(4, dtype=np.float32), found)
    np.testing.assert_array_equal(found, [0, 1, 4, 9])
    code.close()
    call = Evaluate(tvm.tir.call_extern("void", "record", const(1, "int32")))
    assert "void record(int32_t);" in emit_module(
        [PrimFunc("calls", (a,), Seq((call, Store(a, const(0.0, "float32"), (as_expr(0),)))))]
    )


def test_a_call_with_an_effect_stays_where_its_result_is_not_used() -> None:
    a, unused = Buffer("a", (4,), "float32"), Var("unused", "int32")
    store = Store(a, const(0.0, "float32"), (as_expr(0),))
    drawn = tvm.tir.call_extern("int32", "rand") + 1
    assert "(void)(" in emit_module([PrimFunc("draws", (a,), Let(unused, drawn, store))])
    assert "rand" not in emit_module([PrimFunc("draws", (a,), Let(unused, const(1, "int32"), store))])
    effect = Evaluate(E.Call("int32", I.stride_of, ()))
    with pytest.raises(InternalError, match="the intrinsic 'stride_of' has no C text"):
        emit_module([PrimFunc("strides", (a,), Seq((effect, store)))])


def test_kept_objects_are_those_of_one_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (tmp_path / name for name in ("one-cc", "two-cc"))
    for path in (first, second):
        path.write_text("#!/bin/sh\nexec cc \"$@\"\n")
        path.chmod(0o755)
    found = []
    for command in (first, second, f"{first} -O1", first):
        monkeypatch.setenv("CC", str(command))
        found.append(identity_of(Target("c")))
    assert len(set(found)) == 3
    assert found[0] == found[3]
    first.write_text("#!/bin/sh\n# a newer one\nexec cc \"$@\"\n")
    assert identity_of(Target("c")) != found[0]
    assert Target("llvm").backend.identity(Target("llvm")) == ""


def test_compilers_are_named_when_they_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InternalError, match=r"generated C could not be compiled\. cc: "):
        compile_c("int main(", Target("c"), Compiler("cc", ("cc",)))
    monkeypatch.setattr("tilewright.backends.cpu.c.compile.find_compilers", lambda arch: [])
    with pytest.raises(TargetError, match="no C compiler for x86_64 was found"):
        compile_c("int x;", Target("c -mtriple=x86_64-linux-gnu -mcpu=x86-64"))
