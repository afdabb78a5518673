"""TVM's names of expressions, statements, visits and passes of `tvm.tir`."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te
from tilewright.base.errors import CompileError, OptionError, ParseError
from tilewright.ir.structural import assert_structural_equal
from tilewright.scalar.expr import number_of
from tilewright.tir import schedule
from tilewright.tir.interpreter import run
from tilewright.tir.schedule.testing import verify_trace_roundtrip
from tilewright.tir.script import from_source
from tilewright.tir.script import tir as T
from tilewright.tir.steps import ScheduleStep
from tilewright.tir.stmt import For, PrimFunc, walk_stmt

tir: Any = tvm.tir
X, Y = te.var("x"), te.var("y", "float32")


@pytest.mark.parametrize(("made", "text"), [
    (tir.Add(X, 1), "(x + 1)"), (tir.Sub(1, X), "(1 - x)"), (tir.Mod(X, 2), "truncmod(x, 2)"),
    (tir.LT(0, X), "(0 < x)"), (tir.Select(X > 1, 1, Y), "if_then_else((x > 1), 1.0, y)"),
    (tir.Select(True, Y, 0), "if_then_else(True, y, 0.0)"), (tir.Ramp(0, 2, 4), "ramp(0, 2, 4)"),
    (tir.Broadcast(1.0, 4), "broadcast(1.0, 4)"), (tir.Cast("float32", 3), "cast('float32', 3)"),
    (tir.Not(X > 1), "(not (x > 1))"),
    (tir.Call("float32", "tir.exp", [Y]), "exp(y)"), (tir.Call("int32", "tir.call_extern", ["f", 1]), "f(1)"),
    (tir.call_intrin("float32", "tir.sqrt", Y), "sqrt(y)"), (tir.Let(Y, 2, Y * Y), "4.0"),
    (tir.likely(X > 0), "(x > 0)"), (tir.ceildiv(X, 4), "((x + 3) // 4)"), (tir.infinity("float16"), "float('inf')"),
    (X & 255, "bitwise_and(x, 255)"), (1 << X, "shift_left(1, x)"), (~(X > 1), "(x <= 1)"),
    ((X > 1) | (X < 0), "((x > 1) or (x < 0))"), (tir.const(6, "int32") ^ 3, "5"), (tir.const(-8, "int8") >> 1, "-4"),
    (tir.shift_left(tir.const(3, "uint8"), 7), "128"),
])
def test_expressions(made: Any, text: str) -> None:
    assert str(made) == text


def test_blocks_are_tiled_for_an_instruction() -> None:
    from tilewright.tir.schedule.analysis import has_block, is_output_block
    from tilewright.tir.schedule.transform import tile_with_tensor_intrin
    from tilewright.tir.tensor_intrin.x86 import VNNI_DOT_16x4_INTRIN

    @T.prim_func
    def dense(
        A: T.Buffer((6, 8), "uint8"), W: T.Buffer((32, 8), "int8"), C: T.Buffer((6, 32), "int32")  # type: ignore
    ) -> None:
        for i, j, k in T.grid(6, 32, 8):
            with T.block("C"):
                v, w, r = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[v, w] = 0
                C[v, w] = C[v, w] + T.int32(A[v, r]) * T.int32(W[w, r])

    sch = schedule.Schedule(dense)
    assert has_block(sch, "C") and not has_block(sch, "D") and is_output_block(sch, sch.get_block("C"))
    loop = tile_with_tensor_intrin(sch, "C", VNNI_DOT_16x4_INTRIN)
    loops = sch.get_loops("C")
    assert loop == loops[3] and [number_of(sch.get(x).extent) for x in loops] == [6, 2, 2, 16, 4]
    assert tile_with_tensor_intrin(sch, "C", VNNI_DOT_16x4_INTRIN) is None, "its axes are no single loops now"


def test_products_of_fixed_point_numbers() -> None:
    """They are rounded, and shifts to the left and to the right may vary by element."""
    @T.prim_func
    def products(
        A: T.Buffer((4,), "int32"), S: T.Buffer((4,), "int32"), B: T.Buffer((5, 4), "int32"),  # type: ignore[valid-type]
    ) -> None:
        for i in range(4):
            B[0, i] = T.q_multiply_shift(A[i], 1 << 30, 31, 1, dtype="int32")
            B[1, i] = T.q_multiply_shift(A[i], 1 << 30, 31, -1)
            B[2, i] = T.q_multiply_shift(A[i], 1 << 30, 31, S[i])
            B[3, i] = T.q_multiply_shift_per_axis(A[i], 1 << 30, 1, S[i], 31, True, True)
            B[4, i] = T.q_multiply_shift_per_axis(A[i], 1 << 30, 1, S[i], 31, False, False)

    a, s, b = np.array([1000, -7, 6, 5], "int32"), np.array([0, 1, -1, 2], "int32"), np.zeros((5, 4), "int32")
    run(products, [a, s, b])
    exact = [a, a / 4, a / 2.0 * 2.0**s, a / 2.0**s, a / 2]
    np.testing.assert_array_equal(b, np.floor(np.array(exact) + 0.5))


def test_kinds_of_nodes() -> None:
    assert (tir.Ramp(0, 2, 4).lanes, tir.Broadcast(1.0, 8).lanes) == (4, 8)
    assert str(te.isnan(Y).dtype) == "bool" and str(tir.isinf(tir.Broadcast(Y, 4)).dtype) == "boolx4"
    assert isinstance(tir.const(1, "int32") + te.var("i", "int32"), tir.Add)
    assert isinstance(tir.decl_buffer((8,), "float32")[0], tir.BufferLoad)
    assert isinstance(tir.Evaluate(1), tir.Evaluate) and tir.Any is type(tvm.relay.Any())
    assert tir.Add(X, 1).same_as(X + 1) and not X.same_as(te.var("x"))


def test_operands_of_two_types_are_converted() -> None:
    assert str(te.power(X, Y)) == "pow(cast('float32', x), y)" and str(te.power(Y, 2)) == "pow(y, 2.0)"
    assert str(tir.fmod(X, Y)) == "fmod(cast('float32', x), y)"
    i = te.var("i", "int32")
    assert str(tir.LT(i, X)) == "(cast('int64', i) < x)" and tir.Select(X > 1, i, X).dtype == "int64"
    assert str(te.var("u", "uint8") + -1) == "(u + 255)" and str(X + Y) == "(cast('float32', x) + y)"


def test_names_of_functions() -> None:
    """`Call.op` has TVM's name of the function, and a call by that name is the same node."""
    assert [f(Y).op.name for f in (tir.exp, tir.sqrt, tir.round)] == ["tir.exp", "tir.sqrt", "tir.round"]
    assert tir.bitwise_and(X, 3).op.name == "tir.bitwise_and"
    assert tir.call_extern("int32", "f", 1).op.name == "tir.call_extern"
    assert tir.call_pure_extern("int32", "f", 1).op.name == "tir.call_pure_extern"
    for made in (tir.exp(Y), tir.round(Y), tir.fmod(Y, Y)):
        assert tir.call_intrin("float32", made.op.name, *made.args) is made


