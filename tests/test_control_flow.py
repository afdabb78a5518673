"""Programs with control flow as native code: against the interpreter, as text, and what they do when they cannot go on.

The programs are in `tests/text/control_flow.md`. A case is a heading, a relay module, the arguments of `main` in back
quotes, and its functions of control with their counts. TILEWRIGHT_UPDATE_TEXT=1 writes the expected text instead of
comparing it.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tvm
from codegen_processors import COMPILER, EMULATOR, why_not
from random_programs import random_module
from suites import unpack
from tilewright import relay
from tilewright.backends import flow
from tilewright.backends.ownership import _uses, own
from tilewright.base.errors import ArtifactError, CompileError, InputError, NoNativeKernel, RunError
from tilewright.base.types import TensorType
from tilewright.compiler.build import build_module
from tilewright.compiler.flow import lower_control, needs_control
from tilewright.compiler.report import BuildReport
from tilewright.ir.module import IRModule
from tilewright.relay.interpreter import evaluate
from tilewright.relay.transform import InferType, ToANormalForm
from tilewright.runtime.container import ADT
from tilewright.runtime.vm import VirtualMachine

FILE = Path(__file__).parent / "text" / "control_flow.md"
CASE = re.compile(
    r"^## (?P<name>[^\n]+)\n+```relay\n(?P<code>[^`]*)```\n+`(?P<args>[^`]*)`\n+```text\n(?P<text>[^`]*)```\n", re.M
)
CASES = [pytest.param(m, id=m["name"]) for m in CASE.finditer(FILE.read_text())]
HEAD = '#[version = "0.0.5"]\n'
LIST = "type List[A] { Cons(A, List[A]), Nil, }\n"
FUNCTIONS = "type Fs { F(fn(int32) -> int32), }\n"


def i32(value: Any) -> np.ndarray[Any, Any]:
    return np.array(value, np.int32)


def f32(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def parse(text: str) -> IRModule:
    mod: IRModule = relay.parse(HEAD + text)
    return mod


def flat(value: Any) -> list[Any]:
    return [x for f in value for x in flat(f)] if isinstance(value, tuple) else [value]


def compare(got: Any, wanted: Any, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    got, wanted = flat(got), flat(wanted)
    assert len(got) == len(wanted)
    for g, w in zip(got, wanted, strict=True):
        assert g.dtype == w.dtype
        assert g.shape == w.shape
        np.testing.assert_allclose(g.astype(np.float64), w.astype(np.float64), rtol, atol)


def native(mod: IRModule, *args: Any) -> Any:
    return relay.build(mod, "llvm").executable(*args)


def checked_flow(mod: IRModule) -> flow.FlowProgram:
    """The functions of control of a module, every count of which adds up."""
    program = lower_control(InferType()(mod)).program
    program.functions = [own(f) for f in program.functions]
    for f in program.functions:
        given = [*f.params, *f.captured, *([] if f.itself is None else [f.itself])]
        check_counts(f.body, dict.fromkeys(given, 1))
    return program


def check_counts(body: flow.Body, counts: dict[int, int]) -> dict[int, int] | None:
    """The counts that are owned after a branch; None where it ends the function, which then owns nothing."""
    counts = dict(counts)
    for i in body:
        if isinstance(i, flow.Hold):
            assert counts[i.value] > 0
            counts[i.value] += 1
        elif isinstance(i, flow.Drop):
            counts[i.value] -= 1
            assert counts[i.value] >= 0
        elif isinstance(i, (flow.If, flow.Choose)):
            assert counts[i.cond if isinstance(i, flow.If) else i.value] > 0
            branches = [(i.then, ()), (i.other, ())] if isinstance(i, flow.If) else [(c.body, c.binds) for c in i.cases]
            after = [check_counts(b, counts | {r: 1 for r, _ in binds}) for b, binds in branches]
            known = [{r: n for r, n in a.items() if n} for a in after if a is not None]
            if i.out is None:
                assert not known
                return None
            assert all(k == known[0] for k in known)
            counts = {**(known[0] if known else {}), i.out: 1}
        else:
            made, looked, taken = _uses(i)
            assert all(counts[r] > 0 for r in looked)
            for r in taken:
                counts[r] -= 1
                assert counts[r] >= 0
            counts.update(dict.fromkeys(made, 1))
            if isinstance(i, (flow.Return, flow.TailCall, flow.TailApply)):
                assert not any(counts.values())
                return None
    return counts


@pytest.mark.parametrize("case", CASES)
def test_programs(case: re.Match[str]) -> None:
    mod = parse(case["code"])
    args = eval(f"[{case['args']}]", {"i32": i32, "f32": f32, "np": np})
    assert needs_control(mod["main"])
    text = f"{checked_flow(mod)}\n"
    compare(native(mod, *args), evaluate(mod, *args))
    if os.environ.get("TILEWRIGHT_UPDATE_TEXT"):
        whole = FILE.read_text()
        FILE.write_text(whole.replace(case[0], case[0].replace(f"```text\n{case['text']}```", f"```text\n{text}```")))
    else:
        assert text == case["text"]


def inputs_of(mod: IRModule, seed: int) -> list[Any] | None:
    """Random tensors for `main`; None where it takes anything else."""
    rng = np.random.default_rng(seed)
    types = [p.checked_type for p in mod["main"].params]
    if not all(isinstance(t, TensorType) for t in types):
        return None
    return [(rng.random(t.shape) * 2).astype(t.dtype.numpy()) for t in types]


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 260, 20))
def test_random_programs(first: int) -> None:
    """Whole-language programs agree with the interpreter, references included, and all counts add up."""
    run = 0
    for seed in range(first, first + 20):
        mod = random_module(seed, vary=False, static=True, pure=seed % 2 == 0).map_functions(
            lambda f: f.without_attr("Compiler"), relay.Function
        )
        args = inputs_of(mod, seed)
        if args is None:
            continue
        wanted = evaluate(mod, *args)
        if needs_control(mod["main"]):
            checked_flow(mod)
        compare(native(ToANormalForm()(mod) if seed % 5 == 0 else mod, *args), wanted, 1e-2, 1e-3)
        run += 1
    assert run > 8


SUM = (
    "def @main(%n: int32) -> int32 { @sum(%n) }\ndef @sum(%n: int32) -> int32 { if (equal(%n, 0)) { 0 } else { add(%n, "
    "@sum(subtract(%n, 1))) } }\n"
)
LOOP = """
def @main(%n: int32, %x: Tensor[(1000), float32]) {
  let %loop = fn (%i: int32, %sum: Tensor[(1000), float32]) -> (int32, Tensor[(1000), float32]) {
    if (less(%i, %n)) { let %next = tanh(add(%sum, %x)); %loop(add(%i, 1), %next) } else { (%i, %sum) }
  };
  %loop(0, zeros_like(%x))
}
"""


def test_recursion_that_is_not_last() -> None:
    run = relay.build(parse(SUM), "llvm").executable
    assert [int(run(i32(n))) for n in (0, 1, 5_000)] == [0, 1, 12_502_500]


def test_recursion_too_deep_is_an_error_and_harms_nothing() -> None:
    run = relay.build(parse(SUM), "llvm").executable
    with pytest.raises(
        RunError,
        match="functions of 'default' call each other too deeply for the stack; make the recursive call the last thing"
    ):
        run(i32(100_000_000))
    assert int(run(i32(10))) == 55


def test_a_loop_of_100_000_turns_keeps_its_memory() -> None:
    run = relay.build(parse(LOOP), "llvm").executable
    x = f32(1000)
    count, few = run(i32(100), x)
    wanted = np.zeros(1000, np.float32)
    for _ in range(100):
        wanted = np.tanh(wanted + x)
    assert int(count) == 100
    np.testing.assert_allclose(few, wanted, 1e-4, 1e-5)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    count, _ = run(i32(100_000), x)
    assert int(count) == 100_000
    # KiB; one value in each turn would be 400,000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2_000


def test_a_long_list_is_freed_without_recursion() -> None:
    mod = parse(LIST + """
