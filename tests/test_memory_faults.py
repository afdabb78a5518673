"""Checked programs: every planted fault is reported, with its buffer, loops and node, and nothing else is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import daily
import tilewright as tvm
from memory_faults import CONFIG, HUGE, PLANTED, Planted, built, check_report, indexed, numbers, relay_built
from op_examples import EXAMPLES, Example
from test_relay_ops import close
from tilewright import relay, tir
from tilewright.base.errors import CompileError, MemoryFault, Origin, RunError
from tilewright.base.memory_faults import READ, Site
from tilewright.compiler.build import build_module
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Function
from tilewright.runtime import load_module
from tilewright.runtime.manifest import MEMORY_FAULT
from tilewright.runtime.module import FactoryModule
from tilewright.scalar.expr import Load, PrimExpr, Select, as_expr
from tilewright.tir.transform.instrument_memory import Checks, instrument_memory


@pytest.mark.parametrize("planted", PLANTED, ids=lambda p: p.id)
def test_a_planted_fault_is_reported(planted: Planted) -> None:
    check_report(planted)


def test_there_are_sixty_planted_faults_and_more() -> None:
    assert len(PLANTED) >= 60
    assert len({p.id for p in PLANTED}) == len(PLANTED)


@pytest.mark.parametrize("example", daily.sample(EXAMPLES, 120, "memory faults"), ids=lambda e: e.id)
@pytest.mark.filterwarnings("ignore::tilewright.base.errors.NotNativeWarning")
def test_operators_without_faults_are_silent(example: Example) -> None:
    params, call = example.call()
    with tvm.transform.PassContext(opt_level=3, config=CONFIG):
        artifact = build_module(IRModule.from_expr(Function(tuple(params), call)), "llvm")
    close(artifact.executable(threads=1)(*example.inputs), example.expected())


def test_the_message() -> None:
    gather = built("gather", indexed, [((16,), "float32"), ((3,), "int32")])
    with pytest.raises(MemoryFault) as caught:
        gather(numbers(), np.array([0, 5, HUGE], np.int32), np.zeros(16, np.float32))
    assert str(caught.value) == """\
'gather' reads out of bounds: a[1000000000] of float32 a[16]: index 0 is 1000000000, and may be 0 to 15
  where i = 2
    4 | out[i] = a[T.cast(b[i], "int64")]
      |          ^^^^^^^^^^^^^^^^^^^^^^^^
  correct the index or the ends of the loop, or read under a condition: if_then_else(0 <= i < n, data[i], 0)"""


def test_a_call_after_a_fault_is_right_again() -> None:
    gather = built("gather", indexed, [((16,), "float32"), ((3,), "int32")])
    out = np.zeros(16, np.float32)
    with pytest.raises(MemoryFault):
        gather(numbers(), np.array([0, 5, -1], np.int32), out)
    gather(numbers(), np.array([1, 2, 3], np.int32), out)
    np.testing.assert_array_equal(out[:3], [1, 2, 3])


def test_what_is_proven_is_not_checked() -> None:
    """Loops within the extents need no check, and the code is that of the function without the option, its loops
    serial."""
    func = tir.parse("""@T.prim_func
def add(a: T.Buffer((8, 4), "float32"), out: T.Buffer((8, 4), "float32")):
    for i in T.parallel(8):
        for j in T.serial(4):
            out[i, j] = a[7 - i, (j + 1) % 4] + 1.0""")
    checked, sites = instrument_memory(func, Checks())
    assert not sites
    assert repr(checked) == repr(func)


def test_what_a_condition_says_of_memory_does_not_outlast_a_store() -> None:
    """The inner branch is not taken, since `idx[0]` has been stored to, and the index is looked at again."""
    func = tir.parse("""@T.prim_func
def f(idx: T.Buffer((1,), "int32"), b: T.Buffer((4,), "float32")):
    if idx[0] < T.int32(4):
        idx[0] = T.int32(100)
        if idx[0] < T.int32(4):
            b[0] = 7.0
        b[max(idx[0], T.int32(0))] = 1.0""")
    with tvm.transform.PassContext(config=CONFIG):
        module = tvm.build(func, target="llvm")
    b = np.zeros(4, np.float32)
    with pytest.raises(MemoryFault, match=r"b\[100\]"):
        module(np.array([1], np.int32), b)
    np.testing.assert_array_equal(b, 0)


def test_a_condition_around_is_a_proof() -> None:
    """Padding reads under conditions on sums of variables; no check repeats them, so loops stay vectorized."""
    func = tir.parse("""@T.prim_func