@pytest.mark.parametrize(("make", "text"), [
    (lambda: tir.Add(X, 1.5), "1.5 is not a value of int64, the type of 'x'"),
    (lambda: X << 64, "'shift_left' of int64 by 64 is undefined; a shift is at least 0 and less than 64"),
    (lambda: Y & 1, "'bitwise_and' takes integers, but an operand is float32; cast it first"),
    (lambda: tir.call_intrin("float32", "tir.sqr", Y), "there is no intrinsic 'tir.sqr'; did you mean 'sqrt'?"),
    (lambda: tir.reinterpret("int64", Y), "the bits of a value of float32 are no value of int64; the widths differ"),
    (lambda: tir.popcount(Y), "popcount takes an integer, but was given float32"),
    (lambda: tir.log10(X), "log10 takes floating-point numbers, but was given int64; cast them"),
    (lambda: tir.FloatImm("int32", 1.0), "int32 is not a floating-point type; use IntImm for integers"),
    (lambda: tir.FloatImm("float16", 1e10), "10000000000.0 is not a value of float16: it is too large"),
    (lambda: te.sum(Y, axis=[X]), "'x' is not an axis; make one with te.reduce_axis((0, n))"),
    (lambda: tir.infinity("int8"), "int8 has no infinity; use a floating-point type"),
    (lambda: tir.Let(X, Y, X), "'x' is int64, but its value is float32; cast the value"),
    (lambda: tir.Add(X, Y), "Add needs two operands of one type, but 'x' is int64 and 'y' is float32; cast one"),
    (lambda: tir.LT(X, te.var("u", "uint8")), "LT needs two operands of one type, but 'x' is int64 and 'u' is uint8"),
    (lambda: tir.Select(X > 1, X, Y), "Select needs two operands of one type, but 'x' is int64 and 'y' is float32"),
    (lambda: te.exp(X), "'exp' takes floating-point numbers, but was given int64; cast it first"),
    (lambda: tir.call_intrin("float32", "tir.sqrt", X), "'sqrt' takes floating-point numbers, but was given int64"),
    (lambda: te.var("u", "uint8") + 300, "300 is not a value of uint8; cast the other operand to a wider type"),
    (lambda: te.var("i", "int32") + 2 ** 40, "1099511627776 is not a value of int32; cast the other operand"),
])
def test_wrong_operands(make: Any, text: str) -> None:
    with pytest.raises(CompileError) as error:
        make()
    assert text in str(error.value)


