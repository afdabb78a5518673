"""Loop programs as text, both ways: what is printed is read back as an equal program, at every stage, whatever it
holds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import test_codegen_random
import test_schedule
import tilewright as tvm
from loop_programs import PROGRAMS, S, loops, variables
from random_kernels import KINDS, Maker
from small_models import cnn, mlp
from tilewright import relay, te, tir
from tilewright.base.errors import CompileError, ParseError
from tilewright.compat.target import Target
from tilewright.compiler.kernel import lower
from tilewright.driver.main import main
from tilewright.ir.module import IRModule
from tilewright.ir.structural import assert_structural_equal
from tilewright.relay.expr import Call, Constant, Function
from tilewright.relay.transform.pipeline import optimize
from tilewright.relay.visitor import post_order
from tilewright.scalar import expr as E
from tilewright.scalar import intrinsics as I
from tilewright.scalar.expr import Buffer, FloatImm, IntImm, PrimExpr, Var, as_expr, const
from tilewright.te.create import create_prim_func
from tilewright.tir.interpreter import run
from tilewright.tir.script import ir_module
from tilewright.tir.script import tir as T
from tilewright.tir.stmt import (
    Allocate,
    Block,
    Evaluate,
    For,
    IfThenElse,
    IterVar,
    Let,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    walk_stmt,
)
from tilewright.tir.transform.lower_blocks import lower_blocks
from tilewright.tir.transform.pipeline import LOOP_PASSES, lower_loops

A, C = Buffer("A", (8,)), Buffer("C", (8,))
ZERO = as_expr(0)


def same_again(func: PrimFunc) -> PrimFunc:
    """Assert that the text of `func` is read back as an equal program, which prints the same."""
    text = str(func)
    again = tir.parse(text)
    assert_structural_equal(again, func)
    assert str(again) == text
    return again


# --- programs of every stage
# --------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", PROGRAMS)
def test_small_programs_after_each_pass(name: str) -> None:
    func = PROGRAMS[name]()
    same_again(func)
    for loop_pass in LOOP_PASSES:
        func = loop_pass(func)
        same_again(func)


@pytest.mark.parametrize("name", test_schedule.STEPS)
def test_scheduled_programs(name: str) -> None:
    s = test_schedule.product()
    test_schedule.STEPS[name](s)
    again = same_again(s.func)
    test_schedule.check(again)
    same_again(lower_loops(same_again(lower_blocks(s.func))))


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_random_programs(seed: int) -> None:
    func = test_codegen_random.Program(seed).func()
    same_again(func)
    same_again(lower_loops(func))


def kernels(function: Function) -> Iterator[tuple[Function, list[bool]]]:
    """The primitive functions of a graph as the compiler fuses it, and which of their arguments are constants."""
    for e in post_order(optimize(IRModule.from_expr(function), Target("llvm"))["main"].body):
        if isinstance(e, Call) and isinstance(e.op, Function):
            yield e.op, [isinstance(a, Constant) for a in e.args]


def check_kernels(function: Function) -> int:
    count = 0
    for count, (primitive, constants) in enumerate(kernels(function), 1):
        kernel = lower(primitive, constants, Target("llvm").machine, f"kernel_{count}", keep_stages=True)
        assert set(kernel.stages) == {"scheduled", "lowered"}
        for func in (*kernel.stages.values(), kernel.func):
            same_again(func)
    return count


@pytest.mark.parametrize("kind", KINDS)
def test_kernels_at_each_stage(kind: str) -> None:
    for seed in (1, 2):
        assert check_kernels(Maker(seed).make(KINDS[kind][0]).function)


@pytest.mark.parametrize("model", [mlp, cnn])
def test_kernels_of_a_model(model: object) -> None:
    mod, _ = relay.frontend.from_onnx(model())  # type: ignore[operator]
    assert check_kernels(mod["main"]) >= 2


def test_what_the_command_line_dumps_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mlp.onnx"
    path.write_bytes(mlp().SerializeToString())
    assert main(["compile", str(path), "-o", str(tmp_path / "m.tar"), "--dump-code", "tir"]) == 0
    text = (tmp_path / "m.tar.tir").read_text(encoding="utf-8")
    mod = tir.parse_module(text, "m.tar.tir")
    assert len(mod.items()) >= 1
    assert "\n\n".join(str(f) for _, f in mod.items()) + "\n" == text
    func = mod.items()[0][1]
    assert (func.origin.file, func.origin.line) == ("m.tar.tir", 2)


# --- whatever can be built
# ----------------------------------------------------------------------------------------------

class Expressions:
    """Random expressions of a type, made by the classes themselves: nothing is folded."""

    LEAVES: ClassVar[dict[str, list[PrimExpr]]] = {
        "int64": [Var("i"), Var("i"), IntImm("int64", -3), IntImm("int64", 0), IntImm("int64", 2**62), ZERO],
        "int32": [Var("n", "int32"), IntImm("int32", -(2**31)), IntImm("int32", 7), Buffer("B", (), "int32")[()]],
        "uint8": [Var("if", "uint8"), IntImm("uint8", 255), Buffer("A", (4, 4), "uint8")[1, Var("i")]],
        "float32": [Var(
            "x y", "float32"
        ), FloatImm("float32", -0.0), FloatImm("float32", 0.1), FloatImm("float32", 1e30),
                    FloatImm("float32", float("nan")), FloatImm("float32", float("-inf")), A[Var("T")]],
        "float64": [FloatImm("float64", 0.1), FloatImm("float64", float("inf")), Var("d", "float64")],
        "bool": [IntImm("bool", 1), IntImm("bool", 0), Var("b", "bool")],
    }

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def make(self, dtype: str, depth: int) -> PrimExpr:
        pick = self.random.choice
        if depth == 0 or self.random.random() < 0.2:
            return pick(self.LEAVES[dtype])
        kind = self.random.randrange(10)
        if kind == 0:
            return E.Select(self.make("bool", depth - 1), self.make(dtype, depth - 1), self.make(dtype, depth - 1))
        if kind == 1:
            return E.Cast(dtype, self.make(pick([t for t in self.LEAVES if t != dtype]), depth - 1))
        if dtype == "bool":
            return self.truth(depth - 1)
        a, b = self.make(dtype, depth - 1), self.make(dtype, depth - 1)
        if kind == 2:
            return E.Call(dtype, pick([I.exp, I.pow, I.fma, I.bitwise_xor]), [a, b])
        if dtype.startswith("float"):
            return pick([E.Add, E.Sub, E.Mul, E.Div, E.Min, E.Max])(a, b)
        return pick([E.Add, E.Sub, E.Mul, E.FloorDiv, E.FloorMod, E.TruncDiv, E.TruncMod, E.Min, E.Max])(a, b)

    def truth(self, depth: int) -> PrimExpr:
        pick = self.random.choice
        if self.random.random() < 0.5:
            dtype = pick(["int64", "float32", "uint8", "bool"])
            return pick([E.EQ, E.NE, E.LT, E.LE, E.GT, E.GE])(self.make(dtype, depth), self.make(dtype, depth))
        a, b = self.make("bool", depth), self.make("bool", depth)
        return pick([E.And(a, b), E.Or(a, b), E.Not(a), E.Call("bool", I.isnan, [self.make("float32", depth)])])


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10**9), st.sampled_from(sorted(Expressions.LEAVES)))
def test_random_expressions(seed: int, dtype: str) -> None:
    value = Expressions(seed).make(dtype, 5)
    out = Buffer("out", (4,), dtype)
    func = PrimFunc("f", (out,), Store(out, value, (ZERO,)))
    again = tir.parse(str(func))
    assert_structural_equal(again, func, map_free_vars=True)
    assert str(again) == str(func)


X, K = variables("i k")
STORE = Store(C, as_expr(1.0), (X,))
LANES = E.Ramp(ZERO, 1, 8)
CASES: dict[str, PrimFunc] = {
    "nothing": PrimFunc("f", (), Seq(())),
    "a name that is none": PrimFunc("conv2d.add 3", (A,), Seq(())),
    "names that mean something": PrimFunc(
        "lambda", (Buffer("T", (2,)), Buffer("min", (2,)), Buffer("", (2,)), Buffer("3d", (2,))), Seq(())
    ),
    "sequences in sequences": PrimFunc(
        "f", (C,), loops((X, 8, S), body=Seq((Seq((STORE, STORE)), Seq(()), Seq((STORE,)))))
    ),
    "a sequence of one": PrimFunc("f", (C,), loops((X, 8, S), body=Seq((Seq((STORE,)),)))),
    "memory that ends early": PrimFunc(
        "f", (C,), Seq((Allocate(A, Store(A, as_expr(2.0), (ZERO,))), Allocate(A, Seq((Seq(()), Seq(()))))))
    ),
    "values that end early": PrimFunc(
        "f", (C,), Seq((Let(X, as_expr(3), STORE), Let(K, as_expr(4), Let(X, K, Seq((STORE, STORE))))))
    ),
    "one variable in two loops": PrimFunc("f", (C,), Seq((loops((X, 8, S), body=STORE), loops((X, 8, S), body=STORE)))),
    "both branches": PrimFunc(
        "f", (C,), loops((X, 8, S), body=IfThenElse(X < 3, Seq(()), IfThenElse(X < 5, STORE, STORE)))
    ),
    "loops from elsewhere": PrimFunc(
        "f", (C,),
        For(
            X, as_expr(2), as_expr(5), S,
            For(K, X, E.Max(X * 2, X // 3), "parallel", STORE, {"grain": 2, "x-y": (1.5, "a'\"b")})
        )
    ),
    "a loop of another type": PrimFunc(
        "f", (C,),
        For(
            Var("i", "int32"), ZERO, as_expr(5), S,
            For(Var("j", "int32"), const(1, "int32"), const(4, "int32"), S, Seq(()))
        )
    ),
    "attributes": PrimFunc(
        "f", (), Seq(()), {"a": None, "b": [True, {"c": float("inf")}], "d": "é\u2028\\", "intermediates": ()}
    ),
    "a masked store": PrimFunc(
        "f", (C,), Store(C, E.Broadcast(as_expr(1.0), 8), (LANES,), E.LT(LANES, E.Broadcast(as_expr(6), 8)))
    ),
    "calls for their effect": PrimFunc(
        "f", (A,), Seq((Evaluate(I.prefetch(A[0])), Evaluate(as_expr(0)), Evaluate(E.Call("int32", I.exp, ()))))
    ),
    "a block without memory": PrimFunc(
        "f", (C,),
        loops((X, 8, S), body=Block("b", (IterVar(K, as_expr(8)),), (X,), IntImm("bool", 0), STORE, STORE, {"p": 1}))
    ),
    "an axis of another type": PrimFunc(
        "f", (C,), Block("", (IterVar(Var("v", "int32"), as_expr(8)),), (ZERO,), X < 3, None, Seq(())),
        {"intermediates": ()}
    ),
    "local parameters and inner memory": PrimFunc(
        "f", (Buffer("L", (2,), "int8", "local"),), Block("b", (), (), IntImm("bool", 1), None, Seq(())),
        {"intermediates": (A, C)}
    ),
    "memory that is nowhere": PrimFunc(
        "f", (), Store(Buffer("X", (2, 3), "int8", "local"), const(1, "int8"), (ZERO, ZERO))
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_whatever_can_be_built(name: str) -> None:
    again = tir.parse(str(CASES[name]))
    assert_structural_equal(again, CASES[name], map_free_vars=True)
    assert str(again) == str(CASES[name])


def test_sizes_that_are_open() -> None:
    n, m = Var("n"), Var("m", "int32")
    x, y = Buffer("x", (n, 4)), Buffer("y", (n * 4, E.cast("int64", m)))
    func = PrimFunc("f", (x, y), loops((X, 4, S), body=Store(y, x[n - 1, X], (X, ZERO))))
    assert '    n = T.int64()\n    m = T.int32()\n' in str(func)
    same_again(func)


def test_reducers_are_read() -> None:
    a, k = te.placeholder((4, 8), name="A"), te.reduce_axis((0, 8), "k")
    pair = te.comm_reducer(
        lambda x, y: (x[0] + y[0], E.maximum(x[1], y[1])), lambda s, t: (E.const(0, s), te.min_value(t)), "sum_and_max"
    )
    both = create_prim_func([a], list(te.compute((4,), lambda i: pair((a[i, k], a[i, k]), axis=k), name="C")))
    assert 'T.reducer("sum_and_max", lambda x, x1, y, y1: (x + y, max(x1, y1),), (0.0, float(\'-inf\'),))' in str(both)
    sums, largest, data = np.zeros(4, "float32"), np.zeros(4, "float32"), np.arange(32, dtype="float32").reshape(4, 8)
    run(lower_blocks(same_again(both)), [data, sums, largest])
    np.testing.assert_array_equal(sums, data.sum(1))
    np.testing.assert_array_equal(largest, data.max(1))


def test_many_statements_are_no_trouble() -> None:
    many = Seq(tuple(Store(C, as_expr(float(k)), (as_expr(k % 8),)) for k in range(3000)))
    names = [Var(f"v{k}") for k in range(300)]
    body: Stmt = Store(C, as_expr(0.0), (names[-1],))
    for v, before in zip(reversed(names), [*reversed(names[:-1]), ZERO], strict=True):
        body = Let(v, before + 1, body)
    same_again(PrimFunc("f", (C,), Seq((*many.stmts, body))))


# --- what cannot be read
# ------------------------------------------------------------------------------------------------

def wrapped(body: str, params: str = 'A: T.Buffer((8,), "float32"), B: T.Buffer((8, 2), "int32")') -> str:
    return f"@T.prim_func\ndef f({params}):\n" + "".join(f"    {line}\n" for line in body.splitlines())


BLOCK = 'with T.block("b"):\n    '
MESSAGES: dict[str, tuple[str, str]] = {
    "no Python": ("A[0] = = 1", "this is not valid Python"),
    "an unknown name": ("A[0] = A[j] + 1.0", r"'j' is not defined here"),
    "a name like another": (
        "for row in T.serial(8):\n    A[rwo] = 0.0", "'rwo' is not defined here; did you mean 'row'"),
    "an unknown call": ("A[0] = T.sqroot(A[0])", r"there is no T.sqroot; did you mean 'sqrt'"),
    "another call": ("A[0] = print(3)", r"this cannot be called in TVMScript; only functions T.name"),
    "a buffer as a value": ("A[0] = A + 1.0", r"'A' is a buffer; an element of it is A\[…\]"),
    "a value as a buffer": ("for i in T.serial(3):\n    i[0] = 1.0", "a buffer is expected here; the buffers are A, B"),
    "too many indices": ("A[0, 1] = 1.0", "buffer 'A' has 1 dimensions, but was given 2 indices"),
    "a slice": ("A[:2] = 1.0", "a slice of indices needs both ends: A\\[0:4\\]"),
    "a text as a value": ('A[0] = "x"', "a scalar expression is expected here, not 'x'"),
    "a fraction in integers": ("B[0, 0] = 1.5", "1.5 is not a value of int32; write an integer, or T.cast"),
    "an address as a value": (
        "B[0, 0] = A.data",
        "a value of handle cannot be stored in 'B', which holds int32; write T.cast"),
    "a number out of range": ("B[0, 0] = T.int8(300)", "300 is not a value of int8, which holds -128 to 127"),
    "a typed fraction": ("B[0, 0] = T.int32(1.5)", "1.5 is not a value of int32"),
    "a power": ("A[0] = A[0] ** 2", "Pow is not an operator of TVMScript"),
    "a membership": ("A[0] = A[0] in A[1]", "In is not a comparison of TVMScript"),
    "a division by zero": ("A[8 // 0] = 1.0", "this expression divides by zero"),
    "no lanes": ("A[T.ramp(0, 1, 0)] = 1.0", "a positive integer is expected here"),
    "too few arguments": ("A[0] = T.ramp(0, 1)", "T.ramp takes 3 arguments, but was given 2"),
    "an unknown argument": ('A[0] = T.exp(A[0], typ="x")', "T.exp has no argument 'typ'; did you mean"),
    "an untyped call": ("A[0] = T.exp()", r"T.exp\(\) has no argument that determines its type; give dtype="),
    "no float": ('A[0] = float("1")', r"float\(…\) takes only 'inf', '-inf' or 'nan'"),
    "no type": ('A[0] = T.cast(1, "float33")', "'float33' is not a data type"),
    "a number as a type": ("A[0] = T.cast(1, 32)", 'a data type is expected here, like "float32"'),
    "a deletion": ("del A", "Python's Delete is not a statement of TVMScript"),
    "a loop over something": ("for i in A:\n    pass", "a loop must iterate over one of T.serial, T.parallel"),
    "too many variables": ("for i, j in T.grid(3):\n    pass", "1 loop variables are needed, but 2 were given"),
    "a loop into an element": ("for A[0] in T.serial(3):\n    pass", "the variable of a loop must be a name"),
    "a loop without an end": ("for i in T.serial():\n    pass", "T.serial takes one argument"),
    "a fraction as a condition": ("if A[0]:\n    pass", "a condition must be bool or an integer, but this is float32"),
    "two targets": ("A[0] = A[1] = 1.0", r"an assignment must be A\[i\] = value, x = value"),
    "a name that changes": ("x = 1\nx += 1", "only elements of buffers can be updated; a name keeps its value"),
    "another with": ("with A:\n    pass", r"`with` supports only T.block\(\"name\"\), T.allocate"),
    "an axis outside": ('T.where(A[0] < 1.0)', "T.where must be at the beginning of a block"),
    "an axis of no kind": (BLOCK + "v = T.axis.ordered(3, 0)", "an axis of a block must be T.axis.spatial"),
    "axes that do not fit": (
        "for i in T.serial(3):\n    " + BLOCK.replace("    ", "        ") + 'v, w = T.axis.remap("S", [i])',
        "2 names, 1 letters and 1 loops were given; the numbers must be equal"),
    "an axis of no loop": (BLOCK + 'v = T.axis.remap("S", [3])', "T.axis.remap takes only variables of surrounding"),
    "an axis with three numbers": (
        BLOCK + "v = T.axis.spatial((1, 3, 5), 0)", r"the domain of an axis is an extent, or \(first, end\)"),
    "no reducer": (BLOCK + 'T.reducer("sum", 1, 2)', "a reducer has the form T.reducer"),
    "a short reducer": (BLOCK + 'T.reducer("sum", lambda x: (x,), (0.0,))', "a reducer of 1 value takes 2 and gives 1"),
    "an open attribute": ("for i in T.serial(3, annotations={'a': A[0]}):\n    pass", "a plain value is expected here"),
    "memory of no size": ("D = T.allocate()", "T.allocate needs a shape, a data type and a scope"),
    "no handle": ("D = T.match_buffer(A, (8,))", "T.match_buffer takes a parameter that is a handle; these are none"),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_errors_show_the_line(name: str) -> None:
    body, message = MESSAGES[name]
    with pytest.raises(ParseError, match=message) as caught:
        tir.parse(wrapped(body))
    _, line, caret = str(caught.value).splitlines()
    assert line.strip() in body
    assert set(caret.strip()) == {"^"}


@pytest.mark.parametrize(("text", "message"), [
    (wrapped("pass", "A"), "parameter 'A' must have a buffer type: A: T.Buffer"),
    (
        wrapped("pass", 'A: T.Buffer((8,), "float32") = 1'),
        "the parameters of 'f' must be positional and without defaults"
    ),
    ("x = 3\n", "a function is expected here: @T.prim_func"),
    ("", "the text defines 0 functions, but one is expected; use parse_module for several"),
])
def test_errors_around_functions(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        tir.parse(text)


def test_the_caret_stands_below_the_place() -> None:
    with pytest.raises(ParseError) as caught:
        tir.parse(wrapped("for é in T.serial(8):\n    A[é] = A[é] + oops"), "model.tir")
    assert str(caught.value) == (
        "model.tir:4: 'oops' is not defined here\n          A[é] = A[é] + oops\n                        ^^^^"
    )


def compiled(text: str, *arrays: np.ndarray) -> None:
    """The program of a text gives the same read by the interpreter and as machine code, left in `arrays`."""
    func, wanted = tir.parse(text), [a.copy() for a in arrays]
    run(lower_blocks(func), wanted)
    tvm.build(func, target="llvm")(*arrays)
    for a, b in zip(arrays, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


def test_axes_from_another_number() -> None:
    """Axes begin at 0 here: the text is of an axis that does, and its name in the source is this axis plus the begin.
    """
    func = tir.parse("""
        def f(A: T.Buffer((12,), "float32"), B: T.Buffer((12,), "float32")):
            for i in range(4):
                with T.block("B"):
                    v = T.axis.spatial((8, 12), i + 8)
                    B[v] = A[v - 8]
    """)
    assert "v = T.axis.spatial(4, i)\n            B[v + 8] = A[v + 8 - 8]" in str(func)


def test_loop_variables_are_stored_as_other_numbers() -> None:
    """They are int64 here, and int32 where programs of the field come from; integers wrap around."""
    a, b, c = np.zeros((300,), "int32"), np.zeros((300,), "uint8"), np.zeros((300,), "float32")
    compiled("""
        def f(A: T.Buffer((300,), "int32"), B: T.Buffer((300,), "uint8"), C: T.Buffer((300,), "float32")):
            for i in range(300):
                C[i] = i + 1
            for i in range(300):
                A[i] = i * 2
            for i in range(300):
                with T.block("B"):
                    v = T.axis.spatial(300, i)
                    B[v] = v
    """, a, b, c)
    np.testing.assert_array_equal(c, np.arange(300) + 1)
    np.testing.assert_array_equal(a, np.arange(300) * 2)
    np.testing.assert_array_equal(b, np.arange(300).astype("uint8"))


NESTED = """
    def f(A: T.Buffer((4, 6), "float32"), C: T.Buffer((4,), "float32")):
        with T.block("root"):
            B = T.alloc_buffer((4,), "float32")
            for i in range(4):
                with T.block("rows"):
                    vi = T.axis.spatial(4, i)
                    for k in range(6):
                        with T.block("sum"):
                            vk = T.axis.reduce(6, k)
                            with T.init():
                                B[vi] = 0.0
                            B[vi] = B[vi] + A[vi, vk]
                    C[vi] = B[vi] * 2.0