def padded(a: T.Buffer((8,), "float32"), out: T.Buffer((8, 3, 4), "float32")):
    for i in T.serial(8):
        for k in T.serial(3):
            for v in T.vectorized(4):
                out[i, k, v] = T.if_then_else(i + k - 1 >= 0 and i + k < 9, a[i + k - 1], 0.0)""")
    checked, sites = instrument_memory(func, Checks())
    assert not sites
    assert "T.vectorized(4)" in repr(checked)


def test_what_two_choices_share_is_checked_where_one_of_them_reads_it() -> None:
    a, at, first, second = (
        tir.Buffer(n, (4,), t) for n, t in (("a", "float32"), ("at", "int32"), ("first", "bool"), ("second", "bool"))
    )
    out, zero = tir.Buffer("out", (1,), "float32"), as_expr(0)
    shared = Load(a, (Load(at, (zero,)),))
    value = Select(Load(first, (zero,)), shared, as_expr(0.0)) + Select(
        Load(second, (zero,)), shared * shared, as_expr(0.0)
    )
    with tvm.transform.PassContext(config=CONFIG):
        module = tvm.build(
            tir.PrimFunc("f", (a, at, first, second, out), tir.stmt.Store(out, value, (zero,))), target="llvm"
        )
    x, no, yes = np.full(4, 3, np.float32), np.zeros(4, bool), np.ones(4, bool)
    for one, other, wanted in ((no, no, 0), (no, yes, 9), (yes, no, 3), (yes, yes, 12)):
        found = np.zeros(1, np.float32)
        module(x, np.array([1] * 4, np.int32), one, other, found)
        assert found == wanted
        if wanted:
            with pytest.raises(MemoryFault, match=r"a\[9\]"):
                module(x, np.array([9] * 4, np.int32), one, other, found)
        else:
            module(x, np.array([9] * 4, np.int32), one, other, found)


def test_a_value_under_too_many_conditions_is_not_checked() -> None:
    a, at, out = tir.Buffer("a", (4,), "float32"), tir.Buffer("at", (99,), "bool"), tir.Buffer("out", (1,), "float32")
    value: PrimExpr = Load(a, (as_expr(0),))
    for k in range(9):
        one, other, third = (Load(at, (as_expr(3 * k + j),)) for j in range(3))
        value = Select(one, Select(other, value, as_expr(0.0)), Select(third, value, as_expr(1.0)))
    func = tir.PrimFunc("f", (a, at, out), tir.stmt.Store(out, value, (as_expr(0),)))
    with pytest.raises(
        CompileError,
        match=r"more than 256 combinations of conditions.*store the value that the branches share in a buffer"
    ):
        instrument_memory(func, Checks())


def test_open_sizes_are_told() -> None:
    func = tir.parse("""@T.prim_func
