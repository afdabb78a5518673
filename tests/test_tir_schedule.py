"""`tir.Schedule` under the field's names, steps as data, and programs written as Python functions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import test_schedule
import tilewright as tvm
from loop_programs import conv2d
from tilewright import tir
from tilewright.base.errors import ParseError, ScheduleError
from tilewright.ir.structural import assert_structural_equal
from tilewright.tir.interpreter import run
from tilewright.tir.loop_schedule import Schedule as Engine
from tilewright.tir.module_schedule import LoopRV
from tilewright.tir.script import ir_module
from tilewright.tir.script import tir as T
from tilewright.tir.steps import BlockAt, LoopAt, ScheduleStep
from tilewright.tir.stmt import PrimFunc, walk_stmt

M, N, K = 16, np.int64(24), 32


@T.prim_func
def product(a: T.handle, b: T.handle, D: T.Buffer((M, N), "float32")) -> None:
    """A product and its positive part, as TVMScript writes it."""
    T.func_attr({"tir.noalias": T.bool(True)})
    A = T.match_buffer(a, (M, K), "float32")
    B = T.match_buffer(b, [K, N])
    C = T.alloc_buffer((M, N), "float32")
    for i, j, k in T.grid(M, N, K):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            T.reads(A[vi, vk], B[vk, vj])
            T.writes(C[vi, vj])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] += A[vi, vk] * B[vk, vj]
    for i in T.serial(0, M):
        for j in range(N):
            with T.block("D"):
                vi = T.axis.S(M, i)
                vj = T.axis.spatial((0, N), j)
                D[vi, vj] = C[vi, vj] if 0.0 < C[vi, vj] < 1e9 else T.float32(0)


def check(func: PrimFunc) -> None:
    rng = np.random.default_rng(0)
    a, b, out = rng.standard_normal((M, K), np.float32), rng.standard_normal(
        (K, int(N)), np.float32
    ), np.zeros((M, int(N)), np.float32)
    run(tir.lower_blocks(func), [a, b, out])
    np.testing.assert_allclose(out, np.maximum(a @ b, 0), rtol=1e-4, atol=1e-5)


def tiled(sch: tir.Schedule) -> None:
    c, d = sch.get_block("C"), sch.get_block("D")
    i, j = sch.get_loops(d)
    io, ii = sch.split(i, factors=[None, 4])
    jo, ji = sch.split(j, [3, 8])
    sch.reorder(io, jo, ii, ji)
    sch.compute_at(c, jo)
    sch.set_scope(c, 0, "local")
    sch.vectorize(ji)
    sch.parallel(sch.fuse(io, jo))
    *_, k = sch.get_loops(c)
    _, ki = sch.split(k, factors=(None, 4))
    sch.unroll(ki)
    sch.annotate(c, "note", "two\nlines")
    sch.annotate(ki, "pieces", 2)


@pytest.mark.slow
def test_a_python_function_is_a_program() -> None:
    check(product)
    assert product.name == "product"
    assert product.attrs["tir.noalias"] is True
    assert product.origin is not None and product.origin.file == __file__
    assert [b.shape for b in product.buffers] == [(16, 32), (32, 24), (16, 24)]
    assert_structural_equal(tir.parse(product.script()), product)
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    origins = [s.origin for s in walk_stmt(product.body) if isinstance(s, tir.Block)]
    assert [lines[o.line - 1].strip() for o in origins if o is not None] == ['with T.block("C"):', 'with T.block("D"):']


@pytest.mark.slow
def test_steps_keep_the_result_and_are_data() -> None:
    sch = tir.Schedule(product)
    tiled(sch)
    func = sch.mod["main"]
    check(func)
    stored = json.loads(json.dumps(sch.trace.as_json()))
    assert_structural_equal(tir.replay(product, tir.Trace.from_json(stored)), func)
    again = tir.Schedule(tir.parse(product.script()))
    names: dict[str, Any] = {"tir": tir}
    exec(str(sch.trace), names)
    names["apply_trace"](again)
    assert_structural_equal(again.mod["main"], func)
    assert str(again.trace) == str(sch.trace)


def test_steps_print_as_calls(capsys: pytest.CaptureFixture[str]) -> None:
    sch = tir.Schedule(product)
    i, j = sch.get_loops("D")
    sch.split(i, factors=[None, 4])
    sch.vectorize(j)
    sch.set_scope(sch.get_block("C"), "C", "local")
    assert list(map(str, sch.steps)) == [
        'sch.split(sch.get_loops("D")[0], factors=(None, 4))', 'sch.vectorize(sch.get_loops("D")[2])',
        'sch.set_scope(sch.get_block("C"), "C", "local")',
    ]
    assert str(sch.trace).splitlines() == [
        "# from tvm import tir",
        "def apply_trace(sch: tir.Schedule) -> None:",
        '  b0 = sch.get_block(name="D", func_name="main")',
        "  l1, l2 = sch.get_loops(block=b0)",
        "  l3, l4 = sch.split(loop=l1, factors=[None, 4], preserve_unit_iters=True)",
        "  sch.vectorize(loop=l2)",
        '  b5 = sch.get_block(name="C", func_name="main")',
        '  sch.set_scope(block=b5, buffer_index="C", storage_scope="local")',
    ]
    sch.show()
    sch.trace.show()
    shown = capsys.readouterr().out
    assert shown.count(str(sch.trace)) == 2
    assert str(sch.mod["main"]) in shown


def test_a_loop_stays_what_it_is() -> None:
    sch = tir.Schedule(product)
    i, j, _ = sch.get_loops("C")
    sch.split(i, [None, 4])
    assert isinstance(sch.get(j), tir.For)
    assert sch.get(sch.get_block("C")).name == sch.get("C").name == "C"
    assert [v.var for v in sch.get_loops("C")][2] is j.var
    assert repr(j) == "loop 'j' of main"


def test_copies_and_reductions_in_two_stages() -> None:
    sch = tir.Schedule(tir.parse(test_schedule.product().func.script()))
    _, _, k = sch.get_loops("C")
    ko, _ = sch.split(k, [None, 7])
    made = sch.rfactor(ko, 0)
    copied = sch.cache_read(made, 0, "local")
    written = sch.cache_write("D", 0, "local")
    assert {made.block, copied.block, written.block} <= {
        s.name for s in walk_stmt(sch.mod["main"].body) if isinstance(s, tir.Block)
    }
    test_schedule.check(sch.mod["main"])
    sch2 = tir.Schedule(test_schedule.product().func)
    sch.trace.apply_to_schedule(sch2)
    assert_structural_equal(sch2.mod, sch.mod)


@pytest.mark.parametrize(("init", "step", "name"), [
    ("0.0", "C[v] + A[v, r]", "sum"), ("0.0", "A[v, r] + C[v]", "sum"), ("0.0", "T.fma(A[v, r], 2.0, C[v])", "sum"),
    ("1.0", "C[v] * A[v, r]", "prod"),
    ("T.min_value('float32')", "max(C[v], A[v, r])", "max"), ("T.infinity('float32')", "min(C[v], A[v, r])", "min"),
    ("1.0", "C[v] + A[v, r]", None), ("0.0", "C[v] - A[v, r]", None), ("0.0", "C[v] + C[v]", None),
    ("0.0", "C[3] + A[v, r]", None),
])
def test_reductions_are_known_by_their_form(init: str, step: str, name: str | None) -> None:
    func = tir.parse(f"""
        def f(A: T.Buffer((4, 8), "float32"), C: T.Buffer((4,), "float32")):
            for i, k in T.grid(4, 8):
                with T.block("C"):
                    v, r = T.axis.remap("SR", [i, k])
                    with T.init():
                        C[v] = {init}
                    C[v] = {step}
    """)
    sch = tir.Schedule(func)
    reducer = sch.get("C").annotations.get("combiner")
    assert (reducer and reducer.name) == name
    if name is None:
        return
    outputs = []
    sch.vectorize(sch.get_loops("C")[1])
    for program in (func, sch.mod["main"]):
        a, c = np.random.default_rng(0).integers(1, 4, (4, 8)).astype("float32"), np.zeros(4, "float32")
        run(tir.lower_blocks(program), [a, c])
        outputs.append(c)
    np.testing.assert_array_equal(outputs[0], outputs[1])


@ir_module
class Two:
    @T.prim_func
    def first(A: T.Buffer[(8,), "float32"]) -> None:  # type: ignore[syntax, name-defined]  # noqa: F821, UP037
        for i in T.serial(8):
            with T.block("A"):
                v = T.axis.spatial(8, i)
                A[v] = 1.0  # type: ignore[index]

    @T.prim_func(name="second.part")
    def second(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")) -> None:
        for i in T.serial(8):
            with T.block("A"):
                v = T.axis.spatial(8, i)
                A[v] = 1.0
        for i in T.serial(8):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                B[v] = A[v]


def test_modules_of_several_functions() -> None:
    two: Any = Two  # type checkers take a class for a class, whatever decorates it
    sch = tir.Schedule(two)
    (loop,) = sch.get_loops(sch.get_block("A", func_name="second"))
    sch.unroll(loop)
    sch.parallel(sch.get_loops(sch.get_block("A", "first"))[0])
    assert "\n".join(map(str, sch.steps)) == (
        'sch.unroll(sch.get_loops(sch.get_block("A", func_name="second"))[0])\n'
        'sch.parallel(sch.get_loops(sch.get_block("A", func_name="first"))[0])'
    )
    again = tir.replay(two, tir.Trace.from_json(sch.trace.as_json()))
    assert_structural_equal(again, sch.mod)
    assert sch.mod["second"].name == "second.part"
    assert "T.unrolled" in str(sch.mod["second"])
    assert "T.parallel" not in str(sch.mod["second"])
    with pytest.raises(
        ScheduleError, match="working on; pass func_name=, or call work_on, with one of first, second"
    ):
        sch.get_block("A")
    with pytest.raises(ScheduleError, match="pass one or more loops, all from the same function"):
        sch.fuse(*sch.get_loops(sch.get_block("A", "first")), loop)


def test_loops_of_one_variable_are_told_apart() -> None:
    func = tir.parse("""
        @T.prim_func
        def f(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
            for i in T.serial(8):
                with T.block("A"):
                    v = T.axis.spatial(8, i)
                    with T.init():
                        A[v] = 0.0
                    A[v] = A[v] + 1.0
            for i in T.serial(8):
                with T.block("B"):
                    v = T.axis.spatial(8, i)
                    with T.init():
                        B[v] = 0.0
                    x = A[v]
                    B[v] = x
    """)
    sch = tir.Schedule(func)
    (first,), (second,) = sch.get_loops("A"), sch.get_loops("B")
    assert first.var is not second.var
    assert sch.get("A").iters[0].var is not sch.get("B").iters[0].var
    sch.unroll(second)
    assert [s.kind for s in walk_stmt(sch.mod["main"].body) if isinstance(s, tir.For)] == ["serial", "unrolled"]


@pytest.mark.parametrize("name", test_schedule.STEPS)
def test_the_steps_of_the_engine_are_data(name: str) -> None:
    s = test_schedule.product()
    test_schedule.STEPS[name](s)
    stored = json.loads(json.dumps([step.as_json() for step in s.steps]))
    again = Engine(test_schedule.product().func)
    again.apply(map(ScheduleStep.from_json, stored))
    assert_structural_equal(again.func, s.func)
    assert again.steps == s.steps


def applied(*steps: Any) -> Callable[[], object]:
    return lambda: tir.replay(product, map(ScheduleStep.from_json, steps))


LOOP = {"block": "C", "loop": 0}
MESSAGES: dict[str, tuple[Callable[[], object], str]] = {
    "another step": (
        applied({"step": "unrol", "args": [LOOP]}),
        r"step 0, sch.unrol\(.*\): there is no step 'unrol'; did you mean 'unroll'"
    ),
    "a method that is no step": (applied({"step": "show", "args": []}), "there is no step 'show'"),
    "other arguments": (
        applied({"step": "unroll", "args": []}), r"step 0, sch.unroll\(\): the arguments do not fit: missing"
    ),
    "a loop that is not there": (
        applied({"step": "unroll", "args": [{"block": "C", "loop": 3}]}),
        "block 'C' has 3 loops around it, but no loop number 3"
    ),
    "a block that is not there": (
        applied({"step": "unroll", "args": [{"block": "E", "loop": 0}]}), "there is no block 'E'; the blocks are C, D"
    ),
    "the step that fails": (
        applied({"step": "unroll", "args": [LOOP]}, {"step": "vectorize", "args": [LOOP]}),
        "step 1, .*loop 'i' is already unrolled; leave that out"
    ),
    "no step": (applied("unroll"), "'unroll' is not a schedule step; one is"),
    "no reference": (applied({"step": "unroll", "args": [{"loop": 0}]}), "is not a reference to a block or a loop; a"),
    "no trace": (lambda: tir.Trace.from_json({}), "a trace is a list of the instructions and a list of the decisions"),
    "no instruction": (
        lambda: tir.Trace.from_json([[["Splitt", [], [], []]], []]),
        "there is no instruction 'Splitt'; did you mean 'Split'"
    ),
    "too few arguments": (
        lambda: tir.Trace.from_json([[["GetBlock", [], [], ["b0"]]], []]).apply_to_schedule(tir.Schedule(product)),
        "instruction 'GetBlock' has 0 inputs and 0 attributes, which are too few"
    ),
    "other results": (
        lambda: tir.Trace.from_json(
            [[["GetBlock", [], ["C", "main"], ["b0"]], ["GetLoops", ["b0"], [], ["l1"]]], []]
        ).apply_to_schedule(tir.Schedule(product)),
        "instruction 1, .*, has 3 results here, but 1 in the trace; the trace belongs to another program"
    ),
    "no program": (
        lambda: tir.Schedule("f"),  # type: ignore[arg-type]
        "a schedule takes a PrimFunc or an IRModule of them, but was given a str"
    ),
    "no blocks": (
        lambda: tir.Schedule(conv2d()),
        "function 'main' has no blocks; schedule steps need stores inside blocks"
    ),
    "one name twice": (
        lambda: tir.Schedule(tir.parse(product.script().replace('block("D")', 'block("C")'))),
        "has two blocks 'C'; give each a unique name"
    ),
    "another buffer": (
        lambda: tir.Schedule(product).set_scope("C", 1, "local"), "block 'C' writes 0: C; 1 is not one of them"
    ),
    "another buffer to read": (
        lambda: tir.Schedule(product).cache_read("C", "X", "local"),
        "block 'C' reads 0: A, 1: B; 'X' is not one of them"
    ),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_what_cannot_be_done(name: str) -> None:
    what, message = MESSAGES[name]
    with pytest.raises(ScheduleError, match=message):
        what()


def test_what_cannot_be_stored() -> None:
    sch = tir.Schedule(product)
    sch.annotate("C", "note", object())
    with pytest.raises(ScheduleError, match="which cannot be saved; annotate with numbers, strings, and lists"):
        sch.trace.as_json()


def test_a_failed_step_is_not_noted() -> None:
    sch = tir.Schedule(product)
    with pytest.raises(ScheduleError, match="cover only 6"):
        sch.split(sch.get_loops("C")[0], [2, 3])
    assert sch.steps == []
    assert [inst.kind.name for inst in sch.trace] == ["GetBlock", "GetLoops"]


def test_loops_inside_of_blocks_take_no_steps() -> None:
    sch = tir.Schedule(tir.parse("""
        def f(A: T.Buffer((8,), "float32")):
            with T.block("A"):
                for i in T.serial(8):
                    A[i] = 1.0
    """))
    inner = next(s for s in walk_stmt(sch.mod["main"].body) if isinstance(s, tir.For))
    with pytest.raises(ScheduleError, match="loop 'i' is inside a block; steps apply only to loops around blocks"):
        sch.unroll(LoopRV(inner.var, "main"))


def test_references_print_as_calls() -> None:
    assert str(BlockAt("C")) == 'sch.get_block("C")'
    assert str(LoopAt("C", 1, "f")) == 'sch.get_loops(sch.get_block("C", func_name="f"))[1]'


def test_python_that_cannot_be_read() -> None:
    names: dict[str, Any] = {"T": T}
    with pytest.raises(ParseError, match=r"the source of 'f' is not in a file; pass the text to tir.parse"):
        exec("@T.prim_func\ndef f(A: T.Buffer((8,), 'float32')):\n    A[0] = 1.0\n", names)
    with pytest.raises(
        ParseError,
        match=r"test_tir_schedule.py:\d+: 'test_schedule' is a module; only numbers can be used from the Python "
        r"code around"
    ):
        @T.prim_func
        def wrong(A: T.Buffer((8,), "float32")) -> None:
            A[0] = test_schedule


def test_names_of_the_field() -> None:
    assert tvm.script.tir is T
    assert tvm.tir.Schedule is tir.Schedule
    assert set(tir.__all__) <= set(dir(tir))
    with pytest.raises(AttributeError, match=r"module 'tilewright.tir' has no attribute 'nonsense'"):
        _ = tir.nonsense