"""


def test_blocks_in_blocks() -> None:
    """They run, and steps apply to both; a root block around all is none."""
    a, c = np.random.default_rng(0).integers(-9, 9, (4, 6)).astype("float32"), np.zeros(4, "float32")
    compiled(NESTED, a, c)
    np.testing.assert_array_equal(c, a.sum(axis=1) * 2)
    sch = tir.Schedule(tir.parse(NESTED))
    assert [v.var.name for v in sch.get_loops("sum")] == ["k"]
    sch.decompose_reduction("sum", sch.split(sch.get_loops("sum")[0], [2, 3])[0])
    sch.parallel(sch.get_loops("rows")[0])
    run(sch.mod["main"], [a, c := np.zeros(4, "float32")])
    np.testing.assert_array_equal(c, a.sum(axis=1) * 2)


def test_steps_around_nested_blocks() -> None:
    """Steps apply around a block in a block without axes."""
    sch = tir.Schedule(tir.parse("""
        def f(A: T.Buffer((6, 8), "float32"), B: T.Buffer((6, 8), "float32")):
            for i, j in T.grid(6, 8):
                with T.block("opaque"):
                    with T.block("B"):
                        v, w = T.axis.remap("SS", [i, j])
                        B[v, w] = A[v, w] * 2.0
    """))
    sch.split(sch.fuse(*sch.get_loops("opaque")), [None, 5])
    assert str(sch.mod["main"].body) == """\