def evaluated(function: Any, x: np.ndarray[Any, Any]) -> Any:
    a = te.placeholder(x.shape, x.dtype.name, "a")
    b = te.compute(x.shape, lambda i: function(a[i]), "b")
    out = tvm.nd.empty(x.shape, str(b.dtype))
    tvm.build(te.create_schedule(b.op), [a, b])(tvm.nd.array(x), out)
    return out.numpy()


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "int64"])
def test_bits_of_integers(dtype: str) -> None:
    limits = np.iinfo(dtype)
    x = np.array([0, 1, 2, 77, limits.max, limits.max - 5, limits.min, limits.min + 9], dtype)
    bits = [int(v) & ((1 << limits.bits) - 1) for v in x]
    assert evaluated(tir.popcount, x).tolist() == [b.bit_count() for b in bits]
    assert evaluated(tir.clz, x).tolist() == [limits.bits - b.bit_length() for b in bits]
    assert np.array_equal(evaluated(lambda v: (v & 77 | 3) ^ ~v, x), (x & np.array(77, dtype) | 3) ^ ~x)
    assert np.array_equal(evaluated(lambda v: (v << 3) + (v >> 2), x), (x << 3) + (x >> 2))


def test_functions_of_floats() -> None:
    x = np.linspace(0.1, 3, 8, dtype=np.float32)
    functions: list[tuple[Any, Any]] = [
        (tir.log10, np.log10), (tir.log1p, np.log1p), (tir.exp10, lambda v: 10 ** v),
        (lambda v: tir.atan2(v, -0.5), lambda v: np.arctan2(v, np.float32(-0.5))),
        (lambda v: tir.hypot(v, 3.0), lambda v: np.hypot(v, 3)), (lambda v: tir.copysign(v, -1.0), np.negative),
        (lambda v: tir.nextafter(v, 9.0), lambda v: np.nextafter(v, np.float32(9))),
        (lambda v: tir.ldexp(v, -3), lambda v: np.ldexp(v, -3)),
    ]
    for made, expected in functions:
        np.testing.assert_allclose(evaluated(made, x), expected(x), rtol=1e-6)
    special = np.array([1, np.inf, np.nan, -np.inf], np.float32)
    assert evaluated(lambda v: te.if_then_else(tir.isfinite(v), 1, 0), special).tolist() == [1, 0, 0, 0]
    assert np.array_equal(evaluated(lambda v: tir.reinterpret("int32", v), x), x.view(np.int32))