def @up(%n: int32, %l: List[int32]) -> List[int32] { if (equal(%n, 0)) { %l } else { @up(subtract(%n, 1), Cons(%n, %l)) } }
def @turns(%k: int32, %n: int32, %sum: int32) -> int32 {
  if (equal(%k, 0)) { %sum } else {
    let %l = @up(%n, Nil);
    let %head = match? (%l) { Cons(%h, _) => %h, };
    @turns(subtract(%k, 1), %n, add(%sum, %head))
  }
}
def @main(%k: int32, %n: int32) -> int32 { @turns(%k, %n, 0) }
""")  # noqa: E501
    run = relay.build(mod, "llvm").executable
    assert int(run(i32(2), i32(200_000))) == 2
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert int(run(i32(20), i32(200_000))) == 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2_000


UNMATCHED = LIST + """
def @main(%n: int32) -> int32 {
  let %l = if (equal(%n, 0)) { Nil } else { Cons(%n, Nil) };
  match? (%l) { Cons(%h, Nil) => %h, }
}
"""


def test_match_failure_names_the_match(tmp_path: Path) -> None:
    built = relay.build(parse(UNMATCHED), "llvm")
    message = (
        r"no clause of a match in @main \(.*\) fits the value; its clauses are for Cons\(%h, Nil\); add the missing one"
    )
    loaded = tvm.runtime.load_module(built.export_library(tmp_path / "m.tar"))
    for run in (built.executable, loaded.executable):  # type: ignore[union-attr]
        assert int(run(i32(7))) == 7
        with pytest.raises(RunError, match=message):
            run(i32(0))
        assert int(run(i32(8))) == 8
    assert "2: recursion too deep for the stack" in built.artifact.header()
    assert "3: no clause of a match in @main" in built.artifact.header()


@pytest.mark.slow
def test_memory_that_is_not_there() -> None:
    mod = parse(LIST + """