for i_j_0 in T.serial(10):
    for i_j_1 in T.serial(5):
        with T.block("opaque"):
            T.where(i_j_0 * 5 + i_j_1 < 48)
            with T.block("B"):
                v = T.axis.spatial(6, (i_j_0 * 5 + i_j_1) // 8)
                w = T.axis.spatial(8, (i_j_0 * 5 + i_j_1) % 8)
                B[v, w] = A[v, w] * 2.0"""
    a = np.arange(48, dtype="float32").reshape(6, 8)
    b = np.zeros_like(a)
    run(sch.mod["main"], [a, b])
    np.testing.assert_array_equal(b, a * 2)
    copied = sch.cache_write("B", 0, "local")
    assert sch.get(copied).name == "B_local"
    run(sch.mod["main"], [a, b := np.zeros_like(a)])
    np.testing.assert_array_equal(b, a * 2)


@pytest.mark.parametrize(
    "value", ["(" * 100_000 + "1.0" + ")" * 100_000, "-" * 100_000 + "1.0", " + ".join(["A[1]"] * 5000)],
    ids=["brackets", "signs", "a sum"]
)
def test_texts_that_are_nested_too_deeply(value: str) -> None:
    with pytest.raises(ParseError, match=r"nested (too deeply; assign inner values to names|parentheses)") as caught:
        tir.parse(f'def f(A: T.Buffer((8,), "float32")):\n    A[0] = {value}')
    assert len(str(caught.value)) < 1000


def test_functions_of_a_class_that_call_each_other() -> None:
    """The class is not there yet when its functions are read."""

    @ir_module
    class Calls:
        @T.prim_func
        def first(A: T.Buffer((8,), "float32")) -> None:
            for i in range(8):
                A[i] = A[i] + 1.0

        @T.prim_func
        def second(A: T.Buffer((8,), "float32")) -> None:
            Calls.first(A.data)  # type: ignore[operator]

    assert Calls["second"].body.value.op.name_hint == "first"  # type: ignore[misc]


def test_values_of_the_python_code_around_a_function() -> None:
    sizes, dtype, note = (4, 8), "float16", {"level": [1, "A"]}

    @T.prim_func
    def taken(A: T.Buffer(sizes, dtype), B: T.Buffer((sizes[0],), dtype=dtype)) -> None:
        T.func_attr(note)
        for i in T.serial(len(sizes) + sizes[0]):
            B[i] = A[i, 0] + T.cast(max(sizes), dtype)  # type: ignore[attr-defined, arg-type]

    text = """
@T.prim_func
def taken(A: T.Buffer((4, 8), "float16"), B: T.Buffer((4,), "float16")):
    T.func_attr({"level": [1, "A"]})
    for i in T.serial(6):
        B[i] = A[i, 0] + T.cast(8, "float16")"""
    assert str(taken) == text.strip()


def test_names_only_in_annotations() -> None:
    def made(size: int) -> PrimFunc:
        @T.prim_func
        def filled(A: T.Buffer((size,), "float32")) -> None:
            A[0] = 0.0

        return filled

    assert "A: T.Buffer((5,), \"float32\")" in str(made(5))


def test_errors_of_the_python_code_around_a_function() -> None:
    sizes = (4,)
    with pytest.raises(ParseError, match=r"Python cannot compute 'sizes\[1\]': IndexError: tuple index out of range"):

        @T.prim_func
        def long(A: T.Buffer((8,), "float32")) -> None:
            A[sizes[1]] = 0.0  # type: ignore[misc]

    with pytest.raises(ParseError, match=r"'sizes.count' is a builtin_function_or_method; in TVMScript it must be"):

        @T.prim_func
        def other(A: T.Buffer((8,), "float32")) -> None:
            A[0] = sizes.count


def test_names_of_a_function_hide_those_around_it() -> None:
    i = (1, 2)

    @T.prim_func
    def own(A: T.Buffer((8,), "float32")) -> None:
        for i in T.serial(8):
            A[i] = 0.0

    assert "A[i] = 0.0" in str(own)
    assert i == (1, 2)


@pytest.mark.parametrize(("text", "printed"), [
    ("A[0] = i", 'A[0] = T.cast(i, "float32")'),
    ("A[0] = T.min(1, 2)", 'A[0] = T.cast(min(1, 2), "float32")'),
    ("A[0] = T.Let(i + 1, where={i: 3})", "A[0] = 4.0"),
    ("A[0] = T.call_llvm_pure_intrin(T.llvm_lookup_intrinsic_id('llvm.exp.f32'), T.uint32(1), A[1], dtype='float32')",
     'A[0] = T.call_llvm_pure_intrin("float32", "llvm.exp.f32", T.uint32(1), A[1])'),
    ("i = 2", "i_1 = 2"),
])
def test_values_in_the_ways_of_tvm(text: str, printed: str) -> None:
    func = tir.parse(f'def f(A: T.Buffer((8,), "float32")):\n    for i in T.serial(8):\n        {text}')
    assert f"        {printed}\n" in f"{func}\n".replace("    T.evaluate(0)", "")


def test_an_axis_from_another_first_value_begins_at_zero() -> None:
    printed = str(tir.parse("""
def f(A: T.Buffer((4,), "float32")):
    for i in T.serial(2):
        with T.block("b"):
            v = T.axis.spatial((1, 3), i + 1)
            A[v] = 0.0"""))
    assert "v = T.axis.spatial(2, i)" in printed
    assert "A[v + 1] = 0.0" in printed


def test_sizes_may_be_parameters_behind_the_buffers() -> None:
    func = tir.parse('def f(A: T.Buffer((n,), "float32"), n: T.int32):\n    A[n - 1] = 0.0')
    assert func.buffers[0].shape[0] is func.params[1]
    assert str(tir.parse(str(func))) == str(func)


def pair(x: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    return x // 4, x % 4


def meta_pair(x: PrimExpr) -> T.meta_var:
    return T.meta_var(pair(x))


def test_functions_around_that_return_several_values() -> None:
    @T.prim_func
    def both(A: T.Buffer((4, 4), "float32")) -> None:
        for k in T.serial(16):
            i, j = pair(k)
            A[i, j] = 0.0

    assert "A[k // 4, k % 4] = 0.0" in str(both)

    @T.prim_func
    def meta(A: T.Buffer((4, 4), "float32")) -> None:
        for k in T.serial(16):
            i, j = meta_pair(k)
            A[i, j] = 0.0

    assert str(meta).split("(", 1)[1] == str(both).split("(", 1)[1]
    with pytest.raises(ParseError, match="'pair' returned 2 values for 3 names"):

        @T.prim_func
        def three(A: T.Buffer((4, 4), "float32")) -> None:
            _i, _j, _k = pair(T.int64(3))  # type: ignore[misc]


@pytest.mark.parametrize(("text", "message"), [
    ("T.evaluate(T.Let(1, i=2))", "T.Let has no argument 'i'"),
    ("T.evaluate(T.Let(1))", r"T.Let has the form T.Let\(x \+ 1, where={x: 2}\)"),
    ("T.evaluate(T.Let(1, where={j: 2}))", r"T.Let needs variables: x = T.int64\(\)"),
])
def test_errors_of_let(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        tir.parse(f"def f(i: T.int64):\n    {text}")


def test_a_function_of_declarations_does_nothing() -> None:
    assert str(tir.parse("def f():\n    n = T.int64()")).endswith("\n    T.evaluate(0)")


def test_python_integers_are_floats_for_functions_of_floats() -> None:
    assert str(T.exp(2)) == "exp(2.0)"
    with pytest.raises(CompileError, match="'exp' takes floating-point numbers, but was given int32; cast it first"):
        T.exp(const(2, "int32"))


def test_buffers_in_annotations_are_read_and_written_by_name() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for i in T.serial(4):
        with T.block("b"):
            i_1 = T.axis.spatial(4, i)
            T.block_attr({"layout_free_placeholders": [A], "level": (1, "A")})
            B[i_1] = A[i_1]
"""
    func = tir.parse(text)
    (block,) = (s for s in walk_stmt(func.body) if isinstance(s, Block))
    assert block.annotations == {"layout_free_placeholders": [func.params[0]], "level": (1, "A")}
    assert 'T.block_attr({"layout_free_placeholders": [A], "level": (1, "A")})' in str(func)
    assert_structural_equal(tir.parse(str(func)), func)


def test_declared_kinds_of_buffers() -> None:
    text = """
@T.prim_func
def main(a: T.handle):
    A = T.match_buffer(a, (4,), "float32", align=64, offset_factor=1, buffer_type="{}")
    T.evaluate(T.tvm_call_packed("f", A, 3, dtype="int32"))
"""
    assert 'T.call_packed("f", A, 3, dtype="int32")' in str(tir.parse(text.format("auto")))
    with pytest.raises(ParseError, match='dimensions of size 1 are not broadcast; the buffer type is "default" or'):
        tir.parse(text.format("auto_broadcast"))


def test_types_of_indices_and_of_ignored_results() -> None:
    a = te.placeholder((4,), name="a")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="b")
    assert_structural_equal(te.create_prim_func([a, b], "int64"), te.create_prim_func([a, b]))
    with pytest.raises(CompileError, match="index_dtype_override='int32': indices and loop variables are int64; leave"):
        te.create_prim_func([a, b], "int32")
    assert tir.call_extern("", "f", 1).dtype == "int32"