def function(size: int = 32) -> PrimFunc:
    a = te.placeholder((4, size), name="a")
    b = te.compute((4, size), lambda i, j: a[i, j] + 1.0, "b")
    lowered: PrimFunc = tvm.lower(te.create_schedule(b.op), [a, b])["main"]
    return lowered


def split_loops(f: PrimFunc) -> PrimFunc:
    """Vectorize loops whose extents are multiples of 8, as a pass of a script does."""
    wide: list[Any] = []
    tir.stmt_functor.post_order_visit(
        f.body, lambda n: wide.append(n) if isinstance(n, tir.For) and n.extent.value % 8 == 0 else None)

    def vectorized(loop: Any) -> Any:
        if loop not in wide:
            return None
        outer, inner = te.var(loop.loop_var.name + ".outer"), te.var(loop.loop_var.name + ".inner")
        body = tir.stmt_functor.substitute(loop.body, {loop.loop_var: outer * 8 + inner})
        body = tir.For(inner, 0, 8, tir.ForKind.VECTORIZED, body)
        return tir.For(outer, 0, loop.extent // 8, tir.ForKind.SERIAL, body)

    return f.with_body(tir.stmt_functor.ir_transform(f.body, None, vectorized, ["tir.For"]))


def test_a_pass_of_a_script() -> None:
    made = tir.transform.prim_func_pass(lambda f, mod, ctx: split_loops(f), opt_level=0, name="split")
    mod = tvm.transform.Sequential([made, tir.transform.Apply(lambda f: f.with_attr("global_symbol", "plus"))])(
        tvm.IRModule({"main": function()}))
    assert str(mod["main"]) == (
        '@T.prim_func\ndef plus(a: T.Buffer((4, 32), "float32"), b: T.Buffer((4, 32), "float32")):\n'
        '    T.func_attr({"global_symbol": "plus"})\n'
        "    for i in T.serial(4):\n        for j_outer in T.serial(4):\n            for j_inner in T.vectorized(8):\n"
        "                b[i, j_outer * 8 + j_inner] = a[i, j_outer * 8 + j_inner] + 1.0")
    x = np.random.default_rng(0).random((4, 32), np.float32)
    out = tvm.nd.empty((4, 32))
    tvm.build(mod)(tvm.nd.array(x), out)
    assert np.array_equal(out.numpy(), x + 1)


def test_visits() -> None:
    names: list[str] = []
    body = tir.SeqStmt([tir.Evaluate(X + 1), tir.LetStmt(X, 3, tir.Evaluate(tir.Cast("int32", X)))])
    tir.stmt_functor.post_order_visit(body, lambda n: names.append(type(n).__name__))
    assert names == ["Var", "IntImm", "Add", "Evaluate", "IntImm", "Cast", "Evaluate", "Let", "Seq"]
    names.clear()

    def outside_of_calls(node: Any) -> bool:
        names.append(type(node).__name__)
        return not isinstance(node, tir.Evaluate)

    tir.stmt_functor.pre_order_visit(body, outside_of_calls)
    assert names == ["Seq", "Evaluate", "Let", "IntImm", "Evaluate"]
    assert len(body) == 2 and body[0] is body.seq[0] and tir.stmt_list(body) == list(body.seq)


def test_rewrites() -> None:
    rewrite = tir.stmt_functor.ir_transform
    body = tir.IfThenElse(X > 1, tir.Evaluate(X + 1), None)
    assert rewrite(body, lambda n: None, lambda n: None) is body
    assert str(rewrite(body, lambda n: 7, None, ["tir.Add"]).then_case) == str(tir.Evaluate(7))
    order: list[str] = []
    rewrite(X * 2 + 1, None, lambda n: order.append(str(n)))
    assert order == ["x", "2", "(x * 2)", "1", "((x * 2) + 1)"]
    assert str(tir.stmt_functor.substitute(X - 4, {X: X + 4})) == "x"  # all variables at once
    assert str(tir.stmt_functor.substitute(X * 2 + 1, {X: 3})) == "7"
    n = te.var("n")
    memory = tir.Allocate(tir.decl_buffer((n,), "float32", "m"), tir.Evaluate(n))
    resized = tir.stmt_functor.substitute(memory, {n: 16})
    assert resized.buffer.shape == (16,) and str(resized.body.value) == "16"
    with pytest.raises(OptionError, match=r"there is no kind of node 'tir\.Fro'"):
        rewrite(body, None, None, ["tir.Fro"])
    with pytest.raises(CompileError, match="a Evaluate was replaced by Var; return a statement, or None"):
        rewrite(body, None, lambda n: X, ["tir.Evaluate"])


def test_attributes_of_functions() -> None:
    f = function().with_attr({"tir.noalias": True, "target_bits": 32})
    assert f.attrs["target_bits"] == 32 and "target_bits" not in f.without_attr("target_bits").attrs
    assert all(f.buffer_map[b] is b for b in f.buffers)


def test_arguments_of_schedules() -> None:
    func = te.create_prim_func(list(tensors()))
    block = tvm.tir.Schedule(func, debug_mask="all", error_render_level="fast")
    assert [str(v) for v in block.get_loops(block.get_block("b"))] == ["loop 'i' of main"]
    with pytest.raises(tvm.errors.ScheduleError, match="error_render_level must be"):
        tvm.tir.Schedule(func, error_render_level="loud")
    with pytest.raises(tvm.errors.ScheduleError, match="debug_mask must be"):
        tvm.tir.Schedule(func, debug_mask="most")


def tensors() -> tuple[Any, Any]:
    a = te.placeholder((8,), name="a")
    return a, te.compute((8,), lambda i: a[i] + 1.0, "b")


def matrix_sum(*, vectorize: bool = False) -> tuple[Any, list[Any]]:
    a = te.placeholder((6, 4), name="a")
    k = te.reduce_axis((0, 4), "k")
    b = te.compute((6,), lambda i: te.sum(a[i, k], axis=k), "b")
    c = te.compute((6, 4), lambda i, j: a[i, j] + b[i], "c")
    s = te.create_schedule(c.op)
    if vectorize:
        s[c].vectorize(c.op.axis[1])
    return s, [a, c]


def kinds(s: Any, tensors: list[Any], **config: Any) -> list[tuple[str, str]]:
    """Return the loops of a schedule in a context, after a check of its results."""
    with tvm.transform.PassContext(config={k.replace("__", "."): v for k, v in config.items()}):
        mod, built = tvm.lower(s, tensors), tvm.build(s, tensors)
    x = np.random.default_rng(0).random((6, 4), np.float32)
    out = tvm.nd.empty((6, 4))
    built(tvm.nd.array(x), out)
    np.testing.assert_allclose(out.numpy(), x + x.sum(1, keepdims=True), rtol=1e-6)
    return [(loop.var.name, loop.kind) for loop in walk_stmt(mod["main"].body) if isinstance(loop, For)]


def test_options_of_loops() -> None:
    s, args = matrix_sum(vectorize=True)
    assert kinds(s, args)[-1] == ("j", "vectorized")
    assert kinds(s, args, tir__disable_vectorize=True)[-1] == ("j", "serial")
    s, args = matrix_sum()
    assert {kind for _, kind in kinds(s, args, tir__UnrollLoop={"auto_max_step": 3})} == {"serial"}
    assert kinds(s, args, tir__UnrollLoop={"auto_max_step": 4}) == [
        ("i", "serial"), ("k", "unrolled"), ("i", "serial"), ("j", "unrolled")]
    assert {kind for _, kind in kinds(s, args, tir__UnrollLoop={"auto_max_extent": 8})} == {"unrolled"}
    assert kinds(s, args, tir__UnrollLoop={"auto_max_step": 99, "auto_max_depth": 1})[0] == ("i", "serial")
    with pytest.raises(OptionError, match=r"tir\.UnrollLoop has no field 'auto_max_steps' of value 3; did you mean"):
        kinds(s, args, tir__UnrollLoop={"auto_max_steps": 3})


def test_passes_of_the_context() -> None:
    s, args = matrix_sum()
    found: list[str] = []

    def noting(name: str) -> Any:
        def note(f: Any, mod: Any, ctx: Any) -> Any:
            found.append(name)
            return f

        return tir.transform.prim_func_pass(note, opt_level=0)

    def unrolled(f: Any, mod: Any, ctx: Any) -> Any:
        return f.with_body(tir.stmt_functor.ir_transform(
            f.body, None, lambda n: tir.For(n.loop_var, n.min, n.extent, tir.ForKind.UNROLLED, n.body), ["tir.For"]))

    passes = [(2, noting("late")), (0, noting("early")), (1, tir.transform.prim_func_pass(unrolled, opt_level=0))]
    assert {kind for _, kind in kinds(s, args, tir__add_lower_pass=passes)} == {"unrolled"}
    assert found == ["early", "late"] * 2
    with pytest.raises(OptionError, match="pairs of a phase, 0 to 3, and a pass"):
        kinds(s, args, tir__add_lower_pass=[(4, noting("never"))])
    with pytest.raises(OptionError, match=r"'tir\.noalias' takes one of True"):
        kinds(s, args, tir__noalias=False)


def test_functions_of_variables() -> None:
    builder, n, m = tir.ir_builder.create(), te.var("n"), te.var("m", "float32")
    source, out = builder.pointer("float32", name="source"), builder.pointer("float32", name="out")
    with builder.for_range(0, n, name="i") as i:
        out[i] = source[i] + m
    func = tir.PrimFunc([source, out, n, m], builder.get(), attrs={"global_symbol": "shift"})
    assert func.name == "shift" and [p.name for p in func.params] == ["source", "out", "n", "m"]
    y = tvm.nd.empty((6,))
    y.copyfrom(np.zeros(6, np.float32))
    tvm.build(tvm.IRModule.from_expr(func))(tvm.nd.array(np.arange(6, dtype=np.float32)), y, 4, 0.5)
    assert y.numpy().tolist() == [0.5, 1.5, 2.5, 3.5, 0, 0]
    buffer, handle = tir.decl_buffer((8,), "float32", "b"), tir.Var("h", "handle")
    bound = tir.PrimFunc(params=[handle], body=tir.BufferStore(buffer, 1, [0]), buffer_map={handle: buffer})
    assert bound.params == (buffer,) and bound.name == "main"
    with pytest.raises(CompileError, match="a function takes variables and buffers, and returns nothing; 'x'"):
        tir.PrimFunc(["x"], tir.Evaluate(0))


def test_partial_indices() -> None:
    a, b = te.placeholder((4, 5), name="a"), te.placeholder((5, 3), name="b")
    k = te.reduce_axis((0, 5), "k")
    c = te.compute((4, 3), lambda i, j: te.sum(a[i][k] * b[k][j], axis=[k]), "c")
    x, y = np.arange(20, dtype=np.float32).reshape(4, 5), np.arange(15, dtype=np.float32).reshape(5, 3)
    out = tvm.nd.empty((4, 3))
    tvm.build(te.create_schedule(c.op), [a, b, c])(tvm.nd.array(x), tvm.nd.array(y), out)
    assert np.array_equal(out.numpy(), x @ y)
    with pytest.raises(CompileError, match="tensor 'a' has 2 dimensions, but was given 1 indices"):
        a[0] + 1


SOURCE = '''
@T.prim_func
def double(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in T.serial(16):
        with T.block("B"):
            v = T.axis.spatial(16, i)
            B[v] = A[v] * 2.0
'''


def test_sources_and_traces() -> None:

    func: Any = from_source(SOURCE)
    module: Any = from_source("@I.ir_module\nclass M:" + SOURCE.replace("\n", "\n    "))
    again: Any = from_source(tvm.IRModule({"double": func}).script())
    assert tvm.ir.structural_equal(again["double"], func)
    assert tvm.ir.structural_equal(module["double"], func)
    sch = schedule.Schedule(func, debug_mask="all")
    block = sch.get_block("B")
    assert isinstance(block, schedule.BlockRV)
    outer, inner = sch.split(sch.get_loops(block)[0], factors=[None, 4])
    assert isinstance(outer, schedule.LoopRV)
    sch.vectorize(inner)
    again = verify_trace_roundtrip(sch, func)
    assert again is not sch and str(again.trace) == str(sch.trace) and len(sch.steps) == 2
    with pytest.raises(schedule.ScheduleError):
        sch.split(outer, factors=[0, 4])


def test_functions_of_tvmscript_outside_of_functions() -> None:
    three, yes = T.hypot(T.float32(3), 0.0), T.bool(True)

    @T.prim_func
    def f(A: T.Buffer((4,), "float32")) -> None:  # type: ignore[valid-type]
        j = T.int64()
        for i in T.serial(4):
            with T.LetStmt(i + 1, var=j):
                A[j - 1] = three
            T.LetStmt(i + 1, var=j)
            if yes:
                A[j - 1] = A[i] + T.exp(0.0)

    a = np.zeros(4, "float32")
    tvm.build(f, target="llvm")(a)
    np.testing.assert_array_equal(a, 4)
    assert T.int64().dtype == "int64" and T.int32(3).value == 3
    with pytest.raises(AttributeError, match=r"T\.axes has no value outside of a function"):
        _ = T.axes


@pytest.mark.parametrize(("line", "message"), [
    ("v = T.axis.spatial(4, i)", "this block has 'v' already"),
    ("T.where(i < 2)\n            T.where(i < 3)", "this block has 'T.where' already"),
    ("with T.init():\n                A[v] = 0.0\n            with T.init():\n                A[v] = 1.0",
     "this block has 'T.init' already"),
    ("w = T.axis.spatial(0.5, i)", "the extent of an axis is an integer, but this is float32"),
    ("for t in T.thread_binding(4, 4):\n                A[v] = 0.0", "the thread is missing: T.thread_binding"),
    ("T.LetStmt(i, var=n)", "T.LetStmt(value, var=x) needs a variable"),
])
def test_errors_are_shown_to_the_renderer(line: str, message: str) -> None:
    shown: list[Any] = []
    tvm.ir.diagnostics.override_renderer(lambda context: shown.extend(context.diagnostics))
    text = f"""@T.prim_func
def f(A: T.Buffer((4,), "float32")):
    for i in T.serial(4):
        with T.block("b"):
            v = T.axis.spatial(4, i)
            {line}
            A[v] = 1.0
"""
    try:
        with pytest.raises(ParseError):
            tir.parse(text)
    finally:
        tvm.ir.diagnostics.override_renderer(None)
    (error,) = shown
    assert message in error.message and error.span.line in (6, 7, 8)


def test_blocks_have_no_value() -> None:
    with pytest.raises(ParseError, match="a block has no value"):
        tir.parse('def f(A: T.Buffer((4,), "float32")):\n    with T.block("b") as x:\n        A[0] = 1.0')


def test_annotations_are_lists_and_dictionaries() -> None:
    schedule = tir.Schedule(tir.parse(
        'def f(A: T.Buffer((4,), "float32")):\n    for i in T.serial(4):\n        with T.block("b"):\n'
        "            v = T.axis.spatial(4, i)\n            A[v] = 1.0"))
    block = schedule.get_block("b")
    schedule.annotate(block, "notes", {"sizes": [2, 3], "key": 3})
    steps = [ScheduleStep.from_json(json.loads(json.dumps(s.as_json()))) for s in schedule.steps]
    again = tir.Schedule(tir.parse(
        'def f(A: T.Buffer((4,), "float32")):\n    for i in T.serial(4):\n        with T.block("b"):\n'
        "            v = T.axis.spatial(4, i)\n            A[v] = 1.0"))
    again.apply(steps)
    notes = again.get(again.get_block("b")).annotations["notes"]
    assert {k: list(v) if isinstance(v, (tuple, list)) else v for k, v in notes.items()} == {"sizes": [2, 3], "key": 3}
    assert again.get(schedule.sample_categorical([2, 4], [0.5, 0.5])) in (2, 4)
    assert again.get(block).name_hint == "b" and again.get(block).same_as(again.get(block))


@pytest.mark.parametrize(("named", "plain"), [
    ("T.Add(i, 2)", "i + 2"), ("T.Mul(i, 2)", "i * 2"), ("T.FloorDiv(i, 2)", "i // 2"), ("T.FloorMod(i, 2)", "i % 2"),
    ("T.Mod(i, 2)", "T.truncmod(i, 2)"), ("T.Div(i, 2)", "T.truncdiv(i, 2)"), ("T.Min(i, 2)", "T.min(i, 2)"),
    ("T.Max(i, 2)", "T.max(i, 2)"), *((f"T.Select({x}, i, 3)", f"T.Select({y}, i, 3)") for x, y in (
        ("T.LT(i, 2)", "i < 2"), ("T.LE(i, 2)", "i <= 2"), ("T.GT(i, 2)", "i > 2"), ("T.GE(i, 2)", "i >= 2"),
        ("T.EQ(i, 2)", "i == 2"), ("T.NE(i, 2)", "i != 2"), ("T.And(i < 2, i > 0)", "i < 2 and i > 0"),
        ("T.Or(i < 2, i > 5)", "i < 2 or i > 5"))),
])
def test_nodes_by_their_names(named: str, plain: str) -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((8,), "int64")):
    for i in range(8):
        A[i] = {}