def shifted(a: T.Buffer((n,), "float32"), out: T.Buffer((n,), "float32")):
    n = T.int64()
    for i in T.serial(n):
        out[i] = a[i + 1]""")
    with tvm.transform.PassContext(config=CONFIG):
        module = tvm.build(func, target="llvm")
    with pytest.raises(MemoryFault, match=r"a\[5\] of float32 a\[n\]: index 0 is 5, and may be 0 to 4\n  where i = 4"):
        module(np.zeros(5, np.float32), np.zeros(5, np.float32))


def take(name: str, x: relay.Expr, at: relay.Expr) -> relay.Call:
    op = relay.take(relay.var("x", shape=(4, 8)), relay.var("at", shape=(3,), dtype="int32"), axis=0, mode="fast").op
    return relay.Call(op, [x, at], span=Origin(name, "Gather"))


def two_takes() -> IRModule:
    """Two nodes that share a kernel."""
    x, first, second = relay.var("x", shape=(4, 8)), *(
        relay.var(n, shape=(3,), dtype="int32") for n in ("first", "second")
    )
    return IRModule.from_expr(
        Function([x, first, second], relay.Tuple([take("one", x, first), take("two", x, second)]))
    )


def test_of_two_nodes_with_one_kernel_the_right_one_is_named() -> None:
    run, x = relay_built(two_takes()), numbers(32).reshape(4, 8)
    right, wrong = np.array([0, 1, 2], np.int32), np.array([0, 9, 2], np.int32)
    run(x, right, right)
    for first, second, node in ((wrong, right, "one"), (right, wrong, "two"), (wrong, wrong, "one")):
        with pytest.raises(MemoryFault, match=f"computes Gather '{node}'"):
            run(x, first, second)


@pytest.mark.parametrize("suffix", [".so", ".tar"])
def test_an_artifact_reports_too(tmp_path: Path, suffix: str) -> None:
    with tvm.transform.PassContext(opt_level=3, config=CONFIG):
        lib = relay.build(two_takes(), "llvm")
    lib.export_library(tmp_path / f"takes{suffix}")
    again = load_module(tmp_path / f"takes{suffix}")
    assert isinstance(again, FactoryModule)
    run = again.executable
    right, wrong = np.array([0, 1, 2], np.int32), np.array([0, 1, -7], np.int32)
    with pytest.raises(MemoryFault, match=r"p0\[-7, 0\] of float32 p0\[4, 8\](.|\n)*computes Gather 'two'"):
        run(numbers(32).reshape(4, 8), right, wrong)
    assert f"{MEMORY_FAULT}: a wrong access" in lib.artifact.header()


def test_the_status_is_for_c_too(tmp_path: Path) -> None:
    """The plain C entry returns the status, and the process goes on."""
    with tvm.transform.PassContext(opt_level=3, config=CONFIG):
        lib = relay.build(two_takes(), "llvm", mod_name="takes")
    lib.export_library(tmp_path / "takes.so")
    program = (
        "import ctypes, sys\nimport numpy as np\n"
        f"run = ctypes.CDLL({str(tmp_path / 'takes.so')!r}).takes_run\n"
        "x, out = np.zeros((4, 8), np.float32), [np.zeros((3, 8), np.float32) for _ in range(2)]\n"
        "for last in (3, 4):\n"
        "    at = [np.array([0, 1, last], np.int32) for _ in range(2)]\n"
        "    pointers = lambda arrays: (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))\n"
        "    print(run(pointers([x, *at]), pointers(out)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["0", str(MEMORY_FAULT)]


def test_in_control_flow() -> None:
    x, at, many = relay.var("x", shape=(4, 8)), relay.var(
        "at", shape=(3,), dtype="int32"
    ), relay.var("many", shape=(), dtype="bool")
    body = relay.If(many, relay.exp(take("inside", x, at)), relay.zeros((3, 8), "float32"))
    run = relay_built(IRModule.from_expr(Function([x, at, many], body)))
    data, wrong = numbers(32).reshape(4, 8), np.array([0, 1, 5], np.int32)
    np.testing.assert_array_equal(run(data, wrong, np.array(False)), np.zeros((3, 8)))
    with pytest.raises(MemoryFault, match=r"index 0 is 5(.|\n)*Gather 'inside'"):
        run(data, wrong, np.array(True))
    np.testing.assert_allclose(run(data, wrong - 2, np.array(False)), 0)


def test_a_batch_computed_in_parts() -> None:
    x, at = relay.var("x", shape=(4, 3, 6)), relay.var("at", shape=(4, 2), dtype="int32")
    op = relay.take(
        relay.var("x", shape=(4, 3, 6)), relay.var("at", shape=(4, 2), dtype="int32"), axis=1, batch_dims=1, mode="fast"
    ).op
    mod = IRModule.from_expr(Function([x, at], relay.exp(relay.Call(op, [x, at], span=Origin("crop", "Gather")))))
    with tvm.transform.PassContext(opt_level=3, config={**CONFIG, "relay.SplitBatch.images": 1}):
        run = relay.build(mod, "llvm").executable
    data, right = numbers(72).reshape(4, 3, 6), np.array([[0, 1], [1, 2], [0, 2], [2, 2]], np.int32)
    np.testing.assert_allclose(run(data, right), np.exp(np.take_along_axis(data, right[:, :, None], 1)), rtol=1e-6)
    with pytest.raises(MemoryFault, match="Gather 'crop'"):
        run(data, right + np.array([[0], [0], [1], [0]], np.int32))


def test_the_fault_is_an_error_of_the_field() -> None:
    assert issubclass(MemoryFault, RunError)
    assert tvm.error.MemoryFault is MemoryFault
    assert issubclass(MemoryFault, tvm.error.TVMError)
    known = MemoryFault("no", buffer="a", kind=READ, node="there")
    assert known.at("here") is known
    assert str(MemoryFault("no", buffer="a").at("here")) == "no\n  computes here"


def test_sites_travel_as_json() -> None:
    site = Site(READ, "f", "a", "float32", (4, "n"), ("i",), "Gather 'x'", 3, "out[i] = a[i, i]", 9, 7)
    assert Site.from_json(site.to_json()) == site
    with pytest.raises(ValueError, match="not the site of a check"):
        Site.from_json(["read"])