def @more(%l: List[Tensor[(2048, 2048, 1024), float32]], %x: float32) -> float32 { @more(Cons(full(%x, shape=[2048, 2048, 1024], dtype="float32"), %l), %x) }
def @main(%x: float32) -> float32 { @more(Nil, %x) }
""")  # noqa: E501
    code = (
        "import resource, sys, numpy as np\nfrom tilewright import relay\nfrom tilewright.base.errors import RunError\n"
        "from tilewright.compat.transform import PassContext\n"
        "with PassContext(config={'relay.backend.max_memory': 1 << 40}):\n"
        f"    run = relay.build(relay.parse({HEAD + 'X'!r}.replace('X', sys.argv[1])), 'llvm').executable\n"
        "resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))\n"
        "try:\n    run(np.float32(1))\nexcept RunError as error:\n    print(error)\n"
    )
    text = mod.astext(show_meta_data=False).split("\n", 1)[1]
    done = subprocess.run(
        [sys.executable, "-c", code, text], capture_output=True, text=True, check=False,
        env={**os.environ, "TILEWRIGHT_NUM_THREADS": "1"}
    )
    assert done.stdout == "'default' needs more memory than is available\n", done.stderr


@pytest.mark.parametrize("suffix", [".so", ".tar"])
def test_files_run_elsewhere(tmp_path: Path, suffix: str) -> None:
    """A library runs where the compiler is not imported."""
    path = relay.build(parse(LOOP), "llvm").export_library(tmp_path / f"loop{suffix}")
    x = f32(1000)
    np.save(tmp_path / "x.npy", x)
    code = (
        "import sys, numpy as np\nfrom tilewright.runtime import load_module\nfrom tilewright.runtime.vm import "
        "VirtualMachine\n"
        f"vm = VirtualMachine(load_module({str(path)!r}))\ncount, y = vm.run(np.array(50, np.int32), "
        f"np.load({str(tmp_path / 'x.npy')!r}))\n"
        "assert int(count.numpy()) == 50\n"
        + (
            "assert not [m for m in sys.modules if m.startswith(('tilewright.relay', 'tilewright.compiler', "
            "'tilewright.backends', 'tilewright.compat.target', 'llvmlite'))]\n" if suffix == ".so" else ""
        )
        + f"np.save({str(tmp_path / 'y.npy')!r}, y.numpy())\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), evaluate(parse(LOOP), i32(50), x)[1], 1e-4, 1e-5)


def test_calls_from_several_threads_do_not_meet() -> None:
    run = relay.build(parse(LOOP), "llvm").executable
    x = f32(1000)
    wanted = {n: run(i32(n), x)[1] for n in (10, 20, 30, 40)}
    with ThreadPoolExecutor(4) as threads:
        for n, found in [(n, threads.submit(run, i32(n), x)) for _ in range(50) for n in wanted]:
            np.testing.assert_array_equal(found.result()[1], wanted[n])


def test_a_small_stack_is_enough_for_loops_and_guarded() -> None:
    loop, total = (relay.build(parse(text), "llvm").executable for text in (LOOP, SUM))
    x, found = f32(1000), []

    def work() -> None:
        found.append(int(loop(i32(1000), x)[0]))
        found.append(int(total(i32(100))))
        with pytest.raises(RunError, match="too deeply for the stack"):
            total(i32(100_000))
        found.append(int(total(i32(100))))

    old = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(old)
    assert found == [1000, 5050, 5050]


def test_doors() -> None:
    mod, x = parse(LOOP), f32(1000)
    _, wanted = evaluate(mod, i32(3), x)
    _, short = tvm.compile(mod)(n=i32(3), x=x)
    compare(short, wanted)
    vm = VirtualMachine(relay.vm.compile(mod, "llvm"), tvm.cpu())
    answers = vm.invoke("main", i32(3), x)
    assert isinstance(answers, ADT)
    count, through = answers
    assert int(count.numpy()) == 3
    compare(through.numpy(), wanted)
    vm.set_input("main", i32(3), x)
    vm.run()
    compare(vm.get_outputs()[1].numpy(), wanted)
    graph = tvm.contrib.graph_executor.GraphModule(relay.build(mod, "llvm")["default"](tvm.cpu()))
    graph.run(n=i32(3), x=x)
    compare(graph.get_output(1).numpy(), wanted)
    for kind in ("graph", "vm", "aot"):
        _, there = relay.create_executor(kind, mod, tvm.cpu(), "llvm").evaluate()(i32(3), x=x)
        compare(there.numpy(), wanted)
    with pytest.raises(InputError, match="a compiled program is entered by 'main', not by 'loop'"):
        vm.invoke("loop")


TAIL = "let %r = @sum(3, %x); let %y = exp(%r); "
SUM_OF = (
    "def @sum(%i: int32, %x: Tensor[(1000), float32]) -> Tensor[(1000), float32] { if (equal(%i, 0)) { %x } else { "
    "@sum(subtract(%i, 1), add(%x, %x)) } }\n"
)
IN_PLACE = [
    ("(%y, add(%y, %x))", 2),
    ("(%y, %y)", 1),  # one value for two outputs: it is copied into the second
    ("(%x, tanh(%y))", 1),
    ("(@sum(2, %y), %y)", 1),  # read by a call after it was made
    ("((%y, %r), nn.relu(%y))", 2),
    ("if (less(max(%y), max(%x))) { (%y, %r) } else { (%r, %y) }", 0),  # it is another output on another way
]


@pytest.mark.parametrize(("result", "count"), IN_PLACE)
def test_blocks_write_into_the_memory_of_the_caller(result: str, count: int) -> None:
    mod = parse(SUM_OF + "def @main(%x: Tensor[(1000), float32]) {" + TAIL + result + "}\n")
    assert len(flow.written_in_place(checked_flow(mod))) == count
    for x in (f32(1000), -abs(f32(1000))):
        compare(native(mod, x), evaluate(mod, x))


def test_a_main_that_is_called_again_copies_its_results() -> None:
    mod = parse("""