"""
    assert_structural_equal(tir.parse(text.format(named)), tir.parse(text.format(plain)))


@pytest.mark.parametrize("kind", [np.uint8, np.int64, np.float16, np.bool_])
def test_numbers_of_numpy_keep_their_types(kind: type[np.generic]) -> None:
    found = tvm.runtime.convert(kind(1))
    assert found.dtype == np.dtype(kind).name
    assert found.value == 1


def test_rounded_constants() -> None:
    assert [tvm.te.floor(2.5), tir.ceil(2.5), tir.round(3.5), tir.trunc(-2.5)] == [2.0, 3.0, 4.0, -2.0]
    n = tir.Var("n", "int32")
    assert tir.ceil(n) is n
    assert tir.isnan(n) is tir.const(False)


def test_names_and_numbers_that_cannot_be() -> None:
    with pytest.raises(CompileError, match="the name of a variable is a text, not 1"):
        tir.Var(1, "int32")
    assert number_of(tir.const(65504.0, "float16")) == 65504
    with pytest.raises(CompileError, match=r"65505.0 is not a value of float16: it is too large"):
        tir.const(65505.0, "float16")


def test_conditions_are_joined() -> None:
    n = tir.Var("n", "int32")
    assert tir.all(n > 1, True) is (n > 1)
    with pytest.raises(CompileError, match="all takes one or more conditions, but was given 'n', which is int32"):
        tir.all(n > 1, n)
    with pytest.raises(CompileError, match="any takes one or more conditions, but was given none"):
        tir.any()
