"""TVM's virtual machine: executables, values of data types and tuples at `main`, and programs for all sizes."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.base.errors import ArtifactError, CompileError, InputError
from tilewright.compiler.vm import VMCompiler
from tilewright.relay.dataflow_pattern import is_op, wildcard
from tilewright.relay.interpreter import ConstructorValue
from tilewright.runtime import vm
from tilewright.runtime.benchmark import BenchmarkResult
from tilewright.runtime.container import ADT, tuple_object
from tilewright.runtime.module import FactoryModule
from tilewright.runtime.modules import Module

HEAD = '#[version = "0.0.5"]\n'
LIST = HEAD + "type List[A] { Cons(A, List[A]), Nil, }\n"
SUM = LIST + (
    "def @sum(%l: List[Tensor[(3), float32]], %s: Tensor[(3), float32]) -> Tensor[(3), float32] {\n"
    "  match (%l) { Cons(%h, %t) => @sum(%t, add(%s, %h)), Nil => %s, }\n}\n"
    "def @main(%t: (Tensor[(3), float32], List[Tensor[(3), float32]])) { (@sum(%t.1, %t.0), Cons(%t.0, %t.1)) }")
REVERSE = LIST + (
    "def @rev(%l: List[int32], %done: List[int32]) -> List[int32] {\n"
    "  match (%l) { Cons(%h, %t) => @rev(%t, Cons(%h, %done)), Nil => %done, }\n}\n"
    "def @main(%l: List[int32]) { @rev(%l, Nil) }")


def machine(mod: Any, **kwargs: Any) -> vm.VirtualMachine:
    return vm.VirtualMachine(relay.vm.compile(mod, "llvm", **kwargs), tvm.cpu())


def a_list(items: Any) -> ADT:
    found = ADT(1, [])
    for x in reversed(list(items)):
        found = ADT(0, [x, found])
    return found


def items_of(value: Any) -> list[Any]:
    found = []
    while len(value):
        found.append(value[0].numpy())
        value = value[1]
    return found


def f32(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def test_a_list_in_and_out_of_a_tuple() -> None:
    run = machine(relay.parse(SUM))
    for n in (0, 1, 5, 300):
        rows = [f32(3, seed=k) for k in range(n)]
        first = f32(3, seed=n)
        total, whole = run.invoke("main", (first, a_list(rows)))
        np.testing.assert_allclose(total.numpy(), sum(rows, first), rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(items_of(whole), [first, *rows])
        assert (whole.tag, len(run.get_outputs())) == (0, 2)


@pytest.mark.slow
def test_long_lists_and_threads() -> None:
    run = machine(relay.parse(REVERSE))
    wrong: list[int] = []

    def work(n: int) -> None:
        found = [int(x) for x in items_of(run.run(a_list(map(np.int32, range(n)))))]
        if found != list(reversed(range(n))):
            wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in (0, 7, 3_000, 20_000)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_values_that_are_shared() -> None:
    mod = relay.parse(LIST + (
        "def @main(%n: int32) { let %l = Cons(%n, Nil); let %t = (%l, %l); (%t, (%n, %t)) }"))
    (a, b), (n, (c, d)) = machine(mod).run(np.int32(5))
    assert [items_of(x) for x in (a, b, c, d)] == [[5]] * 4
    assert n.numpy() == 5
    shared = ADT(0, [np.int32(1), ADT(1, [])])
    two = relay.parse(LIST + "def @main(%l: List[List[int32]]) { %l }")
    inner = machine(two).run(ADT(0, [shared, ADT(0, [shared, ADT(1, [])])]))
    assert [items_of(inner[0]), items_of(inner[1][0])] == [[1], [1]]


def test_the_interpreter_agrees() -> None:
    mod = relay.parse(SUM)
    given = (f32(3), a_list([f32(3, seed=k) for k in range(4)]))
    cons, nil = mod.get_type("List")[1:]
    as_values = ConstructorValue(1, [], nil)
    for x in reversed([f32(3, seed=k) for k in range(4)]):
        as_values = ConstructorValue(0, [x, as_values], cons)
    wanted, _ = relay.create_executor("debug", mod).evaluate()((given[0], as_values))
    for kind in ("vm", "graph", "aot"):
        for value in (given[1], as_values):
            found, whole = relay.create_executor(kind, mod).evaluate()((given[0], value))
            np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-5, atol=1e-5)
            assert len(items_of(whole)) == 5


@pytest.mark.parametrize(("kind", "made"), [("debug", ADT), ("graph", list), ("vm", ADT), ("aot", list)])
def test_several_results(kind: str, made: type[Any]) -> None:
    x = relay.var("x", shape=(4,))
    found: Any = relay.create_executor(kind).evaluate(relay.Function([x], relay.split(x, 2).astuple()))(np.arange(4.0))
    assert type(found) is made
    assert [v.numpy().tolist() for v in found] == [[0, 1], [2, 3]]


def test_options_and_trees() -> None:
    mod = relay.parse(HEAD + (
        "type Option[A] { Some(A), None, }\ntype Tree { Leaf, Node(Tree, (int32, bool), Tree), }\n"
        "def @main(%c: bool, %t: Tree) { (if (%c) { Some(%t) } else { None }, %t) }"))
    run = machine(mod)
    leaf = ADT(0, [])
    tree = ADT(1, [ADT(1, [leaf, (np.int32(1), np.bool_(True)), leaf]), (np.int32(2), np.bool_(False)), leaf])
    some, same = run.run(np.bool_(True), tree)
    assert (some.tag, some[0][0][1][0].numpy(), some[0][1][1].numpy()) == (0, 1, False)
    assert (same.tag, same[1][0].numpy()) == (1, 2)
    assert run.run(np.bool_(False), leaf)[0].tag == 1


def test_nested_tuples() -> None:
    x, y = (relay.TensorType(s, "float32") for s in ((2, 3), (4,)))
    t = relay.var("t", type_annotation=relay.TupleType([x, relay.TupleType([y, x])]))
    body = relay.Tuple([t[1][0], relay.Tuple([relay.add(t[0], t[1][1]), relay.Tuple([t[0]])])])
    run = machine(tvm.IRModule.from_expr(relay.Function([t], body)))
    a, b, c = f32(2, 3), f32(4), f32(2, 3, seed=1)
    for value in ((a, (b, c)), [a, [b, c]], tuple_object([a, tuple_object([b, c])])):
        first, (total, (last,)) = run.run(value)
        np.testing.assert_array_equal(first.numpy(), b)
        np.testing.assert_array_equal(total.numpy(), a + c)
        np.testing.assert_array_equal(last.numpy(), a)
    with pytest.raises(InputError, match=r"'t.1' is a tuple of 2 values, but a tuple of 1 is given"):
        run.run((a, (b,)))


@pytest.mark.parametrize(("value", "message"), [
    (np.int32(1), r"input 'l' has a int32 where the program takes a value of List\[int32\]"),
    (ADT(2, []), r"a value with the tag 2 and 0 fields, but the tags of List\[int32\] are 0 \(Cons, 2 fields\), 1"),
    (ADT(0, [np.int32(1)]), r"a value with the tag 0 and 1 fields"),
    (ADT(0, [np.zeros(2, np.int32), ADT(1, [])]), r"input 'l' has shape \[2\], expected int32 l\[\]"),
    (ADT(0, [np.float64(1), ADT(1, [])]), r"input 'l' has dtype float64"),
])
def test_values_of_other_types(value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        machine(relay.parse(REVERSE)).run(value)


def test_a_failing_program_returns_its_memory() -> None:
    mod = relay.parse(LIST + "def @main(%l: List[int32]) { match? (%l) { Cons(_, %t) => %t, } }")
    run = machine(mod)
    with pytest.raises(tvm.TVMError, match="no clause"):
        run.run(ADT(1, []))
    assert [int(x) for x in items_of(run.run(a_list(map(np.int32, (1, 2, 3)))))] == [2, 3]


def test_a_saved_executable_in_another_process(tmp_path: Path) -> None:
    exe = relay.vm.compile(relay.parse(SUM), "llvm")
    code, lib = exe.save()
    assert isinstance(code, bytearray)
    assert isinstance(lib, tvm.runtime.Module)
    assert isinstance(lib, FactoryModule)
    lib.export_library(tmp_path / "lib.so")
    (tmp_path / "code.ro").write_bytes(code)
    script = (
        "import sys, numpy as np\nfrom tilewright.runtime import load_module, vm\n"
        "from tilewright.runtime.container import ADT\n"
        "exe = vm.Executable.load_exec(bytearray(open('code.ro', 'rb').read()), load_module('lib.so'))\n"
        "x = np.ones(3, np.float32)\n"
        "total, whole = vm.VirtualMachine(exe).run((x, ADT(0, [x, ADT(0, [x, ADT(1, [])])])))\n"
        "assert (total.numpy() == 3).all() and len(whole[1][1]) == 2\n"
        "assert exe.globals == ['main', 'sum'] and 'choose' in exe.bytecode\n"
        "assert not any(m in sys.modules for m in ('llvmlite', 'tilewright.relay', 'tilewright.compiler'))\n")
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
    other = relay.vm.compile(relay.parse(REVERSE), "llvm")
    with pytest.raises(ArtifactError, match="are those of two programs"):
        vm.Executable.load_exec(code, other.lib)
    with pytest.raises(ArtifactError, match="not the code of a saved executable"):
        vm.Executable.load_exec(b"\0" * 8, lib)


def test_what_an_executable_says() -> None:
    exe = relay.vm.compile(relay.parse(SUM), "llvm")
    assert exe.globals == ["main", "sum"]
    assert exe.get_function_params("main") == ["t"]
    assert exe.get_function_params("sum") == ["l", "s"]
    assert "VM Function[1]: sum(l, s)" in exe.bytecode
    assert all(name in exe.bytecode for name in exe.primitive_ops)
    assert f"Primitive ops (#{len(exe.primitive_ops)})" in exe.stats
    assert "device type 1" in exe.virtual_devices
    with pytest.raises(InputError, match="no function 'product'; it has main, sum"):
        exe.get_function_params("product")
    x = relay.var("x", shape=(2, 2))
    plain = relay.vm.compile(tvm.IRModule.from_expr(relay.exp(relay.add(x, relay.const(1.0)))), "llvm")
    assert plain.constants == "VM Const[0]: NDArray[(),float32]\n"
    assert plain.bytecode.count("call ") == len(plain.primitive_ops) == 1


def test_the_steps_of_a_compiler() -> None:
    x, w = relay.var("x", shape=(2, 4)), relay.var("w", shape=(3, 4))
    mod = tvm.IRModule.from_expr(relay.Function([x, w], relay.nn.relu(relay.nn.dense(x, w))))
    compiler = VMCompiler()
    with pytest.raises(InputError, match="call lower"):
        compiler.get_exec()
    compiler.set_params({"w": f32(3, 4)})
    np.testing.assert_array_equal(compiler.get_params()["w"].numpy(), f32(3, 4))
    optimized, rest = compiler.optimize(mod, "llvm")
    assert [p.name_hint for p in optimized["main"].params] == ["x"]
    assert rest == {}
    compiler.lower(mod, "llvm")
    compiler.codegen()
    run = vm.VirtualMachine(compiler.get_exec(), [tvm.cpu()])
    value = f32(2, 4, seed=1)
    np.testing.assert_allclose(
        run.run(value).numpy(), np.maximum(value @ f32(3, 4).T, 0), rtol=1e-4, atol=1e-5)


def test_inputs_and_outputs_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    run = machine(tvm.IRModule.from_expr(relay.Function([x, y], relay.subtract(x, y))))
    a, b = f32(2), f32(2, seed=1)
    assert [run.get_input_index(n) for n in ("x", "y", "z")] == [0, 1, -1]
    run.set_one_input("main", "y", b)
    with pytest.raises(InputError, match="lacks the inputs x"):
        run.invoke("main")
    run.set_one_input("main", x=a)
    np.testing.assert_array_equal(run.invoke("main").numpy(), a - b)
    run.set_input("main", y=a, x=b)
    run.invoke_stateful("main")
    np.testing.assert_array_equal(run.get_outputs()[0].numpy(), b - a)
    out = tvm.nd.array(np.zeros(2, np.float32))
    run.invoke_with_outputs("main", {"x": a, "y": a}, [out])
    np.testing.assert_array_equal(out.numpy(), a - a)
    for wrong, message in (((a,), "takes 2 arguments"), ((a, b, a), "takes 2 arguments")):
        with pytest.raises(InputError, match=message):
            run.invoke("main", *wrong)
    with pytest.raises(InputError, match="'z' is not a parameter"):
        run.invoke("main", a, z=b)
    assert run.benchmark(tvm.cpu(), a, b, repeat=2, number=1).mean > 0
    assert run.benchmark(tvm.cpu(), a, b, repeat=2, number=1, end_to_end=True).mean > 0
    assert run.time_evaluator("invoke", tvm.cpu(), number=1)("main").mean > 0, "with the arguments before"
    with pytest.raises(InputError, match="only 'invoke' can be timed, not 'run'"):
        run.time_evaluator("run", tvm.cpu())
    with monkeypatch.context() as patched:
        patched.setattr(Module, "time_evaluator", lambda *_args, **_named: lambda _name: BenchmarkResult((1.0, 2.0)))
        assert run.benchmark(tvm.cpu(), a, b).results == (1.0, 2.0)


def dense(rows: Any) -> tvm.IRModule:
    x = relay.var("x", shape=(rows, 16))
    return tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(relay.nn.dense(x, relay.const(f32(8, 16))))))


def test_unknown_dimensions_are_one_program(tmp_path: Path) -> None:
    exe = relay.vm.compile(dense(relay.Any()), "llvm")
    run = vm.VirtualMachine(exe, tvm.cpu())
    for n in (1, 2, 61, 200):
        np.testing.assert_allclose(
            run.run(f32(n, 16)).numpy(), np.maximum(f32(n, 16) @ f32(8, 16).T, 0), rtol=1e-4, atol=1e-4)
    assert [m.symbols[0].name for m in exe.mod.manifests()] == ["x_0"]
    assert run.run(f32(0, 16)).shape == (0, 8)  # outside of the range of the symbol, so a stage computes it
    assert len(exe.mod.manifests()) == 2
    code, lib = exe.save()
    lib.export_library(tmp_path / "lib.so")
    again = vm.VirtualMachine(vm.Executable.load_exec(code, tvm.runtime.load_module(tmp_path / "lib.so")))
    np.testing.assert_array_equal(again.run(f32(7, 16)).numpy(), run.run(f32(7, 16)).numpy())


def test_unknown_dimensions_that_broadcast() -> None:
    x, y = (relay.var(n, shape=(relay.Any(), relay.Any())) for n in "xy")
    exe = relay.vm.compile(tvm.IRModule.from_expr(relay.Function([x, y], relay.add(x, y))), "llvm")
    run = vm.VirtualMachine(exe, tvm.cpu())
    for a, b in (((3, 4), (3, 4)), ((1, 4), (3, 4)), ((3, 1), (1, 4)), ((9, 2), (9, 2)), ((3, 4), (1, 1))):
        np.testing.assert_array_equal(run.run(f32(*a), f32(*b)).numpy(), f32(*a) + f32(*b))
    with pytest.raises((InputError, CompileError)):
        run.run(f32(3, 4), f32(2, 4))


def test_unknown_dimensions_in_a_composite_function() -> None:
    pattern = is_op("nn.dense")(wildcard(), wildcard())
    merged = relay.transform.MergeComposite([("example.dense", pattern)])(dense(relay.Any()))
    run = machine(merged)  # compiled when it is called
    with pytest.raises(CompileError, match="a Function is not supported together with sizes known only at run time"):
        run.run(f32(2, 16))


def test_counts_run_in_stages(tmp_path: Path) -> None:
    x = relay.var("x", shape=(relay.Any(),))
    exe = relay.vm.compile(tvm.IRModule.from_expr(relay.Function([x], relay.argwhere(x))), "llvm")
    run = vm.VirtualMachine(exe, tvm.cpu())
    for value in ([0, 1, 2], [1, 0, 0, 0]):
        np.testing.assert_array_equal(run.run(np.array(value, np.float32)).numpy(), np.argwhere(value))
    lib = exe.save()[1]
    lib.export_library(tmp_path / "lib.tar")
    again = vm.VirtualMachine(vm.Executable.load_exec(exe.save()[0], tvm.runtime.load_module(tmp_path / "lib.tar")))
    np.testing.assert_array_equal(again.run(np.array([0, 1, 2], np.float32)).numpy(), [[1], [2]])