def @main(%n: int32, %x: Tensor[(8), float32]) -> (Tensor[(8), float32], Tensor[(8), float32]) {
  let %y = add(%x, %x);
  let %z = if (equal(%n, 0)) { %x } else { let %inner = @main(subtract(%n, 1), %y); %inner.0 };
  (add(%z, %y), %y)
}
""")
    assert flow.written_in_place(checked_flow(mod)) == {}
    compare(native(mod, i32(3), f32(8)), evaluate(mod, i32(3), f32(8)))


def test_functions_compile_by_the_short_door() -> None:
    c, x = relay.var("c", shape=(), dtype="bool"), relay.var("x", shape=(4,))
    run = tvm.compile(relay.Function([c, x], relay.If(c, relay.add(x, x), relay.nn.relu(x))))
    value = np.array([-1, 2, -3, 4], np.float32)
    assert run(np.array(True), value).tolist() == [-2, 4, -6, 8]
    assert run(np.array(False), value).tolist() == [0, 2, 0, 4]


@pytest.mark.parametrize("triple", ["aarch64-linux-gnu", "riscv64-linux-gnu", "x86_64-linux-gnu"])
def test_tail_calls_are_jumps_on_every_machine(triple: str) -> None:
    """LLVM refuses a `musttail` call that it cannot make a jump of."""
    report = BuildReport()
    artifact = build_module(parse(LOOP), f"llvm -mtriple={triple}", report=report)
    assert report.llvm["flow"].count("musttail call") == 2
    assert len(artifact.objects) == len(report.llvm) + 2  # and the pool, and the looks for signals


MAIN_IN_C = """
#include <stdio.h>
#include "model.h"
static float x[1000] __attribute__((aligned(16))), y[1000] __attribute__((aligned(16)));
static int32_t n __attribute__((aligned(16))) = 100000, count __attribute__((aligned(16)));
int main(void) {
  for (int i = 0; i < 1000; i++) x[i] = i * 0.001f;
  const void *inputs[] = {&n, x};
  void *outputs[] = {&count, y};
  int32_t status = loop_run(inputs, outputs);
  printf("%d %d %.5f %.5f", (int)status, (int)count, y[0], y[500]);
  loop_close();
  return 0;
}
"""


@pytest.mark.slow
@pytest.mark.skipif(why_not("aarch64") != "", reason=why_not("aarch64"))
def test_on_another_machine_called_from_c(tmp_path: Path) -> None:
    artifact = build_module(parse(LOOP), "llvm -mtriple=aarch64-linux-gnu", "loop")
    unpack(artifact.save(tmp_path / "loop.tar"), tmp_path)
    (tmp_path / "main.c").write_text(MAIN_IN_C)
    objects = sorted(map(str, tmp_path.glob("*.o")))
    subprocess.run(
        [COMPILER, "-static", "-o", str(tmp_path / "main"), str(tmp_path / "main.c"), *objects, "-lm", "-lpthread"],
        check=True
    )
    done = subprocess.run([EMULATOR, str(tmp_path / "main")], capture_output=True, text=True, check=True)
    wanted = 0.0
    for _ in range(200):
        wanted = float(np.tanh(wanted + 0.5))
    assert done.stdout == f"0 100000 0.00000 {wanted:.5f}"


def test_an_onnx_branch_that_is_taken_at_run_time() -> None:
    def value(name: str, *shape: int) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    branches = {
        name: helper.make_graph(
            [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), helper.make_node(kind, ["c"], [name])],
            name, [], [value(name, 1, 8, 16, 16)]
        )
        for name, kind in (("then_branch", "Relu"), ("else_branch", "Tanh"))
    }
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], keepdims=0),
        helper.make_node("Greater", ["mean", "zero"], ["c"]),
        helper.make_node("If", ["c"], ["y"], **branches), helper.make_node("Add", ["y", "y"], ["out"]),
    ]
    weights = [numpy_helper.from_array(f32(8, 3, 3, 3), "w"), numpy_helper.from_array(np.array(0, np.float32), "zero")]
    graph = helper.make_graph(nodes, "g", [value("x", 1, 3, 16, 16)], [value("out", 1, 8, 16, 16)], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    mod, _ = relay.frontend.from_onnx(model)
    run = tvm.compile(model)
    for sign in (1, -1):
        x = sign * np.abs(f32(1, 3, 16, 16))
        compare(run(x), evaluate(mod, x), 1e-4, 1e-4)


@pytest.mark.slow
def test_deep_graphs_lower_without_recursion() -> None:
    x, c = relay.var("x", shape=(2,)), relay.var("c", shape=(), dtype="bool")
    y: Any = x
    for _ in range(10_000):
        y = relay.add(y, x)
    z: Any = x
    for k in range(3_000):
        z = relay.Let(relay.var(f"v{k}", shape=(2,)), relay.RefRead(relay.RefCreate(x)), z)
    mod = IRModule.from_expr(relay.Function([c, x], relay.If(c, y, z)))
    program = checked_flow(mod)
    assert len(program.blocks) == 1
    assert sum(isinstance(i, flow.Read) for i in flow.walk(program.functions[0].body)) == 3_000


@pytest.mark.parametrize(("text", "message"), [
    (
        FUNCTIONS + "def @main(%l: Fs) { 1 }",
        r"input 'l' of @main is Fs\[\], but a compiled program takes tensors of known sizes; take its tensors as "
        r"inputs and build it in @main, or evaluate"
    ),
    (
        "def @main(%t: (int32, ref(int32))) { %t.0 }",
        r"input 't' of @main is \(int32, ref\(int32\)\), .*; give its fields as separate inputs"
    ),
    (
        "def @main(%f: fn(int32) -> int32) { %f(1) }",
        r"input 'f' of @main is fn \(int32\) -> int32, .*; make it a function of the module, and call that by its name"
    ),
    (
        "def @main(%r: ref(int32)) { ref_read(%r) }",
        r"input 'r' of @main is ref\(int32\), .*; take the value as an input, and make the reference in @main"
    ),
    ("def @main[A](%x: A) { %x }", r"input 'x' of @main is A, .*; give it a plain type"),
    (
        "def @main(%x: int32) { (1, (%x, ref(%x))) }",
        r"field 1.1 of the result of @main is a value of type ref\(int32\), .*; read it in @main, and return the value"
    ),
    (
        "def @main(%x: int32) { fn (%y: int32) { add(%x, %y) } }",
        r"@main returns a value of type fn \(int32\) -> int32, .*; call it in @main, and return its result"
    ),
    (
        "def @main(%c: bool, %x: Tensor[(4), float32]) { if (%c) { 1f } else { @f(%x) } }\ndef @f(%y: Tensor[(?), "
        "float32]) -> float32 { sum(%y) }",
        r"'y' of @f has the type Tensor\[\(\?\), float32\], but code is compiled for known sizes; annotate it with a "
        r"size",
    ),
    (
        FUNCTIONS + "def @main(%n: int32) { F(fn (%y: int32) { add(%n, %y) }) }",
        r"@main returns a value of type Fs\[\], but compiled programs return tensors and tuples of them; take the "
        r"tensors out of it with a match in @main"
    ),
])
def test_refusals(text: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        relay.build(parse(text), "llvm")


def test_an_operator_that_runs_in_python_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def compute(self: Any, *args: Any) -> Any:
        raise NoNativeKernel

    monkeypatch.setattr(relay.op.get("tanh"), "compute", compute)
    with pytest.raises(
        CompileError,
        match=r"tanh .*has no native kernel, but a program with control flow.*create_executor\('debug'\)"
    ):
        relay.build(parse("def @main(%c: bool, %x: Tensor[(4), float32]) { if (%c) { tanh(%x) } else { %x } }"), "llvm")


def test_a_program_with_control_flow_has_no_steps() -> None:
    run = relay.build(parse(LOOP), "llvm").executable
    assert run.manifest.steps == ()
    assert run.manifest.workspace_bytes > 0
    with pytest.raises(ArtifactError, match="a compiled model is saved as"):
        relay.build(parse(LOOP), "llvm").export_library("/nowhere/x.zip")
